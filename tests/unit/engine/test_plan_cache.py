"""Which plans from scratch are made again, and which come from the cache."""

from __future__ import annotations

from msgspec.structs import replace

from proxy.cache import CacheMemory
from proxy.core.budget.budget import Budget
from proxy.core.planning.plan import EMPTY
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Conditions, Situation
from proxy.core.policy.policy import Policy
from proxy.engine.flow import Request
from proxy.engine.planning.planning_cache import PlanCache
from proxy.engine.sessions.session_cache import SessionState
from proxy.ports import SessionKey
from tests.support.conversations import assistant, chain_from, from_scratch, user
from tests.support.requests import a_request
from tests.support.upstreams import COUNTER

POLICY = Policy()
CHAT = [said(f"{number} " + "word " * 60) for number in range(20) for said in (user, assistant)]
REQUEST = a_request(
    chain_from([*CHAT, user("and now?")]), Budget(800, 1.0, 10), policy=POLICY, epoch_log=None
)


async def plans_made(first: Request, second: Request, conditions: Conditions = UNKNOWN_CONDITIONS) -> int:
    """How many plans are made for two requests; each gets the one that is its own."""
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return COUNTER.count(text)

    plans, made = PlanCache(CacheMemory()), 0
    for case, given in ((first, UNKNOWN_CONDITIONS), (second, conditions)):
        asked.clear()
        policy = case.incoming.policy
        situation = Situation(case.chain, EMPTY, policy, case.budget, count, given, pins=case.pins)
        assert await plans.of(case.session.tenant, situation) == from_scratch(
            case.chain, case.incoming.policy, case.budget, COUNTER.count, given, case.pins
        )
        made += bool(asked)
    return made


async def test_a_request_that_comes_again_is_planned_from_scratch_once() -> None:
    assert (
        await plans_made(REQUEST, replace(REQUEST, session=SessionState("t", SessionKey("tag", "another"))))
        == 1
    )


async def test_whatever_is_different_is_planned_anew() -> None:
    others = (
        replace(REQUEST, session=SessionState("another", REQUEST.session.key)),
        replace(REQUEST, incoming=replace(REQUEST.incoming, policy=Policy())),
        replace(REQUEST, budget=Budget(900, 1.0, 10)),
        replace(REQUEST, chain=chain_from([*CHAT, user("and then?")])),
        replace(REQUEST, pins=frozenset({REQUEST.chain.hashes[3]})),
    )
    assert [await plans_made(REQUEST, other) for other in others] == [2] * len(others)
    assert await plans_made(REQUEST, REQUEST, Conditions(boundary=True)) == 2


async def test_what_is_read_for_a_plan_from_scratch_is_not_read_again_by_what_goes_on_from_it() -> None:
    situation = Situation(REQUEST.chain, EMPTY, POLICY, REQUEST.budget, COUNTER.count)
    plan, _ = await PlanCache(CacheMemory()).of("t", situation)
    assert 0 < plan.depth <= len(situation.extracted.readings)

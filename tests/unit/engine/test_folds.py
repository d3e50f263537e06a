"""Which folds are made again, and which are not."""

from __future__ import annotations

from msgspec.structs import replace

from proxy.core.budget import Budget
from proxy.core.conditions import UNKNOWN, Conditions
from proxy.core.fold import fold
from proxy.core.policy import Policy
from proxy.engine.case import Case
from proxy.engine.folds import Folds
from proxy.lru import Memory
from proxy.ports import SessionKey
from tests.property.conversations import assistant, chain_from, user
from tests.upstreams import COUNTER

POLICY = Policy()
CHAT = [said(f"{number} " + "word " * 60) for number in range(20) for said in (user, assistant)]
CASE = Case(
    tenant="t",
    key=SessionKey("tag", "sid"),
    lane="lane",
    model="m",
    chain=chain_from([*CHAT, user("and now?")]),
    head_count=0,
    policy=POLICY,
    budget=Budget(800, 1.0, 10),
    epochs=None,
    saved=0,
    credentials=(),
    deadline=0.0,
)


async def folds_made(first: Case, second: Case, conditions: Conditions = UNKNOWN) -> int:
    """How many folds two requests take, of which each gets its own."""
    asked: list[str] = []

    def count(text: str) -> int:
        asked.append(text)
        return COUNTER.count(text)

    folds, made = Folds(count, Memory()), 0
    for case, given in ((first, UNKNOWN), (second, conditions)):
        asked.clear()
        assert await folds.of(case, given) == fold(
            case.chain, case.policy, case.budget, COUNTER.count, given, case.pins
        )
        made += bool(asked)
    return made


async def test_a_request_that_is_asked_again_is_folded_once() -> None:
    assert await folds_made(CASE, replace(CASE, key=SessionKey("tag", "another"))) == 1


async def test_whatever_is_different_is_folded_anew() -> None:
    others = (
        replace(CASE, tenant="another"),
        replace(CASE, policy=Policy()),
        replace(CASE, budget=Budget(900, 1.0, 10)),
        replace(CASE, chain=chain_from([*CHAT, user("and then?")])),
        replace(CASE, pins=frozenset({CASE.chain.hashes[3]})),
    )
    assert [await folds_made(CASE, other) for other in others] == [2] * len(others)
    assert await folds_made(CASE, CASE, Conditions(boundary=True)) == 2

"""`budget.bytes`: no body over its ceiling where anything may be cut, and nothing is cut below it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.upstream import HttptoolsUpstream
from proxy.cache import CacheMemory
from proxy.core.budget.budget import Budget
from proxy.core.conversation.units import request_points
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import EMPTY, Plan, apply
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Budget as Limits
from proxy.core.policy.sections import Keep, Summary
from proxy.engine.flow import Decision
from proxy.engine.intake.naming import Naming
from proxy.engine.planning.decisions import within_bytes
from proxy.engine.planning.epochs import Epochs
from proxy.engine.sessions.session_cache import EpochLog
from proxy.engine.summaries.cached_view import PromptCache
from proxy.engine.summaries.jobs import SummaryJobs
from proxy.engine.summaries.pool import Summaries
from proxy.telemetry import Metrics
from tests.support.asking import asking
from tests.support.conversations import (
    assistant,
    chain_from,
    count,
    is_reduced,
    prose,
    user,
    valid_conversations,
)
from tests.support.requests import a_request
from tests.support.upstreams import giving_way

METRICS = Metrics()
BESIDE = 256
"""Bytes of a body beside its messages."""
KEPT = st.sampled_from([Keep(), Keep(recent=0.0, first_user=False)])


class Clock:
    """A clock that stands."""

    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0


class Counter:
    """The count of these tests, as a port."""

    def count(self, text: str) -> int:
        return count(text)

    async def count_all(self, texts: Sequence[str]) -> list[int]:
        return [count(text) for text in texts]

    async def ready(self) -> None:
        """Nothing is loaded."""


def size(chain: Chain, plan: Plan) -> int:
    return BESIDE + sum(len(raw) + 1 for raw in apply(plan, chain.raws))


@st.composite
def padded(draw: st.DrawFn) -> Chain:
    """A conversation of which some messages have far more bytes than tokens."""
    chain = chain_from(draw(valid_conversations()))
    pads = draw(st.lists(st.sampled_from([0, 0, 0, 300, 5_000]), min_size=8, max_size=8))
    return with_pads(chain, pads)


def with_pads(chain: Chain, pads: Sequence[int]) -> Chain:
    raws = [
        raw[:-1] + b',"x":"' + b"y" * pads[place % len(pads)] + b'"}' for place, raw in enumerate(chain.raws)
    ]
    return replace(chain, raws=raws)


CUT_WHERE_TOKENS_ARE_DENSE = with_pads(
    chain_from([user("so?"), assistant(prose("loud", 80)), user("on?"), assistant(prose("en", 300))]),
    [0, 0, 200],
)
"""What is left after its first epoch has far fewer tokens a byte than what is cut."""


class Engine:
    """What decides, before a store of its own or without one."""

    def __init__(self, policy: Policy, *, has_store: bool) -> None:
        self._policy = policy
        self._has_store = has_store
        clock, store = Clock(), InProcessStore(Clock())
        nowhere = HttptoolsUpstream("http://127.0.0.1:9/v1", connect_timeout=1.0, read_timeout=1.0)
        cached = PromptCache(asking(nowhere), clock, CacheMemory(), CacheMemory())
        summaries = Summaries(
            cached,
            store,
            Counter(),
            giving_way(clock),
            clock,
            METRICS,
            CacheMemory(),
        )
        self._epochs = Epochs(
            store,
            SummaryJobs(summaries, Naming("secret", CacheMemory()), CacheMemory()),
            Counter(),
            clock,
            METRICS,
            CacheMemory(),
        )
        self._known: Decision | None = None

    async def decide(self, chain: Chain, budget: Budget) -> Decision:
        """Decide on the next request of the session."""
        log = (self._known.epoch_log if self._known else EpochLog()) if self._has_store else None
        request = a_request(chain, budget, policy=self._policy, epoch_log=log)
        decide = self._epochs.decide
        first = await decide(request)
        found = await within_bytes(request, first, lambda each: size(chain, each.plan), decide)
        self._known = found
        return found


def requests(chain: Chain) -> Iterator[Chain]:
    return (chain.prefix(length) for length in request_points(chain.messages) if length)


def policy_of(most: int, keep: Keep) -> Policy:
    return Policy(budget=Limits(bytes=most), keep=keep, summary=Summary(enabled=False))


@given(padded(), st.floats(0.1, 1.2), st.floats(0.3, 3.0), KEPT, st.booleans())
def test_a_body_keeps_within_its_ceiling_or_only_what_is_incompressible_is_left(
    chain: Chain, share: float, room: float, keep: Keep, has_store: bool
) -> None:
    assume(len(chain) > 0)
    most = int(share * size(chain, EMPTY)) + BESIDE
    policy, budget = policy_of(most, keep), Budget(int(room * sum(chain.tokens)) + 10, 1.0, 5)

    async def play() -> None:
        engine = Engine(policy, has_store=has_store)
        for request in requests(chain):
            plan = (await engine.decide(request, budget)).plan
            assert size(request, plan) <= most or is_reduced(request, plan, policy, budget)

    asyncio.run(play())


@given(padded(), KEPT)
def test_far_below_its_ceiling_a_body_is_whole(chain: Chain, keep: Keep) -> None:
    assume(len(chain) > 0)
    policy, budget = policy_of(2 * (size(chain, EMPTY) + BESIDE), keep), Budget(10**9, 1.0, 5)

    async def play() -> None:
        engine = Engine(policy, has_store=True)
        for request in requests(chain):
            assert (await engine.decide(request, budget)).plan == EMPTY

    asyncio.run(play())


@given(padded(), st.floats(0.3, 0.9), st.sampled_from([1.0, 1.25, 0.8]))
@example(CUT_WHERE_TOKENS_ARE_DENSE, 0.5, 1.0)
def test_a_body_that_was_cut_for_its_bytes_stays_so(chain: Chain, share: float, ratio: float) -> None:
    assume(len(chain) > 0)
    most = int(share * size(chain, EMPTY)) + BESIDE
    policy, budget = policy_of(most, Keep()), Budget(10**9, ratio, 5)

    async def play() -> None:
        engine = Engine(policy, has_store=True)
        for request in requests(chain):
            first = await engine.decide(request, budget)
            again = await engine.decide(request, budget)
            if size(request, first.plan) + BESIDE <= most:
                assert apply(again.plan, request.raws) == apply(first.plan, request.raws)

    asyncio.run(play())


@given(padded())
def test_tokens_that_are_spread_by_bytes_are_as_many_in_all(chain: Chain) -> None:
    weighed = chain.with_estimated_tokens(EMPTY)
    assert 0 <= sum(weighed.tokens) - sum(chain.tokens) <= len(chain)
    by_bytes = sorted(range(len(chain)), key=lambda place: len(chain.raws[place]))
    assert [weighed.tokens[place] for place in by_bytes] == sorted(weighed.tokens)

"""Law 7: a long gap is read and counted where no other request waits for it."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.upstream import HttptoolsUpstream
from proxy.cache import CacheMemory
from proxy.core.budget.budget import Budget
from proxy.core.extraction.reading import ReadingCache
from proxy.core.planning.plan import Anchor
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Stages, Strategy
from proxy.engine.intake.naming import Naming
from proxy.engine.planning.epochs import Epochs
from proxy.engine.summaries.cached_view import PromptCache
from proxy.engine.summaries.jobs import Declined, Owner, SummaryJobs
from proxy.engine.summaries.pool import Summaries
from proxy.ports import TokenCounter
from proxy.telemetry import Metrics
from tests.support.asking import asking
from tests.support.conversations import assistant, chain_from, user
from tests.support.requests import a_request
from tests.support.servers import PATIENCE
from tests.support.stores import HandClock
from tests.support.upstreams import COUNTER, Model, giving_way, running

TEXT = "We built the bridge of stone, and a boat went under it. "
CHAIN = chain_from([said(f"{n} {TEXT}") for n in range(1_000) for said in (user, assistant)] + [user("And?")])
POLICY = Policy.model_validate({"summary": {"wait": PATIENCE}})
REQUEST = a_request(
    CHAIN,
    Budget(int(CHAIN.tokens.total / 0.95), 1.0, 0),
    policy=POLICY,
    arrived=HandClock().monotonic() + PATIENCE,
)


class NotingCounter:
    """Counts, and notes how many characters in which thread."""

    def __init__(self) -> None:
        self.characters: Counter[int] = Counter()

    def count(self, text: str) -> int:
        self.characters[threading.get_ident()] += len(text)
        return COUNTER.count(text)

    async def count_all(self, texts: Sequence[str]) -> list[int]:
        return await COUNTER.count_all(texts)

    async def ready(self) -> None:
        await COUNTER.ready()


@asynccontextmanager
async def planning(model: Model, counter: TokenCounter) -> AsyncGenerator[Epochs]:
    """What decides on epochs, with summaries by this model."""
    upstream, clock = HttptoolsUpstream(model.url), HandClock()
    store, metrics = InProcessStore(clock), Metrics()
    cached = PromptCache(asking(upstream), clock, CacheMemory(), CacheMemory())
    summaries = Summaries(cached, store, counter, giving_way(clock), clock, metrics, CacheMemory())
    jobs = SummaryJobs(summaries, Naming("secret", CacheMemory()), CacheMemory())
    yield Epochs(store, jobs, counter, clock, metrics, CacheMemory())
    await summaries.aclose()
    await upstream.aclose()


async def test_a_long_gap_is_counted_in_no_thread_in_which_requests_wait() -> None:
    counter = NotingCounter()
    async with running(Model()) as model, planning(model, counter) as epochs:
        decision = await epochs.decide(REQUEST)
        assert decision.summary == "waited"
        assert model.summaries
        here = counter.characters.pop(threading.get_ident(), 0)
        assert counter.characters.total() > 500 * len(TEXT)
        assert here < 10 * len(TEXT)


@pytest.mark.parametrize(
    "policy", [Policy(stages=Stages(max_units=20)), Policy(strategy=Strategy(name="exchanges"))]
)
async def test_nor_is_a_long_conversation_read_there_to_count_its_units_or_exchanges(policy: Policy) -> None:
    chain = chain_from([*CHAIN.raws[:-1], user(f"By {policy.strategy.name}?")])
    request = a_request(chain, Budget(2 * chain.tokens.total, 1.0, 0), policy=policy)
    async with running(Model()) as model, planning(model, COUNTER) as epochs:
        with pytest.MonkeyPatch.context() as known:
            known.setattr("proxy.core.extraction.reading.READINGS", ReadingCache())
            gc.disable()  # or it reads all that other tests have left, in whichever thread
            in_all, here = time.process_time(), time.thread_time()
            await epochs.decide(request)
            in_all, here = time.process_time() - in_all, time.thread_time() - here
            gc.enable()
    assert here < in_all / 3


def test_a_gap_that_was_not_worth_reading_again_is_not_asked_about_before_it_has_grown() -> None:
    declined, owner = Declined(CacheMemory()), Owner.of_request(REQUEST)
    small = Anchor(0, 100, "They spoke.", generation=3)
    assert not declined.holds(owner, small)
    declined.add(owner, small)
    assert [declined.holds(owner, replace(small, end=end)) for end in (50, 100, 124, 125)] == [
        False,
        True,
        True,
        False,
    ]
    assert not declined.holds(owner._replace(lane="other"), small)

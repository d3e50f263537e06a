"""Which summaries are written when there are more than there is room for."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from msgspec.structs import replace

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.upstream import HttptoolsUpstream
from proxy.cache import CacheMemory
from proxy.core.dialects.answers import Ask
from proxy.core.policy.sections import Summary
from proxy.core.summaries.source import Block, Piece, Source
from proxy.engine.models.asking import CallOptions
from proxy.engine.summaries.cached_view import CachedQuestion, PromptCache
from proxy.engine.summaries.job import Job
from proxy.engine.summaries.pool import Summaries
from proxy.telemetry import Metrics
from tests.support.asking import asking
from tests.support.servers import PATIENCE, eventually
from tests.support.stores import DAY, KEY, HandClock
from tests.support.upstreams import BEHIND, COUNTER, JSON, Model, giving_way, plainly, running

TEXT = "We built the bridge of stone. " * 30
WAITED_FOR = Job(
    address="waited for",
    session="t.tag.sid",
    terms="terms",
    source=Source(Piece((Block("user", TEXT),)), COUNTER.count(TEXT), TEXT),
    caller=CallOptions("gpt-test", [], 5.0),
    rules=Summary(),
    max_tokens=100,
    key=KEY,
    ttl=DAY,
    room=1_000,
)
SENT = b'{"model":"gpt-test","messages":[{"role":"user","content":"%s"}]}' % (b"word " * 20_000)
BEHIND_SENT = CachedQuestion(
    tenant="t",
    ask=Ask(task=BEHIND, text="", max_tokens=100, temperature=0.3),
    body=SENT,
    cache_key="",
    cut_part=WAITED_FOR.source.piece,
    cached=0,
    until=float("inf"),
)
NEVER = 3_600.0


def start(summaries: Summaries, job: Job) -> None:
    summaries.start(job.address, lambda: job)


async def test_what_a_request_waits_for_is_written_however_much_waits_for_a_pause() -> None:
    async with running(Model()) as model:
        upstream, clock = HttptoolsUpstream(model.url), HandClock()
        summaries = Summaries(
            PromptCache(asking(upstream), clock, CacheMemory(), CacheMemory()),
            InProcessStore(clock),
            COUNTER,
            giving_way(clock, NEVER),
            clock,
            Metrics(),
            CacheMemory(),
        )
        for number in range(200):
            start(summaries, replace(WAITED_FOR, address=str(number)))
        start(summaries, WAITED_FOR)
        await summaries.wait([WAITED_FOR.address], PATIENCE)
        assert summaries.ready(WAITED_FOR.address)
        assert len(model.summaries) == 1
        await summaries.aclose()
        await upstream.aclose()


@pytest.mark.parametrize("room", [1, 3])
async def test_questions_that_wait_hold_their_requests_within_the_memory_until_it_is_their_turn(
    room: int,
) -> None:
    async with running(Model()) as model:
        upstream, clock = HttptoolsUpstream(model.url), HandClock()
        bodies, foreground = CacheMemory(room * (len(SENT) + 10_000), part=1), giving_way(clock)
        prompts = PromptCache(asking(upstream), clock, CacheMemory(), bodies)
        summaries = Summaries(
            prompts,
            InProcessStore(clock),
            COUNTER,
            foreground,
            clock,
            Metrics(),
            CacheMemory(),
        )
        addresses = [str(number) for number in range(3)]
        with foreground:  # so that nothing is written yet
            for address in addresses:
                job = replace(WAITED_FOR, address=address, cached=BEHIND_SENT)
                start(summaries, job)
                await eventually(partial(prompts.question, job.caller, address))
            assert bodies.held > room * len(SENT)
        await summaries.wait(addresses, PATIENCE)
        assert all(map(summaries.ready, addresses))
        assert bodies.held == 0
        assert sum(len(each.body) > len(SENT) for each in model.summaries) == room
        await summaries.aclose()
        await upstream.aclose()


async def test_what_requests_wait_for_gives_way_to_nothing() -> None:
    async with running(Model()) as model:
        upstream, clock = HttptoolsUpstream(model.url), HandClock()
        foreground = giving_way(clock)
        summaries = Summaries(
            PromptCache(asking(upstream), clock, CacheMemory(), CacheMemory()),
            InProcessStore(clock),
            COUNTER,
            foreground,
            clock,
            Metrics(),
            CacheMemory(),
        )
        with foreground:  # so that nothing is written yet
            for number in range(64):
                start(summaries, replace(WAITED_FOR, address=str(number)))
                await summaries.wait([str(number)], 0)
            start(summaries, WAITED_FOR)
            await summaries.wait([WAITED_FOR.address], 0)
        await summaries.wait(map(str, range(64)), PATIENCE)
        assert all(summaries.ready(str(number)) for number in range(64))
        assert summaries.ready(WAITED_FOR.address) is None
        await summaries.aclose()
        await upstream.aclose()


async def test_what_is_being_written_is_not_read_again_and_never_on_the_event_loop() -> None:
    async with running(Model()) as model:
        upstream, clock = HttptoolsUpstream(model.url), HandClock()
        foreground = giving_way(clock)
        summaries = Summaries(
            PromptCache(asking(upstream), clock, CacheMemory(), CacheMemory()),
            InProcessStore(clock),
            COUNTER,
            foreground,
            clock,
            Metrics(),
            CacheMemory(),
        )
        readers: list[int] = []

        def read() -> Job:
            readers.append(threading.get_ident())
            return WAITED_FOR

        for _ in range(3):
            summaries.start(WAITED_FOR.address, read)
        await summaries.wait([WAITED_FOR.address], PATIENCE)
        summaries.start(WAITED_FOR.address, read)
        assert len(readers) == 1
        assert threading.get_ident() not in readers
        await summaries.aclose()
        await upstream.aclose()


@pytest.mark.parametrize(("status", "minutes"), [(500, 1), (403, 60)])
async def test_what_failed_may_be_tried_again_soon_where_the_reason_passes(status: int, minutes: int) -> None:
    async with running(Model(summary=plainly(status, [JSON], b"{}"))) as model:
        upstream, clock = HttptoolsUpstream(model.url), HandClock()
        summaries = Summaries(
            PromptCache(asking(upstream), clock, CacheMemory(), CacheMemory()),
            InProcessStore(clock),
            COUNTER,
            giving_way(clock),
            clock,
            Metrics(),
            CacheMemory(),
        )
        start(summaries, WAITED_FOR)
        await summaries.wait([WAITED_FOR.address], PATIENCE)
        assert summaries.failure(WAITED_FOR.address) == "refused"
        clock.time += 60 * minutes - 1
        assert not summaries.may_start(WAITED_FOR.address)
        clock.time += 1
        assert summaries.may_start(WAITED_FOR.address)
        await summaries.aclose()
        await upstream.aclose()


async def test_a_lease_is_given_up_where_writing_fails() -> None:
    async with running(Model(summary=plainly(403, [JSON], b"{}"))) as model:
        upstream, clock = HttptoolsUpstream(model.url), HandClock()
        store = InProcessStore(clock)
        summaries = Summaries(
            PromptCache(asking(upstream), clock, CacheMemory(), CacheMemory()),
            store,
            COUNTER,
            giving_way(clock),
            clock,
            Metrics(),
            CacheMemory(),
        )
        start(summaries, WAITED_FOR)
        await summaries.wait([WAITED_FOR.address], PATIENCE)
        assert model.summaries
        assert await store.claim(KEY, WAITED_FOR.address, "next", 60)
        await summaries.aclose()
        await upstream.aclose()

"""What is told of a session without asking the store is what the store would tell, whatever is done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.adapters.stores.redis import RedisStore
from proxy.engine.sessions.session_cache import CachedSession
from proxy.ports import Lookup, LookupResult, Recorded
from tests.support.servers import PATIENCE
from tests.support.store_steps import CHAINS, KEYS, LANES, Step, other_writes
from tests.support.stores import DAY, HandClock, chain, embedded_valkey, run, turn

KEY = KEYS[0]
Deed = Callable[["Worker"], Awaitable[object]]


class Worker:
    """One that recognises sessions and records turns as the engine does."""

    def __init__(self, store: RedisStore) -> None:
        self.store = store
        self.here = CachedSession()
        self.seen: dict[str, int] = {}
        self.skipped = 0

    async def serve(self, names: tuple[str, ...], lane: str, *, complete: bool) -> None:
        """Take a request through a look-up and the turn after it."""
        asked = tuple(reversed(chain(*names[:-1])))
        lookup = Lookup(
            KEY.tag,
            KEY.sid,
            asked,
            asked[:2],
            lane,
            held=KEY.sid,
            epochs=self.seen.get(lane, 0),
            hidden=self.here.hidden_saved,
            injected=b"digest",
        )
        revision = self.store.revision()
        found = self.here.known(lookup, revision, HandClock().now())
        told = await self.store.find(lookup)
        if found is None:
            found = told
            self.here.learn_hidden(found, KEY.sid, held=lookup.hidden)
            self.here.learn_lookup(KEY.sid, lookup, found, revision)
            self.seen[lane] = lookup.epochs + len(found.epochs)
        else:
            self.skipped += 1
            self.compare(found, told, asked)
        known = len(names) - 1 - asked.index(found.known) if found.known else 0
        turned = turn(*names, known=known, headerless=True, complete=complete)
        if await self.store.record(KEY, turned, DAY) is Recorded.KEPT:
            self.here.learn_turn(lane, turned, HandClock().now() + DAY)
        else:
            self.here.lookup = None

    def compare(self, found: LookupResult, told: LookupResult, asked: tuple[bytes, ...]) -> None:
        """Equal in all that a request needs; what an older branch holds may be known to the store alone."""
        assert found.session is not None
        assert told.session is not None
        assert found.session.pins == told.session.pins
        assert found.session.is_compacting == told.session.is_compacting
        assert (found.sid, found.injected, found.injection) == (told.sid, told.injected, told.injection)
        assert (found.epochs, found.hidden, found.has_ended) == (told.epochs, told.hidden, told.has_ended)
        assert found.known is not None
        assert told.known is not None
        assert asked.index(told.known) <= asked.index(found.known)
        assert all(told.counts[each] == count for each, count in found.counts.items() if each in asked[:2])


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with embedded_valkey() as served:
        yield served


async def worker_after(url: str, deeds: Sequence[Deed]) -> Worker:
    store = RedisStore(url, HandClock(), PATIENCE, 1.0, linger=0.0)
    worker = Worker(store)
    try:
        for deed in deeds:
            await deed(worker)
    finally:
        await store.aclose()
    return worker


def request(names: tuple[str, ...], lane: str = "lane", *, complete: bool = True) -> Deed:
    return lambda worker: worker.serve(names, lane, complete=complete)


def write(step: Step) -> Deed:
    return lambda worker: step(worker.store)


lanes = st.sampled_from([LANES[0]] * 5 + LANES)
requests = st.builds(request, st.sampled_from(CHAINS), lanes, complete=st.booleans())
deeds = st.lists(st.one_of(requests, requests, requests, other_writes().map(write)), max_size=30)


@settings(max_examples=100)
@given(deeds)
def test_whatever_is_done_between(url: str, script: list[Deed]) -> None:
    run(url, "FLUSHALL")
    asyncio.run(worker_after(url, script))


def test_turn_after_turn_nobody_asks_once_the_session_is_there(url: str) -> None:
    run(url, "FLUSHALL")
    names = [name for number in range(8) for name in (f"u{number}", f"a{number}")]
    turns = [request(tuple(names[:end])) for end in range(2, 17, 2)]
    assert asyncio.run(worker_after(url, turns)).skipped == len(turns) - 2


def test_what_was_pinned_before_the_first_turn_is_known(url: str) -> None:
    run(url, "FLUSHALL")
    pinned = write(lambda store: store.pin(KEY, [chain("u1")[0]], DAY))
    asyncio.run(worker_after(url, [pinned, request(("u1", "a1")), request(("u1", "a1", "u2", "a2"))]))


def test_while_a_session_is_being_compacted_each_request_asks_whether_it_still_is(url: str) -> None:
    run(url, "FLUSHALL")
    names = [name for number in range(6) for name in (f"u{number}", f"a{number}")]
    first, second, third, fourth, fifth, sixth = (request(tuple(names[:end])) for end in range(2, 13, 2))
    take_place = write(lambda store: store.take_place(KEY, "compact", 8, 10.0))
    leave = write(lambda store: store.leave(KEY, "compact"))
    script = [first, second, take_place, third, fourth, leave, fifth, sixth]
    assert asyncio.run(worker_after(url, script)).skipped == 1, "the last one alone"

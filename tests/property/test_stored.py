"""What is kept of a session's history is what a fresh read says, whatever was done, and by whom."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Generator
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis import keys as names
from proxy.cache import CacheMemory
from proxy.core.conversation.records import Turn
from proxy.core.dialects.registry import CHAT
from proxy.engine.append.append import StoredHistories, StoredHistory
from proxy.errors import HistoryUnavailable
from proxy.ports import Mark, Recorded, SessionKey, SessionStore, Stored
from tests.support.servers import PATIENCE
from tests.support.store_steps import CHAINS, KEYS, Step, moments, writes
from tests.support.stores import DAY, HandClock, chain, embedded_valkey, run, turn

BEGUN = ("u1", "a1")
LONG = [f"t{number}" for number in range(130)]
LASTS = [
    b"",
    *dict.fromkeys(each for told in CHAINS for each in chain(*told)),
    *chain(*BEGUN, *LONG)[2::16],
]
"""Messages to which there may be a way."""


def told(*said: str, known: int = 0, complete: bool = True, bytes_of: str = "one") -> Step:
    """Writes a turn, its messages in the bytes that one client or another sends for them."""
    turned = turn(*said, known=known, complete=complete)
    nodes = tuple(replace(node, raw=node.raw + f" {bytes_of}".encode()) for node in turned.nodes)
    return lambda store: store.record(KEYS[0], replace(turned, nodes=nodes), DAY)


begin = told(*BEGUN)
goes_on = st.builds(
    told,
    st.just("u1"),
    st.sampled_from(["a2", "a2", "a3"]),
    known=st.sampled_from([0, 1]),
    complete=st.booleans(),
    bytes_of=st.sampled_from(["one", "another"]),
)
is_long = st.sampled_from([told(*BEGUN, *LONG[:more], known=2) for more in (3, 63, 64, 65, 130)])
accidents = st.sampled_from(["all", "one", "session"])
"""What is lost of a session."""
readings = st.tuples(st.integers(0, 1), st.lists(st.sampled_from(LASTS), max_size=4))
"""Which of two machines reads the session then, and to which messages."""


Steps = list[tuple[Step | str | float, tuple[int, list[bytes]] | None]]
"""What is done (seconds pass, or something is lost), and the reading after it."""


def ways(history: StoredHistory, lasts: list[bytes]) -> list[object]:
    """The way to each of these messages; None where there is none."""
    found: list[object] = []
    for last in lasts:
        try:
            start, way = history.way(last)
        except HistoryUnavailable:
            found.append(None)
        else:
            found.append((start, bytes(way)))
    return found


async def same(kept: StoredHistory, store: SessionStore, key: SessionKey, lasts: list[bytes]) -> None:
    stored = await store.history(key)
    fresh = StoredHistory(stored, CHAT)
    assert (kept.session, kept.was_here, kept.nodes) == (fresh.session, fresh.was_here, fresh.nodes)
    assert ways(kept, lasts) == [ways(StoredHistory(stored, CHAT), [last])[0] for last in lasts]
    assert kept.weight == fresh.weight


def lose(url: str, part: str) -> None:
    name = names.session(KEYS[0])
    if part == "one":
        for chain_hash in run(url, "HKEYS", name + names.NODES)[:1]:
            run(url, "HDEL", name + names.NODES, chain_hash)
    else:
        run(url, "DEL", name if part == "session" else name + names.NODES)


async def takes_every_step(store: SessionStore, clock: HandClock, script: Steps, url: str = "") -> None:
    machines = [StoredHistories(store, CHAT, CacheMemory()), StoredHistories(store, CHAT, CacheMemory())]
    await begin(store)
    for machine in machines:
        await same(await machine.read(KEYS[0]), store, KEYS[0], [])
    for step, reading in script:
        if isinstance(step, (int, float)):
            clock.time += step
        elif isinstance(step, str):
            lose(url, step)
        else:
            await step(store)
        if reading:
            await same(await machines[reading[0]].read(KEYS[0]), store, KEYS[0], reading[1])
    for machine in machines:
        for key in KEYS:
            await same(await machine.read(key), store, key, LASTS)


def scripts(*steps: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.tuples(st.one_of(*steps), st.none() | readings), min_size=10, max_size=30)


@settings(max_examples=200)
@given(scripts(writes, goes_on, is_long, moments))
def test_in_memory(script: list[Any]) -> None:
    clock = HandClock()
    asyncio.run(takes_every_step(InProcessStore(clock), clock, script))


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with embedded_valkey() as served:
        yield served


@settings(max_examples=100)
@given(scripts(goes_on, goes_on, goes_on, is_long, accidents, writes))
def test_in_valkey_accidents_included(url: str, script: list[Any]) -> None:
    async def take() -> None:
        store = RedisStore(url, HandClock(), PATIENCE, 1.0)
        try:
            await takes_every_step(store, HandClock(), script, url)
        finally:
            await store.aclose()

    run(url, "FLUSHALL")
    asyncio.run(take())


people = st.lists(st.lists(st.one_of(writes, goes_on, st.integers(0, 1)), max_size=8), max_size=6)


class HesitantStore(InProcessStore):
    """Gives way to others now and then, before and after what a reader may meet."""

    def __init__(self, clock: HandClock, chance: random.Random) -> None:
        super().__init__(clock)
        self._chance = chance

    async def _hesitate(self) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)

    async def history(self, key: SessionKey, since: Mark | None = None) -> Stored:
        await self._hesitate()
        stored = await super().history(key, since)
        await self._hesitate()
        return stored

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        await self._hesitate()
        recorded = await super().record(key, turn, ttl)
        await self._hesitate()
        return recorded

    async def delete(self, key: SessionKey) -> bool:
        await self._hesitate()
        was_there = await super().delete(key)
        await self._hesitate()
        return was_there


@settings(max_examples=200)
@given(people, st.integers(0, 2**32))
def test_after_a_crowd(scripts: list[list[Any]], seed: int) -> None:
    chance, clock = random.Random(seed), HandClock()
    store = HesitantStore(clock, chance)
    machines = [StoredHistories(store, CHAT, CacheMemory()), StoredHistories(store, CHAT, CacheMemory())]

    async def act(script: list[Any]) -> None:
        for step in script:
            await (machines[step].read(KEYS[0]) if isinstance(step, int) else cast("Step", step)(store))

    async def meet() -> None:
        await begin(store)
        await asyncio.gather(*map(act, scripts))
        for machine in machines:
            for key in KEYS:
                await same(await machine.read(key), store, key, LASTS)

    asyncio.run(meet())

"""Who follows a scope by its news holds what a fresh read says, and every store says the same."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.adapters.stores.in_process_memories import InProcessMemories
from proxy.adapters.stores.redis import RedisStore
from proxy.core.memory.records import EventKind, Item, Scope, Texts, Thread
from proxy.ports import Changes, MemoryStore
from tests.support.scopes import ABOUT, CHANNEL, ONE, OTHER, THREE, TWO, archived, event, item
from tests.support.servers import PATIENCE
from tests.support.stores import HandClock, embedded_valkey, run

NAMES = ["i1", "i2", "i3", "i4"]
SESSIONS = [ONE, TWO, THREE]

names = st.sampled_from(NAMES)
kinds = st.sampled_from([EventKind.USE, EventKind.SCORE_UPDATE, EventKind.SCORE_UPDATE])
times = st.integers(0, 9).map(float)
scopes = st.sampled_from([CHANNEL, CHANNEL, CHANNEL, OTHER])
changes = st.builds(
    Changes,
    about=st.sampled_from([None, ABOUT]),
    texts=st.sampled_from([None, Texts(long="one"), Texts(short="two")]),
    items=st.dictionaries(names, st.sampled_from([None, *(item("i0", text=text) for text in "abc")])),
    archive=st.dictionaries(names, st.sampled_from([None, archived("i1")]), max_size=2),
    events=st.lists(st.builds(event, names, kinds, times)),
    threads=st.dictionaries(
        st.sampled_from(SESSIONS), st.none() | st.builds(Thread, updated=times, exchanges=st.integers(0, 3))
    ),
)
steps = st.one_of(
    st.tuples(st.just("change"), scopes, changes),
    st.tuples(st.just("change"), scopes, changes),
    st.tuples(st.just("late"), scopes, changes),
    st.tuples(st.just("note"), scopes, st.sampled_from(SESSIONS), times),
    st.tuples(st.just("forget"), scopes),
)


class Follower:
    """A worker, who writes, and holds a copy of each scope that he brings up to date by its news."""

    def __init__(self, memories: MemoryStore) -> None:
        self.memories = memories
        self._held: dict[Scope, tuple[int, dict[str, Item]]] = {}

    async def take(self, kind: str, scope: Scope, what: Any = None, at: float = 0.0) -> object:
        """Whether something was written, or there."""
        if kind == "note":
            return await self.memories.note(scope, what, at, ABOUT)
        if kind == "forget":
            return await self.memories.forget(scope)
        seen = (await self.memories.remembered(scope)).version
        return bool(await self.memories.change(scope, what, seen - (kind == "late")))

    async def follow(self, scope: Scope) -> dict[str, Item]:
        since, held = self._held.get(scope, (0, {}))
        told = await self.memories.remembered(scope, since)
        both = told.items if told.is_whole else {**held, **told.items}
        now = {name: each for name, each in both.items() if each is not None}
        assert now == (await self.memories.remembered(scope)).items
        self._held[scope] = (told.version, now)
        return now

    async def everything(self) -> list[object]:
        told: list[object] = [await self.memories.scopes(9)]
        for scope in (CHANNEL, OTHER):
            remembered = await self.memories.remembered(scope)
            told += [
                remembered.version > 0,
                remembered._replace(version=0),
                await self.follow(scope),
                await self.memories.archive(scope),
                [list(await self.memories.log(scope, name)) for name in NAMES],
                dict(await self.memories.threads(scope, 9)),
            ]
        return told


@pytest.fixture(scope="module")
def url() -> Generator[str]:
    with embedded_valkey() as served:
        yield served


@settings(max_examples=60)
@given(st.lists(st.tuples(steps, st.booleans()), max_size=20))
def test_in_process_and_in_valkey(url: str, script: list[tuple[tuple[Any, ...], bool]]) -> None:
    async def take() -> None:
        store = RedisStore(url, HandClock(), PATIENCE, 1.0)
        here, there = Follower(InProcessMemories(HandClock())), Follower(store.memories)
        for step, follows in script:
            assert await here.take(*step) == await there.take(*step), step
            if follows:
                assert await here.follow(step[1]) == await there.follow(step[1])
        assert await here.everything() == await there.everything()
        await store.aclose()

    run(url, "FLUSHALL")
    asyncio.run(take())

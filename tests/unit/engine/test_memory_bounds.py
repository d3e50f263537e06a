"""What the engine holds of memories has the bounds that an operator has set, and ends with the sessions."""

from __future__ import annotations

import asyncio
import tracemalloc
from contextlib import aclosing
from functools import partial
from pathlib import Path

import pytest

from proxy.adapters.search import SqliteSearch
from proxy.cache import CacheMemory
from proxy.core.memory.lifecycle import used
from proxy.core.memory.records import Scope
from proxy.core.text.words import words_of
from proxy.engine.memory.scope_cache import CachedScope
from proxy.ports import Passage, ScopeSnapshot
from tests.support.clients import user
from tests.support.memories import NOW, an_item
from tests.support.memory_world import MemoryWorld, Writer, memory_world

SESSIONS = 70


def of_many_uses(number: int) -> ScopeSnapshot:
    """A memory of items that many sessions have used."""
    texts = {f"i{place}": f"I keep item{place} in box{place}." for place in range(number)}
    items = {name: an_item(text, id=name) for name, text in texts.items()}
    for session in range(SESSIONS):
        digest = session.to_bytes(8)
        items = {name: used(item, digest, NOW)[0] for name, item in items.items()}
    return ScopeSnapshot(1, None, CachedScope().texts, items, is_whole=True)


def test_a_cached_memory_weighs_what_it_takes_however_often_it_was_used() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        copy = CachedScope().after(of_many_uses(50))
        assert len(copy.passages) == len(copy.items)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert copy.weight / 2 < taken <= copy.weight


async def test_indexes_of_many_memories_stay_within_the_memory_for_caches() -> None:
    memory = CacheMemory(2**20)
    async with aclosing(SqliteSearch(memory)) as search:
        for scope in range(20):
            texts = [f"item{place} of scope{scope} is in box{place}" for place in range(50)]
            passages = [Passage(text.encode(), partial(str, text)) for text in texts]
            assert await search.search(f"memory {scope}", passages, "box7", 1) == [7]
            assert memory.held <= memory.most
        assert 2 < len(memory.order) < 20
    assert memory.held == 0


def test_the_words_of_long_texts_are_not_remembered() -> None:
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(20):
            words_of(" ".join(f"word{number}x{place}" for place in range(1_000)))
        assert tracemalloc.get_traced_memory()[0] - before < 2**18
    finally:
        tracemalloc.stop()


async def say(world: MemoryWorld, session: str, exchanges: int) -> tuple[Scope, str]:
    """A session has a turn after which it has so many exchanges; where, and the work of reading it."""
    request = await world.request(session, "ana", [user(f"I keep item{exchanges} in the box.")])
    exchange = await world.inside.pipeline.prepare(request.incoming)
    key, exchange.answer = exchange.request.session.key, exchange.request.chain.hashes[-1]
    turn = await world.recorded(request, session, "ana", exchanges)
    world.inside.memory_scheduler.turn_recorded(exchange, turn)
    return world.home(request).scope, f"thread {key.tag} {key.sid}"


@pytest.mark.parametrize("exchanges", [1, 9, 10, 11], ids="{} exchanges".format)
async def test_nothing_is_held_of_sessions_that_are_over(exchanges: int, tmp_path: Path) -> None:
    async with memory_world(Writer(), tmp_path, "every = 10", rest=0.05) as world:
        for number in range(3):
            await say(world, f"session {number}", exchanges)
        await world.settled()
        async with asyncio.timeout(30):
            while world.inside.memory_scheduler.held:  # noqa: ASYNC110 - a timer ends it
                await asyncio.sleep(0.01)
        await world.settled()


async def test_of_many_threads_that_are_due_few_are_read_beside_each_other(tmp_path: Path) -> None:
    async with memory_world(Writer(seconds=1.0), tmp_path, "every = 1") as world:
        works = [await say(world, f"session {number}", 1) for number in range(20)]
        await asyncio.sleep(0.5)
        memories = world.outside.store.memories
        are_free = [await memories.claim_work(scope, work, "another", 1.0) for scope, work in works]
        assert 0 < are_free.count(False) <= 8
        await world.settled()

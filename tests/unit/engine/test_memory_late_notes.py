"""A turn of which the store could not take a note is noted later, and so remembered like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.adapters.stores.in_process_memories import InProcessMemories
from proxy.errors import StoreUnavailable
from tests.support.clients import user
from tests.support.memory_world import MemoryWorld, Writer, memory_world
from tests.support.servers import eventually, until

LINE = "I keep the red lamp in the box."


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes fail while this is not empty."""
    reasons, noted = ["a node is away"], InProcessMemories.note

    async def note(*arguments: object, **named: object) -> None:
        if reasons:
            raise StoreUnavailable
        await noted(*arguments, **named)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(InProcessMemories, "note", note)
    return reasons


async def said_in(world: MemoryWorld, session: str) -> None:
    request = await world.request(session, "ana", [user(LINE)])
    exchange = await world.inside.pipeline.prepare(request.incoming)
    exchange.answer = exchange.request.chain.hashes[-1]
    turn = await world.recorded(request, session, "ana", 1)
    world.inside.memory_scheduler.turn_recorded(exchange, turn)
    await world.settled()


async def texts_of_ana(world: MemoryWorld) -> list[str]:
    request = await world.request("another", "ana", [user("Hello?")])
    return [item.text for item in (await world.scope(request)).items.values()]


async def test_the_last_turn_of_a_session_is_remembered_though_it_could_not_be_noted_at_first(
    away: list[str], tmp_path: Path
) -> None:
    async with memory_world(Writer(), tmp_path, "every = 1", rest=0.05) as world:
        await said_in(world, "one")
        assert await texts_of_ana(world) == []
        away.clear()
        await until([LINE], lambda: texts_of_ana(world))


async def test_of_a_session_deleted_before_its_turn_could_be_noted_nothing_is_remembered(
    away: list[str], tmp_path: Path
) -> None:
    async with memory_world(Writer(), tmp_path, "every = 1", rest=0.05) as world:
        await said_in(world, "one")
        (key, _), *_ = (await world.outside.store.sessions(9)).sessions
        await world.outside.store.delete(key)
        away.clear()
        await said_in(world, "two")
        await until([LINE], lambda: texts_of_ana(world))
        await eventually(lambda: not world.inside.memory_scheduler.held)
        request = await world.request("another", "ana", [user("Hello?")])
        assert key not in await world.outside.store.memories.threads(world.home(request).scope, 9)


async def test_what_was_forgotten_before_a_later_turn_could_be_noted_stays_forgotten(
    away: list[str], tmp_path: Path
) -> None:
    async with memory_world(Writer(), tmp_path, "every = 1", rest=0.05) as world:
        reasons, away[:] = [*away], []
        await said_in(world, "one")
        await until([LINE], lambda: texts_of_ana(world))
        away[:] = reasons
        await said_in(world, "one")
        request = await world.request("another", "ana", [user("Hello?")])
        await world.outside.store.memories.forget(world.home(request).scope)
        away.clear()
        await eventually(lambda: not world.inside.memory_scheduler._unnoted)  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: not world.inside.memory_scheduler.held)
        await world.settled()
        assert await texts_of_ana(world) == []

"""What a search of memory brings back: what its session has not been told already."""

from __future__ import annotations

from pathlib import Path

from proxy.core.memory.briefing import IN_THE_NOTE
from proxy.engine.admin.memories import MemoryAdmin
from proxy.engine.memory.reader import SearchedScope
from tests.support.clients import user
from tests.support.memory_world import Writer, memory_world
from tests.support.remembering import note
from tests.support.upstreams import Message, said

ROOM = 1_000
QUESTION = "How was the bridge paid, and where does Ana live?"
BRIDGE = "The bridge in Oslo was paid in cash."


async def test_a_search_does_not_tell_again_what_the_session_began_with(tmp_path: Path) -> None:
    async with memory_world(Writer(), tmp_path) as world:
        await world.converse("one", "ana", [user("I live in Oslo."), said("Good."), user(BRIDGE)])
        request = await world.request("two", "ana", [user(QUESTION)])
        assert BRIDGE in world.told(request)
        assert await world.recalled(request, QUESTION, ROOM) == IN_THE_NOTE
        assert await world.recalled(request, "zebra", ROOM) == ""


async def test_what_an_item_was_made_from_stands_once_in_what_a_search_tells(tmp_path: Path) -> None:
    async with memory_world(Writer(), tmp_path, "inject_tokens = 0") as world:
        await world.converse("one", "ana", [user("I live in Oslo."), said("Good."), user(BRIDGE)])
        request = await world.request("two", "ana", [user(QUESTION)])
        assert world.told(request) == ""
        assert (await world.recalled(request, QUESTION, ROOM)).count(BRIDGE) == 1


async def test_people_find_what_a_recall_tells_and_in_its_order(tmp_path: Path) -> None:
    async with memory_world(Writer(), tmp_path, "inject_tokens = 0") as world:
        await world.converse("one", "ana", [user("I live in Oslo."), said("Good."), user(BRIDGE)])
        await world.converse("two", "ana", [user("The bridge was painted by Ben."), said("I see.")])
        request, inside = await world.request("three", "ana", [user(QUESTION)]), world.inside
        reading, scopes = inside.pipeline.memories, inside.memory_scheduler.writer.scopes
        memories = MemoryAdmin(scopes, world.outside.search, reading, world.clock, lambda _: world.policy)
        (kept,) = (await memories.newest(5)).scopes
        told = (await world.recalled(request, QUESTION, ROOM)).splitlines()
        for name in (kept.id, ""):
            found = await memories.found(name, QUESTION, 50)
            lines = [f"- {line.name}: {line.text}" for line in found.said]
            assert {*lines} == {line for line in told if line.startswith("- ")}
            searched = SearchedScope(kept.scope, kept.copy, world.policy, has_sessions=True)
            by_recall = await reading.search([searched], QUESTION)
            assert [entry.item for entry in found.items] == [item for _, item in by_recall.items]
            assert [*found.said] == [*by_recall.said.values()]


async def test_what_nobody_noted_is_found_in_what_was_said_with_its_neighbours(tmp_path: Path) -> None:
    def nothing(_: str) -> list[Message]:
        return []

    async with memory_world(Writer(nothing), tmp_path) as world:
        await world.converse("one", "ana", [user(BRIDGE), said("By whom?"), user("By Ben.")])
        request = await world.request("two", "ana", [user(QUESTION)])
        found = await world.recalled(request, QUESTION, ROOM)
        assert (BRIDGE in found, "ana: By Ben." in found) == (True, True)


def shortly(_: str) -> list[Message]:
    return [note("The bridge was paid in cash.")]


async def test_only_items_that_are_told_are_used_by_a_search(tmp_path: Path) -> None:
    async with memory_world(Writer(shortly), tmp_path, "inject_tokens = 0") as world:
        await world.converse("one", "ana", [user(BRIDGE)])
        request = await world.request("two", "ana", [user(QUESTION)])
        assert await world.recalled(request, QUESTION, 5) == ""
        await world.settled()
        (item,) = (await world.scope(request)).active
        assert item.access_count == 0
        await world.recalled(request, QUESTION, ROOM)
        await world.settled()
        (item,) = (await world.scope(request)).active
        assert item.access_count == 1


async def test_an_item_is_found_by_what_was_said_beside_it(tmp_path: Path) -> None:
    async with memory_world(Writer(), tmp_path) as world:
        await world.converse("one", "ana", [user("The bridge is old."), user("It was paid in cash.")])
        await world.converse("other", "ana", [user("Tea is served at five.")])
        told = world.told(await world.request("two", "ana", [user("What of the bridge?")]))
        assert ("paid in cash" in told, "Tea" in told) == (True, False)


async def test_of_an_answer_only_what_the_session_was_told_is_left_out_of_what_is_said(
    tmp_path: Path,
) -> None:
    own = "Red would suit the bridge, and cash the crane."
    async with memory_world(Writer(), tmp_path) as world:
        await world.converse("one", "ana", [user(BRIDGE), said("Good."), user("The crane is red.")])
        await world.converse(
            "two", "ana", [user("What of the bridge and the crane?"), said(f"{BRIDGE} {own}")]
        )
        found = await world.recalled(await world.request("three", "ana", [user("Hello.")]), QUESTION, ROOM)
        assert (f"assistant: {own}" in found, found.count(BRIDGE)) == (True, 1)

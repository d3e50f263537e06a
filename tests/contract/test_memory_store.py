"""What every store of memories does: scopes that are read and written by their version."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from proxy.core.memory.records import (
    EventKind,
    Scope,
    ScopeKind,
    Texts,
    Thread,
)
from proxy.ports import Changes, MemoryStore
from proxy.ports.memory_store import TOMBSTONES
from tests.support.scopes import (
    ABOUT,
    ALONE,
    CHANNEL,
    ONE,
    OTHER,
    PERSON,
    THREAD,
    TWO,
    WORKSPACE,
    archived,
    event,
    item,
    items,
    written,
)
from tests.support.stores import DAY, HandClock, pass_time


class TestReading:
    async def test_a_scope_that_nobody_wrote_to_is_empty(self, memories: MemoryStore) -> None:
        assert await memories.remembered(CHANNEL) == (0, None, Texts(), {}, True)
        assert await memories.remembered(CHANNEL, 7) == (0, None, Texts(), {}, True)
        assert await memories.archive(CHANNEL) == {}
        assert list(await memories.log(CHANNEL, "i1")) == []
        assert await memories.threads(CHANNEL, 10) == {}
        assert await memories.thread(CHANNEL, ONE) is None
        assert list(await memories.channels(WORKSPACE)) == []
        assert list(await memories.scopes(10)) == []

    async def test_what_is_written_in_one_step_is_read_back(self, memories: MemoryStore) -> None:
        texts = Texts(long="long ago", short="just now", updated=8.0, read_up_to=7.0)
        standing = item("i2", is_standing=True, superseded_by="i1", used_by=(b"s",), access_count=1)
        thread = Thread(updated=6.0, tip=b"h" * 32, exchanges=3, texts=texts)
        version = await written(
            memories,
            about=ABOUT,
            texts=texts,
            items={"i1": item("i1"), "i2": standing},
            archive={"xi3": archived("i3")},
            events=[event("i1", EventKind.CREATE, after=0.5)],
            threads={ONE: thread},
        )
        told = await memories.remembered(CHANNEL)
        assert told == (version, ABOUT, texts, {"i1": item("i1"), "i2": standing}, True)
        assert await memories.archive(CHANNEL) == {"xi3": archived("i3")}
        assert list(await memories.log(CHANNEL, "i1")) == [event("i1", EventKind.CREATE, after=0.5)]
        assert await memories.threads(CHANNEL, 10) == {ONE: thread}
        assert await memories.thread(CHANNEL, ONE) == thread

    async def test_what_a_change_does_not_name_stays_as_it_is(self, memories: MemoryStore) -> None:
        await written(memories, about=ABOUT, texts=Texts(long="long"), items=items("i1"))
        await written(memories, items=items("i2"))
        told = await memories.remembered(CHANNEL)
        assert (told.about, told.texts, set(told.items)) == (ABOUT, Texts(long="long"), {"i1", "i2"})

    async def test_who_knows_a_version_is_told_of_what_changed_since(self, memories: MemoryStore) -> None:
        await written(memories, items=items("i1", "i2", "i3"))
        first = await written(memories, items=items("i4"))
        newer = replace(item("i2"), importance_score=0.6)
        second = await written(memories, items={"i2": newer, "i3": None})
        told = await memories.remembered(CHANNEL, first)
        assert told == (second, None, Texts(), {"i2": newer, "i3": None}, False)
        assert await memories.remembered(CHANNEL, second) == (second, None, Texts(), {}, False)

    async def test_an_item_that_comes_again_is_there(self, memories: MemoryStore) -> None:
        first = await written(memories, items=items("i1"))
        await written(memories, items={"i1": None})
        await written(memories, items=items("i1"))
        assert (await memories.remembered(CHANNEL, first)).items == items("i1")
        assert (await memories.remembered(CHANNEL)).items == items("i1")

    async def test_deleting_what_is_not_there_is_no_news(self, memories: MemoryStore) -> None:
        first = await written(memories, items=items("i1"))
        await written(memories, items={"i9": None}, archive={"x9": None}, threads={TWO: None})
        assert (await memories.remembered(CHANNEL, first)).items == {}

    async def test_who_missed_more_deletions_than_are_known_reads_all(self, memories: MemoryStore) -> None:
        names = [f"i{number}" for number in range(TOMBSTONES + 1)]
        first = await written(memories, items=items("stays", "goes", *names))
        second = await written(memories, items={"goes": None})
        third = await written(memories, items=dict.fromkeys(names[1:]))
        assert not (await memories.remembered(CHANNEL, second)).is_whole
        await written(memories, items={names[0]: None})
        assert await memories.remembered(CHANNEL, first) == await memories.remembered(CHANNEL)
        assert (await memories.remembered(CHANNEL, first)).items == items("stays")
        assert (await memories.remembered(CHANNEL, third)).items == {names[0]: None}

    async def test_who_comes_from_a_version_that_is_still_to_come_reads_all(
        self, memories: MemoryStore
    ) -> None:
        version = await written(memories, items=items("i1"))
        assert await memories.remembered(CHANNEL, version + 9) == await memories.remembered(CHANNEL)

    async def test_a_change_of_very_many_items_is_told_to_all(self, memories: MemoryStore) -> None:
        first = await written(memories, items=items("old"))
        many = items(*(f"i{number}" for number in range(1_500)))
        await written(memories, items=many)
        told = await memories.remembered(CHANNEL, first)
        assert {name: told.items[name] for name in many} == many

    async def test_scopes_know_nothing_of_each_other(self, memories: MemoryStore) -> None:
        await written(memories, items=items("i1"), events=[event("i1")])
        await memories.note(CHANNEL, ONE, 1.0, ABOUT)
        assert (await memories.remembered(OTHER)).version == 0
        assert list(await memories.log(OTHER, "i1")) == []
        assert await memories.threads(OTHER, 10) == {}


class TestWriting:
    async def test_a_change_on_what_was_not_seen_writes_nothing(self, memories: MemoryStore) -> None:
        version = await written(memories, items=items("i1"))
        late = Changes(
            about=ABOUT,
            texts=Texts(long="late"),
            items={"i1": None},
            archive={"xi1": archived("i1")},
            events=[event("i1")],
            threads={ONE: Thread(updated=1.0)},
        )
        assert await memories.change(CHANNEL, late, version - 1) == 0
        assert await memories.change(CHANNEL, late, 0) == 0
        assert await memories.remembered(CHANNEL) == (version, None, Texts(), items("i1"), True)
        assert await memories.archive(CHANNEL) == {}
        assert list(await memories.log(CHANNEL, "i1")) == []
        assert await memories.threads(CHANNEL, 10) == {}

    async def test_a_change_that_is_repeated_is_not_written_twice(self, memories: MemoryStore) -> None:
        changes = Changes(items=items("i1"), events=[event("i1")])
        version = await memories.change(CHANNEL, changes, 0)
        assert await memories.change(CHANNEL, changes, 0) == 0
        assert (await memories.remembered(CHANNEL)).version == version
        assert len(await memories.log(CHANNEL, "i1")) == 1

    async def test_of_those_who_race_each_gets_in_once(self, memories: MemoryStore) -> None:
        async def add(name: str) -> None:
            while not await memories.change(
                CHANNEL, Changes(items=items(name)), (await memories.remembered(CHANNEL)).version
            ):
                pass

        names = [f"i{number}" for number in range(12)]
        await asyncio.gather(*map(add, names))
        assert (await memories.remembered(CHANNEL)).items == items(*names)

    async def test_an_archived_item_is_there_until_it_is_deleted(self, memories: MemoryStore) -> None:
        await written(memories, items={"i1": None}, archive={"xi1": archived("i1"), "xi2": archived("i2")})
        await written(memories, archive={"xi1": None})
        assert await memories.archive(CHANNEL) == {"xi2": archived("i2")}


class TestScopes:
    async def test_they_are_listed_by_their_last_change(self, memories: MemoryStore) -> None:
        for scope in (CHANNEL, PERSON, WORKSPACE):
            await written(memories, scope, about=ALONE)
        await memories.note(CHANNEL, ONE, 5.0, ABOUT)
        assert list(await memories.scopes(9)) == [CHANNEL, WORKSPACE, PERSON]
        assert list(await memories.scopes(2)) == [CHANNEL, WORKSPACE]
        assert list(await memories.scopes(0)) == []

    async def test_a_workspace_knows_the_channels_in_it(self, memories: MemoryStore) -> None:
        await memories.note(CHANNEL, ONE, 5.0, ABOUT)
        await written(memories, OTHER, about=ABOUT)
        await written(memories, Scope(ScopeKind.CHANNEL, "c3"), about=ALONE)
        assert sorted(await memories.channels(WORKSPACE)) == [CHANNEL, OTHER]
        assert [await memories.workspace_of(each) for each in (CHANNEL, OTHER)] == [WORKSPACE.tag] * 2
        assert await memories.workspace_of(Scope(ScopeKind.CHANNEL, "c3")) == ""
        await memories.forget(OTHER)
        assert await memories.workspace_of(OTHER) == ""
        assert list(await memories.channels(WORKSPACE)) == [CHANNEL]

    async def test_the_scope_of_a_thread_ends_with_its_time(
        self, memories: MemoryStore, clock: HandClock
    ) -> None:
        await memories.note(THREAD, ONE, 5.0, ALONE, ttl=0.4)
        seen = (await memories.remembered(THREAD)).version
        assert await memories.change(THREAD, Changes(items=items("i1")), seen)
        await pass_time(clock, 0.5)
        assert await memories.remembered(THREAD) == (0, None, Texts(), {}, True)
        await memories.note(PERSON, ONE, 5.0, ALONE)
        assert list(await memories.scopes(9)) == [PERSON]

    async def test_the_scope_of_a_thread_lives_as_long_as_it_has_turns_whatever_is_changed_in_it(
        self, memories: MemoryStore, clock: HandClock
    ) -> None:
        for _ in range(2):
            await memories.note(THREAD, ONE, 5.0, ALONE, ttl=1.5)
            await pass_time(clock, 0.8)
        everything = Changes(about=ALONE, texts=Texts(long="one"), items=items("i1"), events=[event("i1")])
        assert await memories.change(THREAD, everything, (await memories.remembered(THREAD)).version)
        assert list(await memories.scopes(9)) == [THREAD]
        await pass_time(clock, 0.8)
        assert await memories.remembered(THREAD) == (0, None, Texts(), {}, True)
        assert list(await memories.log(THREAD, "i1")) == []
        await memories.note(PERSON, ONE, 5.0, ALONE)
        assert list(await memories.scopes(9)) == [PERSON]

    async def test_what_is_forgotten_is_gone(self, memories: MemoryStore) -> None:
        await written(memories, about=ABOUT, items=items("i1"), events=[event("i1")])
        await memories.note(CHANNEL, ONE, 5.0, ABOUT)
        assert await memories.forget(CHANNEL)
        assert not await memories.forget(CHANNEL)
        assert await memories.remembered(CHANNEL) == (0, None, Texts(), {}, True)
        assert list(await memories.log(CHANNEL, "i1")) == []
        assert await memories.threads(CHANNEL, 9) == {}
        assert list(await memories.scopes(9)) == []

    async def test_who_read_a_scope_without_a_record_about_itself_learns_of_it_once_it_has_one(
        self, memories: MemoryStore
    ) -> None:
        seen = await written(memories, items=items("i1"))
        await memories.note(CHANNEL, ONE, 5.0, ABOUT)
        told = await memories.remembered(CHANNEL, seen)
        assert (told.version > seen, told.about) == (True, ABOUT)
        await memories.note(CHANNEL, ONE, 6.0, ALONE)
        assert (await memories.remembered(CHANNEL)).version == told.version

    async def test_work_under_way_writes_nothing_into_what_was_forgotten(self, memories: MemoryStore) -> None:
        await memories.note(CHANNEL, ONE, 5.0, ABOUT)
        seen = (await memories.remembered(CHANNEL)).version
        await memories.forget(CHANNEL)
        assert not await memories.change(CHANNEL, Changes(items=items("i1")), seen)
        await memories.note(CHANNEL, TWO, 6.0, ABOUT)
        assert not await memories.change(CHANNEL, Changes(items=items("i1")), seen)

    async def test_who_knew_what_was_forgotten_learns_that_it_is_gone(self, memories: MemoryStore) -> None:
        old = await written(memories, items=items("i1", "i2"))
        await memories.forget(CHANNEL)
        await written(memories, items=items("i3"))
        told = await memories.remembered(CHANNEL, old)
        assert (told.items, told.is_whole) == (items("i3"), True)


class TestWork:
    async def test_one_worker_at_a_time_has_a_lease(self, memories: MemoryStore) -> None:
        assert await memories.claim_work(CHANNEL, "daily 2026-11-24", "one", 60)
        assert not await memories.claim_work(CHANNEL, "daily 2026-11-24", "two", 60)
        assert await memories.claim_work(CHANNEL, "daily 2026-11-24", "one", 60)
        assert await memories.claim_work(CHANNEL, "daily 2026-11-25", "two", 60)
        assert await memories.claim_work(OTHER, "daily 2026-11-24", "two", 60)

    async def test_work_that_is_done_for_days_is_not_taken_by_who_asks_for_seconds(
        self, memories: MemoryStore
    ) -> None:
        assert await memories.claim_work(CHANNEL, "daily", "one", 2 * DAY, longest=2 * DAY)
        assert not await memories.claim_work(CHANNEL, "daily", "two", 15, longest=2 * DAY)

    async def test_a_lease_ends(self, memories: MemoryStore, clock: HandClock) -> None:
        assert await memories.claim_work(CHANNEL, "items", "one", 0.2)
        await pass_time(clock, 0.3)
        assert await memories.claim_work(CHANNEL, "items", "two", 60)

    async def test_a_lease_is_given_back_by_who_has_it(self, memories: MemoryStore) -> None:
        assert await memories.claim_work(CHANNEL, "items", "one", 60)
        await memories.release_work(CHANNEL, "items", "two")
        assert not await memories.claim_work(CHANNEL, "items", "two", 60)
        await memories.release_work(CHANNEL, "items", "one")
        assert await memories.claim_work(CHANNEL, "items", "two", 60)

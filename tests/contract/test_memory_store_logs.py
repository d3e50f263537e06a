"""What every store of memories keeps beside items: their logs, and the sessions that a scope remembers of."""

from __future__ import annotations

from msgspec.structs import replace

from proxy.core.memory.records import (
    Event,
    EventKind,
    Texts,
    Thread,
)
from proxy.ports import Changes, MemoryStore, SessionKey
from proxy.ports.memory_store import DELETED_LOG_LIFE, DELETED_LOGS, LATE, LOGGED, LOGS, THREADS
from tests.support.scopes import (
    ABOUT,
    CHANNEL,
    ONE,
    THREE,
    TWO,
    event,
    items,
    written,
)


class TestLog:
    async def test_a_log_tells_what_became_of_one_item_in_order(self, memories: MemoryStore) -> None:
        kinds = [EventKind.CREATE, EventKind.USE, EventKind.ARCHIVE, EventKind.DELETE]
        for number, kind in enumerate(kinds):
            await written(memories, events=[event("i1", kind, at=number), event("i2", at=number)])
        log = await memories.log(CHANNEL, "i1")
        assert [(each.kind, each.at, each.item) for each in log] == [
            (kind, number, "i1") for number, kind in enumerate(kinds)
        ]

    async def test_score_updates_that_follow_each_other_are_one(self, memories: MemoryStore) -> None:
        def scored(at: int) -> Event:
            return event("i1", EventKind.SCORE_UPDATE, at, before=1 - at / 10, after=1 - (at + 1) / 10)

        for at in range(4):
            await written(memories, events=[scored(at)])
        await written(memories, events=[event("i1", at=4.0), scored(5), scored(6)])
        log = [(each.kind, each.at, each.before, each.after) for each in await memories.log(CHANNEL, "i1")]
        assert log == [
            (EventKind.SCORE_UPDATE, 3.0, 1.0, 0.6),
            (EventKind.USE, 4.0, None, None),
            (EventKind.SCORE_UPDATE, 6.0, 0.5, 1 - 7 / 10),
        ]

    async def test_score_updates_push_no_other_event_out(self, memories: MemoryStore) -> None:
        events = [event("i1", EventKind.CREATE), event("i1", EventKind.USE)]
        updates = [event("i1", EventKind.SCORE_UPDATE, at=day) for day in range(LOGGED + 50)]
        await written(memories, events=[*events, *updates])
        kinds = [each.kind for each in await memories.log(CHANNEL, "i1")]
        assert kinds == [EventKind.CREATE, EventKind.USE, EventKind.SCORE_UPDATE]

    async def test_a_long_log_keeps_its_first_event_and_the_newest(self, memories: MemoryStore) -> None:
        await written(memories, events=[event("i1", at=at) for at in range(LOGGED + 50)])
        times = [each.at for each in await memories.log(CHANNEL, "i1")]
        assert times == [0.0, *range(51, LOGGED + 50)]

    async def test_the_logs_of_items_to_which_nothing_happens_end(self, memories: MemoryStore) -> None:
        await written(memories, events=[event("old"), event("used")])
        await written(memories, events=[event("used")])
        for part in range(4):
            numbers = range(part * LOGS // 4, (part + 1) * LOGS // 4 - (part == 3))
            await written(memories, events=[event(f"i{number}") for number in numbers])
        assert list(await memories.log(CHANNEL, "old")) == []
        assert len(await memories.log(CHANNEL, "used")) == 2
        assert len(await memories.log(CHANNEL, "i0")) == 1

    async def test_the_logs_of_deleted_items_end_sooner_and_push_no_other_out(
        self, memories: MemoryStore
    ) -> None:
        deleted = [event(f"d{number}", EventKind.DELETE) for number in range(DELETED_LOGS + 1)]
        await written(memories, events=[event("there"), event("d0"), event("back", EventKind.DELETE)])
        await written(memories, events=[event("back", EventKind.CREATE), *deleted])
        assert list(await memories.log(CHANNEL, "d0")) == []
        assert len(await memories.log(CHANNEL, "there")) == 1
        assert len(await memories.log(CHANNEL, "back")) == 2
        assert len(await memories.log(CHANNEL, f"d{DELETED_LOGS}")) == 1

    async def test_the_log_of_a_deleted_item_lives_for_some_time(self, memories: MemoryStore) -> None:
        await written(memories, events=[event("there", at=0.0), event("gone", EventKind.DELETE, at=100.0)])
        await written(memories, events=[event("other", EventKind.DELETE, at=99.0 + DELETED_LOG_LIFE)])
        assert len(await memories.log(CHANNEL, "gone")) == 1
        await written(memories, events=[event("there", at=100.0 + DELETED_LOG_LIFE)])
        assert list(await memories.log(CHANNEL, "gone")) == []
        assert len(await memories.log(CHANNEL, "other")) == 1
        assert len(await memories.log(CHANNEL, "there")) == 2


class TestThreads:
    async def test_a_session_that_had_a_turn_is_noted(self, memories: MemoryStore) -> None:
        await memories.note(CHANNEL, ONE, 5.0, ABOUT)
        told = await memories.remembered(CHANNEL)
        assert told.version > 0
        assert (told.about, told.items) == (ABOUT, {})
        assert await memories.thread(CHANNEL, ONE) == Thread(updated=5.0)

    async def test_noting_a_turn_voids_nobodys_change(self, memories: MemoryStore) -> None:
        version = await written(memories, about=replace(ABOUT, model="n"))
        await memories.note(CHANNEL, ONE, 5.0, ABOUT)
        assert await memories.change(CHANNEL, Changes(items=items("i1")), version) > version
        assert (await memories.remembered(CHANNEL)).about == replace(ABOUT, model="n")

    async def test_what_was_read_of_a_session_stays_when_it_goes_on(self, memories: MemoryStore) -> None:
        read = Thread(updated=5.0, tip=b"tip", exchanges=2, texts=Texts(long="long"))
        await written(memories, threads={ONE: read})
        await memories.note(CHANNEL, ONE, 9.0, ABOUT)
        assert await memories.thread(CHANNEL, ONE) == replace(read, updated=9.0)
        await memories.note(CHANNEL, ONE, 8.0, ABOUT)  # it comes late, and is news all the same
        await written(memories, threads={ONE: replace(read, tip=b"later")})
        assert await memories.thread(CHANNEL, ONE) == replace(read, updated=9.0 + LATE, tip=b"later")
        await memories.note(CHANNEL, ONE, 9.0 + LATE, ABOUT)  # the same turn again is none
        assert await memories.thread(CHANNEL, ONE) == replace(read, updated=9.0 + LATE, tip=b"later")

    async def test_those_with_the_newest_turns_come_first(self, memories: MemoryStore) -> None:
        for session, at in ((ONE, 5.0), (TWO, 9.0), (THREE, 7.0)):
            await memories.note(CHANNEL, session, at, ABOUT)
        assert list(await memories.threads(CHANNEL, 2)) == [TWO, THREE]
        assert list(await memories.threads(CHANNEL, 9)) == [TWO, THREE, ONE]
        assert await memories.threads(CHANNEL, 0) == {}
        await written(memories, threads={TWO: None})
        assert list(await memories.threads(CHANNEL, 9)) == [THREE, ONE]

    async def test_of_too_many_those_that_rested_longest_are_no_more_known(
        self, memories: MemoryStore
    ) -> None:
        many = {SessionKey(f"a{number}", "named"): Thread(updated=number) for number in range(THREADS + 1)}
        await written(memories, threads=many)
        assert await memories.thread(CHANNEL, SessionKey("a0", "named")) is None
        assert len(await memories.threads(CHANNEL, THREADS + 9)) == THREADS
        await memories.note(CHANNEL, ONE, 1e6, ABOUT)
        assert len(await memories.threads(CHANNEL, THREADS + 9)) == THREADS

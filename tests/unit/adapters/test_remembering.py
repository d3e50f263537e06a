"""What a store that remembers answers by itself, and what it asks of the store behind it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.adapters.memory import MemoryStore
from proxy.adapters.remembering import RememberingStore
from proxy.core.records import Turn
from proxy.errors import StoreUnavailable
from proxy.lru import Memory
from proxy.ports import Found, Lookup, Recorded, SessionKey, Written
from tests.stores import DAY, KEY, OTHER, HandClock, chain, epoch, found, hidden, lookup, turn
from tests.watching import WatchedStore

Write = Callable[[RememberingStore], Awaitable[object]]


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def behind(clock: HandClock) -> WatchedStore:
    return WatchedStore(MemoryStore(clock))


@pytest.fixture
def store(behind: WatchedStore, clock: HandClock) -> RememberingStore:
    return RememberingStore(behind, clock, Memory())


async def known(store: RememberingStore, *names: str, **members: Any) -> None:
    """Record a turn, and ask about it once."""
    await store.record(KEY, turn(*(names or ("u1", "a1")), **members), DAY)
    await found(store, "u1", "a1")


async def hearing_late(clock: HandClock) -> RememberingStore:
    """A store with a session that is known; it hears the next answer from behind it late."""
    pauses = itertools.chain([0] * 4, [0, 9], itertools.repeat(0))
    behind = WatchedStore(MemoryStore(clock), pauses=lambda: next(pauses))
    store = RememberingStore(behind, clock, Memory())
    await behind.record(KEY, turn("u1", "a1"), DAY)
    await found(store, "u1", "a1")
    return store


class TestNextTurn:
    async def test_is_told_at_once_where_the_session_is_known(
        self, store: RememberingStore, behind: WatchedStore
    ) -> None:
        await behind.record(KEY, turn("u1", "a1"), DAY)
        asked = lookup("u1", "a1", "u2")
        assert store.known(asked) is None, "nobody has asked yet"
        answer = await store.find(asked)
        assert store.known(asked) == answer
        assert store.known(replace(asked, lane="another")) is None
        assert store.known(replace(asked, sid=None)) is None, "others may have given the answer too"
        assert behind.finds == 1

    async def test_of_a_session_that_was_begun_here_needs_no_look_up(
        self, store: RememberingStore, behind: WatchedStore
    ) -> None:
        assert await found(store, "u1") == Found()
        await store.record(KEY, turn("u1", "a1"), DAY)
        asked = behind.finds
        for names in (["u1", "a1", "u2", "a2"], ["u1", "a1", "u2", "a2", "u3", "a3"]):
            answer = await found(store, *names[:-1])
            assert answer.known == chain(*names)[-3]
            await store.record(KEY, turn(*names, known=len(names) - 2), DAY)
        assert behind.finds == asked == 1

    async def test_of_a_session_without_a_header_that_was_begun_here_needs_no_look_up(
        self, store: RememberingStore, behind: WatchedStore
    ) -> None:
        assert await found(store, "u1", sid=None, fresh=KEY.sid) == Found()
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        answer = await found(store, "u1", "a1", "u2")
        assert answer == await found(behind, "u1", "a1", "u2")
        assert behind.finds == 2, "the first, and ours"

    async def test_of_a_session_that_its_chain_has_found_is_asked_about(
        self, store: RememberingStore, behind: WatchedStore
    ) -> None:
        await behind.record(KEY, turn("u1", "a1", headerless=True), DAY)
        assert (await found(store, "u1", "a1", "u2", sid=None, fresh=OTHER.sid)).sid == KEY.sid
        assert store.known(lookup("u1", "a1", "u2")) is None
        assert store.known(lookup("u1", "a1", "u2", sid=OTHER.sid)) is None

    async def test_of_a_session_of_before_is_asked_about_once(
        self, store: RememberingStore, behind: WatchedStore
    ) -> None:
        await behind.record(KEY, turn("u1", "a1"), DAY)
        for _ in range(3):
            assert (await found(store, "u1", "a1", "u2")).known == chain("u1", "a1")[-1]
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        assert (await found(store, "u1", "a1", "u2", "a2", "u3")).known == chain("u1", "a1", "u2", "a2")[-1]
        assert behind.finds == 1

    async def test_of_another_lane_is_asked_about_once(
        self, store: RememberingStore, behind: WatchedStore
    ) -> None:
        await known(store)
        asked = behind.finds
        for _ in range(3):
            await found(store, "u1", "a1", lane="other")
            await found(store, "u1", "a1")
        assert behind.finds == asked + 1

    async def test_is_asked_about_where_no_header_names_its_session(
        self, store: RememberingStore, behind: WatchedStore
    ) -> None:
        await known(store, headerless=True)
        asked = behind.finds
        assert (await found(store, "u1", "a1", sid=None)).sid == KEY.sid
        assert behind.finds == asked + 1


class TestPlans:
    async def test_an_epoch_is_told_to_who_has_not_seen_it_and_to_nobody_twice(
        self, store: RememberingStore
    ) -> None:
        await known(store)
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        for seen in ((KEY.sid, 0), ("another", 1), ("another", 0)):
            assert (await found(store, "u1", "a1", seen=seen)).epochs == (epoch("e1"),)
        assert (await found(store, "u1", "a1", seen=(KEY.sid, 1))).epochs == ()
        await store.begin_epoch(KEY, epoch("e2"), 1, DAY)
        assert (await found(store, "u1", "a1", seen=(KEY.sid, 1))).epochs == (epoch("e2"),)
        assert (await found(store, "u1", "a1", seen=(KEY.sid, 2))).epochs == ()

    async def test_the_request_after_an_epoch_needs_no_look_up(
        self, store: RememberingStore, behind: WatchedStore
    ) -> None:
        await known(store)
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        asked = behind.finds
        assert (await found(store, "u1", "a1", seen=(KEY.sid, 1))).epochs == ()
        assert behind.finds == asked

    async def test_answers_with_hidden_calls_are_told_to_who_has_not_seen_them(
        self, store: RememberingStore
    ) -> None:
        await known(store)
        await store.keep_hidden(KEY, hidden("u1", "a1"), DAY)
        for _ in range(2):
            assert (await found(store, "u1", "a1")).hidden == (hidden("u1", "a1"),)
            assert (await found(store, "u1", "a1", hidden_seen=("another", 1))).hidden != ()
            assert (await found(store, "u1", "a1", hidden_seen=(KEY.sid, 1))).hidden == ()


WRITES: dict[str, Write] = {
    "pin": lambda store: store.pin(KEY, chain("u1"), DAY),
    "pause": lambda store: store.pause(KEY, paused=True),
    "inject": lambda store: store.inject(KEY, b"digest", b"text", DAY),
    "keep_hidden": lambda store: store.keep_hidden(KEY, hidden("u1", "a1"), DAY),
    "mark_unsaved": lambda store: store.mark_unsaved(KEY, chain("u1", "a1")[-1]),
    "begin_epoch": lambda store: store.begin_epoch(KEY, epoch("e1"), 0, DAY),
    "a turn of other words": lambda store: store.record(KEY, turn("u9", "a9", model="new"), DAY),
    "a turn that is whole now": lambda store: store.record(KEY, whole(), DAY),
    "delete": lambda store: store.delete(KEY),
}


def whole() -> Turn:
    """The turn of :func:`known` with an answer that is longer than what had come of it."""
    told = turn("u1", "a1")
    return replace(told, nodes=(told.nodes[0], replace(told.nodes[1], tokens=99)))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_what_a_write_has_changed_is_found_changed(
    write: Write, store: RememberingStore, behind: WatchedStore
) -> None:
    await known(store, complete=False)
    before = await found(store, "u1", "a1")
    await write(store)
    after = [await found(store, "u1", "a1") for _ in range(2)]
    assert after == [await behind.find(lookup("u1", "a1"))] * 2
    assert after[0] != before


class TestEnds:
    @pytest.mark.parametrize("write", ["begin_epoch", "keep_summary", "record"])
    async def test_a_session_is_known_no_longer_than_it_lives(
        self, write: str, store: RememberingStore, clock: HandClock
    ) -> None:
        await known(store)
        short: dict[str, Write] = {
            "begin_epoch": lambda store: store.begin_epoch(KEY, epoch("e1"), 0, 20.0),
            "keep_summary": lambda store: store.keep_summary(KEY, "one", "text", 20.0),
            "record": lambda store: store.record(KEY, turn("u1", "a1"), 20.0),
        }
        await short[write](store)
        assert (await found(store, "u1", "a1")).session is not None
        clock.time += 20.0
        assert await found(store, "u1", "a1") == Found(was_here=True)

    async def test_one_that_was_only_read_is_known_no_longer_than_it_lives_either(
        self, store: RememberingStore, behind: WatchedStore, clock: HandClock
    ) -> None:
        await behind.record(KEY, turn("u1", "a1"), 20.0)
        clock.time += 10.0
        assert (await found(store, "u1", "a1")).session is not None
        clock.time += 10.0
        assert await found(store, "u1", "a1") == Found(was_here=True)

    async def test_a_turn_of_a_session_that_is_not_there_any_more_leaves_nothing_known(
        self, store: RememberingStore, behind: WatchedStore
    ) -> None:
        await known(store)
        await behind.delete(KEY)  # as by a store that came back without its last second
        assert await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY) is Recorded.TORN
        assert await found(store, "u1", "a1") == Found(was_here=True)

    async def test_a_turn_of_a_session_that_has_begun_anew_leaves_nothing_known(
        self, store: RememberingStore, behind: WatchedStore
    ) -> None:
        await known(store)
        await behind.delete(KEY)
        assert await store.record(KEY, turn("u5", "a5"), DAY) is Recorded.KEPT
        assert (await found(store, "u1", "a1")).known is None

    async def test_what_was_moved_under_new_names_is_asked_about(
        self, store: RememberingStore, behind: WatchedStore
    ) -> None:
        class Moving(WatchedStore):
            async def move(self, former: str, tag: str, tenant: str) -> bool:
                return True

        moving = RememberingStore(Moving(behind), HandClock(), Memory())
        await known(moving)
        asked = behind.finds
        assert await moving.move("former", KEY.tag, "t")
        await found(moving, "u1", "a1")
        assert behind.finds == asked + 1


class Failing(WatchedStore):
    """Fails where it is told to, before or after it has done what it was asked."""

    fails = ""
    away = False

    @property
    def is_left_alone(self) -> bool:
        return self.away

    async def write(self, key: SessionKey, turn: Turn, ttl: float) -> Written:
        if self.fails == "before":
            raise StoreUnavailable
        written = await super().write(key, turn, ttl)
        if self.fails == "after":
            raise StoreUnavailable
        return written

    async def find(self, lookup: Lookup) -> Found:
        if self.away:
            raise StoreUnavailable
        return await super().find(lookup)


class TestFaults:
    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_after_a_write_of_unknown_outcome_the_store_is_asked(
        self, when: str, clock: HandClock
    ) -> None:
        behind = Failing(MemoryStore(clock))
        store = RememberingStore(behind, clock, Memory())
        await known(store)
        behind.fails = when
        with pytest.raises(StoreUnavailable):
            await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        answer = await found(store, "u1", "a1", "u2", "a2")
        assert answer.known == chain("u1", "a1", "u2", "a2")[1 if when == "before" else 3]

    async def test_a_fault_of_one_session_puts_all_others_in_doubt(self, clock: HandClock) -> None:
        behind = Failing(MemoryStore(clock))
        store = RememberingStore(behind, clock, Memory())
        await known(store)
        behind.fails = "before"
        with pytest.raises(StoreUnavailable):
            await store.record(OTHER, turn("u1", "a1"), DAY)
        asked = behind.finds
        await found(store, "u1", "a1")
        assert behind.finds == asked + 1

    async def test_a_store_that_is_away_is_not_stood_in_for(self, clock: HandClock) -> None:
        behind = Failing(MemoryStore(clock))
        store = RememberingStore(behind, clock, Memory())
        await known(store)
        behind.away = True
        with pytest.raises(StoreUnavailable):
            await found(store, "u1", "a1")

    async def test_after_a_write_whose_caller_has_left_the_store_is_asked(self, clock: HandClock) -> None:
        behind = WatchedStore(MemoryStore(clock), pauses=lambda: 2)
        store = RememberingStore(behind, clock, Memory())
        await known(store)
        left = asyncio.create_task(store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY))
        for _ in range(4):  # it is written, and has not been answered
            await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])
        assert left.cancelled()
        assert (await found(store, "u1", "a1", "u2", "a2")).known == chain("u1", "a1", "u2", "a2")[-1]


class TestCrowd:
    async def test_who_asks_while_a_session_is_being_deleted_leaves_nothing_known_of_it(
        self, clock: HandClock
    ) -> None:
        pauses = itertools.chain([0, 0, 0, 9], itertools.repeat(0))
        behind = WatchedStore(MemoryStore(clock), pauses=lambda: next(pauses))
        store = RememberingStore(behind, clock, Memory())
        await behind.record(KEY, turn("u1", "a1"), DAY)
        asking = asyncio.create_task(found(store, "u1", "a1"))
        await asyncio.sleep(0)  # it is answered, and has not heard
        await store.delete(KEY)
        assert not asking.done()
        assert (await asking).session is not None
        assert await found(store, "u1", "a1") == Found(was_here=True)
        await store.record(KEY, turn("u5", "a5"), DAY)
        assert (await found(store, "u1", "a1", "u5", "a5")).known is None

    async def test_an_epoch_that_begins_while_its_lane_is_being_read_is_not_missed(
        self, clock: HandClock
    ) -> None:
        store = await hearing_late(clock)
        asking = asyncio.create_task(found(store, "u1", "a1", lane="other"))
        await asyncio.sleep(0)  # it is answered, and has not heard
        await store.begin_epoch(KEY, epoch("e1", lane="other"), 0, DAY)
        assert not asking.done()
        assert (await asking).epochs == ()
        for _ in range(2):
            answer = await found(store, "u1", "a1", lane="other")
            assert answer.epochs == (epoch("e1", lane="other"),)

    async def test_of_two_epochs_whose_replies_come_in_another_order_neither_is_missed(
        self, clock: HandClock
    ) -> None:
        store = await hearing_late(clock)
        first = asyncio.create_task(store.begin_epoch(KEY, epoch("e1"), 0, DAY))
        await asyncio.sleep(0)
        await store.begin_epoch(KEY, epoch("e2"), 1, DAY)
        assert not first.done()
        await first
        for _ in range(2):
            assert (await found(store, "u1", "a1", seen=(KEY.sid, 1))).epochs == (epoch("e2"),)

    async def test_of_two_writes_at_once_the_shorter_life_is_believed(self, clock: HandClock) -> None:
        store = await hearing_late(clock)
        first = asyncio.create_task(store.record(KEY, turn("u1", "a1"), DAY))
        await asyncio.sleep(0)
        await store.begin_epoch(KEY, epoch("e1"), 0, 20.0)
        assert not first.done()
        await first
        clock.time += 20.0
        assert await found(store, "u1", "a1", seen=(KEY.sid, 1)) == Found(was_here=True)

    async def test_turns_at_once_are_all_known(self, clock: HandClock) -> None:
        behind = WatchedStore(MemoryStore(clock), pauses=lambda: 2)
        store = RememberingStore(behind, clock, Memory())
        await found(store, "u1")
        await asyncio.gather(*(store.record(KEY, turn("u1", f"a{number}"), DAY) for number in range(8)))
        asked = behind.finds
        for number in range(8):
            assert (await found(store, "u1", f"a{number}")).known == chain("u1", f"a{number}")[-1]
        assert behind.finds == asked

    async def test_of_too_many_sessions_those_used_longest_ago_are_asked_about(
        self, behind: WatchedStore, clock: HandClock
    ) -> None:
        store = RememberingStore(behind, clock, Memory(20_000))
        sids = [f"{number:02}" for number in range(1, 11)]  # there is room for nine of them
        for sid in (*sids[:9], "01", sids[9]):
            await store.record(SessionKey(KEY.tag, sid), turn("u1", "a1"), DAY)
            await found(store, "u1", "a1", sid=sid)
        asked = behind.finds
        for sid in ("01", *sids[2:]):
            await found(store, "u1", "a1", sid=sid)
        assert behind.finds == asked
        await found(store, "u1", "a1", sid="02")
        assert behind.finds == asked + 1

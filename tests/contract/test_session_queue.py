"""What every SessionStore does for clients that send only what is new: order, expiry, and no turn torn."""

from __future__ import annotations

import asyncio

import pytest

from proxy.ports import PlaceState, Recorded, SessionKey, SessionStore, Stored
from tests.support.stores import DAY, KEY, HandClock, chain, found, turn

LEASE = 5.0


async def blocked(store: SessionStore) -> str:
    session = await store.session(KEY)
    assert session is not None
    return session.blocked


class TestHistory:
    async def test_a_session_that_never_was_has_no_history(self, store: SessionStore) -> None:
        assert await store.history(KEY) == Stored()

    async def test_the_history_is_the_session_and_every_message(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        stored = await store.history(KEY)
        assert stored.session == await store.session(KEY)
        assert stored.nodes == await store.nodes(KEY)
        assert not stored.was_here

    async def test_a_session_that_the_store_has_lost_was_here_once_it_is_told_so(
        self, store: SessionStore
    ) -> None:
        await store.mark_ended(KEY)
        assert await store.history(KEY) == Stored(was_here=True)
        assert (await found(store, "u1", "a1", "u2")).has_ended

    async def test_a_session_that_has_expired_was_here(self, store: SessionStore, clock: HandClock) -> None:
        await store.record(KEY, turn("u1", "a1"), 0.02)
        clock.time += 1
        await asyncio.sleep(0.05)
        assert await store.history(KEY) == Stored(was_here=True)
        assert (await found(store, "u1", "a1", "u2")).has_ended


class TestSharedAnswers:
    """Two sessions without a header that begin in the same words and got the same answer."""

    async def test_a_request_continues_neither(self, store: SessionStore) -> None:
        other = SessionKey(KEY.tag, "02")
        for key in (KEY, other):
            await store.record(key, turn("u1", "a1", headerless=True), DAY)
        assert (await found(store, "u1", "a1", "mine", sid=None)).sid is None
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, headerless=True), DAY)
        assert (await found(store, "u1", "a1", "mine", sid=None)).sid is None

    async def test_from_where_they_part_each_is_continued(self, store: SessionStore) -> None:
        for sid in ("01", "02"):
            key = SessionKey(KEY.tag, sid)
            await store.record(key, turn("u1", "a1", headerless=True), DAY)
            await store.record(key, turn("u1", "a1", sid, f"a{sid}", known=2, headerless=True), DAY)
        assert (await found(store, "u1", "a1", "01", "a01", "u3", sid=None)).sid == "01"
        assert (await found(store, "u1", "a1", "02", "a02", "u3", sid=None)).sid == "02"

    async def test_a_deleted_one_is_no_longer_in_the_way(self, store: SessionStore) -> None:
        other = SessionKey(KEY.tag, "02")
        for key in (KEY, other):
            await store.record(key, turn("u1", "a1", headerless=True), DAY)
        await store.record(other, turn("u1", "a1", "u2", "a2", known=2, headerless=True), DAY)
        await store.delete(KEY)
        assert (await found(store, "u1", "a1", "edited", sid=None)).sid == other.sid


class TestAppendedTurns:
    async def test_the_tip_moves_from_where_the_turn_was_begun(self, store: SessionStore) -> None:
        first = turn("u1", "a1", begun_at=b"")
        assert await store.record(KEY, first, DAY) is Recorded.KEPT
        second = turn("u1", "a1", "u2", "a2", known=2, begun_at=first.session.tip)
        assert await store.record(KEY, second, DAY) is Recorded.KEPT
        stored = await store.history(KEY)
        assert stored.session is not None
        assert (stored.session.tip, stored.session.turns) == (second.session.tip, 2)

    async def test_of_two_turns_begun_at_one_tip_the_later_one_is_not_written(
        self, store: SessionStore
    ) -> None:
        await store.record(KEY, turn("u1", "a1", begun_at=b""), DAY)
        tip = chain("u1", "a1")[-1]
        assert await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, begun_at=tip), DAY) == "kept"
        late = turn("u1", "a1", "late", "a3", known=2, begun_at=tip)
        before = await store.history(KEY)
        assert await store.record(KEY, late, DAY) is Recorded.MOVED
        assert await store.history(KEY) == before

    async def test_a_turn_whose_reply_was_lost_is_written_once(self, store: SessionStore) -> None:
        appended = turn("u1", "a1", begun_at=b"")
        assert await store.record(KEY, appended, DAY) is Recorded.KEPT
        before = await store.history(KEY)
        assert await store.record(KEY, appended, DAY) is Recorded.KEPT
        assert await store.history(KEY) == before

    async def test_a_retried_turn_takes_the_place_of_the_first_answer(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", begun_at=b""), DAY)
        again = turn("u1", "a2", known=1, begun_at=chain("u1", "a1")[-1])
        assert await store.record(KEY, again, DAY) is Recorded.KEPT
        session = await store.session(KEY)
        assert session is not None
        assert session.tip == chain("u1", "a2")[-1]

    async def test_an_answer_that_was_cut_off_moves_no_tip(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", begun_at=b""), DAY)
        tip = chain("u1", "a1")[-1]
        cut_off = turn("u1", "a1", "u2", "a2", known=2, complete=False, begun_at=tip, newest_to=b"u2")
        assert await store.record(KEY, cut_off, DAY) is Recorded.KEPT
        session = await store.session(KEY)
        assert session is not None
        assert (session.tip, session.newest_to) == (tip, b"u2")


class TestDoubt:
    async def test_a_turn_that_was_called_unsaved_is_known_until_the_next(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", begun_at=b""), DAY)
        await store.mark_unsaved(KEY, b"u1")
        assert (await store.history(KEY)).session == await store.session(KEY)
        session = await store.session(KEY)
        assert session is not None
        assert session.unsaved == b"u1"
        announced = turn("u1", "a1", "u2", known=2, complete=False, begun_at=chain("u1", "a1")[-1])
        await store.record(KEY, announced, DAY)
        session = await store.session(KEY)
        assert session is not None
        assert session.unsaved == b""

    async def test_nothing_is_made_of_a_session_that_is_not_there(self, store: SessionStore) -> None:
        await store.mark_unsaved(KEY, b"u1")
        assert await store.history(KEY) == Stored()


class TestTornTurns:
    async def test_a_turn_whose_past_is_gone_is_not_written(self, store: SessionStore) -> None:
        assert await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY) is Recorded.TORN
        assert await store.session(KEY) is None
        assert await store.nodes(KEY) == {}

    async def test_the_whole_chain_mends_it(self, store: SessionStore) -> None:
        assert await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY) is Recorded.TORN
        assert await store.record(KEY, turn("u1", "a1", "u2", "a2"), DAY) is Recorded.KEPT
        assert len(await store.nodes(KEY)) == 4


class TestTheLine:
    async def test_tickets_go_in_the_order_in_which_they_came(self, store: SessionStore) -> None:
        assert await store.take_place(KEY, "first", 8, LEASE) is PlaceState.GO
        assert await store.take_place(KEY, "second", 8, LEASE) is PlaceState.WAIT
        assert await store.take_place(KEY, "third", 8, LEASE) is PlaceState.WAIT
        await store.leave(KEY, "first")
        assert await store.take_place(KEY, "third", 8, LEASE) is PlaceState.WAIT
        assert await store.take_place(KEY, "second", 8, LEASE) is PlaceState.GO
        assert await store.take_place(KEY, "second", 8, LEASE) is PlaceState.GO

    async def test_no_more_than_so_many_wait(self, store: SessionStore) -> None:
        for ticket in ("first", "second", "third"):
            await store.take_place(KEY, ticket, 2, LEASE)
        assert await store.take_place(KEY, "fourth", 2, LEASE) is PlaceState.FULL
        assert await store.take_place(KEY, "third", 2, LEASE) is PlaceState.WAIT
        await store.leave(KEY, "second")
        assert await store.take_place(KEY, "fourth", 2, LEASE) is PlaceState.WAIT

    async def test_a_place_whose_lease_has_run_out_is_given_up(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        await store.take_place(KEY, "dead", 8, 0.02)
        await store.take_place(KEY, "next", 8, LEASE)
        clock.time += 1
        await asyncio.sleep(0.05)
        assert await store.take_place(KEY, "next", 8, LEASE) is PlaceState.GO

    async def test_a_lease_is_renewed_while_the_place_is_held_and_not_after(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        await store.take_place(KEY, "held", 8, 0.05)
        await store.renew_lease(KEY, "held", LEASE)
        clock.time += 1
        await asyncio.sleep(0.1)
        assert await store.take_place(KEY, "next", 8, LEASE) is PlaceState.WAIT
        await store.leave(KEY, "held")
        await store.renew_lease(KEY, "held", LEASE)
        assert await store.take_place(KEY, "next", 8, LEASE) is PlaceState.GO

    async def test_sessions_do_not_wait_for_each_other(self, store: SessionStore) -> None:
        other = SessionKey(KEY.tag, "02")
        assert await store.take_place(KEY, "one", 8, LEASE) is PlaceState.GO
        assert await store.take_place(other, "two", 8, LEASE) is PlaceState.GO

    async def test_a_paused_session_lets_nobody_go(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert await store.pause(KEY, paused=True)
        assert await blocked(store) == "paused"
        assert await store.take_place(KEY, "one", 8, LEASE) is PlaceState.WAIT
        assert await store.pause(KEY, paused=False)
        assert await blocked(store) == ""
        assert await store.take_place(KEY, "one", 8, LEASE) is PlaceState.GO

    async def test_a_session_that_is_not_there_cannot_be_paused(self, store: SessionStore) -> None:
        assert not await store.pause(KEY, paused=True)
        assert await store.history(KEY) == Stored()

    async def test_a_session_is_shown_as_compacting_while_a_compactor_is_first(
        self, store: SessionStore
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.take_place(KEY, "turn-1", 8, LEASE)
        await store.take_place(KEY, "compact-1", 8, LEASE)
        assert await blocked(store) == ""
        await store.leave(KEY, "turn-1")
        assert await blocked(store) == "compacting"
        ((_, listed),) = (await store.sessions(10)).sessions
        assert listed.blocked == "compacting"
        await store.leave(KEY, "compact-1")
        assert await blocked(store) == ""

    async def test_in_a_paused_session_a_compaction_goes_before_all_that_wait(
        self, store: SessionStore
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.pause(KEY, paused=True)
        for ticket in ("turn-1", "turn-2"):
            assert await store.take_place(KEY, ticket, 1, LEASE) is PlaceState.WAIT
        assert await store.take_place(KEY, "compact-1", 1, LEASE) is PlaceState.GO
        assert await blocked(store) == "compacting"
        assert await store.take_place(KEY, "compact-2", 1, LEASE) is PlaceState.WAIT
        assert await store.take_place(KEY, "turn-1", 1, LEASE) is PlaceState.WAIT
        await store.leave(KEY, "compact-1")
        assert await store.take_place(KEY, "compact-2", 1, LEASE) is PlaceState.GO
        await store.leave(KEY, "compact-2")
        assert await blocked(store) == "paused"
        await store.pause(KEY, paused=False)
        assert await store.take_place(KEY, "turn-1", 1, LEASE) is PlaceState.GO

    @pytest.mark.parametrize("sid", [KEY.sid, None], ids=["named", "by chain"])
    async def test_a_look_up_tells_of_a_compaction_and_of_no_turn(
        self, store: SessionStore, sid: str | None
    ) -> None:
        async def is_compacting() -> bool:
            session = (await found(store, "u1", "a1", sid=sid)).session
            assert session is not None
            return session.is_compacting

        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await store.take_place(KEY, "turn-1", 8, LEASE)
        await store.take_place(KEY, "compact-1", 8, LEASE)
        assert not await is_compacting()
        await store.leave(KEY, "turn-1")
        assert await is_compacting()
        await store.leave(KEY, "compact-1")
        assert not await is_compacting()

    async def test_of_one_whose_worker_has_died_nothing_is_told_once_its_lease_is_over(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.take_place(KEY, "compact-1", 8, 0.02)
        clock.time += 1
        await asyncio.sleep(0.05)
        session = (await found(store, "u1", "a1")).session
        assert session is not None
        assert not session.is_compacting


class TestDeleting:
    async def test_nothing_is_left_of_a_deleted_session_but_that_it_was(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await store.keep_summary(KEY, "address", "what was said", DAY)
        assert await store.delete(KEY)
        assert await store.history(KEY) == Stored(was_here=True)
        assert (await store.sessions(10)).sessions == []
        assert await store.summaries(KEY, ["address"]) == {}
        assert (await found(store, "u1", "a1", sid=None)).sid is None

    async def test_a_session_that_is_not_there_cannot_be_deleted(self, store: SessionStore) -> None:
        assert not await store.delete(KEY)
        assert await store.history(KEY) == Stored()

    @pytest.mark.parametrize("known", [0, 2])
    async def test_another_session_of_the_bucket_stays(self, store: SessionStore, known: int) -> None:
        other = SessionKey(KEY.tag, "02")
        await store.record(other, turn("u1", "b1", headerless=True), DAY)
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=known, headerless=True), DAY)
        assert await store.delete(KEY)
        assert len(await store.nodes(other)) == 2

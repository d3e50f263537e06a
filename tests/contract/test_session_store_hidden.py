"""How every SessionStore keeps what stands upstream for answers in which the proxy has answered calls."""

from __future__ import annotations

import asyncio

from proxy.ports import SessionStore
from tests.support.stores import DAY, KEY, STRANGER, HandClock, found, hidden, pass_time, turn

FIRST, SECOND = hidden("u1", "a1"), hidden("u1", "a1", "u2", "a2")


class TestHiddenCalls:
    async def test_they_are_found_in_the_order_written(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert await store.keep_hidden(KEY, FIRST, DAY)
        assert await store.keep_hidden(KEY, SECOND, DAY)
        assert (await found(store, "u1")).hidden == (FIRST, SECOND)
        assert await store.hidden(KEY) == (FIRST, SECOND)

    async def test_find_brings_those_that_were_not_seen(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.keep_hidden(KEY, FIRST, DAY)
        await store.keep_hidden(KEY, SECOND, DAY)
        assert (await found(store, "u1", held=KEY.sid, hidden=1)).hidden == (SECOND,)
        assert (await found(store, "u1", held=KEY.sid, hidden=2)).hidden == ()
        assert (await found(store, "u1", held="another", hidden=2)).hidden == (FIRST, SECOND)

    async def test_of_two_for_one_answer_the_first_counts(self, store: SessionStore) -> None:
        assert await store.keep_hidden(KEY, FIRST, DAY, begins=True)
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert await store.keep_hidden(KEY, hidden("u1", "a1", call="other"), DAY)
        assert await store.hidden(KEY) == (FIRST,)

    async def test_of_twenty_at_once_all_see_the_same_one(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        several = [hidden("u1", "a1", call=f"c{number}") for number in range(20)]
        await asyncio.gather(*(store.keep_hidden(KEY, each, DAY) for each in several))
        assert len(await store.hidden(KEY)) == 1

    async def test_they_may_come_before_the_first_turn_and_live_as_long_as_the_session(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        await store.keep_hidden(KEY, FIRST, 0.2, begins=True)
        assert (await found(store, "u1")).hidden == (FIRST,)
        await store.record(KEY, turn("u1", "a1"), 0.2)
        await pass_time(clock, 0.3)
        assert await store.hidden(KEY) == ()

    async def test_another_session_does_not_have_them(self, store: SessionStore) -> None:
        await store.keep_hidden(KEY, FIRST, DAY, begins=True)
        assert await store.hidden(STRANGER) == ()

    async def test_a_deleted_session_leaves_none_and_takes_none(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.keep_hidden(KEY, FIRST, DAY)
        await store.delete(KEY)
        assert not await store.keep_hidden(KEY, SECOND, DAY)
        assert await store.hidden(KEY) == ()
        assert await store.keep_hidden(KEY, SECOND, DAY, begins=True)

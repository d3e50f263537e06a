"""How every SessionStore keeps epochs and summaries, so that of two workers one decides."""

from __future__ import annotations

import asyncio

from proxy.ports import SessionStore
from tests.support.stores import DAY, KEY, STRANGER, HandClock, epoch, found, pass_time, turn


class TestEpochs:
    async def test_an_epoch_begins_where_the_lane_is_as_it_was_seen(self, store: SessionStore) -> None:
        assert await store.begin_epoch(KEY, epoch("e1"), 0, DAY, begins=True) == (epoch("e1"),)
        assert await store.begin_epoch(KEY, epoch("e2", "e1"), 1, DAY, begins=True) == (epoch("e2", "e1"),)
        assert await store.epochs(KEY, "lane") == (epoch("e1"), epoch("e2", "e1"))

    async def test_whoever_comes_second_gets_the_first_ones_epoch(self, store: SessionStore) -> None:
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY, begins=True)
        assert await store.begin_epoch(KEY, epoch("late"), 0, DAY, begins=True) == (epoch("e1"),)
        assert await store.epochs(KEY, "lane") == (epoch("e1"),)

    async def test_an_epoch_whose_reply_was_lost_is_begun_once(self, store: SessionStore) -> None:
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY, begins=True)
        assert await store.begin_epoch(KEY, epoch("e1"), 0, DAY, begins=True) == (epoch("e1"),)
        await store.begin_epoch(KEY, epoch("e2", "e1"), 1, DAY, begins=True)
        assert await store.begin_epoch(KEY, epoch("e1"), 0, DAY, begins=True) == (
            epoch("e1"),
            epoch("e2", "e1"),
        )

    async def test_of_twenty_at_once_one_wins_and_all_see_it(self, store: SessionStore) -> None:
        attempts = (store.begin_epoch(KEY, epoch(f"e{i}"), 0, DAY, begins=True) for i in range(20))
        answers = set(await asyncio.gather(*attempts))
        assert answers == {await store.epochs(KEY, "lane")}
        assert len(answers.pop()) == 1

    async def test_lanes_are_apart(self, store: SessionStore) -> None:
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY, begins=True)
        other = epoch("e1", lane="another model, :{}/ and budget")
        assert await store.begin_epoch(KEY, other, 0, DAY, begins=True) == (other,)
        assert await store.epochs(KEY, "lane") == (epoch("e1"),)

    async def test_one_that_comes_after_its_session_was_deleted_is_not_kept_but_by_who_begins_it_anew(
        self, store: SessionStore
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert await store.begin_epoch(KEY, epoch("e1"), 0, DAY) == (epoch("e1"),)
        await store.delete(KEY)
        for seen, late in ((0, epoch("e1")), (1, epoch("e2", "e1"))):
            assert await store.begin_epoch(KEY, late, seen, DAY) == ()
        assert (await store.epochs(KEY, "lane"), await store.lanes(KEY)) == ((), ())
        assert await store.begin_epoch(KEY, epoch("new"), 0, DAY, begins=True) == (epoch("new"),)

    async def test_find_brings_the_epochs_that_were_not_seen(self, store: SessionStore) -> None:
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY, begins=True)
        await store.begin_epoch(KEY, epoch("e2", "e1"), 1, DAY, begins=True)
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert (await found(store, "u1")).epochs == (epoch("e1"), epoch("e2", "e1"))
        assert (await found(store, "u1", held=KEY.sid, epochs=1)).epochs == (epoch("e2", "e1"),)
        assert (await found(store, "u1", held=KEY.sid, epochs=2)).epochs == ()
        assert (await found(store, "u1", held="another", epochs=2)).epochs == (epoch("e1"), epoch("e2", "e1"))
        assert (await found(store, "u1", lane="other")).epochs == ()

    async def test_an_epoch_is_found_before_the_first_turn_is_recorded(self, store: SessionStore) -> None:
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY, begins=True)
        answer = await found(store, "u1")
        assert (answer.sid, answer.session, answer.epochs) == (KEY.sid, None, (epoch("e1"),))

    async def test_the_lanes_that_have_epochs_are_told(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert await store.lanes(KEY) == ()
        for lane in ("b", "a"):
            await store.begin_epoch(KEY, epoch("first", lane=lane), 0, DAY, begins=True)
        assert await store.lanes(KEY) == ("a", "b")
        assert await store.lanes(STRANGER) == ()


class TestSummaries:
    async def test_are_kept_by_their_address(self, store: SessionStore) -> None:
        await store.keep_summary(KEY, "one", "first\u2028ü", DAY)
        await store.keep_summary(KEY, "one", "first\u2028ü", DAY)
        assert await store.summaries(KEY, ["one", "two"]) == {"one": "first\u2028ü"}
        assert await store.summaries(KEY, []) == {}

    async def test_one_that_comes_after_its_session_was_deleted_is_not_kept(
        self, store: SessionStore
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.delete(KEY)
        assert not await store.keep_summary(KEY, "one", "text", DAY)
        assert await store.summaries(KEY, ["one"]) == {}


class TestClaims:
    """The lease on writing one summary."""

    async def test_one_worker_at_a_time_has_it(self, store: SessionStore) -> None:
        assert await store.claim(KEY, "one", "a", 60)
        assert not await store.claim(KEY, "one", "b", 60)
        assert await store.claim(KEY, "one", "a", 60)
        assert await store.claim(KEY, "two", "b", 60)
        assert await store.claim(STRANGER, "one", "b", 60)

    async def test_of_many_at_once_one_gets_it(self, store: SessionStore) -> None:
        got = await asyncio.gather(*(store.claim(KEY, "one", f"worker-{i}", 60) for i in range(8)))
        assert sum(got) == 1

    async def test_what_is_given_up_is_anybodys(self, store: SessionStore) -> None:
        await store.claim(KEY, "one", "a", 60)
        await store.release(KEY, "one", "b")
        assert not await store.claim(KEY, "one", "b", 60)
        await store.release(KEY, "one", "a")
        assert await store.claim(KEY, "one", "b", 60)

    async def test_a_worker_that_dies_loses_it(self, store: SessionStore, clock: HandClock) -> None:
        await store.claim(KEY, "one", "dead", 0.1)
        await pass_time(clock, 0.2)
        assert await store.claim(KEY, "one", "next", 60)
        assert not await store.claim(KEY, "one", "dead", 60)

    async def test_a_long_lease_outlives_a_short_one_beside_it(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        await store.claim(KEY, "long", "a", 60)
        await store.claim(KEY, "short", "a", 0.1)
        await pass_time(clock, 0.2)
        assert not await store.claim(KEY, "long", "b", 60)
        assert await store.claim(KEY, "short", "b", 60)

    async def test_whoever_has_it_writes_and_gives_it_up(self, store: SessionStore) -> None:
        await store.claim(KEY, "one", "a", 60)
        assert await store.keep_summary(KEY, "one", "by a", DAY, "a")
        assert await store.summaries(KEY, ["one"]) == {"one": "by a"}
        assert await store.claim(KEY, "one", "b", 60)

    async def test_whoever_lost_it_writes_nothing_while_another_has_it(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        await store.claim(KEY, "one", "slow", 0.1)
        await pass_time(clock, 0.2)
        await store.claim(KEY, "one", "next", 60)
        assert not await store.keep_summary(KEY, "one", "by slow", DAY, "slow")
        assert await store.keep_summary(KEY, "one", "by next", DAY, "next")
        assert await store.summaries(KEY, ["one"]) == {"one": "by next"}

    async def test_whoever_lost_it_does_not_write_over_what_another_wrote(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        await store.claim(KEY, "one", "slow", 0.1)
        await pass_time(clock, 0.2)
        await store.claim(KEY, "one", "next", 60)
        await store.keep_summary(KEY, "one", "by next", DAY, "next")
        assert not await store.keep_summary(KEY, "one", "by slow", DAY, "slow")
        assert await store.summaries(KEY, ["one"]) == {"one": "by next"}

    async def test_whoever_lost_it_to_nobody_may_still_write(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        await store.claim(KEY, "one", "slow", 0.1)
        await pass_time(clock, 0.2)
        assert await store.keep_summary(KEY, "one", "by slow", DAY, "slow")

    async def test_a_reply_that_was_lost_makes_a_second_writing_a_refusal_with_the_same_text_there(
        self, store: SessionStore
    ) -> None:
        await store.claim(KEY, "one", "a", 60)
        await store.keep_summary(KEY, "one", "by a", DAY, "a")
        assert not await store.keep_summary(KEY, "one", "by a", DAY, "a")
        assert await store.summaries(KEY, ["one"]) == {"one": "by a"}

    async def test_is_deleted_with_its_session(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.claim(KEY, "one", "a", 60)
        await store.delete(KEY)
        assert not await store.keep_summary(KEY, "one", "by a", DAY, "a")
        assert await store.summaries(KEY, ["one"]) == {}

"""What every SessionStore does: the same suite over memory, the embedded Valkey and redis-server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from proxy.adapters.memory import MemoryStore
from proxy.adapters.redis import RedisStore
from proxy.adapters.redis import turns as redis_turns
from proxy.adapters.stores import open_store
from proxy.errors import SettingsError
from proxy.ports import Found, SessionKey, SessionStore
from tests.stores import DAY, KEY, HandClock, chain, epoch, found, relaying, run, turn

OTHER = SessionKey(KEY.tag, "02")
THIRD = SessionKey(KEY.tag, "03")
STRANGER = SessionKey("bb", KEY.sid)


async def recorded_turns(store: SessionStore, key: SessionKey = KEY) -> int:
    session = await store.session(key)
    return session.turns if session else 0


async def tip(store: SessionStore) -> bytes:
    session = await store.session(KEY)
    assert session is not None
    return session.tip


class TestFinding:
    async def test_nothing_is_known_of_a_session_that_was_never_recorded(self, store: SessionStore) -> None:
        assert await found(store, "u1") == Found()
        assert await found(store, "u1", sid=None) == Found()
        assert await store.session(KEY) is None
        assert await store.nodes(KEY) == {}
        assert await store.sessions(10) == []

    async def test_a_recorded_turn_is_found_by_its_session(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", model="m", tokens=7), DAY)
        answer = await found(store, "u1", "a1", "u2")
        assert answer.sid == KEY.sid
        assert answer.session is not None
        assert (answer.session.model, answer.session.tokens, answer.session.turns) == ("m", 7, 1)
        assert answer.known == chain("u1", "a1")[-1]

    async def test_counts_come_back_for_the_hashes_that_were_asked_for(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        first, second, third = chain("u1", "a1", "u2")
        assert (await found(store, "u1", "a1", "u2")).counts == {first: 10, second: 11}
        assert (await found(store, "u1", "a1", "u2", uncounted=(third, first))).counts == {first: 10}
        assert (await found(store, "u1", "a1", "u2", uncounted=())).counts == {}

    async def test_an_edited_message_is_found_at_the_last_one_before_it(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", "u2", "a2"), DAY)
        assert (await found(store, "u1", "a1", "edited", "a2")).known == chain("u1", "a1")[-1]

    async def test_a_lookup_without_hashes_finds_the_session_alone(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        answer = await found(store)
        assert (answer.sid, answer.known, answer.counts) == (KEY.sid, None, {})

    async def test_ten_thousand_counts_come_in_one_answer(self, store: SessionStore) -> None:
        names = [f"u{i}" for i in range(3)] + ["a3"]
        await store.record(KEY, turn(*names), DAY)
        many = tuple(b"%032d" % i for i in range(10_000))
        answer = await found(store, *names, uncounted=(*many, *chain(*names)))
        assert list(answer.counts.values()) == [10, 11, 12, 13]

    async def test_bytes_of_any_kind_come_back_as_they_were(self, store: SessionStore) -> None:
        bare = turn("u1", "a1")
        odd = bytes(range(256))
        await store.record(KEY, turn("u1", "a1", head=(odd, b"")), DAY)
        session = await store.session(KEY)
        assert session is not None
        assert session.head == (odd, b"")
        assert await store.nodes(KEY) == {node.hash: node for node in bare.nodes}


class TestRecognition:
    async def test_a_headerless_session_is_recognised_below_our_answer(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        assert (await found(store, "u1", "a1", "u2", sid=None)).sid == KEY.sid

    async def test_the_same_first_message_alone_is_a_new_session(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        assert await found(store, "u1", sid=None) == Found()
        assert await found(store, "u1", "another answer", "u2", sid=None) == Found()

    async def test_a_session_of_a_header_is_not_found_by_its_chain(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=False), DAY)
        assert await found(store, "u1", "a1", "u2", sid=None) == Found()

    async def test_two_headerless_sessions_of_one_bucket_stay_two(self, store: SessionStore) -> None:
        await store.record(KEY, turn("hi", "a1", headerless=True), DAY)
        await store.record(OTHER, turn("hi", "a2", headerless=True), DAY)
        assert (await found(store, "hi", "a1", "u2", sid=None)).sid == KEY.sid
        assert (await found(store, "hi", "a2", "u2", sid=None)).sid == OTHER.sid

    async def test_the_deepest_answer_decides(self, store: SessionStore) -> None:
        await store.record(KEY, turn("hi", "a1", headerless=True), DAY)
        await store.record(OTHER, turn("hi", "a1", "u2", "a2", headerless=True), DAY)
        assert (await found(store, "hi", "a1", "u2", "a2", "u3", sid=None)).sid == OTHER.sid
        assert (await found(store, "hi", "a1", "elsewhere", sid=None)).sid is None, "whose is it?"

    async def test_a_fork_joins_the_session_that_gave_the_answer(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", "u2", "a2", headerless=True), DAY)
        answer = await found(store, "u1", "a1", "edited", sid=None)
        assert (answer.sid, answer.known) == (KEY.sid, chain("u1", "a1")[-1])

    async def test_what_was_shown_of_an_answer_cut_off_is_recognised(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True, complete=False), DAY)
        assert (await found(store, "u1", "a1", "u2", sid=None)).sid == KEY.sid


class TestIsolation:
    async def test_another_tag_sees_nothing(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        await store.keep_summary(KEY, "address", "text", DAY)
        assert await found(store, "u1", "a1", "u2", tag=STRANGER.tag) == Found()
        assert await found(store, "u1", "a1", "u2", tag=STRANGER.tag, sid=None) == Found()
        assert await store.session(STRANGER) is None
        assert await store.nodes(STRANGER) == {}
        assert await store.epochs(STRANGER, "lane") == ()
        assert await store.summaries(STRANGER, ["address"]) == {}

    async def test_two_sessions_of_one_bucket_share_no_message(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.record(OTHER, turn("u1", "a2"), DAY)
        assert (await found(store, "u1", "a2", sid=KEY.sid)).known == chain("u1")[0]


class TestRecording:
    async def test_a_turn_written_twice_is_one_turn(self, store: SessionStore) -> None:
        first = turn("u1", "a1", headerless=True)
        await store.record(KEY, first, DAY)
        before = await store.session(KEY), await store.nodes(KEY)
        await store.record(KEY, first, DAY)
        assert (await store.session(KEY), await store.nodes(KEY)) == before
        assert await recorded_turns(store) == 1

    async def test_an_old_turn_written_again_moves_nothing_back(self, store: SessionStore) -> None:
        first, second = turn("u1", "a1"), turn("u1", "a1", "u2", "a2", known=2, updated=3.0, tokens=99)
        await store.record(KEY, first, DAY)
        await store.record(KEY, second, DAY)
        before = await store.session(KEY)
        await store.record(KEY, first, DAY)
        assert await store.session(KEY) == before
        assert await tip(store) == chain("u1", "a1", "u2", "a2")[-1]

    async def test_turns_written_at_once_are_all_there(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        branches = [turn("u1", "a1", f"u{i}", f"a{i}", known=2) for i in range(20)]
        await asyncio.gather(*(store.record(KEY, branch, DAY) for branch in branches * 2))
        assert await recorded_turns(store) == 21
        assert len(await store.nodes(KEY)) == 42

    async def test_the_first_bytes_of_a_message_stay(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        before = await store.nodes(KEY)
        echo = turn("u1", "a1", "u2", "a2")
        respelt = tuple(replace(node, raw=b"respelt", tokens=99) for node in echo.nodes)
        await store.record(KEY, replace(echo, nodes=respelt), DAY)
        after = await store.nodes(KEY)
        assert {chain_hash: after[chain_hash] for chain_hash in before} == before
        assert (await found(store, "u1", "a1")).counts == dict(zip(chain("u1", "a1"), [10, 11], strict=True))

    async def test_the_time_of_creation_stays(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", created=1.5), DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, created=9.0), DAY)
        session = await store.session(KEY)
        assert session is not None
        assert session.created == 1.5

    async def test_a_completed_answer_takes_the_place_of_one_cut_off(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", complete=False), DAY)
        assert await recorded_turns(store) == 0
        assert not (await store.nodes(KEY))[chain("u1", "a1")[-1]].complete
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.record(KEY, turn("u1", "a1", complete=False), DAY)
        assert await recorded_turns(store) == 1
        assert (await store.nodes(KEY))[chain("u1", "a1")[-1]].complete

    async def test_a_turn_without_messages_makes_the_session_known(self, store: SessionStore) -> None:
        await store.record(KEY, replace(turn("u1", "a1"), nodes=(), advances_tip=False), DAY)
        session = await store.session(KEY)
        assert session is not None
        assert (session.turns, session.tip) == (0, b"")

    async def test_a_turn_of_many_pieces_is_counted_by_its_answers(
        self, store: SessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(redis_turns, "PIECE_NODES", 3)
        names = [*(f"u{i}" for i in range(5)), "a5", *(f"u{i}" for i in range(6, 10)), "a10"]
        await store.record(KEY, turn(*names), DAY)
        assert await recorded_turns(store) == 2
        assert sorted(await store.nodes(KEY)) == sorted(chain(*names))
        title = [*(f"t{i}" for i in range(10)), "a11"]
        await store.record(KEY, turn(*title), DAY)
        assert await tip(store) == chain(*names)[-1]


class TestTheTip:
    async def test_moves_with_each_completed_turn(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert await tip(store) == chain("u1", "a1")[-1]
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        assert await tip(store) == chain("u1", "a1", "u2", "a2")[-1]

    async def test_moves_to_the_branch_of_a_regenerated_answer(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", "u2", "a2"), DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2b", known=3), DAY)
        assert await tip(store) == chain("u1", "a1", "u2", "a2b")[-1]

    async def test_stays_when_the_answer_was_cut_off(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, complete=False), DAY)
        assert await tip(store) == chain("u1", "a1")[-1]

    async def test_is_not_taken_by_a_title_request_however_often_it_is_written(
        self, store: SessionStore
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        for _ in range(2):
            await store.record(KEY, turn("write a title", "a title"), DAY)
        assert await tip(store) == chain("u1", "a1")[-1]

    async def test_is_not_taken_by_a_title_request_that_is_asked_again(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.record(KEY, turn("write a title", "a title"), DAY)
        await store.record(KEY, turn("write a title", "another one", known=1), DAY)
        assert await tip(store) == chain("u1", "a1")[-1]

    async def test_is_not_taken_by_a_title_request_in_the_words_of_somebodys_unanswered_beginning(
        self, store: SessionStore
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.record(KEY, turn("hello", "a w", complete=False), DAY)
        await store.record(KEY, turn("hello", "a title", known=1), DAY)
        assert await tip(store) == chain("u1", "a1")[-1]

    async def test_moves_to_a_line_that_began_beside_it_once_that_goes_on(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.record(KEY, turn("edited", "a1"), DAY)
        await store.record(KEY, turn("edited", "a1", "u2", "a2", known=2), DAY)
        assert await tip(store) == chain("edited", "a1", "u2", "a2")[-1]
        await store.record(KEY, turn("edited", "again", known=1), DAY)
        assert await tip(store) == chain("edited", "a1", "u2", "a2")[-1]

    async def test_moves_with_the_first_answer_asked_for_again(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", complete=False), DAY)
        await store.record(KEY, turn("u1", "a1b", known=1), DAY)
        await store.record(KEY, turn("u1", "a1c", known=1), DAY)
        assert await tip(store) == chain("u1", "a1c")[-1]

    async def test_is_not_moved_back_by_a_turn_written_again(self, store: SessionStore) -> None:
        turns = [
            turn("u1", "a1"),
            turn("u1", "a1", "u2", "a2", known=2),
            turn("u1", "a1", "u2", "a2", "u3", "a3", known=4),
        ]
        for each in (*turns, turns[1]):
            await store.record(KEY, each, DAY)
        assert await tip(store) == turns[2].session.tip

    async def test_a_lost_turn_comes_with_the_next_body_and_the_tip_follows(
        self, store: SessionStore
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "b2", "u3", "a3", known=2), DAY)
        assert await tip(store) == chain("u1", "a1", "u2", "b2", "u3", "a3")[-1]


class TestEpochs:
    async def test_an_epoch_begins_where_the_lane_is_as_it_was_seen(self, store: SessionStore) -> None:
        assert await store.begin_epoch(KEY, epoch("e1"), 0, DAY) == (epoch("e1"),)
        assert await store.begin_epoch(KEY, epoch("e2", "e1"), 1, DAY) == (epoch("e2", "e1"),)
        assert await store.epochs(KEY, "lane") == (epoch("e1"), epoch("e2", "e1"))

    async def test_whoever_comes_second_gets_the_first_ones_epoch(self, store: SessionStore) -> None:
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        assert await store.begin_epoch(KEY, epoch("late"), 0, DAY) == (epoch("e1"),)
        assert await store.epochs(KEY, "lane") == (epoch("e1"),)

    async def test_an_epoch_whose_reply_was_lost_is_begun_once(self, store: SessionStore) -> None:
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        assert await store.begin_epoch(KEY, epoch("e1"), 0, DAY) == (epoch("e1"),)
        await store.begin_epoch(KEY, epoch("e2", "e1"), 1, DAY)
        assert await store.begin_epoch(KEY, epoch("e1"), 0, DAY) == (epoch("e1"), epoch("e2", "e1"))

    async def test_of_twenty_at_once_one_wins_and_all_see_it(self, store: SessionStore) -> None:
        attempts = (store.begin_epoch(KEY, epoch(f"e{i}"), 0, DAY) for i in range(20))
        answers = set(await asyncio.gather(*attempts))
        assert answers == {await store.epochs(KEY, "lane")}
        assert len(answers.pop()) == 1

    async def test_lanes_are_apart(self, store: SessionStore) -> None:
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        other = epoch("e1", lane="another model, :{}/ and budget")
        assert await store.begin_epoch(KEY, other, 0, DAY) == (other,)
        assert await store.epochs(KEY, "lane") == (epoch("e1"),)

    async def test_find_brings_the_epochs_that_were_not_seen(self, store: SessionStore) -> None:
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        await store.begin_epoch(KEY, epoch("e2", "e1"), 1, DAY)
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert (await found(store, "u1")).epochs == (epoch("e1"), epoch("e2", "e1"))
        assert (await found(store, "u1", seen=(KEY.sid, 1))).epochs == (epoch("e2", "e1"),)
        assert (await found(store, "u1", seen=(KEY.sid, 2))).epochs == ()
        assert (await found(store, "u1", seen=("another", 2))).epochs == (epoch("e1"), epoch("e2", "e1"))
        assert (await found(store, "u1", lane="other")).epochs == ()

    async def test_an_epoch_is_found_before_the_first_turn_is_recorded(self, store: SessionStore) -> None:
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        answer = await found(store, "u1")
        assert (answer.sid, answer.session, answer.epochs) == (KEY.sid, None, (epoch("e1"),))

    async def test_the_lanes_that_have_epochs_are_told(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert await store.lanes(KEY) == ()
        for lane in ("b", "a"):
            await store.begin_epoch(KEY, epoch("first", lane=lane), 0, DAY)
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


class TestPins:
    async def test_come_with_their_session_wherever_it_is_read(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.pin(KEY, chain("u1"), DAY)
        told = [
            (await found(store, "u1", "a1")).session,
            await store.session(KEY),
            (await store.history(KEY)).session,
            *(session for _, session in await store.sessions(1)),
        ]
        assert [session and session.pins for session in told] == [tuple(chain("u1"))] * 4

    async def test_are_kept_once_each_in_the_order_in_which_they_were_set(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        first, second, third = chain("u1", "a1", "u2")
        await store.pin(KEY, [second, first, second], DAY)
        await store.pin(KEY, [first, third], DAY)
        session = await store.session(KEY)
        assert session is not None
        assert session.pins == (second, first, third)

    async def test_may_be_set_before_the_first_turn_is_recorded(self, store: SessionStore) -> None:
        await store.pin(KEY, chain("u1"), DAY)
        assert await store.session(KEY) is None
        await store.record(KEY, turn("u1", "a1"), DAY)
        session = await store.session(KEY)
        assert session is not None
        assert session.pins == tuple(chain("u1"))

    async def test_stay_when_a_later_turn_says_nothing_of_them(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.pin(KEY, chain("u1"), DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        session = await store.session(KEY)
        assert session is not None
        assert session.pins == tuple(chain("u1"))

    async def test_of_any_bytes_come_back_as_they_were(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        pins = [bytes(range(start, start + 32)) for start in (0, 100, 224)]
        await store.pin(KEY, pins, DAY)
        session = await store.session(KEY)
        assert session is not None
        assert list(session.pins) == pins

    async def test_are_of_one_session_and_go_with_it(self, store: SessionStore) -> None:
        for key in (KEY, OTHER, STRANGER):
            await store.record(key, turn("u1", "a1"), DAY)
        await store.pin(KEY, chain("u1"), DAY)
        others = [await store.session(key) for key in (OTHER, STRANGER)]
        assert [session and session.pins for session in others] == [(), ()]
        await store.delete(KEY)
        await store.record(KEY, turn("u1", "a1"), DAY)
        session = await store.session(KEY)
        assert session is not None
        assert session.pins == ()

    async def test_end_with_their_session(self, store: SessionStore, clock: HandClock) -> None:
        await store.record(KEY, turn("u1", "a1"), ttl=0.05)
        await store.pin(KEY, chain("u1"), ttl=0.05)
        await pass_time(clock, 0.1)
        await store.record(KEY, turn("u1", "a1"), DAY)
        session = await store.session(KEY)
        assert session is not None
        assert session.pins == ()


class TestListing:
    async def test_names_the_sessions_used_last_newest_first(self, store: SessionStore) -> None:
        for i, key in enumerate([KEY, OTHER, STRANGER]):
            await store.record(key, turn("u1", "a1", updated=10.0 + i), DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, updated=20.0), DAY)
        assert [key for key, _ in await store.sessions(10)] == [KEY, STRANGER, OTHER]
        assert [key for key, _ in await store.sessions(2)] == [KEY, STRANGER]
        assert [session.turns for _, session in await store.sessions(2)] == [2, 1]

    async def test_names_none_twice_while_others_begin(self, store: SessionStore) -> None:
        async def begin_sessions() -> None:
            for number in range(200):
                await store.record(
                    SessionKey("t", f"s{number}"), turn("u1", "a1", updated=10.0 + number), DAY
                )

        beginning = asyncio.create_task(begin_sessions())
        while not beginning.done():
            names = [key.sid for key, _ in await store.sessions(1_000)]
            assert len(names) == len(set(names))
            await asyncio.sleep(0)
        await beginning


class TestLifetime:
    async def test_a_session_ends_whole(self, store: SessionStore, clock: HandClock) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), ttl=0.05)
        await store.begin_epoch(KEY, epoch("e1"), 0, ttl=0.05)
        await store.keep_summary(KEY, "one", "text", ttl=0.05)
        await pass_time(clock, 0.1)
        assert await found(store, "u1", "a1") == Found()
        assert await found(store, "u1", "a1", "u2", sid=None) == Found()
        assert await store.nodes(KEY) == {}
        assert await store.epochs(KEY, "lane") == ()
        assert await store.summaries(KEY, ["one"]) == {}
        assert await store.sessions(10) == []

    async def test_any_write_renews_all_of_a_session(self, store: SessionStore, clock: HandClock) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), ttl=0.4)
        await store.begin_epoch(KEY, epoch("e1"), 0, ttl=0.4)
        await store.keep_summary(KEY, "one", "text", ttl=0.4)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, headerless=True), DAY)
        await pass_time(clock, 0.5)
        assert (await found(store, "u1", "a1", "u2", sid=None)).epochs == (epoch("e1"),)
        assert len(await store.nodes(KEY)) == 4
        assert await store.summaries(KEY, ["one"]) == {"one": "text"}

    async def test_an_answer_of_a_session_that_ended_finds_the_new_one(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        await store.record(THIRD, turn("u1", "a3", headerless=True), DAY)  # keeps the index alive
        await store.record(KEY, turn("u1", "a1", headerless=True), ttl=0.05)
        await pass_time(clock, 0.1)
        await store.record(OTHER, turn("u1", "a1", headerless=True), DAY)
        assert (await found(store, "u1", "a1", "u2", sid=None)).sid == OTHER.sid

    async def test_of_two_sessions_on_a_chain_the_one_that_lives_is_found(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        await store.record(KEY, turn("hi", "a1", headerless=True), DAY)
        await store.record(OTHER, turn("hi", "a1", "u2", "a2", headerless=True), ttl=0.05)
        await pass_time(clock, 0.1)
        assert (await found(store, "hi", "a1", "u2", "a2", "u3", sid=None)).sid == KEY.sid

    async def test_a_short_lived_session_does_not_make_another_one_unknown(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        await store.record(KEY, turn("hi", "a1", headerless=True), DAY)
        await store.record(OTHER, turn("hi", "a2", headerless=True), ttl=0.05)
        await pass_time(clock, 0.1)
        assert (await found(store, "hi", "a1", "u2", sid=None)).sid == KEY.sid

    async def test_one_session_does_not_prolong_another(self, store: SessionStore, clock: HandClock) -> None:
        await store.record(KEY, turn("hi", "a1", headerless=True), ttl=0.05)
        await store.record(OTHER, turn("hi", "a2", headerless=True), DAY)
        await pass_time(clock, 0.1)
        assert await found(store, "hi", "a1", "u2", sid=None) == Found()
        assert [key for key, _ in await store.sessions(1)] == [OTHER]


async def pass_time(clock: HandClock, seconds: float) -> None:
    clock.time += seconds
    await asyncio.sleep(seconds)  # servers have a clock of their own


class TestMemory:
    async def test_forgets_the_sessions_used_longest_ago(self, clock: HandClock) -> None:
        store = MemoryStore(clock, most=2)
        for i, key in enumerate([KEY, OTHER, STRANGER]):
            await store.record(key, turn("u1", f"a{i}", headerless=True), DAY)
        assert await found(store, "u1", "a0", "u2", sid=None) == Found()
        assert (await found(store, "u1", "a1", "u2", sid=None)).sid == OTHER.sid

    async def test_holds_nothing_of_sessions_that_ended(self, clock: HandClock) -> None:
        store = MemoryStore(clock)
        for _ in range(3):
            await store.record(KEY, turn("u1", "a1", headerless=True), ttl=10)
            await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, headerless=True), ttl=20)
            clock.time += 30
            assert await store.session(KEY) is None
        assert not store._kept  # pyright: ignore[reportPrivateUsage]
        assert not store._tips  # pyright: ignore[reportPrivateUsage]
        assert not store._expiries  # pyright: ignore[reportPrivateUsage]


class TestServers:
    async def test_find_is_one_round_trip(self, server_url: str, clock: HandClock) -> None:
        async with relaying(Path(server_url.removeprefix("unix://"))) as relay:
            store = open_store(relay.url, clock, timeout=2.0, rest=1.0)
            await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
            await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
            await found(store, "u1")  # loads the script
            for sid in (KEY.sid, None):
                relay.trips = 0
                assert (await found(store, "u1", "a1", "u2", sid=sid)).epochs == (epoch("e1"),)
                assert relay.trips == 1
            await store.aclose()

    async def test_keys_of_a_session_share_one_hash_tag(self, server_url: str, clock: HandClock) -> None:
        store = RedisStore(server_url, clock, 2.0, 1.0)
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        await store.keep_summary(KEY, "one", "text", DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", complete=False), DAY)
        await store.aclose()
        names = {name.decode() for name in run(server_url, "KEYS", "*")}
        parts = ["", ":counts", ":epochs:lane", ":lanes", ":nodes", ":partial", ":summaries", ":was"]
        assert names == {"u1:sessions", "u1:{aa}:tips", *(f"u1:{{aa}}:01{part}" for part in parts)}

    async def test_tips_of_sessions_that_ended_are_swept(self, server_url: str, clock: HandClock) -> None:
        store = RedisStore(server_url, clock, 2.0, 1.0)
        await store.record(KEY, turn("hi", "a", headerless=True), DAY)
        for i in range(40):
            await store.record(SessionKey("aa", f"{i:02}"), turn("hi", f"a{i}", headerless=True), ttl=0.01)
        await asyncio.sleep(0.05)
        for i in range(60):
            await store.record(KEY, turn("hi", f"a-{i}", headerless=True), DAY)
        await store.aclose()
        assert run(server_url, "HLEN", "u1:{aa}:tips") < 61 + 20


def test_a_store_of_an_unknown_kind_is_refused_by_name(clock: HandClock) -> None:
    with pytest.raises(SettingsError, match="mysql"):
        open_store("mysql://x", clock, 1.0, 1.0)
    with pytest.raises(SettingsError, match="redis\\+cluster"):
        open_store("redis+cluster://x", clock, 1.0, 1.0)
    with pytest.raises(SettingsError):
        open_store("redis://x?socket_timeout=soon", clock, 1.0, 1.0)

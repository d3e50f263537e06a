"""How every SessionStore records turns and pins, and where a session's tip stands."""

from __future__ import annotations

import asyncio
import time

import pytest
from msgspec.structs import replace

from proxy.adapters.stores.redis import scripts
from proxy.ports import NAMED, Recorded, SessionKey, SessionStore
from tests.support.stores import DAY, KEY, OTHER, STRANGER, HandClock, chain, found, pass_time, turn


async def recorded_turns(store: SessionStore, key: SessionKey = KEY) -> int:
    session = await store.session(key)
    return session.turns if session else 0


async def tip(store: SessionStore) -> bytes:
    session = await store.session(KEY)
    assert session is not None
    return session.tip


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

    @pytest.mark.parametrize("headerless", [False, True])
    async def test_a_turn_that_the_next_one_overtakes_is_counted_when_it_comes(
        self, store: SessionStore, *, headerless: bool
    ) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=headerless), DAY)
        own = turn("u1", "a1", "u2", "a2", known=2, headerless=headerless)
        after = turn("u1", "a1", "u2", "a2", "u3", "a3", known=2, headerless=headerless)
        from_history = [replace(node, answer=node.hash == after.nodes[-1].hash) for node in after.nodes]
        await store.record(KEY, replace(after, nodes=tuple(from_history)), DAY)
        assert await recorded_turns(store) == 2
        before, nodes = await store.session(KEY), await store.nodes(KEY)
        for _ in range(2):
            await store.record(KEY, own, DAY)
            assert before
            assert await store.session(KEY) == replace(before, turns=3)
            assert await store.nodes(KEY) == nodes
        counts = (await found(store, "u1", "a1", "u2", "a2", "u3", "a3")).counts
        assert sorted(counts.values()) == [10, 11, 12, 13, 14, 15]

    async def test_a_turn_without_messages_makes_the_session_known(self, store: SessionStore) -> None:
        await store.record(KEY, replace(turn("u1", "a1"), nodes=(), advances_tip=False), DAY)
        session = await store.session(KEY)
        assert session is not None
        assert (session.turns, session.tip) == (0, b"")

    async def test_a_turn_of_many_pieces_is_counted_by_its_answers(
        self, store: SessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scripts, "PIECE_NODES", 3)
        names = [*(f"u{i}" for i in range(5)), "a5", *(f"u{i}" for i in range(6, 10)), "a10"]
        await store.record(KEY, turn(*names), DAY)
        assert await recorded_turns(store) == 2
        assert sorted(await store.nodes(KEY)) == sorted(chain(*names))
        title = [*(f"t{i}" for i in range(10)), "a11"]
        await store.record(KEY, turn(*title), DAY)
        assert await tip(store) == chain(*names)[-1]


class TestTurnsWhoseSessionMayHaveEnded:
    """Turns of a session that was known, and for which the store could not be asked."""

    @pytest.mark.parametrize("key", [KEY, SessionKey(KEY.tag, NAMED)])
    async def test_of_a_session_that_was_deleted_none_is_written(
        self, store: SessionStore, key: SessionKey
    ) -> None:
        told = turn("u1", "a1", headerless=key == KEY)
        await store.record(key, told, DAY)
        await store.delete(key)
        assert await store.record(key, replace(told, may_have_ended=True), DAY) is Recorded.TORN
        assert (await store.session(key), await store.nodes(key)) == (None, {})
        assert await store.record(key, told, DAY) is Recorded.KEPT, "it is begun anew"

    @pytest.mark.parametrize("key", [KEY, SessionKey(KEY.tag, NAMED)])
    async def test_of_a_session_that_was_deleted_since_no_late_turn_is_written(
        self, store: SessionStore, clock: HandClock, key: SessionKey
    ) -> None:
        late = replace(turn("u1", "a1", headerless=key == KEY), is_late=True)
        assert await store.record(key, late, DAY) is Recorded.KEPT
        for _ in range(2):
            await store.delete(key)
            assert await store.record(key, late, DAY) is Recorded.TORN
            assert (await store.session(key), await store.nodes(key)) == (None, {})
            later = replace(late, session=replace(late.session, updated=max(clock.now(), time.time()) + 60))
            assert await store.record(key, later, DAY) is Recorded.KEPT, "its client has begun it anew"
            assert await store.record(key, late, DAY) is Recorded.KEPT, "and enters what is there"

    async def test_of_a_session_that_expired_late_turns_are(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        late = replace(turn("u1", "a1"), is_late=True)
        await store.record(KEY, late, ttl=0.05)
        await pass_time(clock, 0.1)
        assert await store.record(KEY, late, DAY) is Recorded.KEPT

    async def test_of_a_session_that_is_there_or_never_was_all_are(
        self, store: SessionStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scripts, "PIECE_NODES", 3)
        for names in (("u1", "u2", "u3", "u4", "a4"), ("u1", "u2", "u3", "u4", "a4", "u5", "a5")):
            told = replace(turn(*names), may_have_ended=True)
            assert await store.record(KEY, told, DAY) is Recorded.KEPT
            assert sorted(await store.nodes(KEY)) == sorted(chain(*names))


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


class TestPins:
    async def test_come_with_their_session_wherever_it_is_read(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.pin(KEY, chain("u1"), DAY)
        told = [
            (await found(store, "u1", "a1")).session,
            await store.session(KEY),
            (await store.history(KEY)).session,
            *(session for _, session in (await store.sessions(1)).sessions),
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

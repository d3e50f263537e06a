"""How every SessionStore finds a session, by its name or by its chain, and nobody else's."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.core.conversation.records import Suffix
from proxy.ports import SUFFIXES, LookupResult, SessionKey, SessionStore
from tests.support.stores import (
    DAY,
    KEY,
    OTHER,
    STRANGER,
    HandClock,
    chain,
    epoch,
    found,
    joint,
    lookup,
    nodes,
    pass_time,
    turn,
)


class TestFinding:
    async def test_nothing_is_known_of_a_session_that_was_never_recorded(self, store: SessionStore) -> None:
        assert await found(store, "u1") == LookupResult()
        assert await found(store, "u1", sid=None) == LookupResult()
        assert await store.session(KEY) is None
        assert await store.nodes(KEY) == {}
        assert (await store.sessions(10)).sessions == []

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
        assert await found(store, "u1", sid=None) == LookupResult()
        assert await found(store, "u1", "another answer", "u2", sid=None) == LookupResult()

    async def test_a_session_of_a_header_is_not_found_by_its_chain(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=False), DAY)
        assert await found(store, "u1", "a1", "u2", sid=None) == LookupResult()

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
        assert (answer.sid, answer.known, answer.place) == (KEY.sid, chain("u1", "a1")[-1], 1)

    async def test_what_was_shown_of_an_answer_cut_off_is_recognised(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True, complete=False), DAY)
        assert (await found(store, "u1", "a1", "u2", sid=None)).sid == KEY.sid

    async def test_of_many_that_gave_the_same_answer_it_is_none_unless_one_alone_is_left(
        self, store: SessionStore
    ) -> None:
        many = [SessionKey(KEY.tag, f"{number}") for number in range(10, 50)]
        for key in many:
            await store.record(key, turn("hi", "a", headerless=True), DAY)
        assert await found(store, "hi", "a", "u2", sid=None) == LookupResult(place=1)
        for key in many[:-1]:
            await store.delete(key)
        assert (await found(store, "hi", "a", "u2", sid=None)).sid == many[-1].sid


class TestJoints:
    """What was said before an answer has changed, and the answer is where it was."""

    @pytest.fixture(autouse=True)
    async def asked_with_more(self, store: SessionStore) -> None:
        """Two turns; the words of the second will be other ones when they are sent again."""
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        told = turn("u1", "a1", "u2+", "a2", known=2, headerless=True, joint=joint("u1", "a1", "u2+", "a2"))
        await store.record(KEY, told, DAY)

    async def test_a_session_is_found_by_the_place_of_our_answer(self, store: SessionStore) -> None:
        answer = await found(store, "u1", "a1", "u2", "a2", "u3", sid=None)
        assert (answer.sid, answer.known) == (KEY.sid, chain("u1", "a1")[-1])
        assert (answer.joint, answer.user) == (
            joint("u1", "a1", "u2", "a2").hash,
            nodes("u1", "a1", "u2+")[-1],
        )

    async def test_where_the_words_are_the_same_nothing_is_told_of_others(self, store: SessionStore) -> None:
        answer = await found(store, "u1", "a1", "u2+", "a2", "u3", sid=None)
        assert (answer.sid, answer.joint, answer.user) == (KEY.sid, b"", None)

    async def test_the_same_answer_at_another_place_finds_none(self, store: SessionStore) -> None:
        assert await found(store, "u1", "b1", "u2", "a2", "u3", sid=None) == LookupResult()
        assert await found(store, "u0", "a1", "u2", "a2", "u3", sid=None) == LookupResult()

    async def test_an_answer_that_two_sessions_gave_there_joins_none_while_both_are_there(
        self, store: SessionStore
    ) -> None:
        told = turn("u1", "a1", "v2+", "a2", headerless=True, joint=joint("u1", "a1", "v2+", "a2"))
        await store.record(OTHER, told, DAY)
        assert await found(store, "u1", "a1", "u2", "a2", "u3", sid=None) == LookupResult(place=1)
        await store.delete(OTHER)
        assert (await found(store, "u1", "a1", "u2", "a2", "u3", sid=None)).sid == KEY.sid

    async def test_what_was_said_there_last_is_told(self, store: SessionStore) -> None:
        told = turn("u1", "a1", "u2++", "a2", known=2, headerless=True, joint=joint("u1", "a1", "u2++", "a2"))
        for _ in range(3):
            await store.record(KEY, told, DAY)
        answer = await found(store, "u1", "a1", "u2", "a2", "u3", sid=None)
        assert (answer.sid, answer.user) == (KEY.sid, nodes("u1", "a1", "u2++")[-1])

    async def test_a_branch_that_goes_on_there_becomes_the_tip_and_is_gone_on_from(
        self, store: SessionStore
    ) -> None:
        for names in (["v1", "a1"], ["v1", "a1", "v2", "a2"]):
            await store.record(KEY, turn(*names, headerless=True, is_joined=len(names) == 2), DAY)
            session = await store.session(KEY)
            assert session is not None
            assert session.tip == chain(*names)[-1]

    async def test_a_session_that_began_with_other_words_is_found_under_its_own_tag(
        self, store: SessionStore
    ) -> None:
        began = SessionKey("cc", "03")
        told = turn("w1+", "a1", headerless=True, joint=joint("w1+", "a1", first="ff"))
        await store.record(began, told, DAY)
        asked = lookup("w1", "a1", "w2", sid=None, first="ff")
        answer = await store.find(asked)
        assert (answer.sid, answer.tag, answer.user) == (began.sid, began.tag, nodes("w1+")[-1])
        assert await store.find(replace(asked, first="ee")) == LookupResult()
        other = SessionKey("dd", "04")
        await store.record(other, replace(told, nodes=turn("w0+", "a1").nodes), DAY)
        assert await store.find(asked) == LookupResult(), "two may be meant"


class TestIsolation:
    async def test_another_tag_sees_nothing(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        await store.keep_summary(KEY, "address", "text", DAY)
        assert await found(store, "u1", "a1", "u2", tag=STRANGER.tag) == LookupResult()
        assert await found(store, "u1", "a1", "u2", tag=STRANGER.tag, sid=None) == LookupResult()
        assert await store.session(STRANGER) is None
        assert await store.nodes(STRANGER) == {}
        assert await store.epochs(STRANGER, "lane") == ()
        assert await store.summaries(STRANGER, ["address"]) == {}

    async def test_two_sessions_of_one_bucket_share_no_message(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.record(OTHER, turn("u1", "a2"), DAY)
        assert (await found(store, "u1", "a2", sid=KEY.sid)).known == chain("u1")[0]


class TestDeletion:
    async def test_one_that_was_here_is_told_of_although_something_was_begun_since(
        self, store: SessionStore
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.delete(KEY)
        assert await found(store, "u1") == LookupResult(has_ended=True)
        await store.pin(KEY, chain("u1"), DAY)
        assert await found(store, "u1") == LookupResult(has_ended=True)
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        assert (await found(store, "u1")).has_ended
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert not (await found(store, "u1")).has_ended


class TestSuffixes:
    async def test_the_places_that_a_turn_notes_are_found_by_their_tags(self, store: SessionStore) -> None:
        one, two = Suffix(KEY.tag, bytes(range(32)), 2, 1), Suffix(KEY.tag, b"/" * 32, 1_000, 499)
        await store.record(KEY, turn("u1", "a1", suffixes={"ab": one, "cd": two}), DAY)
        assert [await store.suffixes(tag) for tag in ("ab", "cd", "ef")] == [[one], [two], []]

    async def test_of_many_sessions_the_newest_places_are_found_each_once(self, store: SessionStore) -> None:
        places = [Suffix(KEY.tag, b"%032d" % number, number, 0) for number in range(SUFFIXES + 3)]
        for place in (*places, places[-2]):
            await store.record(KEY, turn("u1", "a1", suffixes={"ab": place}), DAY)
        newest = [places[-2], places[-1], *reversed(places[:-2])]
        assert await store.suffixes("ab") == newest[:SUFFIXES]

    async def test_places_end_with_the_session_that_noted_them(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        place = Suffix(KEY.tag, b"h" * 32, 2, 1)
        await store.record(KEY, turn("u1", "a1", suffixes={"ab": place}), ttl=0.05)
        await pass_time(clock, 0.1)
        assert await store.suffixes("ab") == []

    async def test_a_session_that_is_deleted_leaves_the_places_of_others(self, store: SessionStore) -> None:
        one, two = Suffix(KEY.tag, b"1" * 32, 2, 1), Suffix(OTHER.tag, b"2" * 32, 4, 2)
        await store.record(KEY, turn("u1", "a1", suffixes={"ab": one, "cd": one}), DAY)
        await store.record(OTHER, turn("u1", "a1", suffixes={"ab": two}), DAY)
        await store.delete(KEY)
        assert [await store.suffixes(tag) for tag in ("ab", "cd")] == [[two], []]

    async def test_a_session_whose_places_others_have_pushed_out_is_deleted_after_them(
        self, store: SessionStore
    ) -> None:
        others = [SessionKey("cc", f"{number:02}") for number in range(SUFFIXES)]
        for number, key in enumerate([KEY, *others]):
            place = Suffix(key.tag, b"%032d" % number, 2, 1)
            await store.record(key, turn("u1", "a1", suffixes={"ab": place}), DAY)
        for key in (*others, KEY):
            assert await store.delete(key)
        assert await store.suffixes("ab") == []

    async def test_places_live_as_long_as_the_session_goes_on(
        self, store: SessionStore, clock: HandClock
    ) -> None:
        place, words = Suffix(KEY.tag, b"h" * 32, 2, 1), ["u1", "a1"]
        await store.record(KEY, turn(*words, suffixes={"ab": place}), ttl=0.4)
        for number in range(2, 6):
            await pass_time(clock, 0.2)
            words += [f"u{number}", f"a{number}"]
            await store.record(KEY, turn(*words, known=len(words) - 2), ttl=0.4)
        assert await store.suffixes("ab") == [place]

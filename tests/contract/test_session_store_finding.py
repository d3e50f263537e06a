"""How every SessionStore finds a session, by its name or by its chain, and nobody else's."""

from __future__ import annotations

import math

from msgspec.structs import replace

from proxy.adapters.remembering import TellingStore
from proxy.ports import Found, Recorded, SessionKey, SessionStore, Whole, Written
from tests.stores import DAY, KEY, OTHER, STRANGER, chain, epoch, found, lookup, turn


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

    async def test_what_is_told_without_a_trip_is_what_a_trip_would_tell(self, store: SessionStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        asked = lookup("u1", "a1", "u2")
        answer = await store.find(asked)
        assert store.known(asked) in (None, answer)
        assert store.known(replace(asked, sid=OTHER.sid)) is None, (
            "never of a session that nobody has asked about"
        )

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

    async def test_of_many_that_gave_the_same_answer_it_is_none_unless_one_alone_is_left(
        self, store: SessionStore
    ) -> None:
        many = [SessionKey(KEY.tag, f"{number}") for number in range(10, 50)]
        for key in many:
            await store.record(key, turn("hi", "a", headerless=True), DAY)
        assert await found(store, "hi", "a", "u2", sid=None) == Found()
        for key in many[:-1]:
            await store.delete(key)
        assert (await found(store, "hi", "a", "u2", sid=None)).sid == many[-1].sid


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


class TestDeletion:
    async def test_one_that_was_here_is_told_of_although_something_was_begun_since(
        self, store: SessionStore
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await store.delete(KEY)
        assert await found(store, "u1") == Found(was_here=True)
        await store.pin(KEY, chain("u1"), DAY)
        assert await found(store, "u1") == Found(was_here=True)
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        assert (await found(store, "u1")).was_here
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert not (await found(store, "u1")).was_here


class TestWhole:
    async def test_all_counts_are_told_where_they_are_asked_for(self, plain: TellingStore) -> None:
        await plain.record(KEY, turn("u1", "a1", "u2", "a2"), DAY)
        await plain.record(KEY, turn("u1", "a1", "other", known=2), DAY)
        asked = replace(lookup("u1"), uncounted=(), whole=True)
        answer = await plain.find(asked)
        assert answer.whole is not None
        assert DAY - 60 < answer.whole.lives <= DAY + 3_600
        assert answer.whole.written == 2
        assert sorted(answer.counts.values()) == [10, 11, 12, 12, 13]
        assert await plain.find(replace(asked, sid=OTHER.sid)) == Found(whole=Whole(math.inf, written=0))

    async def test_a_turn_tells_the_session_that_it_has_made(self, plain: TellingStore) -> None:
        first, second = turn("u1", "a1", model="m"), turn("u1", "a1", "u2", "a2", known=2, model="n")
        for number, told in enumerate((first, second, second), 1):
            written = await plain.write(KEY, told, DAY)
            assert written == Written(Recorded.KEPT, (await found(plain)).session, number)
        await plain.pin(KEY, chain("u1"), DAY)
        again = await plain.write(KEY, turn("u1", "a1", model="late"), DAY)
        assert again.session == (await found(plain)).session
        assert again.session is not None
        assert (again.session.pins, again.session.model) == (tuple(chain("u1")), "n")

    async def test_a_turn_that_is_not_written_tells_of_none(self, plain: TellingStore) -> None:
        assert await plain.write(KEY, turn("u1", "a1", "u2", known=2), DAY) == Written(Recorded.TORN)

"""Which sessions every SessionStore lists, and when they end."""

from __future__ import annotations

import asyncio

from proxy.ports import Found, SessionKey, SessionStore
from tests.support.stores import DAY, KEY, OTHER, STRANGER, THIRD, HandClock, epoch, found, pass_time, turn


class TestListing:
    async def test_names_the_sessions_used_last_newest_first(self, store: SessionStore) -> None:
        for i, key in enumerate([KEY, OTHER, STRANGER]):
            await store.record(key, turn("u1", "a1", updated=10.0 + i), DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, updated=20.0), DAY)
        assert [key for key, _ in (await store.sessions(10)).sessions] == [KEY, STRANGER, OTHER]
        assert [key for key, _ in (await store.sessions(2)).sessions] == [KEY, STRANGER]
        assert [session.turns for _, session in (await store.sessions(2)).sessions] == [2, 1]

    async def test_names_none_twice_while_others_begin(self, store: SessionStore) -> None:
        async def begin_sessions() -> None:
            for number in range(200):
                await store.record(
                    SessionKey("t", f"s{number}"), turn("u1", "a1", updated=10.0 + number), DAY
                )

        beginning = asyncio.create_task(begin_sessions())
        while not beginning.done():
            names = [key.sid for key, _ in (await store.sessions(1_000)).sessions]
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
        assert (await store.sessions(10)).sessions == []

    async def test_any_write_renews_all_of_a_session(self, store: SessionStore, clock: HandClock) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), ttl=0.4)
        await store.begin_epoch(KEY, epoch("e1"), 0, ttl=0.4)
        await store.keep_summary(KEY, "one", "text", ttl=0.4)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, headerless=True), DAY)
        await pass_time(clock, 0.5)
        assert (await found(store, "u1", "a1", "u2", sid=None)).epochs == (epoch("e1"),)
        assert len(await store.nodes(KEY)) == 4
        assert await store.summaries(KEY, ["one"]) == {"one": "text"}

    async def test_the_last_write_says_how_long(self, store: SessionStore, clock: HandClock) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, headerless=True), ttl=0.05)
        await pass_time(clock, 0.1)
        assert await found(store, "u1", "a1", "u2") == Found()
        assert await found(store, "u1", "a1", "u2", sid=None) == Found()

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
        assert [key for key, _ in (await store.sessions(1)).sessions] == [OTHER]

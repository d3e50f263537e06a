"""Which sessions every SessionStore lists, and when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from proxy.adapters.stores import in_process
from proxy.adapters.stores.redis import RedisStore, keys, listing, reading, scripts
from proxy.core.conversation.records import Session
from proxy.ports import LookupResult, SessionKey, SessionStore
from tests.support.servers import PATIENCE
from tests.support.stores import (
    DAY,
    KEY,
    OTHER,
    STRANGER,
    THIRD,
    HandClock,
    chain,
    epoch,
    found,
    hidden,
    pass_time,
    run,
    turn,
)


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

    async def test_of_many_sessions_leaves_others_their_turn(
        self, server_url: str, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store, read, between = RedisStore(server_url, clock, PATIENCE, 1.0), reading.session, 0
        keys_of_many = [SessionKey("t", f"s{number}") for number in range(30)]
        await asyncio.gather(*(store.record(key, turn("u1", "a1"), DAY) for key in keys_of_many))

        def noted(*given: Any) -> Session | None:
            nonlocal between
            between += 1
            return read(*given)

        async def other() -> None:
            nonlocal between
            while True:
                most.append(between)
                between = 0
                await asyncio.sleep(0)

        monkeypatch.setattr(listing, "PIECE_SESSIONS", 10)
        monkeypatch.setattr(reading, "session", noted)
        most, another = list[int](), asyncio.create_task(other())
        told = (await store.sessions(100)).sessions
        another.cancel()
        await store.aclose()
        assert {key for key, _ in told} == {*keys_of_many}
        assert max(*most, between) <= 10


Write = Callable[[SessionStore, float], Awaitable[object]]
"""A write to a session that is no turn, given its ttl."""

WRITES: dict[str, Write] = {
    "an epoch": lambda store, ttl: store.begin_epoch(KEY, epoch("e1"), 0, ttl, begins=True),
    "a pin": lambda store, ttl: store.pin(KEY, chain("u1"), ttl),
    "hidden calls": lambda store, ttl: store.keep_hidden(KEY, hidden("u1", "a1"), ttl, begins=True),
    "an injection": lambda store, ttl: store.inject(KEY, b"1" * 32, b"text", ttl),
    "a summary": lambda store, ttl: store.keep_summary(KEY, "one", "text", ttl),
}


async def everything(store: SessionStore) -> object:
    """Return all that a store tells of a session."""
    summaries, injection = await store.summaries(KEY, ["one"]), await store.injection(KEY)
    told = await found(store, "u1", "a1"), await store.nodes(KEY), await store.epochs(KEY, "lane")
    return told, summaries, injection, await store.hidden(KEY)


class TestLifetime:
    async def test_a_session_ends_whole(self, store: SessionStore, clock: HandClock) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), ttl=0.05)
        await store.begin_epoch(KEY, epoch("e1"), 0, ttl=0.05)
        await store.keep_summary(KEY, "one", "text", ttl=0.05)
        await pass_time(clock, 0.1)
        assert await found(store, "u1", "a1") == LookupResult()
        assert await found(store, "u1", "a1", "u2", sid=None) == LookupResult()
        assert await store.nodes(KEY) == {}
        assert await store.epochs(KEY, "lane") == ()
        assert await store.summaries(KEY, ["one"]) == {}
        assert (await store.sessions(10)).sessions == []

    async def test_a_turn_renews_all_of_a_session(self, store: SessionStore, clock: HandClock) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), ttl=0.4)
        await store.begin_epoch(KEY, epoch("e1"), 0, ttl=0.4)
        await store.keep_summary(KEY, "one", "text", ttl=0.4)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, headerless=True), DAY)
        await pass_time(clock, 0.5)
        assert (await found(store, "u1", "a1", "u2", sid=None)).epochs == (epoch("e1"),)
        assert len(await store.nodes(KEY)) == 4
        assert await store.summaries(KEY, ["one"]) == {"one": "text"}

    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    async def test_what_is_no_turn_lives_as_long_as_the_session_and_does_not_renew_it(
        self, store: SessionStore, clock: HandClock, write: Write
    ) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), ttl=0.6)
        await pass_time(clock, 0.3)
        await write(store, DAY)
        assert await store.session(KEY) is not None
        await write(store, 0.05)
        await pass_time(clock, 0.1)
        assert await store.session(KEY) is not None, "and does not shorten its life"
        await pass_time(clock, 0.4)
        assert await found(store, "u1", "a1") == LookupResult()
        assert not await store.delete(KEY), "nothing is left of it"

    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    async def test_what_comes_before_the_first_turn_lives_for_a_day_at_most(
        self, store: SessionStore, clock: HandClock, monkeypatch: pytest.MonkeyPatch, write: Write
    ) -> None:
        for module in (keys, in_process):
            monkeypatch.setattr(module, "UNRECORDED", 0.05)
        await write(store, DAY)
        await pass_time(clock, 0.1)
        assert not await store.delete(KEY)
        await write(store, DAY)
        await store.record(KEY, turn("u1", "a1"), DAY)
        before = await everything(store)
        await pass_time(clock, 0.1)
        assert await everything(store) == before, "a turn renews it"

    async def test_the_last_write_says_how_long(self, store: SessionStore, clock: HandClock) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, headerless=True), ttl=0.05)
        await pass_time(clock, 0.1)
        assert await found(store, "u1", "a1", "u2") == LookupResult()
        assert await found(store, "u1", "a1", "u2", sid=None) == LookupResult()

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
        assert await found(store, "hi", "a1", "u2", sid=None) == LookupResult()
        assert [key for key, _ in (await store.sessions(1)).sessions] == [OTHER]


class TestATurnThatIsCutOff:
    async def test_what_is_written_of_a_sessions_first_turn_lives_for_a_day_until_the_rest_comes(
        self, server_url: str, clock: HandClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A long turn is written in pieces, and its worker ends between them."""
        monkeypatch.setattr(scripts, "PIECE_NODES", 2)
        store, whole = RedisStore(server_url, clock, 2.0, 1.0), turn(*(f"u{n}" for n in range(400)), "a400")
        nodes = keys.session(KEY) + keys.NODES
        writing = asyncio.create_task(store.record(KEY, whole, 30 * DAY))
        while not run(server_url, "EXISTS", nodes):  # noqa: ASYNC110 - the server is asked
            await asyncio.sleep(0)
        writing.cancel()
        await asyncio.wait([writing])
        assert run(server_url, "HLEN", nodes) < 400
        assert 0 < run(server_url, "TTL", nodes) <= DAY
        await store.record(KEY, whole, 30 * DAY)
        assert run(server_url, "TTL", nodes) >= 30 * DAY - 60
        run(server_url, "FLUSHALL")
        await store.aclose()


class TestDeletion:
    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    async def test_takes_what_was_written_before_the_first_turn(
        self, store: SessionStore, write: Write
    ) -> None:
        await write(store, DAY)
        assert await store.delete(KEY)
        told, *others = tuple(cast("tuple[object, ...]", await everything(store)))
        assert others == [{}, None, ()]
        assert told == (LookupResult(has_ended=True), {}, ())
        assert not await store.delete(KEY)


class TestKeysWithoutAnEnd:
    async def test_only_a_turn_gives_them_one_again(self, server_url: str, clock: HandClock) -> None:
        """They come from a copy that was restored without its ends."""
        store = RedisStore(server_url, clock, 2.0, 1.0)
        await store.record(KEY, turn("u1", "a1"), DAY)
        name = keys.session(KEY)
        for key in run(server_url, "KEYS", f"{name}*"):
            run(server_url, "PERSIST", key)
        await store.pin(KEY, chain("u1"), 30 * DAY)
        assert run(server_url, "TTL", name) == -1
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        assert run(server_url, "TTL", name) > 0
        run(server_url, "FLUSHALL")
        await store.aclose()

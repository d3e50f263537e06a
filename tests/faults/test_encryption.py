"""Encryption at rest: nothing can be read without the secret, and nothing is lost for want of one."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing

import pytest

from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.codec import SEALED, DamagedRecord, Keyring, UnknownSecret
from proxy.errors import StoreUnavailable
from tests.support.calls import PLANTED
from tests.support.servers import PATIENCE
from tests.support.stores import (
    DAY,
    KEY,
    OTHER,
    HandClock,
    Server,
    chain,
    dump,
    epoch,
    found,
    hidden,
    turn,
)

CANARY = "canary-4711"

Open = Callable[..., RedisStore]


@pytest.fixture
async def opened(valkey: Server, clock: HandClock) -> AsyncGenerator[Open]:
    """Opens a store with these secrets, which encrypts unless told otherwise."""
    async with AsyncExitStack() as stack:

        def open_with(*secrets: str, encrypts: bool = True) -> RedisStore:
            keyring = Keyring(secrets, lambda: encrypts)
            store = RedisStore(valkey.url, clock, PATIENCE, 1.0, keyring)
            stack.push_async_callback(store.aclose)
            return store

        yield open_with


async def fill(store: RedisStore) -> None:
    """One of everything that holds content."""
    turns = turn("u1", "a1", headerless=True, name=CANARY, head=(CANARY.encode(),))
    await store.inject(KEY, b"digest", CANARY.encode(), DAY)
    await store.record(KEY, turns, DAY)
    await store.begin_epoch(KEY, epoch("e1", reason=CANARY), 0, DAY)
    await store.keep_hidden(KEY, hidden("u1", "a1", call=CANARY), DAY)
    await store.keep_summary(KEY, "one", CANARY, DAY)


async def read(store: RedisStore) -> str:
    """All of it, as it is understood."""
    history = await store.history(KEY)
    everything = (
        history,
        await store.sessions(10),
        await store.epochs(KEY, "lane"),
        await store.hidden(KEY),
        await store.summaries(KEY, ["one"]),
        await store.injection(KEY),
        await found(store, "u1", "a1"),
    )
    return repr(everything)


class TestWhatIsStored:
    async def test_nothing_of_messages_names_summaries_or_plans_can_be_read_in_the_store(
        self, opened: Open, valkey: Server
    ) -> None:
        await fill(opened("secret"))
        kept = dump(valkey.url)
        assert len(kept) > 30
        assert [text for text in kept if CANARY.encode() in text or b"content" in text] == []

    async def test_what_is_not_encrypted_can_be_read_there(self, opened: Open, valkey: Server) -> None:
        await fill(opened("secret", encrypts=False))
        kept = dump(valkey.url)
        assert [text for text in kept if CANARY.encode() in text]
        assert [text for text in kept if b'"content":"u1"' in text]

    async def test_equal_texts_are_not_stored_alike(self, opened: Open, valkey: Server) -> None:
        store = opened("secret")
        for address in ("one", "two"):
            await store.keep_summary(KEY, address, CANARY, DAY)
        assert valkey.run("HGET", PLANTED["summaries"], "one") != valkey.run(
            "HGET", PLANTED["summaries"], "two"
        )


class TestPlainAndSealed:
    @pytest.mark.parametrize(("before", "after"), [(False, True), (True, False)])
    async def test_what_was_written_before_encryption_was_turned_on_or_off_is_read(
        self, before: bool, after: bool, opened: Open
    ) -> None:
        await fill(opened("secret", encrypts=before))
        store = opened("secret", encrypts=after)
        assert (await read(store)).count(CANARY) >= 7
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        assert len(await store.nodes(KEY)) == 4

    async def test_a_record_is_sealed_only_while_that_is_wanted(self, opened: Open, valkey: Server) -> None:
        for address, encrypts in (("one", True), ("two", False)):
            await opened("secret", encrypts=encrypts).keep_summary(KEY, address, "text", DAY)
            stored: bytes = valkey.run("HGET", PLANTED["summaries"], address)
            assert stored.startswith(SEALED) is encrypts


class TestRotation:
    async def test_what_the_old_secret_sealed_is_read_and_what_is_written_needs_the_new_one(
        self, opened: Open
    ) -> None:
        await fill(opened("old"))
        rotated = opened("new", "old")
        assert (await read(rotated)).count(CANARY) >= 7
        await rotated.keep_summary(KEY, "two", "news", DAY)
        assert await opened("new").summaries(KEY, ["two"]) == {"two": "news"}
        with pytest.raises(UnknownSecret):
            await opened("old").summaries(KEY, ["two"])

    async def test_the_order_of_secrets_decides_which_one_writes_not_which_one_reads(
        self, opened: Open
    ) -> None:
        await fill(opened("one"))
        assert await read(opened("one", "two")) == await read(opened("two", "one"))


class TestAnotherSecret:
    async def test_is_a_clear_error_and_costs_no_record(self, opened: Open, valkey: Server) -> None:
        await fill(opened("secret"))
        before = sorted(dump(valkey.url))
        stranger = opened("another")
        calls = (
            lambda: found(stranger, "u1", "a1"),
            lambda: stranger.history(KEY),
            lambda: stranger.session(KEY),
            lambda: stranger.epochs(KEY, "lane"),
            lambda: stranger.hidden(KEY),
            lambda: stranger.injection(KEY),
            lambda: stranger.summaries(KEY, ["one"]),
        )
        for call in calls:
            with pytest.raises(UnknownSecret, match="encrypted with another UNABRIDGED_SECRET"):
                await call()
        assert sorted(dump(valkey.url)) == before
        assert (await read(opened("secret"))).count(CANARY) >= 7

    async def test_is_no_reason_to_discard_what_stands_beside_a_damaged_record(
        self, opened: Open, valkey: Server
    ) -> None:
        await fill(opened("secret"))
        valkey.run("HSET", PLANTED["session"], "record", "junk")
        before = sorted(dump(valkey.url))
        with pytest.raises(UnknownSecret):
            await found(opened("another"), "u1", "a1")
        assert sorted(dump(valkey.url)) == before
        whole = opened("secret")
        assert len(await whole.nodes(KEY)) == 2
        assert len(await whole.hidden(KEY)) == 1
        assert await whole.summaries(KEY, ["one"]) == {"one": CANARY}

    async def test_hides_its_sessions_from_the_listing_and_no_others(self, opened: Open) -> None:
        await fill(opened("secret"))
        stranger = opened("another")
        await stranger.record(OTHER, turn("u1", "a1"), DAY)
        listed = await stranger.sessions(10)
        assert [key for key, _ in listed.sessions] == [OTHER]
        assert listed.left_out == {"unknown_secret": 1}

    async def test_is_said_once_in_the_log(
        self, opened: Open, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logging.getLogger("proxy"), "handlers", [caplog.handler])
        monkeypatch.setattr(logging.getLogger("proxy"), "propagate", False)
        await fill(opened("secret"))
        stranger = opened("another")
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await stranger.session(KEY)
        said = [record for record in caplog.records if "another secret" in record.getMessage()]
        assert len(said) == 1

    async def test_a_store_without_any_secret_says_so_too(
        self, opened: Open, valkey: Server, clock: HandClock
    ) -> None:
        await fill(opened("secret"))
        async with aclosing(RedisStore(valkey.url, clock, PATIENCE, 1.0)) as plain:
            with pytest.raises(UnknownSecret):
                await plain.session(KEY)


class TestDamage:
    async def test_a_sealed_record_that_was_changed_is_unreadable(self, opened: Open, valkey: Server) -> None:
        store = opened("secret")
        await fill(store)
        stored: bytes = valkey.run("HGET", PLANTED["summaries"], "one")
        for changed in (stored[:-1], stored[:9], stored + b"x", SEALED):
            valkey.run("HSET", PLANTED["summaries"], "one", changed)
            with pytest.raises(DamagedRecord):
                await store.summaries(KEY, ["one"])

    async def test_a_record_that_was_moved_is_not_believed(self, opened: Open, valkey: Server) -> None:
        store = opened("secret")
        await fill(store)
        mine: bytes = valkey.run("HGET", PLANTED["summaries"], "one")
        valkey.run("HSET", PLANTED["summaries"], "two", mine)
        valkey.run("HSET", f"u1:{{{OTHER.tag}}}:{OTHER.sid}:summaries", "one", mine)
        for key, address in ((KEY, "two"), (OTHER, "one")):
            with pytest.raises(DamagedRecord):
                await store.summaries(key, [address])
        valkey.run("DEL", f"u1:{{{OTHER.tag}}}:{OTHER.sid}:summaries")

    async def test_a_damaged_message_comes_back_with_the_next_body(
        self, opened: Open, valkey: Server
    ) -> None:
        store = opened("secret")
        await store.record(KEY, turn("u1", "a1"), DAY)
        node: bytes = valkey.run("HGET", PLANTED["nodes"], chain("u1")[0])
        valkey.run("HSET", PLANTED["nodes"], chain("u1")[0], node[:-1] + bytes([node[-1] ^ 1]))
        with pytest.raises(DamagedRecord):
            await store.history(KEY)
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert len((await store.history(KEY)).nodes) == 2

"""A server that answers, and refuses."""

from __future__ import annotations

import asyncio

import pytest

from proxy.adapters.stores.redis import RedisStore
from proxy.errors import StoreUnavailable
from tests.support.calls import Call, every_write, turns, until_refused
from tests.support.servers import PATIENCE
from tests.support.stores import DAY, KEY, HandClock, Server, found, turn


class TestAServerThatRefuses:
    @every_write
    async def test_a_full_one_refuses_writes_and_still_answers_questions(
        self, call: Call, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        valkey.run("CONFIG", "SET", "maxmemory", "1")
        with pytest.raises(StoreUnavailable):
            await call(store)
        assert (await found(store, "u1", "a1", "u2", sid=None)).sid == KEY.sid
        valkey.run("CONFIG", "SET", "maxmemory", "0")
        await call(store)

    @every_write
    async def test_a_replica_refuses_writes_and_still_answers_questions(
        self, call: Call, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        valkey.run("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(StoreUnavailable):
            await call(store)
        assert (await found(store, "u1", "a1", "u2", sid=None)).sid == KEY.sid
        valkey.run("REPLICAOF", "NO", "ONE")
        await call(store)

    async def test_one_that_cannot_write_to_its_disk_refuses_writes(
        self, store: RedisStore, valkey: Server
    ) -> None:
        dump = valkey.socket.with_name("dump.rdb")
        dump.mkdir()
        valkey.run("CONFIG", "SET", "save", "3600 1")
        valkey.run("BGSAVE")
        await until_refused(lambda: store.record(KEY, turn("u1", "a1"), DAY))
        dump.rmdir()
        valkey.run("SAVE")
        await store.record(KEY, turn("u1", "a1"), DAY)

    async def test_one_that_is_still_loading_is_not_there_yet(
        self, hasty: RedisStore, valkey: Server, clock: HandClock
    ) -> None:
        await hasty.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("DEBUG", "POPULATE", 500)
        valkey.run("CONFIG", "SET", "key-load-delay", "1000")  # microseconds for each key
        loading = asyncio.create_task(asyncio.to_thread(valkey.run, "DEBUG", "RELOAD"))
        await until_refused(hasty.ping)
        await loading
        clock.time += 1.0
        assert await turns(hasty) == 1

    async def test_one_that_wants_a_password_says_so(self, valkey: Server, clock: HandClock) -> None:
        valkey.run("CONFIG", "SET", "requirepass", "secret")
        store = RedisStore(f"{valkey.url}?password=wrong", clock, PATIENCE, rest=1.0)
        with pytest.raises(StoreUnavailable):
            await store.ping()
        await store.aclose()

    async def test_one_that_forgot_the_scripts_is_told_them_again(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        valkey.run("SCRIPT", "FLUSH")
        assert (await found(store, "u1", "a1", "u2", sid=None)).sid == KEY.sid
        valkey.run("SCRIPT", "FLUSH")
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        assert await turns(store) == 2

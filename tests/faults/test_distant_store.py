"""A store on the other side of an ocean is a store: it is used, however long each reply takes to arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from proxy.adapters.stores.redis import RedisStore
from proxy.errors import StoreUnavailable
from proxy.ports import Recorded
from tests.support.append_client import Appender, contents
from tests.support.clients import Chat, is_ready, proxying, user
from tests.support.network import Shim, relaying, relaying_to_port
from tests.support.servers import eventually, until
from tests.support.stores import (
    DAY,
    KEY,
    HandClock,
    Server,
    found,
    free_port,
    is_left_alone,
    serving,
    turn,
    valkey_command,
    wait_until,
)
from tests.support.upstreams import Model

OCEAN = 0.3
"""Seconds that a reply takes across it."""
USUAL: dict[str, Any] = {"store_timeout": 0.5, "store_breaker": 1.0}
"""The settings as they are where nobody sets them."""
LARGE = "Tell me all of it, please. " * 4_000


@pytest.fixture
async def ocean(durable: Server) -> AsyncIterator[Shim]:
    async with relaying(durable.socket) as between:
        between.lag = OCEAN
        yield between


async def test_clients_that_send_their_history_never_feel_that_it_is_far_away(
    model: Model, ocean: Shim
) -> None:
    async with proxying(model.url, store=ocean.url, **USUAL) as url:
        chats = [Chat(url) for _ in range(4)]
        for chat in chats:
            chat.headers["X-Unabridged-Session"] = f"s{id(chat)}"
        for number in range(2):
            answers = await asyncio.gather(*(chat.ask(f"question {number}") for chat in chats))
            assert [answer.status_code for answer in answers] == [200] * 4
            assert [answer.headers.get("x-unabridged-degraded") for answer in answers] == [None] * 4
        for chat in chats:
            await chat.client.aclose()


async def test_clients_that_append_are_answered_with_their_whole_history(model: Model, ocean: Shim) -> None:
    said = ["first", LARGE]
    async with proxying(model.url, policy="off", store=ocean.url, **USUAL) as url:
        appender = Appender(url, members={"model": "gpt-test", "stream": True})
        async with appender.client:
            for number, text in enumerate(said):
                answer = await appender.say(user(text))
                assert answer.status_code == 200
                assert "history_not_saved" not in answer.text
                assert contents(model.views()[-1])[::2] == said[: number + 1]


async def test_a_store_that_moves_away_is_used_again_as_soon_as_that_was_measured(
    model: Model, ocean: Shim
) -> None:
    ocean.lag = 0.0
    async with proxying(model.url, store=ocean.url, store_timeout=0.2, store_breaker=0.2) as url:
        chat = Chat(url)
        async with chat.client:
            await chat.ask("from near by")
            ocean.lag = 2 * OCEAN
            assert "x-unabridged-degraded" in (await chat.ask("from far away")).headers
            await until(True, lambda: is_ready(url))
            assert (await chat.ask("and now?")).headers["x-unabridged-degraded"] == "previous-turn"
            assert "x-unabridged-degraded" not in (await chat.ask("still?")).headers


async def test_a_connection_that_takes_longer_than_any_caller_waits_is_made_to_its_end(
    shim: Shim, clock: HandClock
) -> None:
    shim.lag = 2 * OCEAN
    async with aclosing(RedisStore(shim.url, clock, timeout=0.2, rest=1.0)) as store:
        with pytest.raises(StoreUnavailable):
            await store.ping()
        await eventually(lambda: not is_left_alone(store))
        await store.ping()
        assert await store.record(KEY, turn("u1", "a1"), DAY) is Recorded.KEPT


async def test_a_connection_of_several_round_trips_has_time_for_each(
    shim: Shim, valkey: Server, clock: HandClock
) -> None:
    valkey.run("CONFIG", "SET", "requirepass", "secret")
    shim.lag = OCEAN / 2
    url = f"{shim.url}?password=secret&db=1"
    async with aclosing(RedisStore(url, clock, timeout=0.25, rest=1.0)) as store:
        assert await store.meet()
        assert await asyncio.gather(*(store.nodes(KEY) for _ in range(4))) == [{}] * 4


async def test_calls_that_wait_for_a_trip_have_their_own_time_after_it(shim: Shim, clock: HandClock) -> None:
    """Those who wait for the first one wait for longer than one trip may take, in all."""
    async with aclosing(RedisStore(shim.url, clock, timeout=2.0, rest=1.0)) as store:
        await store.record(KEY, turn("u1", "a1"), DAY)
        shim.lag = 4 * OCEAN
        first = asyncio.create_task(found(store, "u1", "a1"))
        await asyncio.sleep(0.05)
        later = [asyncio.create_task(found(store, "u1", "a1")) for _ in range(3)]
        for each in (first, *later):
            assert (await each).session is not None


async def test_a_server_farther_away_than_a_store_may_be_is_none(shim: Shim, clock: HandClock) -> None:
    """Each request would wait for it."""
    async with aclosing(RedisStore(shim.url, clock, timeout=0.2, rest=1.0)) as store:
        await store.ping()
        shim.lag = 1.2
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(store.ping(), 1.0)
            clock.time += 1.0
        await asyncio.sleep(1.3)
        assert is_left_alone(store)


async def test_a_cluster_far_away_is_used(clock: HandClock) -> None:
    port, bus = str(free_port()), str(free_port())
    own = ["--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", bus, "--port", port]
    with serving(valkey_command(), *own) as server:
        server.run("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in server.run("CLUSTER", "INFO"))
        async with relaying_to_port(int(port)) as between:
            url = between.url.replace("http", "redis+cluster")
            server.run("CONFIG", "SET", "cluster-announce-port", url.rpartition(":")[2])
            between.lag = OCEAN / 2
            async with aclosing(RedisStore(url, clock, timeout=0.25, rest=1.0)) as store:
                assert await store.meet()
                written = [store.record(KEY, turn("u1", "a1"), DAY) for _ in range(3)]
                assert await asyncio.gather(*written) == [Recorded.KEPT] * 3
                assert (await found(store, "u1", "a1")).session is not None
                await store.ping()

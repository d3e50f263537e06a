"""A session may be as long as it likes, and the line slow: it is read and written, and no other pays."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, cast

import pytest
import uvloop

from proxy.adapters.stores.redis import RedisStore, deadline, pool
from proxy.core.conversation.records import Turn
from proxy.errors import StoreUnavailable
from proxy.ports import Recorded
from tests.support.append_client import Appender, contents
from tests.support.clients import proxying, user
from tests.support.network import Shim, relaying, relaying_to_port
from tests.support.servers import PATIENCE, eventually
from tests.support.stores import (
    DAY,
    KEY,
    OTHER,
    THIRD,
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

SLOW = 400_000
"""Bytes a second."""
LARGE = 1_000_000
"""Bytes that take several times as long as a round trip may, on a line as slow as that."""


HASTE = 0.5
"""Seconds after which a store gives up: its default."""


def long_turn(messages: int, known: int = 0, size: int = LARGE) -> Turn:
    """A turn of so many messages, of `size` bytes together."""
    names = [f"u{number}" + "x" * (size // messages) for number in range(messages)]
    return turn(*[f"k{number}" for number in range(known)], *names, "a", known=known)


@pytest.fixture
async def afar(shim: Shim, clock: HandClock, store: RedisStore) -> AsyncIterator[RedisStore]:
    """A store behind the shim that soon gives up, with a short session and connections that were measured."""
    await store.record(OTHER, turn("u1", "a1"), DAY)
    async with aclosing(RedisStore(shim.url, clock, timeout=HASTE, rest=1.0)) as opened:
        assert await opened.meet()
        yield opened


Reading = Callable[[RedisStore], Coroutine[object, object, int]]


async def history(store: RedisStore) -> int:
    return len((await store.history(KEY)).nodes)


async def transcript(store: RedisStore) -> int:
    return len(await store.nodes(KEY))


every_reading = pytest.mark.parametrize("reading", [history, transcript])
every_length = pytest.mark.parametrize("messages", [1, 60], ids=["one message", "many messages"])


async def others(store: RedisStore, until: asyncio.Task[Any]) -> int:
    """How often another session was read until the task was done; each time it is there."""
    times = 0
    while not until.done():
        assert len(await store.nodes(OTHER)) == 2
        assert not is_left_alone(store)
        times += 1
    return times


@every_length
@every_reading
async def test_a_large_session_is_read_over_a_slow_line_while_others_are_served(
    shim: Shim, afar: RedisStore, store: RedisStore, reading: Reading, messages: int
) -> None:
    await store.record(KEY, long_turn(messages), DAY)
    shim.rate = SLOW
    read = asyncio.create_task(reading(afar))
    assert await others(afar, until=read)
    assert await read == messages + 1


@every_length
async def test_a_large_turn_is_written_over_a_slow_line_while_others_are_served(
    shim: Shim, afar: RedisStore, messages: int
) -> None:
    shim.upload(SLOW)
    written = asyncio.create_task(afar.record(KEY, long_turn(messages), DAY))
    assert await others(afar, until=written)
    assert await written is Recorded.KEPT
    shim.upload(None)
    assert await transcript(afar) == messages + 1


async def test_a_store_that_takes_nothing_more_of_a_large_turn_is_left_alone(
    shim: Shim, afar: RedisStore
) -> None:
    shim.upload(0)
    with pytest.raises(StoreUnavailable, match="timed out"):
        await asyncio.wait_for(afar.record(KEY, long_turn(messages=1), DAY), HASTE + PATIENCE)
    assert is_left_alone(afar)


async def test_a_store_that_takes_a_large_turn_all_too_slowly_is_not_kept_from_others(
    shim: Shim, afar: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "SLOWEST", 4 * SLOW)
    shim.upload(SLOW)
    with pytest.raises(StoreUnavailable, match="timed out"):
        await afar.record(KEY, long_turn(messages=1, size=4 * LARGE), DAY)
    assert not is_left_alone(afar)
    assert len(await afar.nodes(OTHER)) == 2


def test_a_connection_that_is_lost_in_a_large_turn_has_no_more_to_send(valkey: Server) -> None:
    """On the loop of production, which then has no socket to be asked."""

    async def left() -> int:
        short = pool.AdaptiveTimeout(HASTE)
        timeouts = pool.Timeouts(short, short, lambda: None)
        connection = await cast("Any", pool.connection_pool(valkey.url, timeouts)).get_connection()
        connection._writer.transport.abort()
        await asyncio.sleep(0)
        unsent: int = connection._unsent()
        await connection.disconnect()
        return unsent

    assert uvloop.run(left()) == 0


async def test_a_store_that_takes_a_turn_and_is_silent_is_left_alone_whatever_its_timeout(
    shim: Shim, clock: HandClock
) -> None:
    waiting, size = 5.0, 8_000  # as an operator may set it; and a turn of 9 KB as it is sent
    async with aclosing(RedisStore(shim.url, clock, timeout=waiting, rest=1.0)) as afar:
        for session in (OTHER, THIRD):  # the scripts are sent with the first calls
            await afar.record(session, turn("u1", "a1"), DAY)
        shim.swallow = True
        with pytest.raises(StoreUnavailable, match="timed out"):
            await afar.record(KEY, long_turn(messages=1, size=size), DAY)
        assert is_left_alone(afar)


async def test_what_is_new_in_a_session_may_be_large_too(
    shim: Shim, afar: RedisStore, store: RedisStore
) -> None:
    await store.record(KEY, turn("k0", "k1"), DAY)
    known = await afar.history(KEY)
    await store.record(KEY, long_turn(messages=1, known=2), DAY)
    shim.rate, before = SLOW, shim.trips
    read = asyncio.create_task(afar.history(KEY, known.mark))
    await eventually(lambda: shim.trips > before and not shim.waiting)  # its reply has begun
    assert await found(afar, "u1", "a1", sid=OTHER.sid)
    assert not read.done()  # no other session waits for the end of that reply
    news = await read
    assert news.is_news
    assert len(news.nodes) == 2
    assert not is_left_alone(afar)


async def test_a_large_session_that_tries_a_store_again_is_read(
    shim: Shim, afar: RedisStore, store: RedisStore, clock: HandClock
) -> None:
    await store.record(KEY, turn("k0", "k1"), DAY)
    known = await afar.history(KEY)
    await store.record(KEY, long_turn(messages=1, known=2), DAY)
    shim.part()
    shim.refuses = True
    for mark in (None, known.mark):  # by each of the two ways to the server
        with pytest.raises(StoreUnavailable):
            await afar.history(KEY, mark)
        clock.time += 1.0
    shim.refuses, shim.rate = False, SLOW
    assert (await afar.history(KEY, known.mark)).is_news
    assert not is_left_alone(afar)


async def test_to_wait_while_large_sessions_use_all_connections_is_no_failure_of_the_store(
    shim: Shim, store: RedisStore, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "CONNECTIONS", 2)
    await store.record(KEY, long_turn(messages=1), DAY)
    async with aclosing(RedisStore(shim.url, clock, timeout=HASTE, rest=1.0)) as afar:
        assert await afar.meet()
        shim.rate = SLOW
        reads = [asyncio.create_task(transcript(afar)) for _ in range(2)]
        await asyncio.sleep(HASTE / 10)
        with pytest.raises(StoreUnavailable):
            await transcript(afar)
        assert not is_left_alone(afar)
        assert await asyncio.gather(*reads) == [2, 2]


async def silent(store: RedisStore) -> None:
    """Read from a store that does not answer: it is waited for once, and no longer than a trip may take."""
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(store.nodes(OTHER), HASTE + PATIENCE)
    assert is_left_alone(store)


async def test_how_long_the_store_is_waited_for_does_not_grow_with_what_was_read_and_written(
    shim: Shim, afar: RedisStore, store: RedisStore
) -> None:
    await store.record(KEY, long_turn(messages=1), DAY)
    shim.rate = SLOW
    for reading in (history, transcript):
        await reading(afar)
    shim.rate = None
    shim.upload(SLOW)
    await afar.record(THIRD, long_turn(messages=1), DAY)
    assert afar._connection._timeouts.trip.seconds < 2 * HASTE  # pyright: ignore[reportPrivateUsage]
    shim.upload(None)
    shim.swallow = True
    await silent(afar)


async def test_a_store_that_stops_in_the_middle_of_a_reply_is_given_up_and_serves_others(
    shim: Shim, afar: RedisStore, store: RedisStore, clock: HandClock
) -> None:
    await store.record(KEY, long_turn(messages=1), DAY)
    shim.stall = 10_000
    with pytest.raises(StoreUnavailable, match="timed out"):
        await asyncio.wait_for(afar.nodes(KEY), HASTE + PATIENCE)
    assert not is_left_alone(afar)
    assert len(await afar.nodes(OTHER)) == 2
    shim.stall = 0
    await silent(afar)
    shim.stall = None
    clock.time += 1.0
    assert len(await afar.nodes(KEY)) == 2


async def test_what_came_while_this_process_was_busy_has_come_in_time(
    valkey: Server, hasty: RedisStore
) -> None:
    """As when it decodes another session."""
    await hasty.record(OTHER, turn("u1", "a1"), DAY)
    await hasty.nodes(OTHER)
    assert valkey.process is not None
    for call in (hasty.nodes(OTHER), found(hasty, "u1", "a1", sid=OTHER.sid)):
        os.kill(valkey.process.pid, signal.SIGSTOP)
        asked = asyncio.create_task(call)
        await asyncio.sleep(HASTE / 10)
        os.kill(valkey.process.pid, signal.SIGCONT)
        time.sleep(3 * HASTE)  # noqa: ASYNC251 - the loop is blocked
        assert await asked


async def test_a_large_session_of_a_cluster_is_read_and_written_over_a_slow_line(clock: HandClock) -> None:
    port, bus = str(free_port()), str(free_port())
    own = ["--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", bus, "--port", port]
    with serving(valkey_command(), *own) as server:
        server.run("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        wait_until(lambda: b"cluster_state:ok" in server.run("CLUSTER", "INFO"))
        async with relaying_to_port(int(port)) as between:
            url = between.url.replace("http", "redis+cluster")
            server.run("CONFIG", "SET", "cluster-announce-port", url.rpartition(":")[2])
            async with aclosing(RedisStore(url, clock, timeout=PATIENCE, rest=1.0)) as patient:
                await patient.record(KEY, long_turn(messages=1), DAY)
                await patient.record(OTHER, turn("u1", "a1"), DAY)
            async with aclosing(RedisStore(url, clock, timeout=HASTE, rest=1.0)) as store:
                assert await store.meet()
                between.rate = SLOW
                for reading in (history, transcript):
                    read = asyncio.create_task(reading(store))
                    assert await others(store, until=read)
                    assert await read == 2
                between.rate = None
                between.upload(4 * SLOW)  # of loopback a receiver takes some 64 KB at a time
                large = long_turn(messages=1, size=4 * LARGE)
                written = asyncio.create_task(store.record(THIRD, large, DAY))
                assert await others(store, until=written)
                assert await written is Recorded.KEPT


async def test_clients_that_append_to_a_large_session_are_answered_and_so_are_all_others(
    model: Model, durable: Server
) -> None:
    text = "Tell me all of it, please. " * (LARGE // 27)
    async with relaying(durable.socket) as shim:
        settings: dict[str, Any] = {"policy": "off", "store": shim.url, "secret": "s" * 32}
        async with proxying(model.url, **settings) as url:
            for session, said in (("large", text), ("small", "first")):
                appender = Appender(url, session)
                async with appender.client:
                    assert (await appender.say(user(said))).status_code == 200
        shim.rate = 2 * SLOW
        async with proxying(
            model.url, **settings, store_timeout=HASTE
        ) as url:  # one that has read nothing yet
            large, small = Appender(url, "large"), Appender(url, "small")
            large.client.timeout = None
            async with large.client, small.client:
                asked = asyncio.create_task(large.ask("second"))
                while not asked.done():
                    assert (await small.ask("and now?")).status_code == 200
                assert (await asked).status_code == 200
        assert [text, "second"] in [contents(view)[::2] for view in model.views()]


async def test_clients_that_append_a_large_message_are_answered_and_so_are_all_others(
    model: Model, durable: Server
) -> None:
    text = "Here is all of it. " * (LARGE // 19)
    async with relaying(durable.socket) as shim:
        async with proxying(
            model.url, policy="off", store=shim.url, secret="s" * 32, store_timeout=HASTE
        ) as url:
            large, small = Appender(url, "large"), Appender(url, "small")
            large.client.timeout = None
            async with large.client, small.client:
                shim.upload(SLOW)
                asked = asyncio.create_task(large.ask(text))
                while not asked.done():
                    assert (await small.ask("and now?")).status_code == 200
                assert (await asked).status_code == 200
        assert [text] in [contents(view) for view in model.views()]

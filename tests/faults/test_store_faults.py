"""Whatever happens to the server, the store says StoreUnavailable in time,
nothing is written twice, and it recovers by itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Generator
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from proxy.adapters.stores.redis import RedisStore
from proxy.errors import StoreUnavailable
from tests.support.calls import HASTE, PLANTED, Call, every_call, turns
from tests.support.network import relaying
from tests.support.servers import PATIENCE, eventually
from tests.support.stores import DAY, KEY, OTHER, HandClock, Server, epoch, found, turn

BOUND = HASTE + PATIENCE  # a busy machine's allowance; without a limit of ours each of these waits for ever


@contextmanager
def frozen(server: Server) -> Generator[None]:
    """The server stopped in its tracks: it accepts connections and answers nothing."""
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


class TestAServerThatIsGone:
    @every_call
    async def test_every_call_says_so(self, call: Call, tmp_path: Path, clock: HandClock) -> None:
        store = RedisStore(f"unix://{tmp_path}/nobody", clock, PATIENCE, rest=1.0)
        with pytest.raises(StoreUnavailable):
            await call(store)
        await store.aclose()

    async def test_a_name_that_resolves_to_nothing_says_so(self, clock: HandClock) -> None:
        store = RedisStore("redis://127.0.0.1:1/0", clock, PATIENCE, rest=1.0)
        with pytest.raises(StoreUnavailable) as caught:
            await store.ping()
        assert "127.0.0.1" not in str(caught.value)
        await store.aclose()

    async def test_one_that_was_down_at_start_is_used_when_it_is_up(
        self, valkey: Server, clock: HandClock
    ) -> None:
        valkey.kill()
        store = RedisStore(valkey.url, clock, PATIENCE, rest=1.0)
        with pytest.raises(StoreUnavailable):
            await store.ping()
        valkey.start()
        clock.time += 1.0
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert await turns(store) == 1
        await store.aclose()

    async def test_one_killed_midway_is_used_again_with_its_old_connections_dead(
        self, store: RedisStore, valkey: Server, clock: HandClock
    ) -> None:
        await asyncio.gather(*(store.ping() for _ in range(8)))
        valkey.kill()
        with pytest.raises(StoreUnavailable):
            await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.start()
        clock.time += 1.0
        await store.ping()
        await asyncio.gather(*(store.record(KEY, turn("u1", "a1"), DAY) for _ in range(8)))
        assert await turns(store) == 1


class TestAServerThatHangs:
    @every_call
    async def test_no_call_waits_longer_than_its_time(
        self, call: Call, hasty: RedisStore, valkey: Server
    ) -> None:
        await hasty.ping()
        with frozen(valkey), pytest.raises(StoreUnavailable):
            await asyncio.wait_for(call(hasty), BOUND)

    async def test_a_new_connection_waits_no_longer_either(self, hasty: RedisStore, valkey: Server) -> None:
        with frozen(valkey), pytest.raises(StoreUnavailable):
            await asyncio.wait_for(hasty.ping(), BOUND)

    async def test_the_second_call_fails_at_once(self, hasty: RedisStore, valkey: Server) -> None:
        with frozen(valkey):
            with pytest.raises(StoreUnavailable):
                await hasty.ping()
            with pytest.raises(StoreUnavailable):
                _without_waiting(hasty.ping())

    async def test_it_is_tried_again_after_its_rest(
        self, hasty: RedisStore, valkey: Server, clock: HandClock
    ) -> None:
        with frozen(valkey), pytest.raises(StoreUnavailable):
            await hasty.ping()
        with pytest.raises(StoreUnavailable):
            await hasty.ping()
        clock.time += 1.0
        await hasty.ping()
        await hasty.ping()

    async def test_more_callers_than_connections_wait_no_longer(
        self, hasty: RedisStore, valkey: Server
    ) -> None:
        await hasty.ping()
        with frozen(valkey):
            calls = [asyncio.wait_for(hasty.ping(), BOUND + 1.0) for _ in range(200)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}

    async def test_one_that_drips_is_cut_off(self, valkey: Server, clock: HandClock) -> None:
        async with relaying(valkey.socket) as relay:
            store = RedisStore(relay.url, clock, HASTE, rest=1.0)
            await store.record(KEY, turn("u1", "a1"), DAY)
            relay.drip = 0.05  # each byte is in time for a socket's own limit; the reply as a whole is not
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(store.nodes(KEY), BOUND)
            await store.aclose()

    async def test_a_second_trip_to_tell_it_a_script_again_has_its_own_time(
        self, valkey: Server, clock: HandClock
    ) -> None:
        async with relaying(valkey.socket) as relay:
            store = RedisStore(relay.url, clock, 2.0, rest=1.0)
            await found(store, "u1")
            valkey.run("SCRIPT", "FLUSH")
            relay.lag, before = 1.2, relay.trips
            await found(store, "u1")
            assert relay.trips == before + 2
            await store.aclose()


class TestCancelledCalls:
    async def test_a_later_call_gets_its_own_reply(self, store: RedisStore) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        for i in range(50):
            await store.keep_summary(KEY, str(i), f"text {i}", DAY)
        for i in range(50):
            task = asyncio.create_task(store.nodes(KEY))
            for _ in range(i % 12):  # each point at which the call waits
                await asyncio.sleep(0)
            task.cancel()
            assert await store.summaries(KEY, [str(i)]) == {str(i): f"text {i}"}

    async def test_a_call_that_ran_out_of_time_leaves_no_reply_behind(
        self, hasty: RedisStore, valkey: Server, clock: HandClock
    ) -> None:
        await hasty.keep_summary(KEY, "one", "first", DAY)
        await hasty.keep_summary(KEY, "two", "second", DAY)
        with frozen(valkey), pytest.raises(StoreUnavailable):
            await hasty.summaries(KEY, ["one"])
        clock.time += 1.0
        assert await hasty.summaries(KEY, ["two"]) == {"two": "second"}

    async def test_one_that_is_cancelled_again_while_it_ends_leaves_no_reply_to_another_session(
        self, store: RedisStore, valkey: Server, clock: HandClock
    ) -> None:
        for key, said in ((KEY, "u1"), (OTHER, "u2")):
            await store.record(key, turn(said), DAY)
        async with relaying(valkey.socket) as relay:
            relay.lag = 0.1
            async with aclosing(RedisStore(relay.url, clock, PATIENCE, rest=1.0)) as afar:
                call = asyncio.create_task(afar.nodes(KEY))
                await eventually(lambda: relay.trips == 2)  # to connect, and to ask
                for _ in range(3):
                    call.cancel()
                    await asyncio.sleep(0)
                assert await afar.nodes(OTHER) == await store.nodes(OTHER)

    async def test_cancelled_calls_give_their_connections_back(self, store: RedisStore) -> None:
        for _ in range(100):
            task = asyncio.create_task(store.ping())
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*(store.ping() for _ in range(32)))


class TestACallerThatLeaves:
    async def test_its_leaving_is_never_swallowed(self, store: RedisStore) -> None:
        await store.ping()
        swallowed: list[int] = []
        for moment in range(200):
            call = asyncio.create_task(store.take_place(KEY, f"ticket {moment}", 1_000, 1.0))
            for _ in range(moment % 40):
                await asyncio.sleep(0)
            if call.cancel():
                await asyncio.wait({call})
                swallowed += [] if call.cancelled() else [moment]
        assert swallowed == []


class TestLostReplies:
    @pytest.mark.parametrize("headerless", [True, False])
    async def test_a_turn_that_was_applied_and_written_again_is_one_turn(
        self, headerless: bool, valkey: Server, clock: HandClock
    ) -> None:
        async with relaying(valkey.socket) as relay:
            store = RedisStore(relay.url, clock, PATIENCE, rest=1.0)
            await store.record(type(KEY)("aa", "warm"), turn("u1", "a1"), DAY)
            relay.lose_replies = True
            with pytest.raises(StoreUnavailable):
                await store.record(KEY, turn("u1", "a1", headerless=headerless), DAY)
            assert valkey.run("HGET", PLANTED["session"], "turns") == b"1"
            relay.lose_replies = False
            clock.time += 1.0
            await store.record(KEY, turn("u1", "a1", headerless=headerless), DAY)
            assert await turns(store) == 1
            assert len(await store.nodes(KEY)) == 2
            await store.aclose()

    async def test_an_epoch_that_was_applied_and_begun_again_is_one_epoch(
        self, valkey: Server, clock: HandClock
    ) -> None:
        async with relaying(valkey.socket) as relay:
            store = RedisStore(relay.url, clock, PATIENCE, rest=1.0)
            await store.begin_epoch(KEY, epoch("e1", lane="warm"), 0, DAY, begins=True)
            relay.lose_replies = True
            with pytest.raises(StoreUnavailable):
                await store.begin_epoch(KEY, epoch("e1"), 0, DAY, begins=True)
            assert valkey.run("LLEN", PLANTED["epochs"]) == 1
            relay.lose_replies = False
            clock.time += 1.0
            assert await store.begin_epoch(KEY, epoch("e1"), 0, DAY, begins=True) == (epoch("e1"),)
            await store.aclose()

    async def test_a_turn_is_kept_although_the_listing_could_not_be_written(
        self, store: RedisStore, valkey: Server
    ) -> None:
        valkey.run("SET", "u1:sessions", "planted")
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert await turns(store) == 1


def _without_waiting(coroutine: Awaitable[object]) -> None:
    """Run a coroutine that must end without once giving way to the loop."""
    iterator = coroutine.__await__()
    try:
        next(iterator)
    except StopIteration:
        return
    pytest.fail("the call waited")

"""FAULTS, row 1 and 2 of the faults: whatever happens to the server, the store says StoreUnavailable in time,
nothing is written twice, and it recovers by itself.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proxy.adapters.redis import RedisStore
from proxy.adapters.redis.breaker import Breaker
from proxy.errors import StoreUnavailable
from proxy.ports import Found, SessionKey
from tests.faults.conftest import TIMEOUT
from tests.stores import (
    DAY,
    KEY,
    HandClock,
    Server,
    chain,
    epoch,
    found,
    relaying,
    turn,
)

BOUND = TIMEOUT + 0.5  # a busy machine's allowance; without a limit of ours each of these waits for ever

Call = Callable[[RedisStore], Awaitable[object]]

CALLS: dict[str, Call] = {
    "find": lambda store: found(store, "u1", "a1"),
    "find by chain": lambda store: found(store, "u1", "a1", sid=None),
    "begin_epoch": lambda store: store.begin_epoch(KEY, epoch("e1"), 0, DAY),
    "record": lambda store: store.record(KEY, turn("u1", "a1", headerless=True), DAY),
    "record cut off": lambda store: store.record(KEY, turn("u1", "a2", complete=False), DAY),
    "summaries": lambda store: store.summaries(KEY, ["one"]),
    "keep_summary": lambda store: store.keep_summary(KEY, "one", "text", DAY),
    "session": lambda store: store.session(KEY),
    "sessions": lambda store: store.sessions(10),
    "nodes": lambda store: store.nodes(KEY),
    "epochs": lambda store: store.epochs(KEY, "lane"),
    "ping": lambda store: store.ping(),
}
WRITES = ["begin_epoch", "record", "keep_summary"]

every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
every_write = pytest.mark.parametrize("call", [CALLS[name] for name in WRITES], ids=WRITES)


@contextmanager
def frozen(server: Server) -> Generator[None]:
    """The server stopped in its tracks: it accepts connections and answers nothing."""
    assert server.process is not None
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)


async def turns(store: RedisStore) -> int:
    session = await store.session(KEY)
    return session.turns if session else 0


class TestAServerThatIsGone:
    @every_call
    async def test_every_call_says_so(self, call: Call, tmp_path: Path, clock: HandClock) -> None:
        store = RedisStore(f"unix://{tmp_path}/nobody", clock, TIMEOUT, rest=1.0)
        with pytest.raises(StoreUnavailable):
            await call(store)
        await store.aclose()

    async def test_a_name_that_resolves_to_nothing_says_so(self, clock: HandClock) -> None:
        store = RedisStore("redis://127.0.0.1:1/0", clock, TIMEOUT, rest=1.0)
        with pytest.raises(StoreUnavailable) as caught:
            await store.ping()
        assert "127.0.0.1" not in str(caught.value)
        await store.aclose()

    async def test_one_that_was_down_at_start_is_used_when_it_is_up(
        self, valkey: Server, clock: HandClock
    ) -> None:
        valkey.kill()
        store = RedisStore(valkey.url, clock, TIMEOUT, rest=1.0)
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
        self, call: Call, store: RedisStore, valkey: Server
    ) -> None:
        await store.ping()
        with frozen(valkey), pytest.raises(StoreUnavailable):
            await asyncio.wait_for(call(store), BOUND)

    async def test_a_new_connection_waits_no_longer_either(self, store: RedisStore, valkey: Server) -> None:
        with frozen(valkey), pytest.raises(StoreUnavailable):
            await asyncio.wait_for(store.ping(), BOUND)

    async def test_the_second_call_fails_at_once(self, store: RedisStore, valkey: Server) -> None:
        with frozen(valkey):
            with pytest.raises(StoreUnavailable):
                await store.ping()
            with pytest.raises(StoreUnavailable):
                _without_waiting(store.ping())

    async def test_it_is_tried_again_after_its_rest(
        self, store: RedisStore, valkey: Server, clock: HandClock
    ) -> None:
        with frozen(valkey), pytest.raises(StoreUnavailable):
            await store.ping()
        with pytest.raises(StoreUnavailable):
            await store.ping()
        clock.time += 1.0
        await store.ping()
        await store.ping()

    async def test_more_callers_than_connections_wait_no_longer(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.ping()
        with frozen(valkey):
            calls = [asyncio.wait_for(store.ping(), BOUND + 1.0) for _ in range(200)]
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {StoreUnavailable}

    async def test_one_that_drips_is_cut_off(self, valkey: Server, clock: HandClock) -> None:
        async with relaying(valkey.socket) as relay:
            store = RedisStore(relay.url, clock, TIMEOUT, rest=1.0)
            await store.record(KEY, turn("u1", "a1"), DAY)
            relay.drip = 0.05  # each byte is in time for a socket's own limit; the reply as a whole is not
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(store.nodes(KEY), BOUND)
            await store.aclose()

    async def test_round_trips_that_are_each_in_time_must_be_so_together(
        self, valkey: Server, clock: HandClock
    ) -> None:
        async with relaying(valkey.socket) as relay:
            store = RedisStore(relay.url, clock, TIMEOUT, rest=1.0)
            await store.ping()
            relay.lag = 0.75 * TIMEOUT  # and the script has to be loaded first
            with pytest.raises(StoreUnavailable):
                await found(store, "u1")
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
        self, store: RedisStore, valkey: Server, clock: HandClock
    ) -> None:
        await store.keep_summary(KEY, "one", "first", DAY)
        await store.keep_summary(KEY, "two", "second", DAY)
        with frozen(valkey), pytest.raises(StoreUnavailable):
            await store.summaries(KEY, ["one"])
        clock.time += 1.0
        assert await store.summaries(KEY, ["two"]) == {"two": "second"}

    async def test_cancelled_calls_give_their_connections_back(self, store: RedisStore) -> None:
        for _ in range(100):
            task = asyncio.create_task(store.ping())
            await asyncio.sleep(0)
            task.cancel()
        await asyncio.gather(*(store.ping() for _ in range(32)))


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
        await _until_refused(lambda: store.record(KEY, turn("u1", "a1"), DAY))
        dump.rmdir()
        valkey.run("SAVE")
        await store.record(KEY, turn("u1", "a1"), DAY)

    async def test_one_that_is_still_loading_is_not_there_yet(
        self, store: RedisStore, valkey: Server, clock: HandClock
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("DEBUG", "POPULATE", 500)
        valkey.run("CONFIG", "SET", "key-load-delay", "1000")  # microseconds for each key
        loading = asyncio.create_task(asyncio.to_thread(valkey.run, "DEBUG", "RELOAD"))
        await _until_refused(store.ping)
        await loading
        clock.time += 1.0
        assert await turns(store) == 1

    async def test_one_that_wants_a_password_says_so(self, valkey: Server, clock: HandClock) -> None:
        valkey.run("CONFIG", "SET", "requirepass", "secret")
        store = RedisStore(f"{valkey.url}?password=wrong", clock, TIMEOUT, rest=1.0)
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


PLANTED = {
    "session": "u1:{aa}:01",
    "nodes": "u1:{aa}:01:nodes",
    "counts": "u1:{aa}:01:counts",
    "lanes": "u1:{aa}:01:lanes",
    "partial": "u1:{aa}:01:partial",
    "summaries": "u1:{aa}:01:summaries",
    "epochs": "u1:{aa}:01:epochs:lane",
    "tips": "u1:{aa}:tips",
    "sessions": "u1:sessions",
}


class TestACallerThatLeaves:
    async def test_its_leaving_is_never_swallowed(self, store: RedisStore) -> None:
        await store.ping()
        swallowed: list[int] = []
        for moment in range(200):
            call = asyncio.create_task(store.stand(KEY, f"ticket {moment}", 1_000, 1.0))
            for _ in range(moment % 40):
                await asyncio.sleep(0)
            if call.cancel():
                await asyncio.wait({call})
                swallowed += [] if call.cancelled() else [moment]
        assert swallowed == []


class TestValuesThatAreNotOurs:
    @pytest.mark.parametrize(
        ("part", "refused"),
        [
            ("session", "session"),
            ("nodes", "record"),
            ("counts", "find"),
            ("lanes", "begin_epoch"),
            ("partial", "record cut off"),
            ("summaries", "summaries"),
            ("epochs", "epochs"),
            ("tips", "find by chain"),
            ("sessions", "sessions"),
        ],
    )
    async def test_a_key_of_another_type_is_store_unavailable_and_nothing_else(
        self, part: str, refused: str, store: RedisStore, valkey: Server
    ) -> None:
        valkey.run("SET", PLANTED[part], "planted")
        outcomes = await _outcomes(store)
        assert isinstance(outcomes[refused], StoreUnavailable)
        await store.ping()

    @pytest.mark.parametrize(
        "junk", [b"", b"\x01", b"\x01\xc1", b"\x01\xa3abc", b"\x02\x80", b"junk", b"\xff"]
    )
    async def test_a_damaged_value_is_store_unavailable_and_nothing_else(
        self, junk: bytes, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
        await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
        await store.keep_summary(KEY, "one", "text", DAY)
        for fieldname in ("record", "created", "turns"):
            valkey.run("HSET", PLANTED["session"], fieldname, junk)
        for part in ("nodes", "counts"):
            valkey.run("HSET", PLANTED[part], chain("u1")[0], junk)
        valkey.run("HSET", PLANTED["summaries"], "one", junk)
        valkey.run("LSET", PLANTED["epochs"], 0, junk)
        outcomes = await _outcomes(store)
        assert isinstance(outcomes["find"], StoreUnavailable)
        assert all(
            isinstance(each, StoreUnavailable) for each in outcomes.values() if isinstance(each, Exception)
        )
        await store.ping()

    async def test_a_damaged_session_is_whole_again_after_its_next_turn(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("HSET", PLANTED["session"], "record", "junk")
        valkey.run("HSET", PLANTED["nodes"], chain("u1")[0], "junk")
        with pytest.raises(StoreUnavailable):
            await found(store, "u1", "a1")
        assert await found(store, "u1", "a1") == Found(was_here=True)
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert (await found(store, "u1", "a1")).session is not None
        assert len(await store.nodes(KEY)) == 2

    async def test_damaged_counts_cost_no_message(self, store: RedisStore, valkey: Server) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("HSET", PLANTED["counts"], chain("u1")[0], "junk")
        with pytest.raises(StoreUnavailable):
            await found(store, "u1", "a1")
        stored = await store.history(KEY)
        assert stored.session is not None
        assert len(stored.nodes) == 2

    async def test_one_session_of_another_type_hides_no_other(
        self, store: RedisStore, valkey: Server
    ) -> None:
        other = SessionKey(KEY.tag, "02")
        for key in (KEY, other):
            await store.record(key, turn("u1", "a1"), DAY)
        valkey.run("DEL", PLANTED["session"])
        valkey.run("SET", PLANTED["session"], "a string")
        valkey.run("EXPIRE", PLANTED["session"], 100)
        assert [key for key, _ in await store.sessions(10)] == [other]

    async def test_a_value_of_another_version_is_not_read_as_ours(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.keep_summary(KEY, "one", "text", DAY)
        stored: bytes = valkey.run("HGET", PLANTED["summaries"], "one")
        valkey.run("HSET", PLANTED["summaries"], "one", b"\x02" + stored[1:])
        with pytest.raises(StoreUnavailable):
            await store.summaries(KEY, ["one"])

    async def test_one_damaged_session_does_not_hide_the_others(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("HSET", PLANTED["session"], "record", "junk")
        other = type(KEY)("aa", "02")
        await store.record(other, turn("u1", "a1"), DAY)
        assert [key for key, _ in await store.sessions(10)] == [other]

    async def test_a_member_of_the_listing_that_is_not_ours_is_dropped(
        self, store: RedisStore, valkey: Server
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        valkey.run("ZADD", "u1:sessions", 9e9, b"\xff\xfe")
        assert [key for key, _ in await store.sessions(10)] == [KEY]


class TestLostReplies:
    @pytest.mark.parametrize("headerless", [True, False])
    async def test_a_turn_that_was_applied_and_written_again_is_one_turn(
        self, headerless: bool, valkey: Server, clock: HandClock
    ) -> None:
        async with relaying(valkey.socket) as relay:
            store = RedisStore(relay.url, clock, TIMEOUT, rest=1.0)
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
            store = RedisStore(relay.url, clock, TIMEOUT, rest=1.0)
            await store.begin_epoch(KEY, epoch("e1", lane="warm"), 0, DAY)
            relay.lose_replies = True
            with pytest.raises(StoreUnavailable):
                await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
            assert valkey.run("LLEN", PLANTED["epochs"]) == 1
            relay.lose_replies = False
            clock.time += 1.0
            assert await store.begin_epoch(KEY, epoch("e1"), 0, DAY) == (epoch("e1"),)
            await store.aclose()

    async def test_a_turn_is_kept_although_the_listing_could_not_be_written(
        self, store: RedisStore, valkey: Server
    ) -> None:
        valkey.run("SET", "u1:sessions", "planted")
        await store.record(KEY, turn("u1", "a1"), DAY)
        assert await turns(store) == 1


class TestTheBreaker:
    def test_lets_calls_pass_until_one_fails(self, clock: HandClock) -> None:
        breaker = Breaker(clock, rest=5.0)
        breaker.admit()
        breaker.succeeded()
        breaker.admit()
        breaker.failed()
        with pytest.raises(StoreUnavailable):
            breaker.admit()

    def test_lets_one_call_try_after_the_rest(self, clock: HandClock) -> None:
        breaker = Breaker(clock, rest=5.0)
        breaker.failed()
        clock.time += 5.0
        breaker.admit()
        with pytest.raises(StoreUnavailable):
            breaker.admit()
        breaker.succeeded()
        breaker.admit()
        breaker.admit()

    def test_rests_again_when_the_trial_fails(self, clock: HandClock) -> None:
        breaker = Breaker(clock, rest=5.0)
        breaker.failed()
        clock.time += 5.0
        breaker.admit()
        clock.time += 1.0
        breaker.failed()
        clock.time += 4.9
        with pytest.raises(StoreUnavailable):
            breaker.admit()

    def test_a_trial_that_never_reports_gives_way_to_another(self, clock: HandClock) -> None:
        breaker = Breaker(clock, rest=5.0)
        breaker.failed()
        clock.time += 5.0
        breaker.admit()
        clock.time += 5.0
        breaker.admit()


def _without_waiting(coroutine: Awaitable[object]) -> None:
    """Run a coroutine that must end without once giving way to the loop."""
    iterator = coroutine.__await__()
    try:
        next(iterator)
    except StopIteration:
        return
    pytest.fail("the call waited")


async def _outcomes(store: RedisStore) -> dict[str, object]:
    """What each call answered or raised. Anything but StoreUnavailable goes through."""
    outcomes: dict[str, object] = {}
    for name, call in CALLS.items():
        try:
            outcomes[name] = await call(store)
        except StoreUnavailable as error:
            outcomes[name] = error
    return outcomes


async def _until_refused(call: Callable[[], Awaitable[object]], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            await call()
        except StoreUnavailable:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it was never refused")

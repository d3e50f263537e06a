"""Another server takes over from the store: as planned, or after a crash and without its newest writes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from proxy.adapters.stores.redis import RedisStore
from proxy.cache import CacheMemory
from proxy.core.conversation.messages import root_hash
from proxy.core.dialects.chat.body import read_body
from proxy.core.dialects.registry import CHAT
from proxy.engine.intake.naming import Naming
from proxy.engine.intake.reader import Reader
from proxy.engine.memory.scope_cache import ScopeCache
from proxy.engine.sessions.recognition import Recognition
from proxy.engine.sessions.session_cache import SessionCache
from proxy.errors import StoreUnavailable
from proxy.ports import Changes, Lookup, LookupResult
from tests.support.append_client import Appender, contents, error_code
from tests.support.clients import Chats, making_chats, proxying
from tests.support.network import relaying
from tests.support.scopes import ABOUT, CHANNEL, items
from tests.support.servers import PATIENCE, until
from tests.support.stores import (
    DAY,
    KEY,
    HandClock,
    Server,
    epoch,
    found,
    free_port,
    hidden,
    serving,
    turn,
    valkey_command,
    wait_until,
)
from tests.support.upstreams import COUNTER, Model


@pytest.fixture
async def chats() -> AsyncIterator[Chats]:
    async with making_chats() as making:
        yield making


# --- a planned failover: the old primary lives on as a replica, and answers on its old connections ---


@pytest.fixture
def pair() -> Generator[tuple[Server, Server]]:
    """A primary, and its replica that has all of it."""
    port = free_port()
    with (
        serving(valkey_command(), "--port", str(port), "--repl-diskless-sync-delay", "0") as primary,
        serving(valkey_command(), "--port", str(free_port())) as replica,
    ):
        replica.run("REPLICAOF", "127.0.0.1", port)
        wait_until(lambda: replica.run("INFO", "replication").get("master_link_status") == "up")
        yield primary, replica


def fail_over(primary: Server, replica: Server) -> None:
    primary.run("FAILOVER")
    wait_until(lambda: replica.run("ROLE")[0] == b"master")


async def test_after_a_planned_failover_turns_are_written_to_the_new_primary(
    pair: tuple[Server, Server], model: Model, chats: Chats
) -> None:
    primary, replica = pair
    async with relaying(primary.socket) as way, proxying(model.url, store=way.url) as url:
        chat, appender = chats(url, X_Unabridged_Session="full"), Appender(url)
        async with appender.client:
            await chat.ask("first")
            assert (await appender.ask("first")).status_code == 200
            await asyncio.to_thread(fail_over, primary, replica)
            way.connect = lambda: asyncio.open_unix_connection(replica.socket)

            async def appended() -> int:
                return (await appender.ask("second")).status_code

            await until(200, appended)
            assert contents(model.views()[-1])[::2] == ["first", "second"]

            async def degraded() -> bool:
                return "x-unabridged-degraded" in (await chat.ask("more")).headers

            await until(False, degraded)
            assert (await appended()) == 200


async def test_a_primary_that_became_a_replica_is_left_by_all_connections(
    pair: tuple[Server, Server], clock: HandClock
) -> None:
    primary, replica = pair
    async with relaying(primary.socket) as way:
        store = RedisStore(way.url, clock, timeout=PATIENCE, rest=1.0)
        await store.ping()
        await store.record(KEY, turn("u1", "a1"), DAY)
        await asyncio.to_thread(fail_over, primary, replica)
        way.connect = lambda: asyncio.open_unix_connection(replica.socket)
        with suppress(StoreUnavailable):  # unless what lists the session was refused before it
            await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        await store.ping()  # by other connections
        assert (await found(store, "u1", "a1", "u2", "a2")).known is not None
        await store.aclose()


async def test_a_store_that_stays_read_only_is_not_connected_to_with_each_write(
    valkey: Server, clock: HandClock
) -> None:
    store = RedisStore(valkey.url, clock, timeout=PATIENCE, rest=1.0)
    await store.record(KEY, turn("u1", "a1"), DAY)
    valkey.run("REPLICAOF", "127.0.0.1", "1")
    before = valkey.run("INFO", "stats")["total_connections_received"]
    for _ in range(20):
        with pytest.raises(StoreUnavailable):
            await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
    made = valkey.run("INFO", "stats")["total_connections_received"] - before
    assert made < 10
    await store.aclose()


# --- a failover to a replica that lagged: the newest writes are lost, and others are made in their place ---


@pytest.fixture
async def workers(valkey: Server, clock: HandClock) -> AsyncIterator[tuple[RedisStore, RedisStore]]:
    """Two stores on one server."""
    opened = [RedisStore(valkey.url, clock, timeout=PATIENCE, rest=1.0) for _ in range(2)]
    yield opened[0], opened[1]
    for each in opened:
        await each.aclose()


def come_back_as_saved(server: Server) -> None:
    """Take from a server what was written since its last SAVE."""
    server.kill()
    server.start()


async def follow(clock: HandClock, *stores: RedisStore) -> None:
    """Let workers find that the server is there again."""
    clock.time += 2.0
    for each in stores:
        await each.ping()


async def test_what_is_forgotten_after_changes_were_lost_comes_back_from_no_worker(
    valkey: Server, workers: tuple[RedisStore, RedisStore], clock: HandClock
) -> None:
    here, there = (ScopeCache(store.memories, CacheMemory()) for store in workers)
    await here.change(CHANNEL, lambda _: Changes(about=ABOUT, items=items("secret", "other")))
    await there.remembered(CHANNEL)
    valkey.run("SAVE")
    await here.change(CHANNEL, lambda _: Changes(items=items("lost")))
    await asyncio.to_thread(come_back_as_saved, valkey)
    await follow(clock, *workers)
    await there.change(CHANNEL, lambda _: Changes(items={"secret": None}))
    assert set((await here.remembered(CHANNEL)).items) == {"other"}
    await there.change(CHANNEL, lambda _: Changes(items=items("new")))
    for each in (here, there):
        assert set((await each.remembered(CHANNEL)).items) == {"other", "new"}


async def test_a_change_that_was_decided_on_what_is_lost_is_not_written(
    valkey: Server, workers: tuple[RedisStore, RedisStore], clock: HandClock
) -> None:
    here, there = (store.memories for store in workers)
    seen = await here.change(CHANNEL, Changes(about=ABOUT, items=items("i1")), 0)
    valkey.run("SAVE")
    lost = await here.change(CHANNEL, Changes(items=items("lost")), seen)
    await asyncio.to_thread(come_back_as_saved, valkey)
    await follow(clock, *workers)
    await there.change(CHANNEL, Changes(items=items("i2")), seen)
    assert not await here.change(CHANNEL, Changes(items={"i1": None}), lost)
    assert (await here.remembered(CHANNEL, lost)).items == items("i1", "i2")


@pytest.fixture
async def appenders(valkey: Server, model: Model) -> AsyncIterator[tuple[Appender, Appender]]:
    """Clients of one session, each at a worker of its own."""
    async with (
        proxying(model.url, store=valkey.url) as url,
        proxying(model.url, store=valkey.url) as other,
    ):
        here, there = Appender(url), Appender(other)
        async with here.client, there.client:
            yield here, there


async def test_an_appended_turn_after_turns_were_lost_has_all_that_others_wrote_in_their_place(
    valkey: Server, model: Model, appenders: tuple[Appender, Appender]
) -> None:
    here, there = appenders
    await here.ask("first")
    valkey.run("SAVE")
    await here.ask("lost")
    await here.ask("lost too")
    await asyncio.to_thread(come_back_as_saved, valkey)
    told = ["first"]
    for number, appender in enumerate((there, here, here, there, here)):

        async def answered(appender: Appender = appender, text: str = f"turn {number}") -> int:
            return (await appender.ask(text)).status_code

        await until(200, answered)
        told.append(f"turn {number}")
        assert contents(model.views()[-1])[::2] == told


@dataclass
class Worker:
    """What a worker knows of one session when a request comes."""

    store: RedisStore
    naming: Naming = field(default_factory=lambda: Naming("secret", CacheMemory()))
    lookups: list[Lookup] = field(default_factory=list[Lookup])

    def __post_init__(self) -> None:
        find = self.store.find

        async def noted(lookup: Lookup) -> LookupResult:
            self.lookups.append(lookup)
            return await find(lookup)

        self.store.find = noted
        self.caller = self.naming.caller({b"authorization": b"Bearer a", b"x-unabridged-session": b"s"})
        assert self.caller.key is not None
        self.key = self.caller.key
        self.recognition = Recognition(
            self.store, self.naming, SessionCache(CacheMemory()), HandClock(), CacheMemory()
        )

    async def knows(self) -> tuple[list[str], set[bytes]]:
        """Return the ids of the epochs, and the answers with hidden calls."""
        body = read_body(b'{"model": "m", "messages": [{"role": "user", "content": "Hello"}]}', 10)
        history = await Reader(CHAT, COUNTER, CacheMemory()).read(body, root_hash())
        session, log = await self.recognition.recognise(self.caller, history, "l", needs_store=True)
        assert log is not None
        return [each.id for each in log.epochs], set(session.hidden)

    async def begins(self, name: str, seen: int) -> None:
        await self.store.begin_epoch(self.key, epoch(name, lane="l"), seen, DAY)

    async def hides(self, name: str) -> bytes:
        await self.store.keep_hidden(self.key, hidden(name), DAY)
        return hidden(name).hash


@pytest.fixture
async def two(workers: tuple[RedisStore, RedisStore]) -> tuple[Worker, Worker]:
    here, there = map(Worker, workers)
    await here.store.record(here.key, turn("u1", "a1"), DAY)
    await here.begins("e1", 0)
    await here.hides("a1")
    for each in (here, there) * 2:
        assert await each.knows() == (["e1"], {hidden("a1").hash})
    return here, there


async def test_a_plan_that_others_made_in_place_of_a_lost_one_counts_for_all(
    valkey: Server, two: tuple[Worker, Worker], clock: HandClock
) -> None:
    here, there = two
    valkey.run("SAVE")
    await here.begins("lost", 1)
    assert (await here.knows())[0] == ["e1", "lost"]
    await asyncio.to_thread(come_back_as_saved, valkey)
    await follow(clock, here.store, there.store)
    await there.begins("e2", 1)
    for each in (here, there) * 2:
        assert (await each.knows())[0] == ["e1", "e2"]


async def test_a_plan_that_is_lost_is_written_again_by_who_knows_it(
    valkey: Server, two: tuple[Worker, Worker], clock: HandClock
) -> None:
    here, there = two
    valkey.run("SAVE")
    await here.begins("e2", 1)
    await here.knows()
    await asyncio.to_thread(come_back_as_saved, valkey)
    await follow(clock, here.store, there.store)
    assert (await here.knows())[0] == ["e1", "e2"]
    assert here.lookups[-1].epochs == 0
    await here.knows()
    assert here.lookups[-1].epochs == 1, "so it is to be written"


async def test_hidden_calls_that_are_lost_are_the_same_for_all_workers(
    valkey: Server, two: tuple[Worker, Worker], clock: HandClock
) -> None:
    here, there = two
    valkey.run("SAVE")
    lost = await here.hides("lost")
    assert lost in (await here.knows())[1]
    await asyncio.to_thread(come_back_as_saved, valkey)
    await follow(clock, here.store, there.store)
    new = await there.hides("new")
    for each in (here, there) * 2:
        assert (await each.knows())[1] == {hidden("a1").hash, lost, new}


async def test_a_store_that_comes_back_while_it_is_asked_is_asked_again(
    valkey: Server, two: tuple[Worker, Worker], clock: HandClock
) -> None:
    here, there = two
    valkey.run("SAVE")
    await here.begins("lost", 1)
    await here.knows()
    find = here.store.find

    async def interrupted(lookup: Lookup) -> LookupResult:
        here.store.find = find
        await asyncio.to_thread(come_back_as_saved, valkey)
        await follow(clock, there.store)
        await there.begins("e2", 1)
        return await here.store.find(lookup)

    here.store.find = interrupted
    assert (await here.knows())[0] == ["e1", "e2"]


async def test_a_connection_that_breaks_costs_one_whole_reading_of_a_session(
    valkey: Server, clock: HandClock
) -> None:
    async with relaying(valkey.socket) as way:
        store = RedisStore(way.url, clock, timeout=PATIENCE, rest=1.0, linger=0.0)
        here = Worker(store)
        await store.record(here.key, turn("u1", "a1"), DAY)
        await here.begins("e1", 0)
        for _ in range(3):
            await here.knows()
        before = store.revision()
        way.part()
        await asyncio.sleep(0.1)
        before_it = len(here.lookups)
        for _ in range(3):
            assert (await here.knows())[0] == ["e1"]
        assert store.revision() != before
        assert [each.epochs for each in here.lookups[before_it:]] == [1, 0, 1, 1]
        await store.aclose()


# --- a store that comes back empty: nobody answers a client that appends without its history ---


@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("emptied", ["flushed", "started anew"])
async def test_a_session_that_the_store_has_lost_whole_is_over_for_who_appends_to_it(
    valkey: Server, model: Model, appenders: tuple[Appender, Appender], emptied: str, turns: int
) -> None:
    here, stranger = appenders
    for text in ("I am allergic to nuts.", "My name is Ann.")[:turns]:
        await here.ask(text)
    if emptied == "flushed":
        valkey.run("FLUSHALL")
    else:
        await asyncio.to_thread(come_back_as_saved, valkey)

    for appender in (here, here, stranger):

        async def refused(appender: Appender = appender) -> str:
            answer = await appender.ask("What am I allergic to?")
            assert answer.status_code != 200
            return error_code(answer)

        await until("session_expired", refused)
    assert len(model.chats) == turns


async def test_that_a_session_was_there_is_not_forgotten_while_the_store_is_away(
    valkey: Server, model: Model
) -> None:
    async with proxying(model.url, store=valkey.url) as url:
        here = Appender(url)
        async with here.client:
            await here.ask("first")
            await asyncio.to_thread(valkey.kill)
            for _ in range(3):
                assert error_code(await here.ask("second")) == "history_unavailable"
                await asyncio.sleep(0.3)  # its breaker tries again after 0.2
            await asyncio.to_thread(valkey.start)

            async def refused() -> str:
                return error_code(await here.ask("second"))

            await until("session_expired", refused)
            assert len(model.chats) == 1

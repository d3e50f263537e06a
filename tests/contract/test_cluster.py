"""What is promised of a cluster beside the SessionStore port: where commands go; what a lost node costs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from redis.asyncio import Redis
from redis.crc import key_slot

from proxy.adapters.stores import open_store
from proxy.adapters.stores.redis import RedisStore, keys
from proxy.adapters.stores.redis.breaker import Rejected
from proxy.adapters.stores.redis.scripts import sources
from proxy.core.conversation.records import Suffix
from proxy.core.economics.bill import Bill
from proxy.core.memory.records import Scope, ScopeKind
from proxy.errors import SettingsError, StoreUnavailable
from proxy.ports import BatchId, Changes, Recorded, SessionKey
from tests.support import scopes
from tests.support.canaries import logged
from tests.support.cluster import Nodes, replica_of, take_over, three_nodes
from tests.support.stores import (
    DAY,
    KEY,
    OTHER,
    HandClock,
    dump,
    epoch,
    found,
    free_port,
    hidden,
    joint,
    run,
    serving,
    turn,
    valkey_command,
)

SCRIPTS = {name: text for name, text in sources().items() if name != "shared"}
LEASE = 600.0
"""Seconds; nothing that is held runs out while a test looks at it."""
HOUR = 472_222
MANY = [SessionKey(f"{number:02x}", "01") for number in range(24)]


def opened(url: str, clock: HandClock) -> RedisStore:
    store = open_store(url, clock, timeout=2.0, rest=1.0)
    assert isinstance(store, RedisStore)
    return store


@pytest.fixture
async def store(cluster: Nodes, clock: HandClock) -> AsyncGenerator[RedisStore]:
    cluster.run("FLUSHALL")
    store = opened(cluster.url, clock)
    yield store
    await store.aclose()


async def test_sessions_spread_over_the_nodes_and_are_listed_together(
    cluster: Nodes, store: RedisStore
) -> None:
    for number, key in enumerate(MANY):
        await store.record(key, turn("u1", "a1", updated=float(number)), DAY)
    assert all(names for names in cluster.run("KEYS", "u1:{*"))
    assert [key for key, _ in (await store.sessions(100)).sessions] == MANY[::-1]


async def test_every_key_of_a_session_lies_with_one_node(cluster: Nodes, store: RedisStore) -> None:
    await everything(store, KEY)
    owner = cluster.owner(f"u1:{{{KEY.tag}}}:tips")
    names = {*cluster.names()} - {keys.SESSIONS, keys.first("ff"), keys.hour(HOUR)}
    assert len(names) > 10
    assert names <= {name.decode() for name in owner.server.run("KEYS", "*")}


Call = Callable[[RedisStore, SessionKey], Awaitable[object]]

WRITES: list[Call] = [
    lambda store, key: store.record(key, turn("u1", "a1", headerless=True, joint=joint("u1", "a1")), DAY),
    lambda store, key: store.record(key, turn("u1", "a1", "u2", "a2", complete=False), DAY),
    lambda store, key: store.begin_epoch(key, epoch("e1"), 0, DAY, begins=True),
    lambda store, key: store.begin_epoch(key, epoch("e1", lane="other"), 0, DAY, begins=True),
    lambda store, key: store.pin(key, [b"h" * 32], DAY),
    lambda store, key: store.keep_hidden(key, hidden("u1", "a1"), DAY),
    lambda store, key: store.inject(key, b"digest", b"text", DAY),
    lambda store, key: store.claim(key, "one", "token", LEASE),
    lambda store, key: store.keep_summary(key, "one", "text", DAY, "token"),
    lambda store, key: store.claim(key, "two", "token", LEASE),
    lambda store, key: store.release(key, "two", "token"),
    lambda store, key: store.mark_unsaved(key, b"a" * 32),
    lambda store, key: store.take_place(key, "ticket", 8, LEASE),
    lambda store, key: store.renew_lease(key, "ticket", LEASE),
    lambda store, key: store.leave(key, "ticket"),
    lambda store, key: store.take_place(key, "ticket", 8, LEASE),
    lambda store, key: store.pause(key, paused=True),
    lambda store, key: store.bills.add_to_session(key, Bill(requests=1).amounts(), DAY, BatchId("w", 1)),
]
"""Each script that writes, at least once; but `delete`."""


async def everything(store: RedisStore, key: SessionKey) -> None:
    """Run each script at least once."""
    await scopes.everything(store.memories, Scope(ScopeKind.CHANNEL, key.tag))
    await store.bills.add_to_hour(HOUR, {"m": Bill(requests=1).amounts()}, BatchId("w", 1))
    for write in WRITES:
        await write(store, key)
    places = {"ee": Suffix(key.tag, b"h" * 32, 2, 1)}
    began = turn("u1", "a1", headerless=True, joint=joint("u1", "a1", first="ff"), suffixes=places)
    await store.record(key, began, DAY)
    for sid in (key.sid, None):
        await found(store, "u1", "a1", "u2", sid=sid, tag=key.tag, first="" if sid else "ff")
    assert (await store.history(key, (await store.history(key)).mark)).is_news


async def test_each_script_touches_one_slot_and_there_what_it_was_handed_alone(
    cluster_url: str, clock: HandClock
) -> None:
    """A node that holds two slots lets a script touch both, so what they touch is watched."""
    store, former = opened(cluster_url, clock), SessionKey("ee", KEY.sid)
    await store.record(former, turn("u1", "a1", headerless=True), DAY)
    await store.move(former.tag, KEY.tag, "tenant")
    await everything(store, KEY)  # from now on the node knows the scripts
    await store.delete(KEY)
    run(cluster_url, "FLUSHALL")
    await store.record(former, turn("u1", "a1", headerless=True), DAY)
    await store.record(OTHER, turn("u1", "a1", headerless=True), DAY)
    seen = [words async for words in watched(store, cluster_url, former.tag)]
    await store.aclose()
    other, tags = keys.session(OTHER), (KEY.tag, scopes.WORKSPACE.tag)
    roots = [KEY, former, keys.INDEX, *(SessionKey(tag, keys.MEMORY) for tag in tags)]
    parts = [(keys.bucket(root.tag), keys.session(root)) for root in roots]
    buckets = {bucket for bucket, _ in parts}
    ran: set[str] = set()
    handed: list[str] = []
    for command, name, *words in seen:
        if command == "EVALSHA":
            handed = words[1 : 1 + int(words[0])]
            ran.add(name)
            assert len({key_slot(each.encode()) for each in handed}) == 1
            alone = ([keys.SESSIONS], [keys.first("ff")], [keys.suffixes("ee")], [keys.hour(HOUR)])
            is_one_key = handed in alone
            assert buckets & set(handed) or is_one_key, "a node refuses a slot on its way"
        else:
            is_part = any(
                bucket in handed and (name == root or name.startswith(root + ":")) for bucket, root in parts
            )
            is_there = keys.tips(KEY.tag) in handed and (command, name) == ("EXISTS", other)
            assert is_part or is_there or name in handed
            assert name not in buckets
    assert {_file(cluster_url, sha) for sha in ran} == SCRIPTS.keys() - {"ping"}, "which touches no key"


async def watched(store: RedisStore, url: str, former: str) -> AsyncGenerator[list[str]]:
    """Every script that runs, `EVALSHA`, and every command of it that has a key, in order."""
    client = Redis.from_url(url, protocol=2)  # pyright: ignore[reportUnknownMemberType]
    async with client.monitor() as monitor:
        await store.move(former, KEY.tag, "tenant")
        await everything(store, KEY)
        await store.delete(KEY)
        await store.sessions(1)  # the listing is written by then
        await store.ping()
        while (seen := await asyncio.wait_for(monitor.next_command(), 5))["command"] != "PING":
            words: list[str] = seen["command"].split(" ")
            if words[0] == "EVALSHA" or (seen["client_type"] == "lua" and words[0] != "TIME"):
                yield words
    await client.aclose()


def _file(url: str, sha: str) -> str:
    source: str = run(url, "SCRIPT", "SHOW", sha).decode()
    return next(name for name, text in SCRIPTS.items() if source.endswith(text))


async def test_a_slot_that_has_moved_is_followed_and_nothing_of_it_is_lost(
    cluster: Nodes, store: RedisStore
) -> None:
    await everything(store, KEY)
    before = await store.history(KEY)
    name = f"u1:{{{KEY.tag}}}:{KEY.sid}"
    for _ in cluster.nodes:
        at = cluster.nodes.index(cluster.owner(name))
        cluster.hand_over(name, cluster.nodes[(at + 1) % 3])
        assert await store.history(KEY) == before
        cluster.hand_over(name, cluster.nodes[(at + 2) % 3])
        await store.record(KEY, turn("u1", "a1", "u2", "a2"), DAY)
        before = await store.history(KEY)
        cluster.hand_over(name, cluster.nodes[(at + 1) % 3])
        assert await store.session(KEY) == before.session
    assert before.session
    assert before.session.turns == 2


async def test_while_a_slot_is_on_its_way_no_script_does_half_of_its_work(
    cluster: Nodes, store: RedisStore
) -> None:
    other = SessionKey("bb", "01")
    await everything(store, KEY)
    await store.record(other, turn("u1", "a1"), DAY)
    await store.sessions(1)  # the listing is written by then
    name = f"u1:{{{KEY.tag}}}:{KEY.sid}"
    parts = [each for each in cluster.names() if f"{{{KEY.tag}}}" in each]
    assert len(parts) > 10
    for part in (name, *parts):
        before = held(cluster)
        to = cluster.nodes[(cluster.nodes.index(cluster.owner(name)) + 1) % 3]
        with cluster.on_its_way(name, to, part):
            for write in WRITES:
                with pytest.raises(StoreUnavailable):
                    await write(store, KEY)
                assert await store.session(other), "the store is not left alone for it"
                assert other in dict((await store.sessions(10)).sessions)
        assert held(cluster) == before
    await everything(store, KEY)


def held(cluster: Nodes) -> list[bytes]:
    return sorted(text for node in cluster.nodes for text in dump(node.server.url))


async def test_a_session_moves_to_a_new_secret_s_name_from_each_node_to_each(
    cluster: Nodes, store: RedisStore
) -> None:
    for former, tag in pairs_of_nodes(cluster):
        await store.record(SessionKey(former, "01"), turn("u1", "a1", headerless=True), DAY)
        await store.record(SessionKey(former, "named"), turn("u1", "a1"), DAY)
        assert await store.move(former, tag, "tenant")
        assert (await found(store, "u1", "a1", "u2", sid=None, tag=tag)).sid == "01"
        assert len(await store.nodes(SessionKey(tag, "named"))) == 2
        assert await store.session(SessionKey(former, "named")) is None


async def test_a_session_moves_to_a_slot_that_another_node_has_taken_over(
    cluster: Nodes, store: RedisStore
) -> None:
    for former, tag in pairs_of_nodes(cluster):
        await store.record(SessionKey(former, "named"), turn("u1", "a1"), DAY)
        name = f"u1:{{{tag}}}:named"
        cluster.hand_over(name, cluster.nodes[(cluster.nodes.index(cluster.owner(name)) + 1) % 3])
        assert await store.move(former, tag, "tenant")
        assert len(await store.nodes(SessionKey(tag, "named"))) == 2


async def test_two_workers_at_once_move_a_session_to_another_node_once(
    cluster: Nodes, store: RedisStore, clock: HandClock
) -> None:
    other = opened(cluster.url, clock)
    for former, tag in pairs_of_nodes(cluster):
        await store.record(SessionKey(former, "named"), turn("u1", "a1"), DAY)
        told = await asyncio.gather(*(each.move(former, tag, "tenant") for each in (store, other) * 3))
        assert any(told)
        assert len(await store.nodes(SessionKey(tag, "named"))) == 2
        assert not await store.move(former, tag, "tenant")
    await other.aclose()


def pairs_of_nodes(cluster: Nodes) -> list[tuple[str, str]]:
    """Tags, each pair of them of other nodes, or twice of the same: nine in all."""
    held: list[list[str]] = [[] for _ in cluster.nodes]
    for key in MANY:
        held[cluster.nodes.index(cluster.owner(f"u1:{{{key.tag}}}:"))].append(key.tag)
    return [(former.pop(), later.pop()) for former in held for later in held]


async def test_two_processes_agree_on_one_epoch_wherever_its_slot_lies(
    cluster: Nodes, store: RedisStore, clock: HandClock
) -> None:
    other = opened(cluster.url, clock)
    for key in MANY[:6]:
        first, second = await asyncio.gather(
            store.begin_epoch(key, epoch("one"), 0, DAY, begins=True),
            other.begin_epoch(key, epoch("two"), 0, DAY, begins=True),
        )
        assert first == second
        assert len(first) == 1
    await other.aclose()


async def test_a_node_that_is_gone_costs_its_sessions_alone_and_no_start_needs_it(clock: HandClock) -> None:
    with three_nodes(serves_in_part=True) as cluster, logged() as lines:
        store = opened(cluster.url, clock)
        for key in MANY:
            await store.record(key, turn("u1", "a1"), DAY)
        lost, kept, *_ = cluster.nodes
        theirs = [key for key in MANY if cluster.owner(f"u1:{{{key.tag}}}:") is lost]
        others = [key for key in MANY if key not in theirs]
        lost.server.kill()
        for key in theirs[:2]:
            with pytest.raises(StoreUnavailable):
                await store.session(key)
            for other in others:
                assert await store.session(other)
                assert await store.record(other, turn("u1", "a1", "u2", "a2", known=2), DAY)
        (line,) = {line for line in lines if "the store cannot be used" in line}
        assert f"127.0.0.1:{lost.port}: " in line
        await store.aclose()
        late = opened(f"redis+cluster://127.0.0.1:{kept.port}", clock)
        assert await late.session(others[0])
        await late.aclose()


async def test_where_no_node_answers_no_call_waits_for_another(clock: HandClock) -> None:
    with three_nodes() as cluster:
        store = open_store(cluster.url, clock, timeout=0.2, rest=0.0)
        await store.record(KEY, turn("u1", "a1"), DAY)
        processes = [node.server.process.pid for node in cluster.nodes if node.server.process]
        for process in processes:
            os.kill(process, signal.SIGSTOP)
        async with asyncio.timeout(4.0):  # a tenth of what they would wait one after another
            for _ in range(2):  # the second time the slots are asked for again
                calls = [store.session(KEY) for _ in range(100)]
                outcomes = await asyncio.gather(*calls, return_exceptions=True)
                assert {type(each) for each in outcomes} <= {StoreUnavailable, Rejected}
        for process in processes:
            os.kill(process, signal.SIGCONT)
        await store.aclose()


async def test_a_session_that_no_header_names_needs_no_other_node_than_its_own(clock: HandClock) -> None:
    with three_nodes(serves_in_part=True) as cluster:
        store = opened(cluster.url, clock)
        owner = cluster.owner(keys.session(KEY))
        tags = map("{:02x}".format, range(256))
        first = next(tag for tag in tags if cluster.owner(keys.first(tag)) is not owner)
        noted = joint("u1", "a1", first=first)
        await store.record(KEY, turn("u1", "a1", headerless=True, joint=noted), DAY)
        cluster.owner(keys.first(first)).server.kill()
        for _ in range(2):
            assert (await found(store, "u1", "a1", "u2", sid=None, first=first)).sid == KEY.sid
            later = turn("u1", "a1", "u2", "a2", headerless=True, joint=noted, known=2)
            assert await store.record(KEY, later, DAY) is Recorded.KEPT
        await store.aclose()


async def test_no_memory_comes_into_being_while_nobody_could_list_it(clock: HandClock) -> None:
    with three_nodes(serves_in_part=True) as cluster:
        store = opened(cluster.url, clock)
        person = a_person_away_from_the_index(cluster)
        cluster.owner(keys.session(keys.INDEX)).server.kill()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.memories.note(person, KEY, 1.0, scopes.ALONE)
            with pytest.raises(StoreUnavailable):
                await store.memories.change(person, Changes(about=scopes.ALONE), 0)
            assert not (await store.memories.remembered(person)).version
        await store.aclose()


async def test_a_memory_is_forgotten_though_the_index_of_memories_is_away(clock: HandClock) -> None:
    with three_nodes(serves_in_part=True) as cluster:
        store = opened(cluster.url, clock)
        person = a_person_away_from_the_index(cluster)
        await store.memories.note(person, KEY, 1.0, scopes.ALONE)
        cluster.owner(keys.session(keys.INDEX)).server.kill()
        assert await store.memories.forget(person)
        assert not (await store.memories.remembered(person)).version
        assert not await store.memories.forget(person)
        await store.aclose()


@pytest.mark.parametrize("away", [keys.SESSIONS, keys.first("ff"), keys.suffixes("ee")])
async def test_a_session_is_deleted_though_what_leads_to_it_lies_on_a_node_that_is_away(
    clock: HandClock, away: str
) -> None:
    with three_nodes(serves_in_part=True) as cluster:
        store, lost = opened(cluster.url, clock), cluster.owner(away)
        key = next(key for key in MANY if cluster.owner(keys.session(key)) is not lost)
        places = {"ee": Suffix(key.tag, b"h" * 32, 2, 1)}
        said = turn("u1", "a1", headerless=True, joint=joint("u1", "a1", first="ff"), suffixes=places)
        await store.record(key, said, DAY)
        lost.server.kill()
        assert await store.delete(key)
        assert await store.session(key) is None
        await store.aclose()


def a_person_away_from_the_index(cluster: Nodes) -> Scope:
    """Return a scope on another node than the index of all scopes."""
    index = cluster.owner(keys.session(keys.INDEX))
    tags = map("{:02x}".format, range(256))
    tag = next(tag for tag in tags if cluster.owner(keys.session(SessionKey(tag, keys.MEMORY))) is not index)
    return Scope(ScopeKind.PERSON, tag)


async def test_a_slot_that_no_node_holds_costs_the_sessions_of_other_slots_nothing(clock: HandClock) -> None:
    with three_nodes(serves_in_part=True) as cluster:
        owner = cluster.owner(keys.session(KEY))
        other = next(key for key in MANY if cluster.owner(keys.session(key)) is not owner)
        slot = cluster.nodes[0].server.run("CLUSTER", "KEYSLOT", keys.session(KEY))
        cluster.run("CLUSTER", "DELSLOTS", slot)
        store = opened(cluster.url, clock)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                await store.session(KEY)
            assert await store.record(other, turn("u1", "a1"), DAY) is Recorded.KEPT
        await store.aclose()


async def test_a_replica_that_takes_over_is_found_and_has_every_session(clock: HandClock) -> None:
    with three_nodes() as cluster, replica_of(first := cluster.nodes[0], cluster) as heir:
        store = opened(cluster.url, clock)
        for key in MANY:
            await store.record(key, turn("u1", "a1"), DAY)
        theirs = [key for key in MANY if cluster.owner(keys.session(key)) is first]
        take_over(heir, *cluster.nodes)  # from one that lives
        for key in theirs:
            await store.record(key, turn("u1", "a1", "u2", "a2", known=2), DAY)
        assert heir.server.run("WAIT", 1, 15_000) == 1
        heir.server.kill()
        with pytest.raises(StoreUnavailable):
            await store.session(theirs[0])
        take_over(first, *cluster.nodes)
        clock.time += 2  # the store was left alone meanwhile
        for key in theirs:
            await store.record(key, turn("u1", "a1", "u2", "a2", "u3", "a3", known=4), DAY)
            session = await store.session(key)
            assert session
            assert session.turns == 3
        await store.aclose()


async def test_a_server_that_is_no_cluster_is_no_store_under_that_name(
    clock: HandClock,
) -> None:
    port = str(free_port())
    with serving(valkey_command(), "--bind", "127.0.0.1", "--port", port):
        store = opened(f"redis+cluster://127.0.0.1:{port}", clock)
        with pytest.raises(StoreUnavailable) as refused:
            await store.session(KEY)
        await store.aclose()
    assert "not a cluster" in str(refused.value.__cause__)


async def test_a_user_who_may_not_ask_for_the_slots_is_told_so(clock: HandClock) -> None:
    port = str(free_port())
    with serving(valkey_command(), "--bind", "127.0.0.1", "--port", port) as server:
        server.run("ACL", "SETUSER", "default", "-cluster")
        store = opened(f"redis+cluster://127.0.0.1:{port}", clock)
        with pytest.raises(StoreUnavailable, match="its user may not do that"):
            await store.session(KEY)
        await store.aclose()


def test_a_cluster_may_ask_for_tls_and_its_url_is_checked(clock: HandClock) -> None:
    assert opened("rediss+cluster://user:word@h:6380/0", clock)
    with pytest.raises(SettingsError):
        opened("redis+cluster://x?socket_timeout=soon", clock)

"""Two releases on one store: the older one does not read, replace or delete what the newer one wrote."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

import pytest

from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.codec import Keyring, UnknownVersion
from proxy.errors import StoreUnavailable
from proxy.ports import Recorded
from tests.support.cluster import Nodes
from tests.support.releases import NEWER, NewerStore
from tests.support.stores import (
    DAY,
    KEY,
    OTHER,
    SERVERS,
    HandClock,
    chain,
    dump,
    epoch,
    found,
    hidden,
    keys_without_ttl,
    run,
    turn,
)

Call = Callable[[RedisStore], Awaitable[object]]


class Releases(NamedTuple):
    """Both, and the servers of their store."""

    newer: RedisStore
    older: RedisStore
    servers: list[str]

    def records(self) -> list[bytes]:
        """What the newer one wrote, as it is stored."""
        texts = (text for server in self.servers for text in dump(server))
        return sorted(text for text in texts if text.startswith(NEWER) and len(text) > 12)


@pytest.fixture(params=[*SERVERS, "sealed"])
async def releases(request: pytest.FixtureRequest, clock: HandClock) -> AsyncGenerator[Releases]:
    kind: str = request.param
    if kind == "cluster":
        nodes: Nodes = request.getfixturevalue("cluster")
        url, servers = nodes.url, [node.server.url for node in nodes.nodes]
    else:
        url = request.getfixturevalue(f"{kind.replace('sealed', 'valkey')}_url")
        servers = [url]
    for server in servers:
        run(server, "FLUSHALL")
    keyring = Keyring(["a secret"], lambda: kind == "sealed")
    newer, older = (release(url, clock, 2.0, 1.0, keyring) for release in (NewerStore, RedisStore))
    opened = Releases(newer, older, servers)
    yield opened
    await opened.newer.aclose()
    await opened.older.aclose()
    assert keys_without_ttl(*servers) == []


async def fill(store: RedisStore) -> None:
    """One of every kind of record; the newest answer was cut off."""
    await store.inject(KEY, b"digest", b'{"text":"handed in"}', DAY)
    await store.record(KEY, turn("u1", "a1", headerless=True), DAY)
    await store.begin_epoch(KEY, epoch("e1"), 0, DAY)
    await store.keep_hidden(KEY, hidden("u1", "a1"), DAY)
    await store.keep_summary(KEY, "one", "the text of a summary", DAY)
    await store.pin(KEY, chain("u1"), DAY)
    await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, complete=False), DAY)


async def everything(store: RedisStore) -> list[object]:
    history = await store.history(KEY)
    assert history.session is not None
    return [
        history.nodes,
        history.session.pins,
        history.session.name,
        await store.epochs(KEY, "lane"),
        await store.hidden(KEY),
        await store.summaries(KEY, ["one"]),
        await store.injection(KEY),
        (await found(store, "u1", "a1")).counts,
    ]


READS: dict[str, Call] = {
    "find": lambda store: found(store, "u1", "a1"),
    "find by chain": lambda store: found(store, "u1", "a1", sid=None),
    "history": lambda store: store.history(KEY),
    "session": lambda store: store.session(KEY),
    "nodes": lambda store: store.nodes(KEY),
    "epochs": lambda store: store.epochs(KEY, "lane"),
    "hidden": lambda store: store.hidden(KEY),
    "injection": lambda store: store.injection(KEY),
    "summaries": lambda store: store.summaries(KEY, ["one"]),
}
WRITES: dict[str, Call] = {
    "a turn": lambda store: store.record(KEY, turn("u1", "a1", "u2", "a2", name="older"), DAY),
    "an epoch": lambda store: store.begin_epoch(KEY, epoch("e2"), 0, DAY),
    "hidden calls": lambda store: store.keep_hidden(KEY, hidden("u1", "a1", call="two"), DAY),
    "a summary": lambda store: store.keep_summary(KEY, "one", "another", DAY),
    "what is handed in": lambda store: store.inject(KEY, b"other", b"[]", DAY),
    "pins": lambda store: store.pin(KEY, chain("u1"), DAY),
    "a move": lambda store: store.move(KEY.tag, "bb", "t"),
}


@pytest.mark.parametrize("call", READS.values(), ids=READS)
async def test_what_a_newer_release_wrote_is_not_read(releases: Releases, call: Call) -> None:
    await fill(releases.newer)
    before = releases.records()
    for _ in range(2):
        with pytest.raises(UnknownVersion, match="newer release"):
            await call(releases.older)
    assert releases.records() == before


@pytest.mark.parametrize("call", WRITES.values(), ids=WRITES)
async def test_what_a_newer_release_wrote_is_not_replaced(releases: Releases, call: Call) -> None:
    await fill(releases.newer)
    before, told = releases.records(), await everything(releases.newer)
    assert len(before) >= 9
    with suppress(StoreUnavailable):
        await call(releases.older)
    assert releases.records() == before
    assert await everything(releases.newer) == told


async def test_what_is_new_is_added_to_it(releases: Releases) -> None:
    await fill(releases.newer)
    added = turn("u1", "a1", "u3", "a3", name="older")
    assert await releases.older.record(KEY, added, DAY) is Recorded.KEPT
    history = await releases.newer.history(KEY)
    assert [node.raw for node in added.nodes] == [history.nodes[node.hash].raw for node in added.nodes]
    assert len(history.nodes) == 6
    assert history.session is not None
    assert (history.session.name, history.session.tip) == ("chat", added.session.tip)


async def test_each_release_goes_on_with_what_the_older_one_wrote(releases: Releases) -> None:
    await fill(releases.older)
    told = await everything(releases.older)
    assert await everything(releases.newer) == told
    await releases.newer.record(KEY, turn("u1", "a1", "u3", "a3", known=2), DAY)
    assert len((await releases.newer.history(KEY)).nodes) == 6
    with pytest.raises(UnknownVersion):
        await releases.older.history(KEY)


@pytest.mark.parametrize("kind", ["record", "injection", "node", "epoch", "hidden", "count", "turns", "pins"])
async def test_one_thing_that_is_not_known_keeps_all_else_from_being_discarded(
    releases: Releases, kind: str
) -> None:
    await fill(releases.older)
    name = f"u1:{{{KEY.tag}}}:{KEY.sid}"
    server = next(each for each in releases.servers if run(each, "DBSIZE"))
    if len(releases.servers) > 1:
        server = next(each for each in releases.servers if name.encode() in run(each, "KEYS", "*"))
    places: dict[str, tuple[str, str | bytes | int]] = {
        "node": (f"{name}:nodes", chain("u1")[0]),
        "count": (f"{name}:counts", chain("u1")[0]),
        "epoch": (f"{name}:epochs:lane", 0),
        "hidden": (f"{name}:hidden", 0),
    }
    where, member = places.get(kind, (name, kind))
    read, write = ("LINDEX", "LSET") if isinstance(member, int) else ("HGET", "HSET")
    before: bytes = run(server, read, where, member)
    other = b"\x02" + before[0 if kind == "pins" else 1 :]
    run(server, write, where, member, other)
    run(server, "HSET", f"{name}:nodes", chain("u1", "a1")[-1], "junk")  # beside it, something is damaged
    for call in (READS["find"], READS["history"]) * 2:
        with suppress(StoreUnavailable):
            await call(releases.older)
    assert run(server, read, where, member) == other
    kept = (run(server, "HLEN", f"{name}:nodes"), run(server, "LLEN", f"{name}:epochs:lane"))
    assert (*kept, run(server, "HLEN", f"{name}:counts")) == (4, 1, 4)


async def test_it_is_said_once_for_a_session(
    releases: Releases, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("proxy"), "handlers", [caplog.handler])
    monkeypatch.setattr(logging.getLogger("proxy"), "propagate", False)
    for key in (KEY, OTHER):
        await releases.newer.record(key, turn("u1", "a1"), DAY)
    for key in (KEY, KEY, OTHER, KEY, OTHER):
        with pytest.raises(UnknownVersion):
            await found(releases.older, "u1", "a1", sid=key.sid)
    said = [record for record in caplog.records if "newer release" in record.getMessage()]
    assert len(said) == 2


async def test_a_summary_that_is_damaged_gives_way(releases: Releases) -> None:
    await releases.older.record(KEY, turn("u1", "a1"), DAY)
    name = f"u1:{{{KEY.tag}}}:{KEY.sid}"
    server = next(each for each in releases.servers if name.encode() in run(each, "KEYS", "*"))
    for damage in ("junk", "", b"\x01\xc1"):
        await releases.older.keep_summary(KEY, "one", "text", DAY)
        run(server, "HSET", f"{name}:summaries", "one", damage)
        assert await releases.older.keep_summary(KEY, "one", "again", DAY)
        assert await releases.older.summaries(KEY, ["one"]) == {"one": "again"}

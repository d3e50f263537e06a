"""A long message is stored once in a session, at however many places of its tree it stands."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.adapters.stores.redis import RedisStore, keys
from proxy.adapters.stores.redis.codec import Keyring
from proxy.core.conversation.records import Turn
from proxy.errors import StoreUnavailable
from proxy.ports import SessionKey, SessionStore
from tests.support.stores import DAY, KEY, OTHER, HandClock, Site, chain, dump, joint, lookup, run, turn

LONG = b'{"role":"user","content":"%s"}' % (b"a long message " * 200)
FIRST = ("u1", "a1", "u2", "a2")
BRANCH = ("v1", "b1", "u2", "a3")


def told(*names: str, known: int = 0, **members: Any) -> Turn:
    """A turn whose messages called `u2` are long, and the same."""
    plain = turn(*names, known=known, **members)
    at = [names[node.sequence] for node in plain.nodes]
    nodes = [
        replace(node, raw=LONG) if name == "u2" else node for name, node in zip(at, plain.nodes, strict=True)
    ]
    return replace(plain, nodes=tuple(nodes))


async def test_it_is_told_wherever_it_stands(store: SessionStore) -> None:
    first, branch = told(*FIRST), told(*BRANCH)
    await store.record(KEY, first, DAY)
    mark = (await store.history(KEY)).mark
    await store.record(KEY, branch, DAY)
    written = {node.hash: node for node in (*first.nodes, *branch.nodes)}
    assert await store.nodes(KEY) == written
    assert (await store.history(KEY)).nodes == written
    later = await store.history(KEY, mark)
    assert later.nodes == (written if not later.is_news else {node.hash: node for node in branch.nodes})


async def test_the_words_that_were_answered_are_told_to_who_finds_them_by_a_joint(
    store: SessionStore,
) -> None:
    await store.record(KEY, told(*FIRST, headerless=True), DAY)
    named = replace(joint("w1", "a9"), user=chain(*BRANCH)[2])
    await store.record(KEY, told(*BRANCH, headerless=True, joint=named), DAY)
    found = await store.find(lookup("w1", "a9", "w2", sid=None))
    assert found.user is not None
    assert found.user.raw == LONG


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
async def served(request: pytest.FixtureRequest, site: Site, clock: HandClock) -> AsyncGenerator[RedisStore]:
    opened = RedisStore(site.url, clock, 2.0, 1.0, Keyring(["new", "old"], lambda: request.param))
    yield opened
    await opened.aclose()


def held(site: Site) -> int:
    """Bytes of every value."""
    return sum(len(text) for server in site.servers for text in dump(server))


async def test_its_bytes_are_stored_once(served: RedisStore, site: Site) -> None:
    await served.record(KEY, told(*FIRST), DAY)
    before = held(site)
    await served.record(KEY, told(*BRANCH), DAY)
    assert held(site) - before < len(LONG)


async def test_no_two_sessions_share_it(served: RedisStore) -> None:
    await served.record(KEY, told(*FIRST), DAY)
    await served.record(OTHER, told(*BRANCH), DAY)
    await served.delete(KEY)
    assert (await served.nodes(OTHER))[chain(*BRANCH)[2]].raw == LONG


async def test_a_session_takes_it_along_under_its_new_name(served: RedisStore, site: Site) -> None:
    for names in (FIRST, BRANCH):
        await served.record(SessionKey("aa", "named"), told(*names), DAY)
    before = await served.nodes(SessionKey("aa", "named"))
    assert await served.move("aa", "bb", "tenant")
    assert await served.nodes(SessionKey("bb", "named")) == before
    more = told("x1", "b1", "u2", "a4")
    size = held(site)
    await served.record(SessionKey("bb", "named"), more, DAY)
    assert held(site) - size < len(LONG)


async def test_what_a_deleted_session_held_is_gone(served: RedisStore, site: Site) -> None:
    for names in (FIRST, BRANCH):
        await served.record(KEY, told(*names), DAY)
    await served.delete(KEY)
    assert [text for server in site.servers for text in dump(server) if b":texts" in text] == []


@pytest.mark.parametrize("damage", [b"no record", None], ids=["damaged", "lost"])
async def test_where_it_is_damaged_the_next_turn_writes_it_anew(
    served: RedisStore, server_url: str, damage: bytes | None
) -> None:
    del served
    store = RedisStore(server_url, HandClock(), 2.0, 1.0)
    for names in (FIRST, BRANCH):
        await store.record(KEY, told(*names), DAY)
    nodes, place = keys.session(KEY) + keys.NODES, chain(*FIRST)[2]
    if damage is None:
        run(server_url, "HDEL", nodes, place)
    else:
        run(server_url, "HSET", nodes, place, damage)
    with pytest.raises(StoreUnavailable):
        await store.history(KEY)
    left = {place, chain(*BRANCH)[2]}
    assert (await store.nodes(KEY)).keys() == {*chain(*FIRST), *chain(*BRANCH)} - left
    for names in (FIRST, BRANCH):
        await store.record(KEY, told(*names), DAY)
    assert {(await store.nodes(KEY))[each].raw for each in left} == {LONG}
    await store.aclose()

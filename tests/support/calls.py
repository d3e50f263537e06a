"""Every call of a store, and how it reports a server that fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from proxy.adapters.stores.redis import RedisStore
from proxy.errors import StoreUnavailable
from tests.support.scopes import ABOUT, CHANNEL, ONE, OTHER, WORKSPACE, event, items, written
from tests.support.stores import DAY, KEY, epoch, found, hidden, turn

HASTE = 0.3
"""Seconds after which a store gives up, in tests of a server that does not answer."""

Call = Callable[[RedisStore], Awaitable[object]]

CALLS: dict[str, Call] = {
    "find": lambda store: found(store, "u1", "a1"),
    "find by chain": lambda store: found(store, "u1", "a1", sid=None),
    "begin_epoch": lambda store: store.begin_epoch(KEY, epoch("e1"), 0, DAY, begins=True),
    "record": lambda store: store.record(KEY, turn("u1", "a1", headerless=True), DAY),
    "record cut off": lambda store: store.record(KEY, turn("u1", "a2", complete=False), DAY),
    "keep_hidden": lambda store: store.keep_hidden(KEY, hidden("u1", "a1"), DAY, begins=True),
    "hidden": lambda store: store.hidden(KEY),
    "inject": lambda store: store.inject(KEY, b"digest", b"{}", DAY),
    "injection": lambda store: store.injection(KEY),
    "summaries": lambda store: store.summaries(KEY, ["one"]),
    "keep_summary": lambda store: store.keep_summary(KEY, "one", "text", DAY),
    "claim": lambda store: store.claim(KEY, "one", "token", 60),
    "release": lambda store: store.release(KEY, "one", "token"),
    "session": lambda store: store.session(KEY),
    "sessions": lambda store: store.sessions(10),
    "nodes": lambda store: store.nodes(KEY),
    "epochs": lambda store: store.epochs(KEY, "lane"),
    "ping": lambda store: store.ping(),
    "remembered": lambda store: store.memories.remembered(CHANNEL),
    "remembered since": lambda store: store.memories.remembered(CHANNEL, 1),
    "note": lambda store: store.memories.note(CHANNEL, ONE, 1.0, ABOUT),
    "change": lambda store: written(store.memories, items=items("i1"), events=[event("i1")]),
    "archive": lambda store: store.memories.archive(CHANNEL),
    "log": lambda store: store.memories.log(CHANNEL, "i1"),
    "thread": lambda store: store.memories.thread(CHANNEL, ONE),
    "threads": lambda store: store.memories.threads(CHANNEL, 9),
    "channels": lambda store: store.memories.channels(WORKSPACE),
    "workspace_of": lambda store: store.memories.workspace_of(CHANNEL),
    "scopes": lambda store: store.memories.scopes(9),
    "forget": lambda store: store.memories.forget(CHANNEL),
    "unlist": lambda store: store.memories.unlist(CHANNEL),
    "move memories": lambda store: store.memories.move(OTHER.tag, CHANNEL, "t"),
    "claim_work": lambda store: store.memories.claim_work(CHANNEL, "items", "token", 60),
    "release_work": lambda store: store.memories.release_work(CHANNEL, "items", "token"),
}
WRITES = ["begin_epoch", "record", "keep_hidden", "inject", "keep_summary", "note", "change"]

PLANTED = {
    "session": "u1:{aa}:01",
    "nodes": "u1:{aa}:01:nodes",
    "counts": "u1:{aa}:01:counts",
    "lanes": "u1:{aa}:01:lanes",
    "partial": "u1:{aa}:01:partial",
    "summaries": "u1:{aa}:01:summaries",
    "epochs": "u1:{aa}:01:epochs:lane",
    "hidden": "u1:{aa}:01:hidden",
    "hides": "u1:{aa}:01:hides",
    "tips": "u1:{aa}:tips",
    "sessions": "u1:sessions",
    "memory": "u1:{c1}:memory",
    "items": "u1:{c1}:memory:items",
    "archive": "u1:{c1}:memory:archive",
    "log": "u1:{c1}:memory:log",
    "threads": "u1:{c1}:memory:threads",
    "channels": "u1:{w1}:memory:channels",
    "index": "u1:{memories}:index",
}
"""The keys of session 01 and of its caller, and those of a channel."""

every_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
every_write = pytest.mark.parametrize("call", [CALLS[name] for name in WRITES], ids=WRITES)


async def turns(store: RedisStore) -> int:
    session = await store.session(KEY)
    return session.turns if session else 0


async def until_refused(call: Callable[[], Awaitable[object]], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            await call()
        except StoreUnavailable:
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it was never refused")

"""Leases on summaries while the store is there, and while it is not."""

from __future__ import annotations

import asyncio

import pytest

from proxy.adapters.stores.in_process import InProcessStore
from proxy.engine.summaries import writer
from proxy.engine.summaries.writer import Lease
from proxy.errors import StoreUnavailable
from proxy.ports import SessionKey
from tests.support.stores import DAY, KEY, HandClock


class AwayStore(InProcessStore):
    """A store that cannot be reached."""

    async def claim(self, key: SessionKey, address: str, token: str, lease: float) -> bool:
        raise StoreUnavailable

    async def keep_summary(
        self, key: SessionKey, address: str, text: str, ttl: float, token: str = ""
    ) -> bool:
        raise StoreUnavailable


async def test_another_worker_gets_it_once_it_is_given_up() -> None:
    store = InProcessStore(HandClock())
    lease = await Lease.take(store, KEY, "one")
    assert lease is not None
    assert await Lease.take(store, KEY, "one") is None
    await lease.give_up()
    assert await Lease.take(store, KEY, "one") is not None


async def test_it_lasts_while_its_worker_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LEASE", 0.06)
    clock = HandClock()
    store = InProcessStore(clock)
    lease = await Lease.take(store, KEY, "one")
    assert lease is not None
    for _ in range(3):
        await asyncio.sleep(0.05)
        clock.time += 0.05
        assert not await store.claim(KEY, "one", "other", 60)
    assert await lease.keep("text", DAY)
    assert await store.summaries(KEY, ["one"]) == {"one": "text"}


async def test_whoever_lost_it_keeps_nothing() -> None:
    clock = HandClock()
    store = InProcessStore(clock)
    slow = await Lease.take(store, KEY, "one")
    assert slow is not None
    clock.time += writer.LEASE + 1
    quick = await Lease.take(store, KEY, "one")
    assert quick is not None
    assert not await slow.keep("slow", DAY)
    assert await quick.keep("quick", DAY)
    assert await store.summaries(KEY, ["one"]) == {"one": "quick"}


async def test_without_a_store_everybody_may_write() -> None:
    store = AwayStore(HandClock())
    lease = await Lease.take(store, KEY, "one")
    assert lease is not None
    assert await lease.keep("text", DAY)
    await lease.give_up()

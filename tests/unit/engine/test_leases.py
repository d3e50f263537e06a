"""Leases on summaries while the store is there, and while it is not."""

from __future__ import annotations

import asyncio

import pytest

from proxy.adapters.stores.in_process import InProcessStore
from proxy.engine import background
from proxy.engine.summaries.writer import SummaryLease
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
    lease = SummaryLease(store, KEY, "one")
    assert await lease.take()
    assert not await SummaryLease(store, KEY, "one").take()
    await lease.give_up()
    assert await SummaryLease(store, KEY, "one").take()


async def test_it_lasts_while_its_worker_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "LEASE", 0.06)
    clock = HandClock()
    store = InProcessStore(clock)
    lease = SummaryLease(store, KEY, "one")
    assert await lease.take()
    for _ in range(3):
        await asyncio.sleep(0.05)
        clock.time += 0.05
        assert not await store.claim(KEY, "one", "other", 60)
    assert await lease.keep("text", DAY)
    assert await store.summaries(KEY, ["one"]) == {"one": "text"}


async def test_whoever_lost_it_keeps_nothing() -> None:
    clock = HandClock()
    store = InProcessStore(clock)
    slow = SummaryLease(store, KEY, "one")
    assert await slow.take()
    clock.time += background.LEASE + 1
    quick = SummaryLease(store, KEY, "one")
    assert await quick.take()
    assert not await slow.keep("slow", DAY)
    assert await quick.keep("quick", DAY)
    assert await store.summaries(KEY, ["one"]) == {"one": "quick"}


async def test_without_a_store_everybody_may_write() -> None:
    store = AwayStore(HandClock())
    lease = SummaryLease(store, KEY, "one")
    assert await lease.take()
    assert await lease.keep("text", DAY)
    await lease.give_up()

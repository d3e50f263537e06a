"""Bills while the store cannot be used: nothing is lost, and nothing is added twice."""

from __future__ import annotations

import asyncio

import pytest

from proxy.adapters.stores.redis import RedisStore
from proxy.core.budget.prices import Prices
from proxy.core.economics.bill import Bill
from proxy.engine.billing import Billing
from proxy.ports.bill_store import HOUR
from proxy.telemetry import Metrics
from tests.support.calls import HASTE
from tests.support.network import Shim
from tests.support.servers import PATIENCE
from tests.support.stores import DAY, KEY, HandClock, Server, turn

ONE = Bill(requests=1, answers=5)


@pytest.mark.parametrize("fault", [{"lose_replies": True}, {"swallow": True}], ids=str)
async def test_what_was_not_confirmed_is_sent_again_and_counts_once(
    shim: Shim, clock: HandClock, fault: dict[str, bool]
) -> None:
    store = RedisStore(shim.url, clock, timeout=HASTE, rest=1.0)
    billing = Billing(store.bills, clock, Metrics(), lambda _: Prices())
    await store.record(KEY, turn("u1", "a1"), DAY)
    billing.add("m", ONE, KEY, DAY)
    for name, value in fault.items():
        setattr(shim, name, value)
    assert not await billing.flush()
    for name in fault:
        setattr(shim, name, False)
    billing.add("m", ONE, KEY, DAY)
    async with asyncio.timeout(PATIENCE):
        while not await billing.flush():
            clock.time += 1.0  # the store is left alone for as long
    hour = int(clock.now()) // HOUR
    hours = await store.bills.hours(hour - 1, hour)
    assert [bill for models in hours.values() for bill in models.values()] == [ONE + ONE]
    assert await store.bills.of_sessions([KEY]) == [ONE + ONE]
    await billing.aclose()
    await store.aclose()


async def test_one_bill_that_cannot_be_added_keeps_no_other_back(valkey: Server, clock: HandClock) -> None:
    store = RedisStore(valkey.url, clock, timeout=PATIENCE, rest=1.0)
    billing = Billing(store.bills, clock, Metrics(), lambda _: Prices())
    await store.record(KEY, turn("u1", "a1"), DAY)
    valkey.run("SET", f"u1:{{{KEY.tag}}}:{KEY.sid}:bill", "no hash")
    billing.add("m", ONE, KEY, DAY)
    assert not await billing.flush()
    hour = int(clock.now()) // HOUR
    assert await store.bills.hours(hour, hour) == {hour: {"m": ONE}}
    valkey.run("DEL", f"u1:{{{KEY.tag}}}:{KEY.sid}:bill")
    await billing.aclose()
    assert await store.bills.of_sessions([KEY]) == [ONE]
    await store.aclose()

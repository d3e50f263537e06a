"""What this process adds up before it is written."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from proxy.adapters.stores.in_process import InProcessStore
from proxy.core.budget.prices import UNKNOWN_PRICES, Prices
from proxy.core.dialects.answers import Usage
from proxy.core.economics.bill import NANO, Amounts, Bill
from proxy.core.proof.evidence import Counts
from proxy.engine.billing import Billing
from proxy.engine.models.asking import CallOptions
from proxy.errors import StoreUnavailable
from proxy.ports import BatchId, BillStore, SessionKey
from proxy.ports.bill_store import HOUR
from proxy.telemetry import Metrics
from tests.support.stores import DAY, KEY, HandClock

PRICES = Prices(fresh=2.0, cached=0.5, written=2.5, output=8.0, is_known=True)
ONE = Bill(requests=1, sent=100)
USED = Usage(1_000, 100, 200, 300)


def prices_of(model: str) -> Prices:
    return PRICES if model == "priced" else UNKNOWN_PRICES


def billing_to(store: BillStore, clock: HandClock) -> Billing:
    return Billing(store, clock, Metrics(), prices_of)


async def this_hour(store: InProcessStore, clock: HandClock) -> Mapping[str, Bill]:
    hour = int(clock.now()) // HOUR
    return (await store.bills.hours(hour, hour))[hour]


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def store(clock: HandClock) -> InProcessStore:
    return InProcessStore(clock)


async def test_a_call_for_a_summary_is_its_sessions_by_the_usage_of_its_answer(
    store: InProcessStore, clock: HandClock
) -> None:
    billing = billing_to(store.bills, clock)
    billing.called(CallOptions("priced", [], 1.0).billed_to(KEY, DAY), USED)
    await billing.aclose()
    cost = round((500 * 2.0 + 200 * 0.5 + 300 * 2.5 + 100 * 8.0) * NANO / 1_000_000)
    assert await this_hour(store, clock) == {"priced": Bill(summaries=cost)}
    assert await store.bills.of_sessions([KEY]) == [Bill(summaries=cost)]


async def test_a_call_for_memory_is_nobodys_alone(store: InProcessStore, clock: HandClock) -> None:
    billing = billing_to(store.bills, clock)
    billing.called(CallOptions("priced", [], 1.0, purpose="memory"), USED)
    await billing.aclose()
    (bill,) = (await this_hour(store, clock)).values()
    assert (bill.memory, bill.summaries) == (bill.spent, 0)
    assert bill.spent > 0


@pytest.mark.parametrize(("model", "usage"), [("priced", None), ("unheard of", USED)])
async def test_a_call_whose_cost_nobody_knows_is_told_as_such(
    store: InProcessStore, clock: HandClock, model: str, usage: Usage | None
) -> None:
    billing = billing_to(store.bills, clock)
    billing.called(CallOptions(model, [], 1.0), usage)
    await billing.aclose()
    assert await this_hour(store, clock) == {model: Bill(unpriced=1)}


async def test_a_second_answer_is_billed_as_what_it_is(store: InProcessStore, clock: HandClock) -> None:
    billing = billing_to(store.bills, clock)
    billing.called(CallOptions("priced", [], 1.0, purpose="proof"), USED)
    await billing.aclose()
    (bill,) = (await this_hour(store, clock)).values()
    assert bill.proof == bill.spent > 0


async def test_what_is_found_out_is_written_by_policy_and_model(
    store: InProcessStore, clock: HandClock
) -> None:
    billing = billing_to(store.bills, clock)
    for model in ("priced", "other", "priced"):
        billing.add_evidence("default", model, {"whole:same": 1})
    await billing.aclose()
    hour = int(clock.now()) // HOUR
    assert await store.bills.evidence(hour, hour) == {
        hour: {"default\0priced": {"whole:same": 2}, "default\0other": {"whole:same": 1}}
    }
    assert await store.bills.hours(hour, hour) == {}


async def test_models_beyond_a_hundred_share_one_name(store: InProcessStore, clock: HandClock) -> None:
    billing = billing_to(store.bills, clock)
    for number in range(150):
        billing.add(f"model {number}", ONE)
    billing.add("model 0", ONE)
    await billing.aclose()
    bills = await this_hour(store, clock)
    assert len(bills) == 101
    assert (bills["model 0"].requests, bills["others"].requests) == (2, 50)


class Away:
    """A store that cannot be reached, until it can."""

    def __init__(self, store: BillStore) -> None:
        self.is_there = False
        self.store = store
        self.of_sessions, self.hours, self.evidence = store.of_sessions, store.hours, store.evidence

    async def add_to_hour(self, hour: int, bills: Mapping[str, Amounts], group: BatchId) -> None:
        self._reach()
        await self.store.add_to_hour(hour, bills, group)

    async def add_evidence(self, hour: int, evidence: Mapping[str, Counts], group: BatchId) -> None:
        self._reach()
        await self.store.add_evidence(hour, evidence, group)

    async def add_to_session(self, key: SessionKey, bill: Amounts, ttl: float, group: BatchId) -> None:
        self._reach()
        await self.store.add_to_session(key, bill, ttl, group)

    def _reach(self) -> None:
        if not self.is_there:
            raise StoreUnavailable


async def test_while_the_store_is_away_the_sums_are_all_kept_and_sessions_are_bounded(
    store: InProcessStore, clock: HandClock
) -> None:
    away = Away(store.bills)
    billing = billing_to(away, clock)
    sessions = [SessionKey("aa", f"{number:05}") for number in range(12_000)]
    for number, session in enumerate(sessions):
        billing.add("priced", ONE, session, DAY)
        if number == 6_000:
            assert not await billing.flush()
    away.is_there = True
    assert await billing.flush()
    assert (await this_hour(store, clock))["priced"].requests == len(sessions)
    billed = await store.bills.of_sessions(sessions)
    assert not any(bill.requests for bill in billed[:2_000])
    assert all(bill.requests == 1 for bill in billed[-9_000:])
    await billing.aclose()

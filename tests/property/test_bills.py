"""Bills agree, however they are grouped, and whatever the store does meanwhile."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from functools import reduce
from operator import add

from hypothesis import given
from hypothesis import strategies as st

from proxy.adapters.stores.in_process import InProcessStore
from proxy.core.budget.prices import Prices, Prompt
from proxy.core.economics.bill import NOTHING, Bill
from proxy.engine.billing import Billing
from proxy.ports import SessionKey
from proxy.ports.bill_store import HOUR
from proxy.telemetry import Metrics
from tests.support.stores import DAY, HandClock

AMOUNTS = [name for name in Bill.__struct_fields__ if name != "failed"]
amount = st.integers(0, 2**40)


@st.composite
def made(draw: st.DrawFn) -> Bill:
    amounts = draw(st.dictionaries(st.sampled_from(AMOUNTS), amount))
    reasons = draw(st.dictionaries(st.sampled_from(["timeout", "refused", "too_long"]), st.integers(1, 9)))
    return Bill.of(amounts | {f"failed:{reason}": number for reason, number in reasons.items()})


bills = made()
tokens = st.integers(0, 300_000)
prices = st.builds(
    Prices,
    fresh=st.floats(0.01, 100),
    cached=st.floats(0.001, 10),
    written=st.floats(0.01, 100),
    output=st.floats(0.01, 100),
)


@st.composite
def prompts(draw: st.DrawFn) -> Prompt:
    whole = draw(tokens)
    return Prompt(whole, draw(st.integers(0, whole)))


@given(st.lists(bills, max_size=8))
def test_bills_add_up_to_the_same_in_any_order_and_grouping(each: list[Bill]) -> None:
    place = len(each) // 2
    grouped = reduce(add, each[:place], NOTHING) + reduce(add, each[place:], NOTHING)
    assert grouped == reduce(add, reversed(each), NOTHING)
    assert Bill.of(grouped.amounts()) == grouped


@given(bills)
def test_a_bill_is_what_its_amounts_say(bill: Bill) -> None:
    assert Bill.of(bill.amounts()).amounts() == bill.amounts()
    assert bill + NOTHING == NOTHING + bill == Bill.of(bill.amounts())


@given(prompts(), tokens, prices, st.booleans())
def test_doing_nothing_saves_nothing(prompt: Prompt, output: int, each: Prices, fits: bool) -> None:
    assert Bill.of_request(prompt, output, prompt, each, fits=fits).saved == 0


@given(prompts(), tokens, prompts(), prices)
def test_what_would_have_failed_neither_saves_nor_costs(
    prompt: Prompt, output: int, whole: Prompt, each: Prices
) -> None:
    bill = Bill.of_request(prompt, output, whole, each, fits=False)
    assert (bill.without, bill.saved, bill.failing) == (0, 0, 1)
    assert bill.spent == bill.answers == bill.beyond


SESSIONS = [SessionKey("aa", f"{number:02}") for number in range(3)]
STEPS = st.tuples(
    st.sampled_from(["gpt-4o", "gpt-5", "else"]), st.sampled_from(SESSIONS), bills, st.integers(0, 2 * HOUR)
)


@given(st.lists(STEPS, max_size=20))
def test_hours_models_and_sessions_have_the_sum_of_all_requests(
    steps: list[tuple[str, SessionKey, Bill, int]],
) -> None:
    async def play() -> None:
        clock = HandClock()
        store = InProcessStore(clock)
        billing = Billing(store.bills, clock, Metrics(), lambda _: Prices())
        first, expected = int(clock.now()) // HOUR, defaultdict[SessionKey, Bill](lambda: NOTHING)
        for model, session, bill, seconds in steps:
            clock.time += seconds
            billing.add(model, bill, session, DAY)
            expected[session] += bill
        await billing.aclose()
        hours = await store.bills.hours(first, int(clock.now()) // HOUR)
        total = reduce(add, (bill for models in hours.values() for bill in models.values()), NOTHING)
        assert total == reduce(add, (bill for _, _, bill, _ in steps), NOTHING)
        assert await store.bills.of_sessions(SESSIONS) == [expected[each] for each in SESSIONS]

    asyncio.run(play())

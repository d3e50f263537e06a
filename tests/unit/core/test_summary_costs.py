"""Out of what summaries are paid: what cuts have saved, each token once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import Prices
from proxy.core.economics.economy import account_of
from proxy.core.economics.summary_costs import may_be_told, paid_for, saved_by, written_cost
from proxy.core.planning.life import NO_PAST, Past, distance
from proxy.core.planning.plan import EMPTY, Anchor, Gap, Plan, Span
from proxy.core.planning.situation import Conditions, Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Economy, Stages, Strategy
from tests.support.conversations import assistant, chain_from, count, prose, user

PRICES = Prices(output=8.0, is_known=True)
NOTE = b'{"role": "user", "content": "[messages omitted]"}'
BUDGET = Budget(10_000, 1.0, 100)


def situation(
    exchanges: int,
    *spans: Span,
    past: Past = NO_PAST,
    policy: Policy | None = None,
    prices: Prices | None = PRICES,
) -> Situation:
    """A conversation of so many exchanges of 400 words, of which these spans are cut."""
    said = [(user(prose("en", 100, n)), assistant(prose("en", 300, n))) for n in range(exchanges)]
    chain = chain_from([message for pair in said for message in pair] + [user("and now?")])
    plan = Plan(tuple(Gap(*span, NOTE, 10) for span in spans))
    conditions = Conditions(idle=5.0, prices=prices)
    return Situation(chain, plan, policy or Policy(), BUDGET, count, conditions=conditions, past=past)


def test_each_request_since_the_cut_saves_what_it_lacks_at_the_price_of_cached_tokens():
    past = Past(1, 41, -500.0, 41)
    assert saved_by(situation(20, (2, 30), past=past)) == -500
    later = situation(24, (2, 30), past=past)
    absent = sum(later.chain.tokens[2:30]) - 10
    assert saved_by(later) == pytest.approx(-500 + 4 * 0.1 * absent)
    assert saved_by(situation(24)) == 0


def test_a_summary_is_paid_for_once_cuts_have_saved_what_it_costs():
    begun = Past(1, 41, 0.0, 41)
    paid = [
        bool(paid_for(each, [(2, 30)]))
        for each in (situation(exchanges, (2, 30), past=begun) for exchanges in range(20, 60))
    ]
    assert not paid[0]
    assert paid[-1]
    assert paid == sorted(paid), "once it is, it stays so"


def test_no_token_that_was_saved_pays_twice():
    given = situation(20, (2, 12), (14, 30), past=Past(1, 41, 1_000.0, 41))

    def paid(first: float, second: float) -> list[Span]:
        return paid_for(given, [(2, 12), (14, 30)], lambda _, span: first if span == (2, 12) else second)

    assert paid(600.0, 600.0) == [(2, 12)]
    assert paid(1_600.0, 600.0) == [(14, 30)]
    assert paid(400.0, 600.0) == [(2, 12), (14, 30)]


@pytest.mark.parametrize(
    "given",
    [
        situation(20, (2, 30), prices=None),
        situation(20, (2, 30), prices=replace(PRICES, is_known=False)),
        situation(20, (2, 30), policy=Policy(economy=Economy(enabled=False))),
        situation(20, (2, 30), policy=Policy(stages=Stages(max_units=20))),
        situation(20, (2, 30), policy=Policy(strategy=Strategy(name="exchanges"))),
    ],
    ids=["no prices", "nobody's prices", "switched off", "by count of units", "by count of exchanges"],
)
def test_where_money_has_no_say_no_summary_waits(given: Situation):
    assert paid_for(given, [(2, 30)], lambda _, span: 1e9 * span[1]) == [(2, 30)]
    assert may_be_told(given)


def test_what_a_cut_brought_is_in_its_account():
    given = situation(20, (2, 10), past=Past(1, 37, 700.0, 37))  # two requests ago
    plan = Plan((Gap(2, 20, NOTE, 10),))
    account = account_of(given, plan, may_wait=False)
    tokens = given.chain.tokens
    absent, more = sum(tokens[2:10]) - 10, sum(tokens[10:20])
    reread = 0.9 * (10 + sum(tokens[20:39]))
    assert account is not None
    assert account.saved == pytest.approx(700 + 0.1 * absent + 0.1 * (absent + more) - reread, abs=1)


def test_where_the_cache_is_cold_nothing_is_read_anew_and_all_that_is_cut_is_saved_at_once():
    given = replace(situation(20), conditions=Conditions(prices=PRICES))
    account = account_of(given, Plan((Gap(2, 20, NOTE, 10),)), may_wait=False)
    assert account is not None
    assert account.saved == sum(given.chain.tokens[2:20]) - 10


def test_a_summary_is_paid_when_a_view_tells_it_or_it_is_there_and_never_twice():
    given, text = situation(20), prose("en", 50)
    told, nested, wider = Anchor(2, 20, text), Anchor(4, 10, text), Anchor(2, 30, text)
    of_all = written_cost(given, [told])
    assert of_all > count(text) * PRICES.output
    known = given.under(Plan((Gap(2, 20, NOTE, 10, (told,)),)))
    assert written_cost(known, [told, nested]) == 0
    assert of_all / 2 < written_cost(known, [wider]) < written_cost(given, [wider])
    assert written_cost(given, [Anchor(2, 20, text, by_code=True)]) == 0


def test_what_was_cut_is_summarised_when_the_next_epoch_may_come():
    earned = distance(BUDGET, Policy().stages)
    for exchanges in range(21, 27):
        given = situation(exchanges, (2, 30), past=Past(1, 41, 0.0, 41))
        grown = given.chain.tokens.between(41)
        assert may_be_told(given) == (2 * grown >= earned)


def test_or_after_some_requests_that_hardly_bring_anything():
    said = [each for n in range(12) for each in (user(f"And {n}?"), assistant("No."))]
    chain = chain_from([user(prose("en", 3_000)), *said, user("And now?")])
    past = Past(1, len(chain) - 24, 0.0, len(chain) - 24)
    given = situation(1, past=past)
    assert not may_be_told(replace(given, chain=chain.prefix(len(chain) - 10), plan=EMPTY))
    assert may_be_told(replace(given, chain=chain, plan=EMPTY))

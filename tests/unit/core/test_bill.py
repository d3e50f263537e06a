"""What prompts cost, by the beginnings that they share."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import UNKNOWN_PRICES, Prices, Prompt
from proxy.core.dialects.answers import Usage
from proxy.core.economics.bill import cost_of, kept_prompt, money
from proxy.core.economics.economy import SummaryCalls
from proxy.core.economics.simulate import SummaryMeter
from proxy.core.planning.plan import EMPTY, Gap, Plan, Replacement
from proxy.core.planning.situation import Conditions, Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Economy, Summary
from proxy.core.summaries.source import estimated_tokens, most_read
from tests.support.conversations import assistant, chain_from, count, prose, user

BUDGET = Budget(8_000, 1.0, 500)
EXCHANGES = [
    message for n in range(20) for message in (user(prose("en", 50, n)), assistant(prose("en", 50, n)))
]


def kept(plan: Plan, before: Plan = EMPTY, *, exchanges: int = 10, budget: Budget = BUDGET) -> int:
    """Tokens that are kept of a request under a plan, whose last one went out under the one before."""
    chain = chain_from([*EXCHANGES[: 2 * exchanges], user("And?")])
    return kept_prompt(chain, before, plan, budget, UNKNOWN_PRICES)


def sizes(first: int, last: int) -> int:
    return chain_from(EXCHANGES).tokens.between(first, last)


def test_a_request_shares_all_of_the_one_before_it_in_steps_of_128():
    shared = BUDGET.head + sizes(0, 19)  # all before the newest answer
    assert kept(EMPTY) == shared // 128 * 128 > 1_024


def test_prefixes_below_1024_tokens_are_not_kept():
    assert BUDGET.head + sizes(0, 1) < 1_024
    assert kept(EMPTY, exchanges=1) == 0


def test_what_follows_the_first_edit_is_fresh_and_the_note_is_part_of_the_view():
    plan = Plan((Gap(10, 12, b"note", 50),))
    assert kept(plan) == kept(Plan((Gap(10, 12, b"other", 70),)), plan)
    assert kept(plan) == (BUDGET.head + sizes(0, 10)) // 128 * 128
    assert kept(plan, plan) == (BUDGET.head + sizes(0, 19) - sizes(10, 12) + 50) // 128 * 128


def test_a_clipped_message_has_its_own_size_and_is_fresh_when_it_is_clipped():
    clip = Plan(replacements=(Replacement(12, b"{}", 7),))
    assert kept(clip) == (BUDGET.head + sizes(0, 12)) // 128 * 128
    assert kept(clip, clip) == (BUDGET.head + sizes(0, 12) + 7 + sizes(13, 19)) // 128 * 128


def test_tokens_are_those_of_the_model():
    double = Budget(8_000, 2.0, 500)
    assert kept(EMPTY, budget=double) == 2 * (BUDGET.head + sizes(0, 19)) // 128 * 128


def test_dollars_are_for_a_million_tokens():
    prices = Prices(fresh=2.0, cached=0.5, written=2.5, output=8.0)
    assert Prompt(1_000_000, 400_000).dollars(prices) == pytest.approx(0.6 * 2.5 + 0.4 * 0.5)
    assert SummaryCalls(1_000_000, 100_000).dollars(prices) == pytest.approx(2.5 + 0.8)


TIERED = Prices(
    fresh=2.0,
    cached=0.5,
    written=2.5,
    output=8.0,
    tiers=((1_000, Prices(fresh=4.0, cached=1.0, written=5.0, output=12.0)), (9_000, Prices(fresh=16.0))),
)


@pytest.mark.parametrize(("tokens", "dear"), [(1_000, 1), (1_001, 2), (9_000, 2), (9_001, 8)])
def test_all_tokens_of_a_prompt_have_the_price_of_prompts_of_its_length(tokens: int, dear: int):
    assert Prompt(tokens, 0, 0).dollars(TIERED) == pytest.approx(dear * tokens * 2.0 / 1e6)


def test_what_is_cached_written_and_answered_has_the_price_for_the_length_of_the_prompt_too():
    prompt = Prompt(2_000, 500, 700)
    assert prompt.dollars(TIERED, 100) == pytest.approx((800 * 4 + 500 * 1 + 700 * 5 + 100 * 12) / 1e6)
    assert money(prompt, 100, TIERED) == 8_400_000


def test_short_prompts_are_not_dear_for_being_several():
    several = Usage(prompt_tokens=1_600, completion_tokens=100)
    assert cost_of(several, TIERED, 2) == 1_600 * 2_000 + 100 * 8_000 < cost_of(several, TIERED)
    calls = SummaryCalls(1_600, 100, calls=2)
    assert calls.money(TIERED) == 1_600 * 2_500 + 100 * 8_000 < calls._replace(calls=1).money(TIERED)


def test_a_price_that_a_policy_states_is_that_share_at_each_length():
    stated = TIERED.under(Economy(cached_price=0.1))
    assert [stated.at(tokens).read_share for tokens in (500, 5_000, 50_000)] == pytest.approx([0.1] * 3)


def summarised(*, idle: float | None = 10.0, policy: Policy | None = None, end: int = 30) -> SummaryCalls:
    """The call for one gap of a conversation that goes on after so many seconds."""
    chain = chain_from([*EXCHANGES, user("And?")])
    policy = policy or Policy()
    conditions = Conditions(idle=idle, head_idle=idle, prices=UNKNOWN_PRICES.under(policy.economy))
    situation = Situation(chain, EMPTY, policy, BUDGET, count, conditions=conditions)
    return SummaryMeter().calls(situation, Plan((Gap(0, end, b"note", 50),)))


def test_a_summary_is_read_out_of_what_the_provider_has_kept_where_that_costs_less():
    chain = chain_from([*EXCHANGES, user("And?")])
    cut, sent = sum(chain.tokens[:30]), BUDGET.head + sum(chain.tokens[:39])  # all before the newest answer
    read = summarised()
    assert (read.source, read.cached) == (sent, UNKNOWN_PRICES.cached_prefix(sent))
    assert read.dollars(UNKNOWN_PRICES) < SummaryCalls(cut, read.text).dollars(UNKNOWN_PRICES)


@pytest.mark.parametrize(
    "otherwise",
    [
        {"idle": None},
        {"idle": UNKNOWN_PRICES.ttl},
        {"policy": Policy(summary=Summary(model="another"))},
        {"policy": Policy(summary=Summary(cached_prefix=False))},
        {"policy": Policy(economy=Economy(cached_price=1.0))},
        {"end": 5, "policy": Policy(economy=Economy(cached_price=0.2))},
    ],
    ids=["first request", "cold", "another model", "by policy", "no discount", "a small gap"],
)
def test_a_summary_is_read_afresh_where_that_costs_less_or_nothing_is_kept(otherwise: dict[str, Any]):
    read = summarised(**otherwise)
    chain = chain_from([*EXCHANGES, user("And?")])
    most = most_read(Policy().summary_tokens(BUDGET.limit))
    assert read.cached == 0
    assert (
        min(estimated_tokens(chain, 0, otherwise.get("end", 30)), most) < read.source < sum(chain.tokens[:34])
    )


def test_each_gap_is_summarised_once_and_a_larger_one_builds_upon_it_once_enough_of_it_is_new():
    chain = chain_from(EXCHANGES)
    policy = Policy(summary=Summary(max_tokens=1_000))  # so long that its source is read whole
    situation = Situation(chain, EMPTY, policy, BUDGET, count)
    most, lane = situation.policy.summary_tokens(BUDGET.limit), SummaryMeter()

    def calls(*spans: tuple[int, int]) -> SummaryCalls:
        return lane.calls(situation, Plan(tuple(Gap(*span, b"note", 50) for span in spans)))

    instruction = calls((0, 10)).source - estimated_tokens(chain, 0, 10)
    assert 0 < instruction < 200
    assert calls((0, 10)) == SummaryCalls()
    assert situation.policy.summary.min_gap == 5
    assert calls((0, 14)) == SummaryCalls()
    assert calls((0, 16)).source == estimated_tokens(chain, 10, 16) + most + instruction
    assert calls((0, 16), (18, 20)) == SummaryCalls()  # too small for a summary
    assert calls((0, 22)).source == estimated_tokens(chain, 16, 22) + most + instruction

"""When an epoch pays: what it saves on the calls to come against what is read anew."""

from __future__ import annotations

import re
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage
from proxy.core.budget.prices import UNKNOWN_PRICES, Prices
from proxy.core.economics.economy import account_of, is_cold, late_account, pays_from, shortfall
from proxy.core.economics.simulate import replay
from proxy.core.planning.draft import Draft
from proxy.core.planning.life import NO_PAST, Past, affordable_summary
from proxy.core.planning.plan import Account, Anchor, Gap, Plan, Span, Verdict
from proxy.core.planning.planner import with_late_summaries
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Conditions, Situation
from proxy.core.planning.strategies import BY_UNITS, ByImportance
from proxy.core.planning.strategy import Strategy
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Economy, Stages, Summary
from tests.support.conversations import assistant, chain_from, count, prose, user

WARM = Conditions(idle=5.0, head_idle=5.0, prices=UNKNOWN_PRICES)
NOTE = b'{"role": "user", "content": "[messages omitted]"}'


def situation(exchanges: int = 20, conditions: Conditions = WARM, **rules: float | str) -> Situation:
    said = [(user(prose("en", 100, n)), assistant(prose("en", 300, n))) for n in range(exchanges)]
    chain = chain_from([message for pair in said for message in pair] + [user("and now?")])
    policy = Policy(economy=Economy.model_validate(rules))
    if conditions.prices is not None:
        conditions = replace(conditions, prices=conditions.prices.under(policy.economy))
    return Situation(chain, Plan(), policy, Budget(10_000, 1.0, 100), count, conditions=conditions)


def cut(start: int, end: int) -> Plan:
    return Plan((Gap(start, end, NOTE, 10),))


def trimming(given: Situation, *spans: Span) -> Draft:
    quotes: dict[Span, tuple[str, ...]] = dict.fromkeys(spans, ())
    return Draft.of(given, Stage.TRIM, quotes, strategy=ByImportance())


def verdict(given: Situation, plan: Plan, *, must_pay: bool = True) -> str:
    account = account_of(given, plan, must_pay=must_pay)
    assert account is not None
    return account.verdict


def test_the_sums_are_those_of_the_view():
    given = situation()
    account = account_of(given, cut(4, 10), must_pay=True)
    tokens = given.chain.tokens
    assert account is not None
    assert account.freed == sum(tokens[4:10]) - 10
    assert account.tail == 10 + sum(tokens[10:39])  # the newest answer and what follows were not sent before
    assert (account.cached, account.written) == (0.1, 1.0)


def test_a_deep_cut_of_what_nothing_follows_pays_and_a_shallow_one_at_the_beginning_waits():
    assert verdict(situation(expected_turns=20), cut(2, 36)) is Verdict.PAYS
    assert verdict(situation(expected_turns=20), cut(0, 2)) is Verdict.WAITS


@pytest.mark.parametrize(("calls", "expected"), [(1, Verdict.WAITS), (40, Verdict.PAYS)])
def test_the_more_calls_are_expected_the_more_it_pays(calls: int, expected: str):
    assert verdict(situation(expected_turns=calls), cut(4, 20)) == expected


def test_calls_are_expected_as_half_of_those_in_which_as_much_comes_again():
    given = situation(exchanges=20)
    account = account_of(given, cut(0, 20), must_pay=True)
    assert account is not None
    assert account.calls == pytest.approx(account.freed / (2 * sum(given.chain.tokens) / 21), abs=0.01)
    assert account.calls < 20


def test_after_an_epoch_the_pace_since_then_counts():
    given = situation()
    slow = replace(given, past=Past(1, 38))  # two short messages in one call
    before, after = (account_of(each, cut(0, 20), must_pay=True) for each in (given, slow))
    assert before is not None
    assert after is not None
    assert after.calls > before.calls


@pytest.mark.parametrize(
    ("stage", "strategy", "acts_now", "may"),
    [
        (Stage.TRIM, ByImportance(), False, True),
        (Stage.TRIM, ByImportance(), True, False),
        (Stage.TRIM, BY_UNITS, False, False),
        (Stage.COMPACT, ByImportance(), False, False),
        (Stage.EMERGENCY, ByImportance(), False, False),
    ],
    ids=["trim", "for another reason", "by count", "compact", "emergency"],
)
def test_only_an_epoch_at_trim_that_begins_for_its_size_must_pay(
    stage: Stage, strategy: Strategy, *, acts_now: bool, may: bool
):
    given = situation(expected_turns=1)
    decided = Draft.of(given, stage, {(0, 2): ()}, strategy=strategy, acts_now=acts_now)
    assert decided.must_pay is may
    assert (shortfall(decided) > 0) is may
    assert verdict(given, cut(0, 2), must_pay=False) is Verdict.DUE


def test_under_a_head_that_comes_back_only_what_it_sent_is_read_anew():
    given = situation(conditions=replace(WARM, head_sent=21))
    account = account_of(given, cut(4, 10), must_pay=True)
    assert account is not None
    assert account.tail == 10 + sum(given.chain.tokens[10:21])


def test_of_what_a_head_sent_only_the_beginning_is_left_where_a_cut_came_meanwhile():
    given = situation(conditions=replace(WARM, head_sent=21))
    assert not is_cold(replace(given, plan=cut(10, 14)))
    assert not is_cold(replace(given, plan=cut(15, 30)))
    assert is_cold(replace(given, plan=cut(2, 30)))


@pytest.mark.parametrize(
    ("conditions", "cold"),
    [
        (replace(WARM, head_idle=599.0), False),
        (replace(WARM, head_idle=600.0), True),
        (Conditions(prices=UNKNOWN_PRICES), True),
        (replace(WARM, head_idle=None), True),
        (replace(WARM, head_sent=2), True),
        (replace(WARM, head_sent=10), False),
        (replace(WARM, prices=None), False),
    ],
    ids=["just warm", "just cold", "never answered", "new head", "hardly sent", "sent", "no prices"],
)
def test_the_cache_is_cold(conditions: Conditions, *, cold: bool):
    assert is_cold(situation(conditions=conditions)) is cold


def test_a_lane_of_which_an_epoch_went_out_was_answered_before():
    given = situation(conditions=Conditions(prices=UNKNOWN_PRICES))
    assert is_cold(given)
    assert not is_cold(replace(given, past=Past(1, 4)))


def test_what_is_too_short_to_be_kept_is_cold():
    given = situation(exchanges=2)
    assert given.view_tokens < UNKNOWN_PRICES.least
    assert is_cold(given)


def test_when_the_cache_is_cold_nothing_waits():
    given = situation(conditions=replace(WARM, head_idle=3_600.0), expected_turns=1)
    assert verdict(given, cut(0, 2)) is Verdict.COLD


def test_the_policy_overrules_the_price_list():
    assert is_cold(situation(cache_ttl=5.0))
    assert not is_cold(situation(conditions=replace(WARM, head_idle=3_600.0), cache_ttl=7_200.0))
    assert verdict(situation(expected_turns=1, cached_price=1.0), cut(0, 2)) is Verdict.PAYS


def test_without_a_discount_nothing_is_lost_by_cutting():
    prices = Prices(fresh=30.0, cached=30.0, written=30.0)
    assert verdict(situation(conditions=replace(WARM, prices=prices)), cut(0, 2)) is Verdict.PAYS


def test_a_dearer_write_makes_it_wait_longer():
    dear = Prices(fresh=1.0, cached=0.1, written=3.0)
    assert verdict(situation(expected_turns=25), cut(4, 20)) is Verdict.PAYS
    assert (
        verdict(situation(conditions=replace(WARM, prices=dear), expected_turns=25), cut(4, 20))
        is Verdict.WAITS
    )


@pytest.mark.parametrize(("longest", "share"), [(100_000, 0.1), (1_000, 0.5)])
def test_a_cut_is_reckoned_at_the_prices_for_the_length_of_the_request(longest: int, share: float):
    tiered = Prices(tiers=((longest, Prices(fresh=2.0, cached=1.0, written=2.0)),))
    account = account_of(situation(conditions=replace(WARM, prices=tiered)), cut(4, 20), must_pay=True)
    assert account is not None
    assert account.cached == share


def test_a_summary_of_part_of_a_long_request_is_reckoned_at_the_prices_of_short_ones():
    plain = Prices(cached=1.0)
    tiered = Prices(cached=1.0, tiers=((5_000, Prices(fresh=2.0, cached=2.0, written=2.0, output=8.0)),))
    flat, short = (
        account_of(situation(conditions=replace(WARM, prices=prices)), cut(4, 10), must_pay=True)
        for prices in (plain, tiered)
    )
    assert flat is not None
    assert short is not None
    assert short.summaries == pytest.approx(flat.summaries / 2, abs=1), "in tokens of twice the price"


def test_summaries_that_are_still_to_be_written_have_to_be_paid_back_too():
    given = situation(expected_turns=20)
    without = replace(given, policy=given.policy.model_copy(update={"summary": Summary(enabled=False)}))
    accounts = [account_of(each, cut(4, 20), must_pay=True) for each in (given, without)]
    assert all(accounts)
    (told, plain) = (each for each in accounts if each)
    assert told.summaries > 0 == plain.summaries
    assert told.cost - plain.cost == told.summaries
    assert f"; {told.summaries} for summaries)" in told.text
    assert verdict(replace(given, prepared=(Anchor(4, 20, "They built it."),)), cut(4, 20)) is Verdict.PAYS


def test_a_gap_that_grew_by_fewer_messages_than_a_summary_is_worth_asks_for_none():
    given, summarised = situation(expected_turns=20), {(4, 16): 60}
    for end, lacks in ((20, False), (22, True)):
        account = account_of(given, cut(4, end), must_pay=True, summarised=summarised)
        assert account is not None
        assert bool(account.summaries) == lacks


def test_summaries_to_come_are_taken_to_be_as_long_as_those_that_came():
    given = situation(expected_turns=20)
    seen = Gap(4, 10, NOTE, 10, (Anchor(4, 10, "They built it of stone."),))
    before, after = (
        account_of(each, cut(4, 20), must_pay=True) for each in (given, given.under(Plan((seen,))))
    )
    assert before is not None
    assert after is not None
    assert after.summaries < 0.6 * before.summaries


@pytest.mark.parametrize("pace", [100, 500, 2_000])
def test_a_larger_budget_pays_in_sessions_that_are_a_smaller_multiple_of_it(pace: int):
    policy = Policy()
    multiples = [
        pays_from(policy, tokens, UNKNOWN_PRICES, pace) / tokens for tokens in (4_000, 32_000, 128_000)
    ]
    assert multiples == sorted(multiples, reverse=True)
    assert multiples[-1] >= policy.stages.compact
    shallow = Policy(economy=Economy(enabled=False), stages=Stages(target=0.7))
    assert pays_from(shallow, 8_000, UNKNOWN_PRICES, pace) > pays_from(policy, 8_000, UNKNOWN_PRICES, pace)


def test_no_more_than_one_epoch_a_request_is_paid_for():
    shallow = Policy(economy=Economy(enabled=False), stages=Stages(target=0.7))
    slow, quick = (pays_from(shallow, 2_500, Prices(cached=0.5), pace) for pace in (250, 1_000))
    assert slow < quick < 1.5 * slow, "epochs are 250 tokens apart, and no request begins four"


def test_an_epoch_that_must_be_says_when_it_costs_more_than_it_saves():
    forced = account_of(situation(expected_turns=1), cut(0, 2), must_pay=False)
    assert forced is not None
    assert forced.verdict is Verdict.DUE
    assert re.fullmatch(
        r"costs more than it saves: \d+ saved, \d+ spent, in fresh tokens \(1\.0 requests to come .*\)",
        forced.text,
    )
    assert not Account(Verdict.DUE, calls=20, cached=0.1, freed=1_000).text


@pytest.mark.parametrize(
    "given",
    [situation(conditions=Conditions(idle=5.0)), situation(enabled=False)],
    ids=["no prices", "switched off"],
)
def test_where_money_has_no_say_nothing_waits(given: Situation):
    account = account_of(given, cut(0, 2), must_pay=True)
    assert (account and account.verdict) is (Verdict.DUE if given.conditions.prices else None)
    assert shortfall(trimming(given, (0, 2))) == 0


@pytest.mark.parametrize("calls", ["auto", 3])
def test_what_is_lacking_is_what_must_be_freed_beyond_before_it_pays(calls: float | str):
    given = situation(expected_turns=calls)
    decided = trimming(given, (0, 2))
    lacking = shortfall(decided)
    account = account_of(given, decided.outline, must_pay=True, view=decided.view_tokens)
    assert account is not None

    def pays(freed: int) -> bool:
        to_come = account.calls if calls == 3 else account.calls * freed / account.freed
        return to_come * account.cached * freed >= account.cost

    assert not pays(account.freed + lacking - 2)
    assert pays(account.freed + lacking)


def test_where_cached_tokens_cost_nothing_nobody_can_tell_what_is_lacking():
    free = replace(WARM, prices=Prices(fresh=1.0, cached=0.0, written=1.0))
    assert shortfall(trimming(situation(conditions=free), (0, 2))) == 1


def test_people_are_told_the_sums():
    account = account_of(situation(expected_turns=20), cut(2, 36), must_pay=True)
    assert account is not None
    assert "(20.0 requests to come " in account.text
    assert str(account.freed) in account.text
    assert Account(Verdict.COLD, idle=900.0).text == "the provider's cache is cold, idle 900 s"
    assert not Account(Verdict.DUE).text


def test_a_late_summary_takes_the_place_of_its_notice_and_nothing_else_changes():
    given = replace(situation(), plan=Plan((cut(2, 10).gaps[0], cut(14, 20).gaps[0])))
    plan = with_late_summaries(given, {(2, 10): "They built a bridge of stone."})
    assert [(gap.start, gap.end) for gap in plan.gaps] == [(2, 10), (14, 20)]
    assert b"They built a bridge of stone." in plan.gaps[0].note
    assert plan.gaps[0].is_summarised
    assert plan.gaps[1] == given.plan.gaps[1]
    for conditions in (given.conditions, UNKNOWN_CONDITIONS):
        account = late_account(replace(given, past=NO_PAST, conditions=conditions), plan)
        assert account.cuts_nothing, "it earns nothing, and delays no other, whatever tokens cost"


GPT_5 = Prices(fresh=1.25, cached=0.125, written=1.25, output=10.0, is_known=True)


@pytest.mark.parametrize(
    ("budget", "pace", "paid", "changes", "tokens"),
    [
        (8_000, 500.0, GPT_5, {}, 125),
        (128_000, 500.0, GPT_5, {}, 2_000),
        (64_000, 500.0, GPT_5, {}, 2_000),
        (64_000, 3_000.0, GPT_5, {}, 1_000),
        (8_000, 20.0, GPT_5, {}, 900),
        (8_000, 500.0, UNKNOWN_PRICES, {}, 1_000),
        (8_000, 500.0, None, {}, 1_000),
        (8_000, 500.0, GPT_5, {"economy": Economy(enabled=False)}, 1_000),
        (8_000, 500.0, GPT_5, {"summary": Summary(max_tokens=2_000, model="small")}, 1_000),
        (64_000, 300.0, GPT_5, {"stages": Stages(max_units=20)}, 1_000),
    ],
)
def test_a_summary_that_is_longer_than_usual_costs_no_more_than_cutting_saves(
    budget: int, pace: float, paid: Prices | None, changes: dict[str, Any], tokens: int
):
    policy = Policy(summary=Summary(max_tokens=2_000)).model_copy(update=changes)
    found = affordable_summary(policy, Budget(budget, 1.0, 0), paid, pace)
    assert found == pytest.approx(tokens, rel=0.01)


@pytest.mark.parametrize("room", [4_000, 8_000])
def test_a_policy_that_asks_for_long_summaries_costs_no_more_than_doing_nothing(room: int):
    told = [each for n in range(30) for each in (user(f"And {n}?"), assistant(prose("en", 600, n)))]
    policy, chain = Policy(summary=Summary(max_tokens=2_000)), chain_from([*told, user("And now?")])
    turns = list(replay(chain, policy, Budget(room, 1.0, 0), count, prices=GPT_5))
    ours = sum(turn.sent.dollars(GPT_5) + turn.summaries.dollars(GPT_5) for turn in turns)
    assert sum(turn.began for turn in turns) >= 4
    assert ours <= sum(turn.full.dollars(GPT_5) for turn in turns)

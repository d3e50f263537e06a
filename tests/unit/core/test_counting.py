"""Epochs by count: after so many units that may be cut, at any usage."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage
from proxy.core.economics.simulate import replay
from proxy.core.planning.chain import Chain
from proxy.core.planning.changes import Change
from proxy.core.planning.plan import EMPTY, Plan, view_tokens
from proxy.core.planning.planner import draft_epoch, due_strategy, finish
from proxy.core.planning.situation import Conditions, Situation
from proxy.core.policy.policy import Policy
from tests.support.conversations import Sent, calling, chain_from, count, prose, result, user

ROUND = 70
"""Counted tokens of one tool round, about."""


def agent(rounds: int) -> list[Sent]:
    """One order and so many tool rounds."""
    steps = [m for n in range(rounds) for m in (calling(f"c{n}"), result(f"c{n}", prose("en", 50, n)))]
    return [user("Build the bridge."), *steps]


def policy(most: int = 5, recent: float = 0.0, **tables: Any) -> Policy:
    told: dict[str, Any] = {"stages": {"max_units": most}, "keep": {"recent": recent}}
    return Policy.model_validate(told | tables)


def situation(messages: list[Sent], rules: Policy, plan: Plan = EMPTY, began: int = 0) -> Situation:
    chain = chain_from(messages)
    return Situation(chain, plan, rules, Budget(100_000, 1.0, 0), count, Conditions(since=began))


def test_so_many_units_that_may_be_cut_begin_an_epoch_at_any_usage():
    # The newest round is still to be answered, and the order is the first user message.
    assert not due_strategy(situation(agent(5), policy()), Stage.CALM)
    assert due_strategy(situation(agent(6), policy()), Stage.CALM)
    assert not due_strategy(situation(agent(6), policy(most=0)), Stage.CALM)


def test_it_cuts_all_that_may_be_cut_and_waits_for_no_summary():
    decided = draft_epoch(situation(agent(6), policy()), Stage.CALM)
    assert decided is not None
    assert decided.stage is Stage.TRIM
    assert decided.unsummarised_spans == ((1, 11),)
    assert [(gap.start, gap.end) for gap in finish(decided, {}).gaps] == [(1, 11)]


def test_the_count_begins_again_with_an_epoch():
    first = draft_epoch(situation(agent(6), policy()), Stage.CALM)
    assert first is not None
    plan, began = finish(first, {}), len(agent(6))
    assert not due_strategy(situation(agent(10), policy(), plan, began), Stage.CALM)
    assert due_strategy(situation(agent(11), policy(), plan, began), Stage.CALM)


def test_the_newest_units_count_as_well_and_stay():
    rules = policy(recent=0.25)
    assert not due_strategy(situation(agent(5), rules), Stage.CALM)
    decided = draft_epoch(situation(agent(12), rules), Stage.CALM)
    assert decided is not None
    ((start, end),) = decided.spans
    assert start == 1
    assert len(agent(8)) <= end <= len(agent(9)), "a quarter of what the view holds stays, and the open round"


def test_what_an_epoch_left_standing_is_not_counted_again():
    began = len(agent(20))
    assert not due_strategy(situation(agent(23), policy(), EMPTY, began), Stage.CALM)


def test_protected_units_do_not_count():
    critical = [{"match": {"role": "tool"}, "class": "critical"}]
    assert not due_strategy(situation(agent(30), policy(retention=critical)), Stage.CALM)
    chain = chain_from(agent(6))
    pinned = replace(situation(agent(6), policy()), pins=frozenset({chain.hashes[2]}))
    assert not due_strategy(pinned, Stage.CALM)


def test_the_off_strategy_counts_nothing():
    assert not due_strategy(situation(agent(30), policy(strategy={"name": "off"})), Stage.CALM)


def test_units_that_are_smaller_than_their_note_are_left():
    tiny = [user("Go."), *(user(f"{n}") for n in range(8)), user("?")]
    assert draft_epoch(situation(tiny, policy()), Stage.CALM) is None


def test_under_a_large_budget_its_ledger_does_not_outweigh_what_the_view_holds():
    boats = [" ".join(f"K{number}X" for number in range(n, n + 12)) for n in range(1_000, 9_000, 12)]
    steps = [m for n, seen in enumerate(boats) for m in (calling(f"c{n}"), result(f"c{n}", seen))]
    before = replace(situation([user("Build."), *steps], policy()), budget=Budget(10_000_000, 1.0, 0))
    decided = draft_epoch(before, Stage.CALM)
    assert decided is not None
    ledger = count(finish(decided, {}).gaps[-1].ledger)
    assert before.policy.ledger.tokens < ledger <= 3_200, "a tenth of 32,000, which is more than three views"


def test_a_summary_that_fits_is_not_left_out_for_a_ledger_that_could_have_been_longer():
    work = [user(prose("en", 800)), *agent(12)[1:]]
    before = replace(situation(work, policy()), budget=Budget(1_520, 1.0, 0))
    decided = draft_epoch(before, Stage.CALM)
    assert decided is not None
    (span,) = decided.unsummarised_spans
    plan = finish(decided, {span: prose("en", 70)})
    assert [anchor.span for anchor in plan.anchors] == [span]
    assert view_tokens(plan, before.chain.tokens) < before.budget.share(0.8)


def test_the_epoch_says_that_it_was_begun_by_count_and_holds_at_any_size():
    before = situation(agent(6), policy())
    decided = draft_epoch(before, Stage.CALM)
    assert decided is not None
    plan, by_units = finish(decided, {}), decided.by_units
    epoch = Change("lane", 0, before, plan, Stage.CALM, None, by_units=by_units).epoch(1.0)
    assert "by count of 5 units" in epoch.reason
    assert epoch.calm_below == 0
    hashes = before.chain.hashes
    assert epoch.length_at_start(hashes) == len(hashes)
    assert epoch.length_at_start([*hashes, b"later"]) == len(hashes)
    assert epoch.length_at_start(hashes[: epoch.depth]) == epoch.depth


def began_at(chain: Chain, rules: Policy) -> list[int]:
    return [turn.number for turn in replay(chain, rules, Budget(100_000, 1.0, 0), count) if turn.began]


def test_an_agent_has_an_epoch_every_so_many_rounds():
    assert began_at(chain_from(agent(25)), policy()) == [7, 12, 17, 22]


def test_a_chat_is_counted_in_messages():
    talk = [user(f"{n} {prose('en', 40, n)}") for n in range(3)]
    assert began_at(chain_from(talk), policy()) == []

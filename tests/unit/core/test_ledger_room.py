"""How much room the ledger of a plan has, and who gets it."""

from __future__ import annotations

import pytest

from proxy.core.budget.budget import Budget, Stage
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.changes import compacted
from proxy.core.planning.ledger import add_ledger
from proxy.core.planning.plan import EMPTY, view_tokens
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from tests.support.conversations import (
    assistant,
    chain_from,
    count,
    prose,
    session,
    user,
)
from tests.support.ledgers import BARE, at_length, cut, filler, ledger, policy, talk


@pytest.mark.parametrize("share", [0.01, 0.02, 0.05])
def test_a_ledger_is_never_more_than_its_share(share: float) -> None:
    words = " ".join(f"K{number}X /srv/boats/{number}/log.txt" for number in range(500))
    rule = user(f"Never open {words[:200]}.")
    messages = [user("Look."), assistant(words), rule, assistant("No."), user("?")]
    plan = cut(messages, rules=policy(share=share))
    told = ledger(plan)
    assert told
    note = Content.of(plan.gaps[-1].note).text
    assert count(note) - count(note.replace(told, "")) <= share * 20_000


def test_where_not_all_fits_paths_come_before_versions() -> None:
    """Of a program's output: agents go back to files, and hardly ever to the versions of a listing."""
    listed = "\n".join(f"/srv/boats/quay{number}/plan.txt 4.1{number}.7" for number in range(60))
    told = ledger(cut([user("Look."), assistant(listed), *filler(1), user("?")], rules=policy(share=0.02)))
    assert told.count("quay") > 10
    assert "4.1" not in told


def small(rules: list[str], least: int | str = "auto", share: float = 0.1) -> tuple[str, Budget]:
    """The ledger under a small budget of a long talk that began with rules and many details."""
    details = " ".join(f"K{number}X" for number in range(400))
    said = [user("\n".join([*rules, details])), *(each for number in range(60) for each in filler(number))]
    budget = Budget(2000, 1.0, 100)
    chosen = Policy.model_validate({"keep": BARE, "ledger": {"share": share, "least": least}})
    *_, last = session(chain_from([*said, user("and now?")]), chosen, budget, None)
    return ledger(last.plan), budget


NAMES = prose("en", 60).split()
RULES = [
    f"Never lend crane number {number} of the harbour to anybody from the {name} side."
    for number, name in enumerate(NAMES)
]


def test_under_a_small_budget_details_have_up_to_four_tenths() -> None:
    told, budget = small([])
    assert 0.15 * budget.limit < count(told) <= 0.4 * budget.room


def test_details_also_fill_what_a_cut_leaves_unused_below_its_goal() -> None:
    details = user(" ".join(f"K{number}X" for number in range(1_800)))
    messages = [details, assistant("noted"), user("and now?")]
    drawn = Situation(chain_from(messages), EMPTY, Policy(keep=BARE), Budget(2_000, 1.0, 100), count)
    decided = draft_epoch(drawn, Stage.COMPACT)
    assert decided is not None
    plan, by_share = finish(decided, {}), add_ledger(drawn, decided.outline)
    assert count(ledger(plan)) > 1.25 * count(ledger(by_share))
    assert view_tokens(plan, drawn.chain.tokens) <= drawn.budget.share(drawn.policy.stages.target)


def test_under_a_small_budget_constraints_have_what_they_need() -> None:
    told, budget = small(RULES[:40])
    assert all(rule in told for rule in RULES[:40])
    assert 0.3 * budget.room < count(told) <= 0.85 * budget.room


def test_in_a_very_small_budget_a_cut_goes_deep_enough_for_every_constraint() -> None:
    asked, answered = (36, 27, 14, 36, 17), (23, 23, 48, 23, 58, 39, 27)
    said = [each for rule in RULES[:9] for each in (user(rule), assistant("Noted."))]
    for number in range(15):
        said += [
            user(prose("en", asked[number % 5], number)),
            assistant(prose("en", answered[number % 7], number)),
        ]
    *_, last = session(chain_from([*said, user("and now?")]), Policy(), Budget(249, 1.0, 0), None)
    assert [rule for rule in RULES[:9] if rule not in ledger(last.plan)] == []


def test_constraints_that_need_more_than_there_is_room_for_stay_within_it() -> None:
    told, budget = small(RULES * 3)
    assert 0.6 * budget.room < count(told) <= 0.85 * budget.room


def test_what_is_only_stated_pushes_out_neither_rules_nor_details() -> None:
    stated = [f"Actually berth {number} belongs to the {name} side." for number, name in enumerate(NAMES)]
    told, _ = small([*stated, *RULES[:3]])
    assert all(f"- {rule}" in told for rule in RULES[:3])
    assert 0 < told.count("- Actually berth") <= len(stated) / 4
    without, _ = small(RULES[:3])
    assert told.count("X") > 0.6 * without.count("X")


def test_a_title_is_said_once_where_rules_need_more_than_there_is_room_for() -> None:
    titled = [f"HOUSE RULE: {rule}" for rule in RULES * 3]
    told, budget = small(titled[:20])
    assert all(f"- {rule}" in told for rule in titled[:20])
    told, budget = small([f"{rule} (harbour {number})" for number, rule in enumerate(titled)])
    assert told.count("HOUSE RULE:") == 1
    assert told.count("Never lend crane") > 20
    assert 0.75 * budget.room < count(told) <= 0.85 * budget.room


@pytest.mark.parametrize(("rules", "quotes"), [(RULES[:9], True), (RULES, False)])
def test_what_was_handled_is_quoted_only_where_there_is_room_for_every_rule(
    rules: list[str], *, quotes: bool
) -> None:
    messages = talk(at_length("\n".join(rules)), user("Paint the bridge."))
    chosen = Policy.model_validate({"keep": BARE})
    drawn = Situation(chain_from(messages), EMPTY, chosen, Budget(800, 1.0, 100), count)
    decided = compacted(drawn, None)
    assert decided is not None
    assert any(gap.quotes for gap in finish(decided, {}).gaps) == quotes


@pytest.mark.parametrize(("least", "share", "bound"), [("auto", 0.05, 100), (0, 0.1, 200), (300, 0.05, 300)])
def test_a_policy_may_bound_the_ledger_of_a_small_budget(least: int | str, share: float, bound: int) -> None:
    told, _ = small(RULES[:40], least, share)
    assert 0 < count(told) <= bound


def test_a_ledger_never_costs_half_of_what_it_stands_for() -> None:
    messages = talk(user(" ".join(f"K{number}X" for number in range(20))), after=1)
    plan = cut(messages, 0, 1)
    chain = chain_from(messages)
    assert view_tokens(plan, chain.tokens) < sum(chain.tokens)


@pytest.mark.parametrize(
    ("constraints", "identifiers"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_each_part_can_be_left_out(*, constraints: bool, identifiers: bool) -> None:
    messages = talk(at_length("Never open the bridge at night.\nBoat K77X waits."))
    told = ledger(cut(messages, rules=policy(constraints=constraints, identifiers=identifiers)))
    assert ("Never open" in told) is constraints
    assert ("K77X" in told) is identifiers


def test_a_share_of_nothing_is_no_ledger() -> None:
    assert ledger(cut(talk(user("Never open the bridge at night.")), rules=policy(share=0.0))) == ""

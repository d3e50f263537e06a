"""Why an epoch is due, what has to hold before it begins; and each rewrite has to be earned by growth."""

from __future__ import annotations

from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage
from proxy.core.persistent import Sizes
from proxy.core.planning.life import (
    GATES,
    NO_PAST,
    Cause,
    Gate,
    Past,
    cause_of,
    growth_per_epoch,
    has_earned_epoch,
    past_of,
)
from proxy.core.planning.plan import Account, Epoch, Verdict
from proxy.core.policy.sections import Stages
from tests.support.stores import epoch

BUDGET, STAGES = Budget(1_000, 1.0, 0), Stages()
HASHES = [bytes([number]) for number in range(10)]


def begun(name: str, parent: str, length: int) -> Epoch:
    """An epoch that began when the chain had so many messages."""
    return epoch(name, parent, reach=HASHES[1], depth=2, begun_at=HASHES[length - 1])


def test_the_first_epoch_is_free():
    assert has_earned_epoch(NO_PAST, Sizes.of([1]), BUDGET, STAGES)


def test_the_next_one_needs_half_of_what_lies_between_trigger_and_target():
    assert growth_per_epoch(BUDGET, STAGES) == 300
    assert not has_earned_epoch(Past(1, 1), Sizes.of([800, 149]), BUDGET, STAGES)
    assert has_earned_epoch(Past(1, 1), Sizes.of([800, 150]), BUDGET, STAGES)


def test_after_epochs_by_count_alone_the_next_by_usage_needs_that_growth_too():
    assert not has_earned_epoch(Past(0, 1), Sizes.of([800, 149]), BUDGET, STAGES)
    assert has_earned_epoch(Past(0, 1), Sizes.of([800, 150]), BUDGET, STAGES)


def test_a_lane_has_no_more_epochs_than_its_tokens_hold_that_distance():
    assert has_earned_epoch(Past(3, 1), Sizes.of([750, 150]), BUDGET, STAGES)
    assert not has_earned_epoch(Past(4, 1), Sizes.of([750, 150]), BUDGET, STAGES)


def test_a_head_beyond_the_trigger_leaves_a_tenth_of_the_room_as_the_distance():
    assert growth_per_epoch(Budget(1_000, 1.0, 850), STAGES) == 15
    assert growth_per_epoch(Budget(1_000, 1.0, 1_000), STAGES) == 1


def test_what_a_person_asked_for_and_late_summaries_are_not_counted():
    first, second = begun("a", "", 4), begun("b", "a", 6)
    asked = replace(begun("c", "b", 8), asked="compact")
    late = replace(begun("d", "c", 9), account=Account(Verdict.LATE))
    line = (first, second, asked, late)
    assert past_of(line, late, HASHES) == Past(2, 6)
    by_count = replace(begun("c", "b", 8), stage="calm")
    assert past_of((first, second, by_count), by_count, HASHES) == Past(2, 8), "it need not be earned"
    assert past_of(line, first, HASHES) == Past(1, 4)
    assert past_of((), None, HASHES) == NO_PAST


def test_on_a_branch_that_left_before_the_epoch_began_growth_counts_from_its_reach():
    assert past_of((begun("a", "", 4),), begun("a", "", 4), HASHES[:3]) == Past(1, 2)


def test_over_the_budget_an_epoch_begins_whatever_it_costs():
    for acts_now in (False, True):
        assert not GATES[cause_of(Stage.EMERGENCY, acts_now=acts_now, is_over=True)]


def test_what_a_policy_calls_an_emergency_below_the_budget_has_to_free_something():
    assert cause_of(Stage.EMERGENCY, acts_now=False, is_over=False) is Cause.COMPACT


def test_what_begins_for_another_reason_than_usage_need_not_be_earned_nor_pay():
    for stage in (Stage.CALM, Stage.WARN, Stage.TRIM, Stage.COMPACT):
        assert cause_of(stage, acts_now=True, is_over=False) is Cause.AT_ONCE
    assert not {Gate.EARNED, Gate.PAYS, Gate.PREPARED} & {*GATES[Cause.AT_ONCE]}


def test_only_at_trim_an_epoch_waits_until_it_pays():
    assert [cause for cause, gates in GATES.items() if Gate.PAYS in gates] == [Cause.TRIM]
    assert cause_of(Stage.TRIM, acts_now=False, is_over=False) is Cause.TRIM

"""Budgets and stages: the numbers at which something happens."""

from __future__ import annotations

import pytest

from proxy.core.budget.budget import Budget, Stage, budget_tokens, stage_of
from proxy.core.policy.sections import Stages


@pytest.mark.parametrize(
    ("usage", "stage"),
    [
        (0.0, "calm"),
        (0.599, "calm"),
        (0.60, "warn"),
        (0.799, "warn"),
        (0.80, "trim"),
        (0.899, "trim"),
        (0.90, "compact"),
        (1.00, "compact"),
        (1.001, "emergency"),
        (9.0, "emergency"),
    ],
)
def test_each_usage_has_its_stage(usage: float, stage: str):
    assert stage_of(usage, Stages()) == stage


def test_a_stage_that_begins_where_the_one_before_does_takes_its_place():
    stages = Stages(warn=0.8, trim=0.8)
    assert stage_of(0.79, stages) is Stage.CALM
    assert stage_of(0.80, stages) is Stage.TRIM


def test_the_limit_is_the_budget_in_counted_tokens_rounded_down():
    assert Budget(tokens=1000, ratio=1.5, head=0).limit == 666
    assert Budget(tokens=1000, ratio=0.8, head=0).limit == 1250


def test_the_room_is_what_the_head_leaves_and_never_less_than_nothing():
    assert Budget(tokens=1000, ratio=1.0, head=300).room == 700
    assert Budget(tokens=1000, ratio=1.0, head=1000).room == 0


def test_what_follows_a_head_over_the_budget_has_half_of_the_budget():
    assert Budget(tokens=1000, ratio=1.0, head=3000).room == 500
    assert Budget(tokens=1000, ratio=2.0, head=3000).room == 250


def test_usage_counts_the_head():
    assert Budget(tokens=1000, ratio=1.0, head=100).usage(400) == 0.5
    assert Budget(tokens=0, ratio=1.0, head=0).usage(5) == 5


def test_a_share_is_of_the_room():
    assert Budget(tokens=1000, ratio=1.0, head=101).share(0.5) == 449


def test_real_tokens_are_rounded_up():
    assert Budget(tokens=1000, ratio=1.1, head=0).real(9) == 10


def test_counted_tokens_within_the_limit_are_within_the_budget():
    for ratio in (0.8, 1.0, 1.05, 1.3, 1.75):
        budget = Budget(tokens=8000, ratio=ratio, head=0)
        assert budget.real(budget.limit) <= 8000


@pytest.mark.parametrize(
    ("limit", "window", "reserve", "tokens"),
    [
        (None, 128_000, None, 112_000),  # an eighth is reserved
        (None, 128_000, 4_000, 124_000),
        (None, 128_000, 0, 128_000),
        (None, 128_000, -5, 112_000),  # a negative reserve is none
        (None, 128_000, 1_000_000, 64_000),  # half of it stays for the prompt
        (8_000, 128_000, None, 8_000),
        (200_000, 128_000, None, 112_000),
        (8_000, None, 100_000, 8_000),  # nothing is known of the window
        (None, None, None, None),
        (0, None, None, 1),
        (None, 1, None, 1),
    ],
)
def test_the_budget_is_the_smaller_of_the_limit_and_what_the_window_leaves(
    limit: int | None, window: int | None, reserve: int | None, tokens: int
):
    assert budget_tokens(limit, window, reserve) == tokens


@pytest.mark.parametrize("ratio", [0.8, 1.0, 1.3])
@pytest.mark.parametrize("usage", [0.61, 0.85, 0.99999, 1.0, 1.001, 2.5])
def test_a_view_fills_a_lowered_budget_as_much_as_is_said(ratio: float, usage: float):
    for view in range(9_500, 9_520):
        filled = Budget(tokens=1_000_000, ratio=ratio, head=500).filled(view, usage).usage(view)
        assert filled == pytest.approx(usage, rel=0.001)
        assert (filled > 1) == (usage > 1)


def test_a_budget_is_only_ever_lowered():
    budget = Budget(tokens=8_000, ratio=1.0, head=10)
    assert budget.filled(4_000, 0.1) == budget
    assert budget.filled(0, 1_000.0).room == 1

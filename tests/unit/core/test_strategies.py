"""Strategies: which units go, in which order, and when."""

from __future__ import annotations

import pytest

from proxy.core.budget import Budget, Stage
from proxy.core.plan import EMPTY, apply
from proxy.core.planner import fold
from proxy.core.policy import Policy
from proxy.core.policy_sections import Importance, Keep, Strategy
from proxy.core.situation import Situation
from proxy.core.strategies import strategy_of
from tests.property.conversations import (
    Sent,
    assistant,
    calling,
    chain_from,
    count,
    prose,
    result,
    stage_at,
    system,
    turn,
    user,
)

TEXT = prose("en", 60)
FREE = Policy(keep=Keep(recent=0.0, first_user=False))


def talk(exchanges: int) -> list[Sent]:
    """So many exchanges, and a question."""
    said = [message for n in range(exchanges) for message in (user(f"{n} {TEXT}"), assistant(f"{n} {TEXT}"))]
    return [*said, user("and now?")]


def situation(messages: list[Sent], policy: Policy = FREE, tokens: int = 100_000) -> Situation:
    return Situation(chain_from(messages), EMPTY, policy, Budget(tokens, 1.0, 0), count)


# --- by importance


def test_the_least_important_go_first_and_of_equals_the_oldest():
    order = strategy_of("importance").order(situation(talk(3)), Stage.COMPACT)
    # of 7: 0.20 · 0.30 and 0.30 · 0.40 and 0.40 · 0.50, by recency and role alone
    assert order == [1, 0, 3, 2, 5, 4]


def test_errors_and_results_go_after_chat_and_before_requests():
    messages = [
        user(TEXT),
        assistant("an error in the river and a bridge"),
        calling("a", content=TEXT),
        result("a", TEXT),
        assistant(TEXT),
        *talk(8),
    ]
    order = strategy_of("importance").order(situation(messages), Stage.COMPACT)
    assert [index for index in order if index < 4] == [3, 1, 2, 0]  # 0.21 · 0.285 · 0.295 · 0.30


def test_at_trim_only_what_scores_below_low_goes():
    weights = Importance(low=0.32)
    sit = situation(talk(3), FREE.model_copy(update={"importance": weights}))
    order = strategy_of("importance").order(sit, Stage.TRIM)
    assert order == [index for index in [1, 0, 3, 2, 5, 4] if sit.score(index).total < 0.32]
    assert 0 < len(order) < 6


def test_protected_units_do_not_go():
    sit = situation(talk(3), Policy(keep=Keep(recent=0.0, pins=("^1 ",))))
    assert strategy_of("importance").order(sit, Stage.COMPACT) == [1, 5, 4]


@pytest.mark.parametrize("stage", list(Stage))
def test_importance_is_due_from_trim_on(stage: Stage):
    due = strategy_of("importance").is_due(situation(talk(1)), stage)
    assert due == (stage in {Stage.TRIM, Stage.COMPACT, Stage.EMERGENCY})


# --- sliding window

WINDOW = Policy(strategy=Strategy(name="sliding_window", last=4))


def kept(messages: list[Sent], policy: Policy, tokens: int = 100_000) -> list[int]:
    chain = chain_from(messages)
    plan = turn(chain, EMPTY, policy, Budget(tokens, 1.0, 0)).plan
    return [place for place in range(len(chain)) if not plan.covers(place)]


def test_the_newest_messages_are_kept_at_any_usage():
    assert kept(talk(5), WINDOW) == [7, 8, 9, 10]


def test_a_window_that_is_not_full_cuts_nothing():
    assert kept(talk(1), WINDOW) == [0, 1, 2]
    assert not strategy_of("sliding_window").is_due(situation(talk(1), WINDOW), Stage.COMPACT)


def test_a_window_keeps_whole_units():
    rounds = [user("look"), calling("a", "b", "c"), result("a", "1"), result("b", "2"), result("c", "3")]
    assert kept([*talk(3)[:-1], *rounds, assistant("done"), user("next")], WINDOW) == [11, 12]


def test_a_window_never_cuts_the_question_of_an_agent_at_work():
    rounds = [message for n in range(6) for message in (calling(f"c{n}"), result(f"c{n}", "ok"))]
    assert kept([*talk(2)[:-1], user("work"), *rounds], WINDOW)[:2] == [4, 13]


def test_a_window_slides_with_each_turn():
    plan, view = EMPTY, list[int]()
    for exchanges in range(2, 8):
        done = turn(chain_from(talk(exchanges)), plan, WINDOW, Budget(100_000, 1.0, 0))
        plan = done.plan
        view.append(len(done.chain) - plan.cut)
    assert view == [4, 4, 4, 4, 4, 4]


def test_a_window_over_the_budget_is_pruned_all_the_same():
    messages = [user(prose("en", 600)), assistant(prose("en", 600)), user("and now?")]
    assert kept(messages, WINDOW, tokens=700) == [0, 2]  # the first request is clipped, not cut


def test_a_window_whose_note_is_larger_than_what_it_cuts_does_not_leave_the_budget():
    policy = Policy(strategy=Strategy(name="sliding_window", last=2))
    messages = [user(TEXT), system("Be brief."), calling("a"), result("a", TEXT)]
    chain = chain_from(messages)
    budget = Budget(sum(chain.tokens) + 3, 1.0, 0)
    assert turn(chain, EMPTY, policy, budget).tokens <= budget.limit


# --- off


@pytest.mark.parametrize("tokens", [10, 1000, 100_000])
def test_off_never_prunes(tokens: int):
    chain, policy = chain_from(talk(9)), Policy(strategy=Strategy(name="off"))
    budget = Budget(tokens, 1.0, 0)
    plan, epochs = fold(chain, policy, budget, count)
    assert (apply(plan, chain.raws), epochs) == (list(chain.raws), 0)
    assert turn(chain, EMPTY, policy, budget).plan == EMPTY
    assert stage_at(chain, EMPTY, policy, budget) in Stage

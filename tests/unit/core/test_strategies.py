"""Strategies: which units go, in which order, and when."""

from __future__ import annotations

import pytest

from proxy.core.budget.budget import Budget, Stage
from proxy.core.planning.plan import EMPTY, apply
from proxy.core.planning.planner import draft_epoch
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Conditions, Situation
from proxy.core.planning.strategies import STRATEGIES, Topic, strategy_of
from proxy.core.policy import values
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep, Ledger, Strategy
from tests.support.conversations import (
    Sent,
    assistant,
    calling,
    chain_from,
    count,
    from_scratch,
    prose,
    result,
    stage_at,
    system,
    turn,
    user,
)
from tests.support.strategies import FREE, ROOMY, SESSION, TEXT, gone, talk


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


@pytest.mark.parametrize("stage", [Stage.TRIM, Stage.COMPACT])
def test_whatever_it_scores_may_go_the_least_important_first(stage: Stage):
    sit = situation(talk(3), FREE)
    order = strategy_of("importance").order(sit, stage)
    assert order == [1, 0, 3, 2, 5, 4] == sorted(order, key=lambda each: sit.score(each).total)


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
    plan, epochs = from_scratch(chain, policy, budget, count)
    assert (apply(plan, chain.raws), epochs) == (list(chain.raws), 0)
    assert turn(chain, EMPTY, policy, budget).plan == EMPTY
    assert stage_at(chain, EMPTY, policy, budget) in Stage


# --- session

ANEW = Conditions(boundary=True)


@pytest.mark.parametrize("conditions", [ANEW, Conditions(pause=60.1)])
def test_at_a_boundary_all_that_came_before_goes_at_any_usage(conditions: Conditions):
    assert gone(talk(3), conditions) == [0, 1, 2, 3, 4, 5]


def test_at_a_boundary_what_is_shorter_than_a_note_about_it_stays():
    short = Situation(
        chain_from([user("hi"), assistant("hello"), user("and now?")]), EMPTY, SESSION, ROOMY, count, ANEW
    )
    assert draft_epoch(short, Stage.CALM) is None


@pytest.mark.parametrize("conditions", [UNKNOWN_CONDITIONS, Conditions(pause=60.0), Conditions(pause=0.0)])
def test_without_a_pause_nothing_goes_below_trim(conditions: Conditions):
    assert gone(talk(3), conditions) == []


def test_only_the_session_strategy_minds_a_boundary():
    assert gone(talk(3), ANEW, Policy()) == []


def test_between_pauses_a_session_is_pruned_by_importance():
    tight = Budget(sum(chain_from(talk(9)).tokens), 1.0, 0)
    by_importance = Policy(strategy=Strategy(name="importance"))
    assert (
        gone(talk(9), UNKNOWN_CONDITIONS, SESSION, tight)
        == gone(talk(9), UNKNOWN_CONDITIONS, by_importance, tight)
        != []
    )


def test_a_model_that_answered_nothing_for_long_makes_no_pause_while_another_goes_on():
    assert gone(talk(3), Conditions(idle=4_000.0, head_idle=4_000.0, pause=1.0)) == []


def test_what_is_new_stays_whole_with_all_that_the_person_said_in_a_row():
    messages = [*talk(2), user("one more thing"), calling("a"), result("a", TEXT)]
    assert gone(messages, ANEW) == [0, 1, 2, 3]


def test_a_tool_that_took_long_is_no_pause():
    messages = [*talk(2)[:-1], user("build it"), calling("a"), result("a", "built")]
    assert gone(messages, Conditions(pause=4_000.0)) == []
    assert gone([*messages, assistant("Done."), user("thanks")], Conditions(pause=4_000.0)) == [*range(8)]


def test_a_boundary_leaves_pins_and_later_system_messages():
    messages = [*talk(2)[:-1], system("Be brief."), user("Now what?")]
    policy = SESSION.model_copy(update={"keep": Keep(pins=("^0 ",))})
    assert gone(messages, ANEW, policy) == [2, 3]


def test_at_a_boundary_with_nothing_before_it_nothing_goes():
    assert gone([user("Hello")], ANEW) == []
    assert gone([user("Hello"), calling("a"), result("a", TEXT)], ANEW) == []


def test_a_boundary_acts_at_a_first_request_over_the_budget_too():
    chain, budget = chain_from(talk(9)), Budget(300, 1.0, 0)
    plan, epochs = from_scratch(chain, SESSION, budget, count, ANEW)
    assert [(gap.start, gap.end) for gap in plan.gaps] == [(0, 18)]
    assert epochs > 1, "the past is replayed as it would have gone; then the boundary acts"


# --- topic

TOPIC = FREE.model_copy(update={"strategy": Strategy(name="topic")})


def about(words: str, answer: str) -> list[Sent]:
    return [user(words), assistant(answer)]


GARDEN = [
    about("When do I plant tomatoes in the garden?", "Plant tomatoes in the garden after the frost."),
    about("And the compost for the tomatoes?", "Spread compost around tomatoes in the garden in May."),
]
TRAINS = [
    about("Which trains run from Bern to Zurich?", "Trains from Bern to Zurich leave every half hour."),
    about("Do the trains to Zurich carry bicycles?", "Trains to Zurich carry bicycles with a ticket."),
]
TAXES = [about("Explain the tax form to me.", "The tax form asks for income and deductions.")]


def units_by_topic(stage: Stage, *exchanges: list[Sent]) -> list[int]:
    messages = [message for exchange in exchanges for message in exchange]
    return list(strategy_of("topic").order(situation(messages, TOPIC), stage))


def test_the_topic_farthest_from_now_goes_first_whatever_its_age():
    now = [user("Which tomatoes need compost in the garden now?")]
    order = units_by_topic(Stage.COMPACT, GARDEN[0], TRAINS[0], TRAINS[1], GARDEN[1], now)
    assert order == [3, 2, 5, 4, 1, 0, 7, 6]


def test_at_trim_the_topic_of_now_stays():
    now = [user("Which tomatoes need compost in the garden now?")]
    order = units_by_topic(Stage.TRIM, GARDEN[0], TRAINS[0], TAXES[0], GARDEN[1], now)
    assert sorted(order) == [2, 3, 4, 5]


def test_an_answer_goes_before_its_request_so_that_the_note_can_quote_it():
    trains = [*TRAINS, about("Which trains are night trains?", f"The trains to Vienna. {TEXT * 4}")]
    chain = chain_from([m for e in (*trains, *GARDEN) for m in e] + [user("tomatoes?")])
    budget = Budget(sum(chain.tokens) * 100 // 95, 1.0, 0)
    rules = TOPIC.model_copy(update={"ledger": Ledger(least=0)})
    decided = draft_epoch(Situation(chain, EMPTY, rules, budget, count), Stage.EMERGENCY)
    assert decided is not None
    assert any("Which trains are" in text for gap in decided.outline.gaps for text in gap.quotes)


# --- somebody else's


def test_the_names_that_a_policy_may_say_are_those_of_the_strategies():
    assert tuple(STRATEGIES) == values.STRATEGIES.names


def test_a_name_that_is_taken_is_not_given_again():
    with pytest.raises(ValueError, match="`topic` is taken"):
        values.STRATEGIES.add("topic", Topic())

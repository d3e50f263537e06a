"""What a policy would have sent, turn by turn."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.budget.budget import Budget, Stage
from proxy.core.economics.simulate import ReplayedTurn, replay
from proxy.core.planning.chain import Chain
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Economy, Strategy, Summary
from tests.support.conversations import (
    Sent,
    assistant,
    budgets,
    chain_from,
    count,
    prose,
    session,
    user,
    valid_conversations,
)

POLICY = Policy()


def talk(exchanges: int) -> list[Sent]:
    said = [(user(prose("en", 40, place)), assistant(prose("en", 80, place))) for place in range(exchanges)]
    return [message for pair in said for message in pair]


def played(chain: Chain, tokens: int, policy: Policy = POLICY) -> list[ReplayedTurn]:
    return list(replay(chain, policy, Budget(tokens, 1.0, 10), count))


def test_each_answer_was_once_a_request_of_the_history_before_it() -> None:
    turns = played(chain_from(talk(3)), 100_000)
    assert [turn.messages for turn in turns] == [1, 3, 5]


def test_a_session_that_ends_with_a_question_has_one_request_more() -> None:
    turns = played(chain_from([*talk(2), user("And then?")]), 100_000)
    assert [turn.messages for turn in turns] == [1, 3, 5]


def test_an_empty_session_has_no_turns() -> None:
    assert played(chain_from([]), 1_000) == []


def test_what_fits_is_sent_whole() -> None:
    for turn in played(chain_from(talk(5)), 100_000):
        assert (turn.sent.tokens, turn.plan.cut, turn.stage, turn.began) == (
            turn.full.tokens,
            0,
            Stage.CALM,
            False,
        )


def test_what_is_shown_are_the_tokens_of_the_model_with_the_head() -> None:
    chain = chain_from([user("Hello")])
    (turn,) = replay(chain, POLICY, Budget(100_000, 1.5, 20), count)
    assert turn.full.tokens == turn.sent.tokens == -(-(20 + sum(chain.tokens)) * 3 // 2)


def test_an_epoch_stays_in_force_until_the_next_one() -> None:
    turns = played(chain_from(talk(40)), 1_500)
    began = [turn for turn in turns if turn.began]
    assert len(began) > 1
    for before, after in pairwise(turns):
        assert after.began or after.plan.cut == before.plan.cut
        assert after.epoch == before.epoch + after.began


def test_a_replay_cuts_what_the_planner_cuts_when_no_summary_is_to_be_had() -> None:
    chain, budget = chain_from([*talk(30), user("And then?")]), Budget(1_500, 1.0, 10)
    policy = Policy(economy=Economy(enabled=False))
    live = [each.plan.cut for each in session(chain, policy, budget)]
    assert [turn.plan.cut for turn in replay(chain, policy, budget, count)] == live


def test_a_first_request_that_is_over_the_budget_is_planned_from_scratch() -> None:
    questions = [user(prose("en", 80, place)) for place in range(30)]
    (turn,) = played(chain_from(questions), 1_000)
    assert turn.stage is Stage.EMERGENCY
    assert turn.began
    assert turn.sent.tokens <= 1_000 < turn.full.tokens


def test_the_policy_that_is_off_sends_everything() -> None:
    turns = played(chain_from(talk(40)), 1_500, Policy(strategy=Strategy(name="off")))
    assert turns[-1].stage is Stage.EMERGENCY
    assert all(turn.sent.tokens == turn.full.tokens and not turn.epoch for turn in turns)


def test_a_window_of_messages_slides_at_any_usage() -> None:
    policy = Policy(strategy=Strategy(name="sliding_window", last=5), summary=Summary(enabled=False))
    turns = played(chain_from(talk(10)), 100_000, policy)
    assert turns[-1].plan.cut
    assert {turn.stage for turn in turns} == {Stage.CALM}


@given(data=st.data(), said=valid_conversations())
def test_a_replay_is_repeatable_and_never_sends_more_than_it_was_given(
    data: st.DataObject, said: list[Sent]
) -> None:
    chain = chain_from(said)
    budget = data.draw(budgets(chain))
    turns = list(replay(chain, POLICY, budget, count))
    assert turns == list(replay(chain, POLICY, budget, count))
    assert [turn.number for turn in turns] == list(range(1, len(turns) + 1))
    assert all(turn.sent.tokens <= turn.full.tokens or turn.plan.cut for turn in turns)

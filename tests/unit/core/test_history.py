"""What a conversation sent turn by turn is told from its messages and epochs as it went out."""

from __future__ import annotations

from proxy.core.budget.budget import Budget, Stage
from proxy.core.planning.changes import Change
from proxy.core.planning.explain import SentTurn, cut_by, sent_turns
from proxy.core.planning.life import line_of
from proxy.core.planning.plan import EMPTY, Epoch, Gap, Plan, Replacement, Verb, view_tokens
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from tests.support.conversations import Sent, assistant, chain_from, count, user

BUDGET = Budget(10_000, 1.5, 40)
FIRST = Plan((Gap(1, 3, b"note", 2),))
SECOND = Plan((Gap(1, 7, b"longer note", 3),), (Replacement(8, b"clipped", 1),))


def talk(turns: int) -> list[Sent]:
    """What a client sends in so many turns, the last one not answered."""
    said = [
        each
        for number in range(turns)
        for each in (user(f"question {number} " * 5), assistant(f"answer {number} " * 9))
    ]
    return said[:-1]


def begun(messages: list[Sent], plan: Plan, parent: Epoch | None, asked: Verb = Verb.NONE) -> Epoch:
    """An epoch that begins with a request of these messages."""
    before = Situation(chain_from(messages), parent.plan if parent else EMPTY, Policy(), BUDGET, count)
    return Change("lane", 0, before, plan, Stage.COMPACT, parent, asked).epoch(1.0)


def test_each_turn_has_the_tokens_of_the_view_that_went_out():
    first = begun(talk(4), FIRST, None)
    second = begun(talk(8), SECOND, first)
    plans = [EMPTY] * 3 + [FIRST] * 4 + [SECOND] * 3
    turns = sent_turns(chain_from(talk(10)), [first, second], BUDGET)
    for number, (turn, plan) in enumerate(zip(turns, plans, strict=True), 1):
        sizes = chain_from(talk(number)).tokens
        assert turn == SentTurn(
            messages=2 * number - 1,
            full=BUDGET.real(BUDGET.head + sizes.total),
            sent=BUDGET.real(BUDGET.head + view_tokens(plan, sizes)),
            epoch=(EMPTY, FIRST, SECOND).index(plan),
            began=number in (4, 8),
        )


def test_an_answer_that_has_not_been_sent_back_is_no_turn():
    answered = [*talk(3), assistant("so")]
    assert len(sent_turns(chain_from(answered), [], BUDGET)) == 3
    assert sent_turns(chain_from([]), [], BUDGET) == []


def test_what_a_person_cut_after_an_answer_holds_from_the_next_request_on():
    by_hand = begun(talk(5)[:-1], FIRST, None, Verb.COMPACT)
    turns = sent_turns(chain_from(talk(6)), [by_hand], BUDGET)
    assert [turn.began for turn in turns] == [False] * 4 + [True, False]


def test_the_line_of_an_epoch_leaves_out_those_of_other_branches():
    first = begun(talk(4), FIRST, None)
    other = begun([*talk(6), assistant("x")], EMPTY, first, Verb.RESTORE)
    second = begun(talk(8), SECOND, first)
    assert line_of([first, other, second], second) == [first, second]
    assert line_of([first, other, second], None) == []


def test_a_message_is_out_of_the_view_since_the_first_epoch_that_did_not_bring_it_back():
    first = begun(talk(4), FIRST, None)
    restored = begun(talk(5), EMPTY, first, Verb.RESTORE)
    second = begun(talk(8), SECOND, restored)
    line = [first, restored, second]
    assert cut_by(line, 1) == second
    assert cut_by([first, begun(talk(8), SECOND, first)], 1) == first
    assert cut_by(line, 8) == second
    assert cut_by(line, 0) is None

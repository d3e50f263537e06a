"""What users laid down against many summaries: each sentence is read once, and found by its words."""

from __future__ import annotations

from proxy.core.budget.budget import Budget
from proxy.core.planning.plan import EMPTY
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.core.summaries.reversals import UserRules, turned_around
from proxy.core.summaries.source import Piece, blocks_of
from proxy.core.summaries.verification import TURNED, fault_in
from tests.support.conversations import assistant, chain_from, count, user
from tests.support.timing import Work, growth

HONEST = "Work went on at the harbour and the bridge. The assistant looked at each gate."


def talked(exchanges: int) -> Piece:
    messages = [
        said
        for number in range(exchanges)
        for said in (
            user(f"Never open gate {number} of lock {number // 7} at night. Look at the harbour."),
            assistant(f"I looked at gate {number}, and at the bridge beside it."),
        )
    ]
    situation = Situation(chain_from(messages), EMPTY, Policy(), Budget(100_000, 1.0, 0), count)
    return Piece(tuple(blocks_of(situation, (0, len(messages)))))


def test_the_first_rule_that_is_turned_around_is_told() -> None:
    said = UserRules("Never paint the boats. Do not touch the bread. Never paint the boats.")
    assert (
        turned_around("The bread was touched. The boats were painted.", said, "") == "Never paint the boats."
    )
    assert turned_around("The bread was touched.", said, "") == "Do not touch the bread."


def test_what_the_source_says_both_ways_may_be_told_either_way() -> None:
    said = UserRules("Never paint the boats.\nYou must lock the doors.\nPaint the boats after all.")
    assert turned_around("The boats were painted.", said, "") is None
    assert turned_around("The doors need not be locked.", said, "") == "You must lock the doors."
    assert turned_around("The doors need not be locked.", said, "[tool] Do not lock the doors.") is None


def test_a_rule_may_lack_one_word_in_five_and_no_more() -> None:
    said = UserRules("Never sell fresh bread, apples, honey, cheese.")  # six words beside the negation
    assert turned_around("Fresh bread, apples, honey and cheese were there.", said, "") is not None
    assert turned_around("Bread, apples, honey and cheese were there.", said, "") is None


def test_a_rule_holds_however_much_was_said_behind_it() -> None:
    evidence = talked(300).evidence()
    assert fault_in(HONEST, evidence) is None
    assert fault_in("The user may open gate 3 of lock 0 at night.", evidence) == TURNED


def test_a_gap_four_times_as_long_is_not_judged_sixteen_times_as_long() -> None:
    assert growth(judging, 250, 1_000) < 9


def judging(exchanges: int) -> Work:
    piece = talked(exchanges)
    return lambda: fault_in(HONEST, piece.evidence())

"""Law 9 in plans: what goes out without its signed reasoning, and where such an epoch holds."""

from __future__ import annotations

import pytest

from proxy.core.budget.budget import Budget, Stage
from proxy.core.conversation.records import HiddenCalls
from proxy.core.planning.chain import Chain
from proxy.core.planning.changes import Change
from proxy.core.planning.life import in_force
from proxy.core.planning.plan import EMPTY, Account, Epoch, Gap, Plan, Verb, Verdict
from proxy.core.planning.planner import due_strategy
from proxy.core.planning.reasoning import first_change, without_reasoning
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from tests.support.conversations import Sent, assistant, calling, chain_from, count, encode, result, user

THINKING = {"thinking_blocks": [{"type": "thinking", "thinking": "so", "signature": "EqoB"}]}


def thought(text: str) -> Sent:
    return {**assistant(text), **THINKING}


def talk(exchanges: int) -> list[Sent]:
    """Users and answers that were thought about, in turn, and one more of the user's."""
    said = [each for number in range(exchanges) for each in (user(f"q{number}"), thought(f"a{number}"))]
    return [*said, user("and now?")]


def situation(
    messages: list[Sent], plan: Plan = EMPTY, hidden: dict[int, HiddenCalls] | None = None
) -> Situation:
    chain = chain_from(messages).with_hidden(hidden or {})
    return Situation(chain, plan, Policy(), Budget(10_000, 1.0, 0), count)


def begun(messages: list[Sent], plan: Plan, parent: Epoch | None = None, verb: Verb = Verb.NONE) -> Epoch:
    before = situation(messages, parent.plan if parent else EMPTY)
    return Change("lane", 0, before, plan, Stage.COMPACT, parent, verb).epoch(1.0)


def holding(epochs: list[Epoch], chain: Chain) -> Epoch | None:
    return in_force(epochs, chain.hashes, 10**6, chain.keeps_open_part, chain.editable_length)


CUT = Plan((Gap(2, 4, b"note", 1),))
MORE = Plan((*CUT.gaps, Gap(14, 16, b"other", 1)))


def test_all_that_was_signed_before_the_first_epoch_and_is_kept_goes_out_without():
    """Before its first edit too: with it comes a tool of ours, and tools are part of what is signed."""
    assert begun(talk(5), CUT).without_reasoning == (1, 5, 7, 9)


def test_after_a_later_epoch_what_stands_before_its_first_edit_stays_as_it_was():
    first = begun(talk(5), CUT)
    second = begun(talk(9), MORE, first)
    assert second.without_reasoning == (1, 5, 7, 9, 17)


def test_a_session_without_signed_reasoning_has_nothing_to_leave_out_and_reaches_no_further():
    messages = [user("q"), assistant("a")] * 5 + [user("and now?")]
    epoch = begun(messages, CUT)
    assert (epoch.without_reasoning, epoch.depth) == ((), 4)


def test_what_is_signed_within_rounds_that_no_client_sees_goes_out_without_too():
    messages = [user("q"), assistant("a")] * 3 + [user("and now?")]
    rounds = [{**calling("h"), **THINKING}, result("h", "found"), assistant("a")]
    hidden = HiddenCalls(hash=b"", messages=tuple(map(encode, rounds)), tokens=30, at=1.0)
    before = situation(messages, hidden={1: hidden, 5: hidden})
    epoch = Change("lane", 0, before, Plan((Gap(0, 2, b"note", 1),)), Stage.COMPACT, None).epoch(1.0)
    assert (epoch.without_reasoning, epoch.depth) == ((5,), 7)


def test_a_branch_that_left_before_such_an_epoch_began_goes_on_as_it_was():
    epoch = begun(talk(5), CUT)
    assert holding([epoch], chain_from(talk(5))) == epoch
    assert holding([epoch], chain_from([*talk(5), thought("after"), user("more")])) == epoch
    assert holding([epoch], chain_from([*talk(4), thought("another"), user("more")])) is None


def test_what_a_person_asked_for_holds_where_the_newest_request_is_answered_anew():
    restored = begun([*talk(5), thought("answered")], EMPTY, begun(talk(5), CUT), Verb.RESTORE)
    epochs = [begun(talk(5), CUT), restored]
    assert holding(epochs, chain_from(talk(5))) == restored
    assert restored.without_reasoning == (1, 3, 5, 7, 9, 11)


def test_reasoning_that_was_refused_goes_out_no_more_though_nothing_is_cut():
    refused = Change(
        "lane", 0, situation(talk(3)), EMPTY, Stage.CALM, None, account=Account(Verdict.REFUSED)
    ).epoch(1.0)
    assert refused.without_reasoning == (1, 3, 5)
    assert refused.cuts_nothing
    assert "refused signed reasoning" in refused.reason


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        (EMPTY, EMPTY, None),
        (CUT, CUT, None),
        (EMPTY, CUT, 0),
        (CUT, EMPTY, 0),
        (CUT, MORE, 14),
        (CUT, Plan((Gap(2, 6, b"note", 1),)), 2),
        (CUT, Plan((Gap(2, 4, b"said anew", 1),)), 2),
    ],
)
def test_where_two_views_begin_to_differ(before: Plan, after: Plan, place: int | None):
    assert first_change(before, after) == place


def test_the_messages_at_some_places_go_without_and_all_others_keep_their_bytes():
    chain = chain_from(talk(2))
    edited = without_reasoning(chain.raws, (1,), chain.dialect)
    assert b"thinking" not in edited[1]
    assert [*edited[2:]] == [*chain.raws[2:]]
    assert [*without_reasoning(chain.raws, (7,), chain.dialect)] == [*chain.raws]


@pytest.mark.parametrize(("stage", "begins"), [(Stage.TRIM, False), (Stage.COMPACT, True)])
def test_amid_calls_that_were_thought_about_no_epoch_begins_below_compact(stage: Stage, begins: bool):
    open_loop = [*talk(3), {**calling("c"), **THINKING}, result("c", "found")]
    plain_loop = [*talk(3), calling("c"), result("c", "found")]
    assert (due_strategy(situation(open_loop), stage) is not None) is begins
    assert due_strategy(situation(plain_loop), stage) is not None
    assert due_strategy(situation(talk(3)), stage) is not None

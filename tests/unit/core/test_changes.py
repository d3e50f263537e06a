"""Compacting and restoring on request, on conversations that can be followed by eye."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage
from proxy.core.planning.changes import Change, compacted, restored
from proxy.core.planning.plan import EMPTY, Plan, Verb, apply
from proxy.core.planning.planner import finish
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep
from proxy.core.summaries.source import source_of
from proxy.errors import NothingToChange
from tests.support.conversations import Sent, assistant, calling, chain_from, count, prose, result, user

CHAT = [
    message
    for number in range(6)
    for message in (user(f"{number}? {prose('en', 20)}"), assistant(f"{number}! {prose('en', 60)}"))
]
TOOLS = [user("Look."), calling("a", "b"), result("a", "1" * 400), result("b", "2" * 400), assistant("Seen."),
         user("And?"), assistant("So it is.")]  # fmt: skip


def situation(messages: list[Sent], plan: Plan = EMPTY, keep: Keep | None = None) -> Situation:
    policy = Policy(keep=keep or Keep(recent=0, first_user=False))
    return Situation(chain_from(messages), plan, policy, Budget(100_000, 1.0, 0), count)


def cut(messages: list[Sent], *asked: int, summary: str | None = None, keep: Keep | None = None) -> Plan:
    decided = compacted(situation(messages, keep=keep), frozenset(asked) or None)
    return finish(decided, dict.fromkeys(decided.unsummarised_spans, summary) if summary else {})


def spans(plan: Plan) -> list[tuple[int, int]]:
    return [(gap.start, gap.end) for gap in plan.gaps]


def note(plan: Plan, index: int = 0) -> str:
    return json.loads(plan.gaps[index].note)["content"]


def test_whoever_asks_has_all_cut_but_what_is_open_whatever_the_policy_would_keep() -> None:
    keep = Keep(recent=1.0, first_user=True)
    assert spans(cut(CHAT, keep=keep)) == spans(cut(CHAT, *range(12), keep=keep)) == [(0, 10)]
    assert spans(cut(CHAT[:4], keep=keep)) == [(0, 2)], "a short one too"


def test_of_a_short_session_too_a_summary_is_wanted() -> None:
    decided = compacted(situation(CHAT[:4]), None)
    assert decided.unsummarised_spans == ((0, 2),)
    assert "They spoke" in note(finish(decided, {(0, 2): "They spoke of a bridge."}))


def test_where_all_is_cut_the_summaries_that_are_lacking_are_wanted_and_nothing_else() -> None:
    plan = cut(CHAT)
    decided = compacted(situation(CHAT, plan), None)
    assert decided.unsummarised_spans == ((0, 10),)
    assert finish(decided, {}) == plan
    assert "They spoke" in note(finish(decided, {(0, 10): "They spoke of a bridge."}))
    with pytest.raises(NothingToChange, match="all else is cut"):
        compacted(situation(CHAT, cut(CHAT, summary="They spoke of a bridge.")), None)


def test_a_range_takes_the_units_within_it_and_no_other() -> None:
    assert spans(cut(CHAT, 2, 3, 4, 5)) == [(2, 6)]
    with pytest.raises(NothingToChange, match="no whole message or tool call"):
        compacted(situation(TOOLS), frozenset({1, 2}))
    with pytest.raises(NothingToChange, match="what is cut already is not cut again"):
        compacted(situation(CHAT, cut(CHAT, 2, 3, 4, 5)), frozenset({3, 4}))
    assert spans(cut(TOOLS, 1, 2, 3)) == [(1, 4)]


def test_a_pinned_message_is_not_compacted() -> None:
    assert spans(cut(CHAT, *range(8), keep=Keep(recent=0, pins=("^2\\?",)))) == [(0, 4), (5, 8)]


def test_what_a_client_has_pinned_is_not_compacted() -> None:
    pinned = replace(situation(CHAT), pins=frozenset({chain_from(CHAT).hashes[4]}))
    decided = compacted(pinned, frozenset(range(8)))
    assert decided.spans == ((0, 4), (5, 8))


def classed(class_: str, content: str) -> Situation:
    rules = [{"match": {"content": content}, "class": class_}]
    keep = {"recent": 0.0, "first_user": False}
    return replace(situation(CHAT), policy=Policy.model_validate({"retention": rules, "keep": keep}))


def test_what_is_critical_is_not_compacted() -> None:
    decided = compacted(classed("critical", "^2\\?"), frozenset(range(8)))
    assert decided.spans == ((0, 4), (5, 8))


def test_of_a_batch_those_go_that_are_named() -> None:
    decided = compacted(classed("batch_compressible", "river"), frozenset({2, 3}))
    assert decided.spans == ((2, 4),)


def test_what_is_ephemeral_is_compacted_and_not_told() -> None:
    decided = compacted(classed("ephemeral", "^2!"), None)
    assert decided.unsummarised_spans == ((0, 10),)
    told = source_of(decided.situation, (0, 10), 10_000).piece.text
    assert "1! the river" in told
    assert "2! the river" not in told


def test_a_request_whose_answer_goes_goes_with_it_and_is_quoted() -> None:
    plan = cut(CHAT, 3)
    assert spans(plan) == [(2, 4)]
    assert "“1? the river" in note(plan)


def test_what_would_not_become_smaller_is_left() -> None:
    short = [user("Hi"), assistant("Hi"), user("Well?"), assistant("Well.")]
    with pytest.raises(NothingToChange, match="a note would be as long"):
        compacted(situation(short), None)
    with pytest.raises(NothingToChange, match="newest request and its answer"):
        compacted(situation(short[:2]), None)


def test_a_part_that_comes_back_takes_its_summary_from_the_note() -> None:
    plan = cut(CHAT, summary="They spoke of a bridge.")
    assert "Summary of 10" in note(plan)
    after = restored(situation(CHAT, plan), {9})
    assert spans(after) == [(0, 9)]
    assert "They spoke" not in note(after)
    assert "[9 messages omitted]" in note(after)


def test_a_gap_that_nothing_comes_back_of_keeps_its_note_byte_for_byte() -> None:
    plan = cut(CHAT, 0, 1, 2, 3, 6, 7, summary="They spoke of a bridge.")
    after = restored(situation(CHAT, plan), {6, 7})
    assert after.gaps == plan.gaps[:1]


def test_a_gap_may_part_in_two_and_a_request_above_one_is_said_to_be_handled() -> None:
    after = restored(situation(CHAT, cut(CHAT)), {4})
    assert spans(after) == [(0, 4), (5, 10)]
    assert "The request above was answered" in note(after, 1)


def test_quotes_stay_with_the_part_that_they_are_of() -> None:
    plan = cut(CHAT)
    after = restored(situation(CHAT, plan), {4, 5})
    assert spans(after) == [(0, 4), (6, 10)]
    assert "“1?" in note(after, 0)
    assert "“3?" in note(after, 1)
    assert "“2?" not in note(after, 0) + note(after, 1)


def test_a_tool_call_comes_back_with_its_results() -> None:
    after = restored(situation(TOOLS, cut(TOOLS, 1, 2, 3)), {2})
    assert after == EMPTY


def test_an_epoch_asked_for_says_so_and_holds_at_any_size() -> None:
    before = situation(CHAT)
    plan = cut(CHAT)
    epoch = Change("lane", 1, before, plan, Stage.CALM, None, Verb.COMPACT).epoch(5.0)
    assert (epoch.asked, epoch.calm_below, epoch.at, epoch.stage) == ("compact", 0, 5.0, "calm")
    assert epoch.reason.endswith("compacted, on request")
    assert (epoch.original_count, epoch.final_count) == (13, 1 + 12 - 10 + 1)
    assert epoch.begun_at == before.chain.hashes[-1]


def test_a_restore_reaches_as_far_as_what_it_undoes_and_begins_at_the_newest_request() -> None:
    plan = cut(CHAT)
    before = situation(CHAT, plan)
    first = Change("lane", 0, situation(CHAT), plan, Stage.COMPACT, None, Verb.COMPACT).epoch(1.0)
    epoch = Change("lane", 0, before, EMPTY, Stage.CALM, first, Verb.RESTORE).epoch(2.0)
    assert (epoch.depth, epoch.reach) == (10, before.chain.hashes[9])
    assert epoch.begun_at == before.chain.hashes[10]
    assert epoch.calm_below == first.calm_below > 0
    assert epoch.reason == "restored on request: 10 messages"
    assert apply(epoch.plan, before.chain.raws) == before.chain.raws

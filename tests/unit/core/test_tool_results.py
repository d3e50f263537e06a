"""Old tool results leave placeholders: which ones, in which order, and what a placeholder says."""

from __future__ import annotations

import json

import pytest

from proxy.core.budget.budget import Budget, Stage
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.explain import explain
from proxy.core.planning.plan import EMPTY, Plan
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.replacements import CLEARED, REPEATED, SUPERSEDED, clearings
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep, Tool, ToolResults
from tests.support.conversations import Sent, calling, chain_from, count, prose, result, user


def steps(*texts: str, arguments: str = "") -> list[Sent]:
    """One user message and a tool call for each of these results; each call differs unless told."""
    made: list[Sent] = [user("Build the bridge.")]
    for number, text in enumerate(texts):
        call = f"c{number}"
        made += [calling(call, arguments=arguments or json.dumps({"step": number})), result(call, text)]
    return made


def long(number: int, words: int = 200) -> str:
    return f"{number} {prose('en', words, number)}"


def situation(messages: list[Sent], plan: Plan = EMPTY, tokens: int = 8_000, **sections: object) -> Situation:
    policy = Policy.model_validate({"keep": Keep(recent=0.0), **sections})
    return Situation(chain_from(messages), plan, policy, Budget(tokens, 1.0, 0), count)


def chosen(situation: Situation) -> list[tuple[int, str]]:
    return [(each.edit.position, each.edit.why) for each in clearings(situation)]


def said(situation: Situation, position: int) -> str:
    (edit,) = (each.edit for each in clearings(situation) if each.edit.position == position)
    return Content.of(edit.raw).text


def test_the_oldest_results_go_first_and_the_newest_three_stay():
    found = situation(steps(*map(long, range(8))), tokens=2_000)
    assert chosen(found) == [(2, CLEARED), (4, CLEARED), (6, CLEARED), (8, CLEARED), (10, CLEARED)]


def test_how_many_newer_results_keep_a_result_is_a_matter_of_its_tool():
    tools = (Tool(match="lo*", clear_after=6),)
    assert chosen(situation(steps(*map(long, range(8))), tokens=1_000, tools=tools)) == [
        (2, CLEARED),
        (4, CLEARED),
    ]


def test_what_came_again_goes_before_all_else():
    same = long(1)
    found = situation(steps(long(0), same, long(2), same, *map(long, range(3, 7))), tokens=2_000)
    assert chosen(found)[0] == (4, REPEATED)
    assert "the same result came again later" in said(found, 4)


def test_results_with_the_same_words_and_other_pictures_are_not_the_same():
    messages = steps(*[long(0)] * 6)
    for number, step in enumerate(messages[2::2]):
        picture = {"type": "image_url", "image_url": {"url": f"https://example.org/{number}.png"}}
        step["content"] = [{"type": "text", "text": long(0)}, picture]
    assert chosen(situation(messages, tokens=1_000)) == [(2, CLEARED), (4, CLEARED), (6, CLEARED)]


def test_a_call_made_again_supersedes_its_earlier_result():
    messages = steps(*map(long, range(3)), arguments='{"path":"a.py","line":1}')
    messages[1] = calling("c0", arguments='{ "line": 1, "path": "a.py" }')  # the same, written differently
    assert chosen(situation(messages, tokens=1_000)) == [(2, SUPERSEDED), (4, SUPERSEDED)]


@pytest.mark.parametrize(
    "newest",
    [
        "Error: " + long(2),
        '{"error": "' + long(2) + '"}',
        "File unchanged since the last read.",
        "Die Datei ist unverändert.",
        "ファイルは変わっていません。",
    ],
)
def test_a_failure_or_a_reference_to_what_was_read_supersedes_no_result(newest: str):
    messages = steps(long(0), long(1), newest, arguments='{"path":"a.py"}')
    assert chosen(situation(messages, tokens=500)) == [(2, SUPERSEDED)]  # by the second, which holds


@pytest.mark.parametrize("newest", ["Error: " + long(1), "Error: none", "12 passed", "[]"])
def test_whatever_a_call_brings_supersedes_an_earlier_failure_of_it(newest: str):
    messages = steps("Error: " + long(0), newest, arguments='{"path":"a.py"}')
    assert chosen(situation(messages, tokens=500)) == [(2, SUPERSEDED)]


@pytest.mark.parametrize("newest", ["[]", "nothing to commit, working tree clean", "0 unread"])
def test_a_short_result_that_tells_how_things_are_supersedes_a_long_one(newest: str):
    messages = steps(long(0), newest, arguments='{"path":"a.py"}')
    assert chosen(situation(messages, tokens=500)) == [(2, SUPERSEDED)]


def test_a_result_that_another_call_brought_again_still_supersedes_older_ones_of_its_own():
    messages = steps(long(0), long(1), long(1), arguments='{"path":"a.py"}')
    messages[5] = calling("c2", arguments='{"path":"b.py"}')
    assert chosen(situation(messages, tokens=500)) == [(2, SUPERSEDED), (4, REPEATED)]


def test_a_result_supersedes_what_was_read_before_a_failure():
    messages = steps(long(0), "Error: " + long(1), long(2), arguments='{"path":"a.py"}')
    assert chosen(situation(messages, tokens=500)) == [(2, SUPERSEDED), (4, SUPERSEDED)]


def test_a_call_with_an_empty_argument_supersedes_none_without_it():
    messages = steps(*map(long, range(5)), arguments='{"path":""}')
    messages[1] = calling("c0", arguments="{}")
    assert chosen(situation(messages, tokens=1_500))[0] == (4, SUPERSEDED)


def test_a_placeholder_names_the_tool_the_size_and_a_digest_and_is_the_same_each_time():
    found = situation(steps(*map(long, range(8))), tokens=2_000)
    assert said(found, 2).startswith(f"[Result of look cleared ({len(long(0)):,} characters, ")
    assert [each.edit for each in clearings(found)] == [each.edit for each in clearings(found)]


def test_every_other_member_of_the_message_stays():
    messages = steps(*map(long, range(8)))
    messages[2] |= {"name": "look", "x-trace": [1, 2]}
    (edit, *_) = (each.edit for each in clearings(situation(messages, tokens=2_000)))
    assert json.loads(edit.raw) == {**messages[2], "content": json.loads(edit.raw)["content"]}


def test_content_in_parts_stays_content_in_parts():
    messages = steps(*map(long, range(8)))
    messages[2]["content"] = [{"type": "text", "text": long(0)}]
    (edit, *_) = (each.edit for each in clearings(situation(messages, tokens=2_000)))
    assert [part["type"] for part in json.loads(edit.raw)["content"]] == ["text"]


@pytest.mark.parametrize("cry", ["Traceback (most recent call last):", "エラー", "2 tests failed"])
def test_the_tail_of_an_error_stays(cry: str):
    found = situation(
        steps(f"{long(0)} {cry} at line 7: KeyError 'bolt'", *map(long, range(1, 6))), tokens=2_000
    )
    assert said(found, 2).endswith("at line 7: KeyError 'bolt'")


def test_small_results_and_results_of_open_calls_stay():
    assert chosen(situation(steps(*(["ok"] * 6)), tokens=100)) == []
    assert (16, CLEARED) not in chosen(situation(steps(*map(long, range(8))), tokens=500))


def test_nothing_is_cleared_where_it_frees_too_little_or_the_policy_says_so():
    messages = steps(*map(long, range(6)))
    assert chosen(situation(messages, tokens=100_000)) == []
    off = ToolResults(clear_first=False)
    assert chosen(situation(messages, tokens=2_000, tool_results=off)) == []


def test_results_go_before_messages_do_and_a_note_stands_for_what_they_held():
    found = situation(steps(*map(long, range(30))), tokens=9_000)
    decided = draft_epoch(found, Stage.TRIM)
    assert decided is not None
    plan = finish(decided, {})
    assert [(gap.start, gap.end) for gap in plan.gaps] == [(1, 3)]
    assert len(plan.replacements) > 10
    states = [row.state for row in explain(situation(steps(*map(long, range(30))), plan, tokens=9_000))]
    assert states.count("cleared") == len(plan.replacements)


def test_without_a_ledger_no_call_is_cut_for_the_sake_of_a_note():
    off = {"constraints": False, "identifiers": False}
    decided = draft_epoch(situation(steps(*map(long, range(30))), tokens=9_000, ledger=off), Stage.TRIM)
    assert decided is not None
    plan = finish(decided, {})
    assert not plan.gaps
    assert len(plan.replacements) > 10


def test_where_clearing_is_not_enough_messages_go_too_and_no_placeholder_is_left_of_them():
    found = situation(steps(*map(long, range(30))), tokens=3_000)
    decided = draft_epoch(found, Stage.EMERGENCY)
    assert decided is not None
    plan = finish(decided, {})
    assert plan.gaps
    assert not any(plan.covers(edit.position) for edit in plan.replacements)


def test_what_was_cleared_is_not_cleared_again():
    messages = steps(*map(long, range(30)))
    decided = draft_epoch(situation(messages, tokens=9_000), Stage.TRIM)
    assert decided is not None
    plan = finish(decided, {})
    again = {position for position, _ in chosen(situation(messages, plan, tokens=9_000))}
    assert again.isdisjoint(edit.position for edit in plan.replacements)


def test_a_chain_rolled_back_to_a_cleared_result_is_not_answered_from_its_placeholder():
    messages = steps(*map(long, range(30)))
    decided = draft_epoch(situation(messages, tokens=9_000), Stage.TRIM)
    assert decided is not None
    plan = finish(decided, {})
    last = plan.replacements[-1].position
    chain = chain_from(messages)
    assert not chain.prefix(last + 1).keeps_open_part(plan)
    assert chain.prefix(last + 3).keeps_open_part(plan)

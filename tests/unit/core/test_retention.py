"""Retention classes: what rules say of messages, and what follows for units."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.budget.budget import Budget, Stage
from proxy.core.conversation.retention import FIRMEST, rules_digest
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.draft import Draft
from proxy.core.planning.plan import EMPTY, Plan
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.situation import CRITICAL, FREE, Situation
from proxy.core.policy.policy import Policy
from proxy.core.summaries.source import blocks_of
from tests.support.conversations import (
    Sent,
    assistant,
    calling,
    chain_from,
    count,
    prose,
    result,
    system,
    user,
)

TEXT = prose("en", 60)


def rule(class_: str, **match: str) -> dict[str, Any]:
    return {"match": match, "class": class_}


def policy(*rules: dict[str, Any], **tables: Any) -> Policy:
    plain: dict[str, Any] = {
        "keep": {"recent": 0.0, "first_user": False},
        "summary": {"max_tokens": 50},
        "ledger": {"share": 0.0},
    }
    return Policy.model_validate({"retention": rules} | plain | tables)


def situation(
    messages: list[Sent], *rules: dict[str, Any], tokens: int = 100_000, **tables: Any
) -> Situation:
    return Situation(chain_from(messages), EMPTY, policy(*rules, **tables), Budget(tokens, 1.0, 0), count)


def classes(messages: list[Sent], *rules: dict[str, Any]) -> list[str]:
    found = situation(messages, *rules)
    return [found.classes.of(index) for index in range(len(found.units))]


def cut_at(stage: Stage, found: Situation) -> tuple[Draft, Plan]:
    decided = draft_epoch(found, stage)
    assert decided is not None
    return decided, finish(decided, {})


# --- what rules say


def test_without_rules_everything_is_compressible():
    assert classes([user("a"), calling("x"), result("x", "y"), assistant("b")]) == ["compressible"] * 3


def test_later_system_messages_are_critical_and_of_identical_ones_the_newest():
    messages = [user("a"), system("Be brief."), assistant("b"), system("Be brief."), user("c")]
    assert classes(messages) == ["compressible", "disposable", "compressible", "critical", "compressible"]


def test_a_rule_may_say_otherwise_of_system_messages():
    rules = [rule("compressible", role="system")]
    assert classes([user("a"), system("Be brief."), user("c")], *rules) == ["compressible"] * 3


def test_the_first_rule_that_matches_wins():
    messages = [user("keep this order"), user("an order")]
    rules = [rule("critical", content="(?i)KEEP"), rule("disposable", content="order")]
    assert classes(messages, *rules) == ["critical", "disposable"]


def test_all_that_a_rule_gives_must_hold():
    messages = [user("an order"), assistant("an order"), assistant("nothing")]
    found = classes(messages, rule("disposable", role="assistant", content="order"))
    assert found == ["compressible", "disposable", "compressible"]


def test_a_rule_for_a_tool_matches_its_calls_and_its_results():
    messages = [user("a"), calling("x"), result("x", "y"), assistant("b")]
    assert classes(messages, rule("disposable", tool="lo*")) == ["compressible", "disposable", "compressible"]
    assert classes(messages, rule("disposable", tool="write")) == ["compressible"] * 3


def test_a_rule_for_results_speaks_for_their_call():
    messages = [user("a"), calling("x", "y"), result("x", "1"), result("y", "2"), assistant("b")]
    assert classes(messages, rule("disposable", role="tool"))[1] == "disposable"


def test_a_unit_has_the_firmest_class_of_its_messages():
    messages = [user("a"), calling("x", "y"), result("x", "error"), result("y", "2"), assistant("b")]
    rules = [rule("critical", content="error"), rule("ephemeral", role="tool")]
    assert classes(messages, *rules)[1] == "critical"
    assert classes(messages, rule("disposable", content="error"))[1] == "compressible"


@pytest.mark.parametrize("looser", FIRMEST[1:])
def test_classes_are_ordered_by_firmness(looser: str):
    messages = [user("a"), calling("x", "y"), result("x", "one"), result("y", "two"), assistant("b")]
    firmer = FIRMEST[FIRMEST.index(looser) - 1]  # pyright: ignore[reportArgumentType]
    assert classes(messages, rule(looser, content="one"), rule(firmer, content="two"))[1] == firmer


def test_ids_that_repeat_name_the_tool_of_the_nearest_call():
    def call(name: str) -> Sent:
        function = {"name": name, "arguments": "{}"}
        return {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        }

    messages = [call("read"), result("c", "1"), call("write"), result("c", "2"), user("a")]
    assert classes(messages, rule("disposable", tool="read")) == [
        "disposable",
        "compressible",
        "compressible",
    ]


def test_a_function_result_is_named_by_itself():
    messages: list[Sent] = [
        {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}},
        {"role": "function", "name": "look", "content": "x"},
        user("a"),
    ]
    assert classes(messages, rule("disposable", tool="look"))[0] == "disposable"


# --- what follows


def test_critical_units_are_protected():
    found = situation([user("a"), assistant("precious"), user("b")], rule("critical", content="precious"))
    assert [found.protection[index] for index in range(2)] == [FREE, CRITICAL]


def talk(exchanges: int) -> list[Sent]:
    said = [m for n in range(exchanges) for m in (user(f"{n} {TEXT}"), assistant(f"answer {n} {TEXT}"))]
    return [*said, user("and now?")]


def usage(messages: list[Sent], share: float) -> int:
    return int(sum(chain_from(messages).tokens) / share)


def test_disposable_units_go_first_at_trim_too_whatever_they_score():
    messages = talk(20)
    rules = [rule("disposable", content="^1[0-9] ")]
    found = situation(messages, *rules, tokens=usage(messages, 0.85), stages={"target": 0.6})
    _, plan = cut_at(Stage.TRIM, found)
    cut = [place for place in range(len(messages)) if plan.covers(place)]
    worth = {place: found.score(place).total for place in range(len(messages))}
    assert any(worth[place] >= found.policy.importance.low for place in cut)
    assert {place for place in cut if place % 2 == 0} >= {20, 22, 24}, "the requests of the rule"


def test_a_disposable_unit_smaller_than_a_note_is_not_worth_one():
    small, large = assistant("ok"), assistant(f"ok {TEXT}")
    for one, is_cut in ((small, False), (large, True)):
        messages = [*talk(20), user("The plan is done."), one, *talk(3)]
        tokens = usage(messages, 0.95)
        found = situation(messages, rule("disposable", content="^ok"), tokens=tokens, stages={"target": 0.75})
        _, plan = cut_at(Stage.COMPACT, found)
        assert plan.covers(42) == is_cut


def test_a_batch_goes_as_a_whole_or_not_at_all():
    messages = talk(20)
    batch = rule("batch_compressible", content="(?s)^([5-9]|answer [5-9]) ")
    found = situation(messages, batch, tokens=usage(messages, 0.95), stages={"target": 0.3})
    _, plan = cut_at(Stage.COMPACT, found)
    members = range(10, 20)
    assert len({plan.covers(place) for place in members}) == 1
    assert plan.covers(0)
    later = rule("batch_compressible", content="(?s)^(1[0-9]|answer 1[0-9]) ")
    found = situation(messages, later, tokens=usage(messages, 0.95), stages={"target": 0.75})
    _, plan = cut_at(Stage.COMPACT, found)
    assert plan.covers(1)
    assert not any(plan.covers(place) for place in range(20, 40)), "the best of the batch is not reached"


# --- what may be told


SECRET = "the vault opens with 4711"


def secret_talk() -> list[Sent]:
    messages = talk(12)
    messages[3] = assistant(f"{SECRET} {TEXT}")
    messages[4] = user(f"remember {SECRET}")
    return messages


def sources(found: Situation, stage: Stage = Stage.COMPACT) -> str:
    decided = draft_epoch(found, stage)
    assert decided is not None
    assert decided.unsummarised_spans
    return "\n".join(
        block.transcript
        for span in decided.unsummarised_spans
        for block in blocks_of(decided.situation, span)
    )


@pytest.mark.parametrize("class_", ["ephemeral", "disposable"])
def test_the_text_of_what_is_not_summarised_stays_out_of_a_summarys_source(class_: str):
    messages = secret_talk()
    tokens = usage(messages, 0.95)
    assert SECRET in sources(situation(messages, tokens=tokens))
    told = sources(situation(messages, rule(class_, content="vault"), tokens=tokens))
    assert SECRET not in told
    assert "answer 0" in told


def test_an_ephemeral_result_is_not_told_beside_one_that_is():
    round_ = [calling("x", "y"), result("x", SECRET), result("y", f"plain {TEXT}")]
    messages = [user("a"), *round_, *talk(12)]
    found = situation(messages, rule("ephemeral", content="vault"), tokens=usage(messages, 0.95))
    assert found.classes.of(1) == "compressible"
    told = sources(found)
    assert "plain" in told
    assert SECRET not in told


def test_the_arguments_of_an_ephemeral_call_are_not_told():
    messages = [user("a"), calling("x", arguments=SECRET), result("x", TEXT), *talk(12)]
    tokens = usage(messages, 0.95)
    assert SECRET in sources(situation(messages, tokens=tokens))
    assert SECRET not in sources(situation(messages, rule("ephemeral", tool="look"), tokens=tokens))
    assert SECRET not in sources(situation(messages, rule("ephemeral", role="tool"), tokens=tokens))


def test_an_ephemeral_request_that_goes_with_its_answer_is_not_quoted():
    messages = talk(12)
    messages[20:22] = [user(f"remember {SECRET}"), assistant(TEXT)]
    for class_, is_quoted in (("compressible", True), ("ephemeral", False)):
        found = situation(
            messages, rule(class_, content="vault"), tokens=usage(messages, 0.95), stages={"target": 0.1}
        )
        _, plan = cut_at(Stage.COMPACT, found)
        assert plan.covers(20)
        assert plan.covers(21)
        notes = "".join(Content.of(gap.note).text for gap in plan.gaps)
        assert (SECRET in notes) == is_quoted


def test_a_gap_of_which_little_may_be_told_wants_no_summary():
    messages = talk(12)
    found = situation(messages, rule("disposable", content="answer|river"), tokens=usage(messages, 0.95))
    assert cut_at(Stage.COMPACT, found)[0].unsummarised_spans == ()


def test_summaries_under_other_rules_are_other_summaries():
    one, other = (policy(rule(class_, role="tool")).retention for class_ in ("ephemeral", "disposable"))
    assert len({rules_digest(()), rules_digest(one), rules_digest(other)}) == 3
    assert rules_digest(()) == ""


def test_nothing_ephemeral_stands_in_the_ledger():
    messages = talk(12)
    messages[2] = user(f"The booking is under ABX-99321. {TEXT}")
    messages[3] = assistant(f"Written down. {TEXT}")
    for class_, is_listed in (("disposable", True), ("ephemeral", False)):
        rules = [rule(class_, content="ABX")]
        found = situation(messages, *rules, tokens=usage(messages, 0.95), ledger={"share": 0.3})
        _, plan = cut_at(Stage.COMPACT, found)
        assert plan.covers(2)
        assert ("ABX-99321" in "".join(Content.of(gap.note).text for gap in plan.gaps)) == is_listed


def test_the_placeholder_of_an_ephemeral_result_keeps_nothing_of_an_error():
    results = [result(f"c{n}", f"{n} {TEXT * 4} error: the vault is shut") for n in range(12)]
    steps = [m for n, found in enumerate(results) for m in (calling(f"c{n}"), found)]
    messages = [user("Look."), *steps, user("And?")]
    for class_, is_told in (("compressible", True), ("ephemeral", False)):
        found = situation(
            messages, rule(class_, role="tool"), tokens=usage(messages, 0.95), stages={"target": 0.75}
        )
        _, plan = cut_at(Stage.COMPACT, found)
        cleared = [edit for edit in plan.replacements if edit.why]
        assert cleared
        assert any(b"vault" in edit.raw for edit in cleared) == is_told

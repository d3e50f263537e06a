"""Policies: what a value may be, which rules contradict each other, what follows from the numbers."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from proxy.core.policy.policy import Policy, PolicyRule, PolicySet, dotted_keys
from proxy.core.policy.sections import Stages


def policy(**tables: Any) -> Policy:
    return Policy.model_validate(tables)


def complaint(**tables: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        policy(**tables)
    return str(caught.value)


def test_the_defaults_are_the_numbers_of_the_default_preset() -> None:
    plain = Policy()
    assert list(plain.stages.model_dump().values()) == [0.6, 0.8, 0.9, 1.0, 0.5, 0]
    assert (plain.budget.tokens, plain.budget.reserve, plain.budget.overflow) == ("auto", "auto", "forward")
    assert (plain.importance.recency, plain.importance.role, plain.importance.content) == (0.3, 0.3, 0.4)
    assert (plain.summary.min_gap, plain.summary.wait, plain.summary.timeout) == (5, 2.5, 30)
    assert (plain.store.ttl, plain.limits.body) == (30 * 24 * 3600, 64 * 1024 * 1024)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("30d", 2_592_000),
        ("2.5s", 2.5),
        ("500ms", 0.5),
        ("5m", 300),
        ("2 h", 7200),
        ("1w", 604_800),
        (30, 30),
    ],
)
def test_a_duration_is_seconds(written: str | float, expected: float) -> None:
    assert policy(append={"wait": written}).append.wait == expected


@pytest.mark.parametrize(
    "written", ["30", "d", "-1s", "1h30m", "", "1e3s", -1, True, float("inf"), float("nan")]
)
def test_what_is_no_duration_is_refused(written: object) -> None:
    assert "append.wait" in complaint(append={"wait": written})


@pytest.mark.parametrize(
    ("written", "expected"),
    [("64MiB", 67_108_864), ("4MB", 4_000_000), ("1.5kB", 1500), ("9 B", 9), (12, 12)],
)
def test_a_size_is_bytes(written: str | int, expected: int) -> None:
    assert policy(limits={"body": written}).limits.body == expected


@pytest.mark.parametrize("written", ["64", "64mb", "MiB", 0, -1, 1.5, True])
def test_what_is_no_size_is_refused(written: object) -> None:
    assert "limits.body" in complaint(limits={"body": written})


@pytest.mark.parametrize("tokens", ["8000", "all", 0, -1, 8000.5, True])
def test_a_budget_is_a_whole_number_or_auto(tokens: object) -> None:
    assert "budget.tokens" in complaint(budget={"tokens": tokens})


def test_unknown_keys_are_refused_in_every_table() -> None:
    tables = {key.partition(".")[0] for key in dotted_keys() if "." in key}
    for table in tables - {"retention", "compactors", "tools"}:
        assert "Extra inputs" in complaint(**{table: {"nonsense": 1}})
    assert "Extra inputs" in complaint(nonsense={})


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ({"warn": 0.85}, "`warn` (0.85) must not be above `trim` (0.8)"),
        ({"trim": 0.9}, "`trim` (0.9) must be below `compact` (0.9)"),
        ({"emergency": 0.85}, "`compact` (0.9) must not be above `emergency` (0.85)"),
        ({"target": 0.8}, "`target` (0.8) must be below `trim` (0.8)"),
    ],
)
def test_stages_come_in_order(stages: dict[str, float], said: str) -> None:
    assert said in complaint(stages=stages)


def test_stages_may_touch_where_the_order_allows_it() -> None:
    assert Stages(warn=0.8, trim=0.8, compact=1.0, emergency=1.0).warn == 0.8


def test_no_emergency_may_begin_above_the_whole_budget() -> None:
    assert "stages.emergency" in complaint(stages={"emergency": 1.2})


@pytest.mark.parametrize(("goal", "limit"), [("answer_to", "answer_max"), ("summary_to", "summary_max")])
def test_what_is_condensed_becomes_smaller(goal: str, limit: str) -> None:
    assert f"`{goal}` (9) must be below `{limit}` (9)" in complaint(strategy={goal: 9, limit: 9})


def test_exchanges_roll_to_no_more_than_there_may_be_and_one_at_a_time_to_as_many() -> None:
    assert "`roll_to` (10) must not be above `exchanges` (9)" in complaint(
        strategy={"exchanges": 9, "roll_to": 10}
    )
    assert policy(strategy={"exchanges": 9, "roll_to": 9}).strategy.roll_to == 9


def test_results_are_served_only_where_that_is_safe() -> None:
    said = complaint(tools=[{"match": "*", "serve": True}])
    assert "`serve = true` needs `pure = true` or `invalidated_by`" in said
    kept = {"match": "*", "serve": True}
    assert policy(tools=[{**kept, "pure": True}]).tools[0].serve
    assert policy(tools=[{**kept, "invalidated_by": ["set_*"]}]).tools[0].serve


def test_results_are_shared_with_nobody() -> None:
    assert "Input should be 'session'" in complaint(tools=[{"match": "*", "scope": "channel"}])


def test_a_pin_is_a_regular_expression() -> None:
    assert "holds `(`, which is no regular expression" in complaint(keep={"pins": ["ok", "("]})
    assert policy(keep={"pins": [r"#keep\b"]}).keep.pins == (r"#keep\b",)


def test_a_retention_rule_matches_something_and_names_a_known_class() -> None:
    assert "needs at least one of" in complaint(retention=[{"match": {}, "class": "disposable"}])
    assert "retention.0.class" in complaint(retention=[{"match": {"role": "tool"}, "class": "precious"}])
    kept = policy(retention=[{"match": {"role": "tool"}, "class": "critical"}])
    assert kept.retention[0].class_ == "critical"


def test_naming_one_role_leaves_the_others_as_they_are() -> None:
    assert policy(importance={"roles": {"tool": 0.9}}).importance.roles == {
        "user": 1.0, "assistant": 0.5, "tool": 0.9, "system": 0.3, "developer": 0.3
    }  # fmt: skip


@pytest.mark.parametrize("word", ["error", "エラー", "错误", "錯誤", "fehler", "excepción", "erreur"])
def test_trouble_is_a_keyword_in_every_language(word: str) -> None:
    assert word in Policy().importance.keywords


def test_keywords_are_distinct_and_lower_case() -> None:
    keywords = Policy().importance.keywords
    assert len(keywords) == len(set(keywords))
    assert all(word == word.lower() for word in keywords)


def test_a_stated_window_is_found_by_the_models_name() -> None:
    budget = policy(budget={"windows": {"qwen3-*": 32_768, "*": 4096}}).budget
    assert budget.window("qwen3-8b") == 32_768
    assert budget.window("other") == 4096
    assert Policy().budget.window("gpt-4o") is None


def test_a_models_whole_name_comes_before_any_pattern() -> None:
    budget = policy(budget={"windows": {"*": 4096, "sonnet[1m]": 1_000_000, "sonnet[12]": 200_000}}).budget
    assert budget.window("sonnet[1m]") == 1_000_000
    assert budget.window("sonnet1") == 4096


@pytest.mark.parametrize(
    ("rule", "model", "headers", "fits"),
    [
        ({"model": "claude-*[1m]"}, "claude-x[1m]", {}, True),
        ({"model": "claude-*[1m]"}, "claude-x1", {}, False),
        ({"model": "gpt-?"}, "gpt-5", {}, False),
        ({"client": "My Agent [beta]*"}, "m", {b"user-agent": b"My Agent [beta] 2"}, True),
        ({"header": {"X-Team": "Z\u00fcrich*"}}, "m", {b"x-team": "Z\u00fcrich 3".encode()}, True),
        ({"header": {"X-Team": "Z\u00fcrich*"}}, "m", {b"x-team": "Z\u00fcrich 3".encode("latin-1")}, True),
    ],
)
def test_in_a_rule_for_requests_a_star_alone_is_special(
    rule: dict[str, Any], model: str, headers: dict[bytes, bytes], *, fits: bool
) -> None:
    agent = Policy(name="agent")
    rules = [PolicyRule.model_validate({**rule, "policy": "agent"})]
    chosen = PolicySet(Policy(), {"agent": agent}, rules).candidates("", headers).chosen(model)
    assert (chosen.policy is agent) is fits


@pytest.mark.parametrize(
    ("most", "budget", "expected"),
    [
        (1000, 1000, 125),
        (1000, 8000, 1000),
        (60, 8000, 60),
        (60, 112_000, 60),
        (3000, 112_000, 3000),
        ("auto", 1000, 100),
        ("auto", 500, 62),
        ("auto", 8000, 125),
        ("auto", 112_000, 1750),
        ("auto", 1_000_000, 2000),
    ],
)
def test_a_summary_is_as_long_as_is_stated_and_of_itself_grows_with_the_budget(
    most: int | str, budget: int, expected: int
) -> None:
    assert policy(summary={"max_tokens": most}).summary_tokens(budget) == expected


@given(st.integers(0, 10**7), st.integers(1, 10**5))
def test_a_summary_never_takes_more_than_an_eighth_of_the_budget(budget: int, most: int) -> None:
    assert 1 <= policy(summary={"max_tokens": most}).summary_tokens(budget) <= max(1, budget // 8)


@pytest.mark.parametrize(
    ("ledger", "expected"),
    [
        ({}, 2000),
        ({"least": 0}, 0),
        ({"share": 0.05}, 0),
        ({"share": 0.2}, 0),
        ({"share": 0.05, "least": 300}, 300),
    ],
)
def test_a_share_that_a_policy_chooses_is_a_bound(ledger: dict[str, float], expected: int) -> None:
    assert policy(ledger=ledger).ledger.tokens == expected


def test_equal_rules_have_equal_digests_whatever_they_are_called() -> None:
    first = policy(name="a", keep={"recent": 0.2}, limits={"body": "64MiB"})
    second = policy(name="b", limits={"body": 67_108_864}, keep={"recent": 0.2})
    assert first.digest == second.digest
    assert first.digest != policy(name="a", keep={"recent": 0.21}).digest


def test_a_digest_is_the_same_in_every_process() -> None:
    fixed = {"budget": {"tokens": 8000}, "importance": {"keywords": ["x"]}}
    assert policy(**fixed).digest == Policy.model_validate_json(json.dumps(fixed)).digest
    assert len(policy(**fixed).digest) == 12


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Policy().budget.tokens = 1  # pyright: ignore[reportAttributeAccessIssue]


def test_the_published_schema_takes_what_a_file_may_say() -> None:
    schema = Policy.model_json_schema()
    assert "extends" in schema["properties"]
    assert "name" not in schema["properties"]
    wait = schema["$defs"]["Append"]["properties"]["wait"]
    assert {each["type"] for each in wait["anyOf"]} == {"number", "string"}


def test_every_key_of_a_file_has_a_dotted_name() -> None:
    keys = dotted_keys()
    assert {"extends", "budget.tokens", "retention.class", "retention.match.role", "tools.match"} <= set(keys)
    assert "name" not in keys
    assert len(keys) == len(set(keys))

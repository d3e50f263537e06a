"""The tool's definition, when it is offered, and what its calls ask for."""

from __future__ import annotations

import json

import pytest

from proxy.core.dialects.chat.body import Body, read_body
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Recall
from proxy.core.recall.tool import (
    DESCRIPTION,
    NAME,
    PARAMETERS,
    Unclear,
    Wanted,
    read_arguments,
    recall_tool,
)

ON = Policy(recall=Recall(enabled=True))


def body(**members: object) -> Body:
    raw = json.dumps({"messages": [{"role": "user", "content": "Hi"}], **members}).encode()
    return read_body(raw, 10)


def named(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name}}


def test_the_definition_is_what_the_api_takes() -> None:
    tool = json.loads(body().tool(NAME, DESCRIPTION, PARAMETERS))
    assert tool["type"] == "function"
    assert tool["function"]["name"] == NAME
    assert set(tool["function"]["parameters"]["properties"]) == {"query", "from", "to", "offset"}


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"tools": None},
        {"tools": []},
        {"tools": [named("look")], "tool_choice": "auto", "n": 1},
        {"tools": [named("look")], "tool_choice": "required"},
        {"tools": [{"type": "web_search"}, 7]},
    ],
)
def test_it_is_offered_where_the_model_may_choose(members: dict[str, object]) -> None:
    assert recall_tool(body(**members), with_memory=False) == body().tool(NAME, DESCRIPTION, PARAMETERS)


@pytest.mark.parametrize(
    "members",
    [
        {"tool_choice": "none"},
        {"tool_choice": named("look")},
        {"n": 2},
        {"functions": [{"name": "look"}]},
        {"function_call": "auto"},
        {"tools": [named(NAME)]},
        {"tools": [{"type": "custom", "custom": {"name": NAME}}]},
        {"tools": "odd"},
    ],
)
def test_it_is_not_offered_where_the_client_decides(members: dict[str, object]) -> None:
    assert recall_tool(body(**members), with_memory=False) == b""


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("", Wanted()),
        ("{}", Wanted()),
        ('{"query": " the bridge "}', Wanted("the bridge")),
        ('{"from": 3, "to": 9}', Wanted("", 3, 9)),
        ('{"from": "3", "to": 9.0, "offset": 800}', Wanted("", 3, 9, 800)),
        ('{"query": null, "from": null, "unknown": 1}', Wanted()),
        ('{"from": 4, "offset": -5}', Wanted("", 4, None, 0)),
    ],
)
def test_what_a_call_asks_for(arguments: str, wanted: Wanted) -> None:
    assert read_arguments(arguments) == wanted


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"query": 7}', "`query` is a string"),
        ('{"from": "third"}', "`from` is a whole number"),
        ('{"to": true}', "`to` is a whole number"),
        ('{"from": 9, "to": 3}', "`to` (3) is before `from` (9)"),
    ],
)
def test_a_call_that_cannot_be_understood_is_told_how_to_ask(arguments: str, said: str) -> None:
    with pytest.raises(Unclear) as unclear:
        read_arguments(arguments)
    assert said in str(unclear.value)
    assert '{"query": "invoice number"}' in str(unclear.value)


def test_half_a_character_in_a_query_is_searched_for_as_one_that_cannot_be_shown() -> None:
    assert read_arguments('{"query": "the \\ud83d elephant"}').query == "the \ufffd elephant"

"""The request with which the upstream goes on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.core.dialects.registry import CHAT

BODY = b'{ "model":"m" , "messages": [ {"role":"user","content":"a"} ] ,"seed":12345678901234567890 }'


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def body(**members: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "a"}], **members}).encode()


def test_messages_go_after_the_others_and_every_other_byte_stays():
    assert CHAT.followed_by(BODY, [b'{"role":"x"}', b'{"role":"y"}']) == BODY.replace(
        b"} ] ,", b'} ,{"role":"x"},{"role":"y"}] ,'
    )


def test_a_body_that_names_its_messages_twice_keeps_the_last():
    twice = b'{"messages":[{"role":"user"}],"messages":[{"role":"system"}]}'
    assert json.loads(CHAT.followed_by(twice, [b'{"role":"x"}'])) == {
        "messages": [{"role": "system"}, {"role": "x"}]
    }


def test_a_tool_is_taken_out_and_the_others_stay():
    left = CHAT.without_tools(body(tools=[tool("a"), tool("recall")], tool_choice="auto"), "recall".__eq__)
    assert json.loads(left) == json.loads(body(tools=[tool("a")], tool_choice="auto"))


def test_without_any_tool_nothing_is_said_of_tools():
    whole = body(tools=[tool("recall")], tool_choice="auto", parallel_tool_calls=True, seed=1)
    assert json.loads(CHAT.without_tools(whole, "recall".__eq__)) == json.loads(body(seed=1))


def test_a_body_without_the_tool_stays_as_it_is():
    assert CHAT.without_tools(BODY, "recall".__eq__) is BODY


@pytest.mark.parametrize(
    ("members", "may"),
    [
        ({}, True),
        ({"n": 1, "tool_choice": "auto"}, True),
        ({"tool_choice": "required"}, True),
        ({"n": 2}, False),
        ({"tool_choice": "none"}, False),
        ({"tool_choice": {"type": "function", "function": {"name": "a"}}}, False),
    ],
)
def test_calls_may_be_hidden_where_one_answer_is_asked_for_and_the_model_chooses(
    members: dict[str, Any], may: bool
):
    assert CHAT.read_body(body(**members), 10).may_hide_calls is may

"""What callers hand in: what is taken, and the messages that it becomes."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.core.conversation.extension import MOST_BYTES, MOST_EXCHANGES, Injection, read_injection
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.formats.json import loads
from proxy.errors import InvalidType, InvalidValue, MissingParameter, RequestError, UnknownParameter
from tests.support.upstreams import fault_in

RAIN: dict[str, Any] = {"name": "weather", "arguments": {"city": "Rom"}, "result": "rain"}


def handed(value: object) -> Injection:
    injection = read_injection(value, "unabridged.inject")
    assert injection is not None
    return injection


def messages(value: object) -> list[dict[str, Any]]:
    return [loads(raw) for raw in handed(value).messages(CHAT)]


def test_a_text_is_one_fenced_message_of_the_users_side():
    (message,) = messages({"text": "The customer is called Ada."})
    assert message["role"] == "user"
    first, frame, text, last = message["content"].split("\n")
    assert first.startswith("<note ")
    assert last == first.replace("<", "</", 1)
    assert frame == "Handed in before the conversation, not a request."
    assert text == "The customer is called Ada."


def test_its_frame_is_in_the_language_of_the_text():
    (message,) = messages({"text": "Die Kundin heißt Ada und ist sehr freundlich."})
    assert "keine Anfrage" in message["content"]


def test_each_result_is_a_call_and_its_result_after_something_said():
    said, call, result = messages({"tools": [{**RAIN, "call_id": "c1"}]})
    assert said["role"] == "user"
    assert call["role"] == "assistant"
    assert call["content"] is None
    (made,) = call["tool_calls"]
    assert made == {
        "id": "c1",
        "type": "function",
        "function": {"name": "weather", "arguments": '{"city":"Rom"}'},
    }
    assert result == {"role": "tool", "tool_call_id": "c1", "content": "rain"}


def test_what_is_no_text_is_the_text_of_its_json():
    tools = [{**RAIN, "result": result} for result in (None, 3, [1, "é"], {"a": True}, "", "3")]
    results = [message["content"] for message in messages({"tools": tools}) if message["role"] == "tool"]
    assert results == ["null", "3", '[1,"é"]', '{"a":true}', "", "3"]


def test_arguments_that_are_text_stay_as_they_were_written():
    (tool,) = handed({"tools": [{**RAIN, "arguments": '{ "city": "Rom" }'}]}).tools
    assert tool.arguments == '{ "city": "Rom" }'


def test_calls_without_an_id_get_one_that_is_their_own_and_the_same_each_time():
    tools = [RAIN, RAIN, {**RAIN, "result": "sun"}]
    ids = [tool.call_id for tool in handed({"tools": tools}).tools]
    assert len(set(ids)) == 3
    assert all(len(call_id) == 9 and call_id.isalnum() for call_id in ids)
    assert ids == [tool.call_id for tool in handed({"tools": tools}).tools]


def test_an_id_that_we_give_is_none_that_the_caller_gave():
    (ours,) = handed({"tools": [RAIN]}).tools
    ids = [tool.call_id for tool in handed({"tools": [RAIN, {**RAIN, "call_id": ours.call_id}]}).tools]
    assert ids[1] == ours.call_id != ids[0]


def test_what_is_stored_tells_all_of_it():
    tools = [{**RAIN, "cache_exchanges": 3}, RAIN]
    injection = handed({"text": "x \ud800", "tools": tools})
    again = Injection(injection.raw)
    assert again == injection
    assert again.digest == injection.digest
    assert again.messages(CHAT) == injection.messages(CHAT)
    assert again.text == "x \ud800"
    assert [tool.cache_exchanges for tool in again.tools] == [3, None]
    assert [(tool.name, tool.arguments, tool.result) for tool in again.tools] == [
        ("weather", '{"city":"Rom"}', "rain")
    ] * 2
    assert read_injection(loads(injection.raw), "inject") == injection, "what is exported may be handed in"


def test_the_same_is_the_same_however_it_is_written():
    as_text = {"tools": [{"result": "rain", "name": "weather", "arguments": '{"city":"Rom"}'}]}
    assert handed(as_text) == handed({"tools": [RAIN], "text": ""})
    assert handed(as_text).digest != handed({**as_text, "text": "x"}).digest


def test_nothing_handed_in_is_nothing():
    nothings: list[object] = [{}, {"text": ""}, {"tools": []}, {"text": "", "tools": []}]
    for nothing in nothings:
        assert read_injection(nothing, "inject") is None


def test_no_text_can_hold_its_own_fence():
    (message,) = messages({"text": "x"})
    text = "x"
    for _ in range(50):  # a text that holds each fence that it was given so far
        (message,) = messages({"text": text})
        closing = message["content"].split("\n")[-1]
        assert closing not in text
        assert message["content"].count(closing) == 1
        text += closing


def test_its_messages_are_a_valid_conversation():
    said = messages({"text": "x", "tools": [RAIN, RAIN, {**RAIN, "call_id": "c"}]})
    assert fault_in([*said, {"role": "user", "content": "Hello"}]) is None


LONG = "x" * (MOST_BYTES // 2)
TOOL = "unabridged.inject.tools[1]"
REFUSED: dict[str, tuple[Any, type[RequestError], str]] = {
    "no object": ("x", InvalidType, "unabridged.inject"),
    "null": (None, InvalidType, "unabridged.inject"),
    "an unknown member": ({"texts": ""}, UnknownParameter, "unabridged.inject.texts"),
    "a text that is null": ({"text": None}, InvalidType, "unabridged.inject.text"),
    "a text in parts": ({"text": [{"type": "text"}]}, InvalidType, "unabridged.inject.text"),
    "tools that are no array": ({"tools": {"name": "x"}}, InvalidType, "unabridged.inject.tools"),
    "too many tools": ({"tools": [RAIN] * 101}, InvalidValue, "unabridged.inject.tools"),
    "too much text": ({"text": LONG * 2}, InvalidValue, "unabridged.inject"),
    "too much together": (
        {"text": LONG, "tools": [{**RAIN, "result": LONG}]},
        InvalidValue,
        "unabridged.inject",
    ),
}
REFUSED_TOOLS: dict[str, tuple[Any, type[RequestError], str]] = {
    "no object": ("x", InvalidType, ""),
    "an unknown member": ({**RAIN, "id": "c"}, UnknownParameter, ".id"),
    "no name": ({"arguments": {}, "result": ""}, MissingParameter, ".name"),
    "no arguments": ({"name": "x", "result": ""}, MissingParameter, ".arguments"),
    "no result": ({"name": "x", "arguments": {}}, MissingParameter, ".result"),
    "a name that is a number": ({**RAIN, "name": 1}, InvalidType, ".name"),
    "an empty name": ({**RAIN, "name": ""}, InvalidValue, ".name"),
    "a name that no function has": ({**RAIN, "name": "get weather\n"}, InvalidValue, ".name"),
    "a name that is too long": ({**RAIN, "name": "x" * 65}, InvalidValue, ".name"),
    "arguments that are an array": ({**RAIN, "arguments": []}, InvalidType, ".arguments"),
    "arguments that are no JSON": ({**RAIN, "arguments": "{"}, InvalidValue, ".arguments"),
    "arguments that are JSON, but no object": ({**RAIN, "arguments": "[]"}, InvalidValue, ".arguments"),
    "exchanges that are text": ({**RAIN, "cache_exchanges": "3"}, InvalidType, ".cache_exchanges"),
    "exchanges that are true": ({**RAIN, "cache_exchanges": True}, InvalidType, ".cache_exchanges"),
    "exchanges below none": ({**RAIN, "cache_exchanges": -1}, InvalidValue, ".cache_exchanges"),
    "exchanges without end": (
        {**RAIN, "cache_exchanges": MOST_EXCHANGES + 1},
        InvalidValue,
        ".cache_exchanges",
    ),
    "an id that is a number": ({**RAIN, "call_id": 1}, InvalidType, ".call_id"),
    "an empty id": ({**RAIN, "call_id": ""}, InvalidValue, ".call_id"),
    "an id that another has": ({**RAIN, "call_id": "c0"}, InvalidValue, ".call_id"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_meant_is_refused_by_name(what: str):
    value, kind, param = REFUSED[what]
    with pytest.raises(kind) as refused:
        handed(value)
    assert (refused.value.param, refused.value.status) == (param, 400)
    assert param in refused.value.message


@pytest.mark.parametrize("what", REFUSED_TOOLS)
def test_a_result_that_cannot_be_meant_is_refused_by_its_place(what: str):
    value, kind, member = REFUSED_TOOLS[what]
    with pytest.raises(kind) as refused:
        handed({"tools": [{**RAIN, "call_id": "c0"}, value]})
    assert refused.value.param == TOOL + member


def test_as_many_and_as_much_as_may_be_is_taken():
    assert len(handed({"tools": [RAIN] * 100}).tools) == 100
    assert len(handed({"text": LONG}).text) == len(LONG)

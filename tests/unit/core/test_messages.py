"""Messages as the planner sees them, odd ones included."""

from __future__ import annotations

import pytest

from proxy.core.conversation.messages import head_length, read_message
from proxy.core.dialects.chat.messages import Content


def test_a_string_is_one_text_part():
    content = Content.of(b'{"role":"user","content":"hello"}')
    assert (content.role, content.text, content.texts()) == ("user", "hello", ["hello"])


def test_text_parts_stand_one_under_the_other_and_images_are_no_text():
    raw = (
        b'{"content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}},{"text":"b"}]}'
    )
    assert Content.of(raw).text == "a\nb"


@pytest.mark.parametrize(
    "raw",
    [
        b"{}",
        b"null",
        b"[]",
        b"broken",
        b'{"role":1,"name":2,"content":3,"tool_calls":4,"function_call":5,"tool_call_id":6}',
        b'{"content":["x",1,null,{"text":7}],"tool_calls":"x","function_call":[]}',
    ],
)
def test_what_is_not_as_expected_reads_as_absent(raw: bytes):
    content = Content.of(raw)
    assert (content.role, content.name, content.result_of) == ("", "", ())
    assert (content.texts(), list(content.calls), content.countable()) == ([], [], "")


def test_a_call_that_is_no_object_has_neither_id_nor_name():
    assert list(Content.of(b'{"tool_calls":[1,{"id":"a"}]}').calls) == [("", "", ""), ("a", "", "")]


def test_functions_and_custom_tools_are_calls():
    raw = (
        b'{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},'
        b'{"id":"b","type":"custom","custom":{"name":"g","input":"text"}}]}'
    )
    assert list(Content.of(raw).calls) == [("a", "f", "{}"), ("b", "g", "text")]


def test_a_legacy_function_call_and_its_result_share_the_functions_name_as_id():
    call = Content.of(b'{"role":"assistant","function_call":{"name":"f","arguments":"{}"}}')
    result = Content.of(b'{"role":"function","name":"f","content":"x"}')
    assert list(call.calls) == [("function:f", "f", "{}")]
    assert result.result_of == ("function:f",)


def test_a_tool_result_names_the_call_that_it_answers():
    assert Content.of(b'{"role":"tool","tool_call_id":"a","content":"x"}').result_of == ("a",)


def test_text_names_arguments_and_refusals_cost_tokens():
    raw = (
        b'{"content":"a","name":"n","refusal":"no",'
        b'"tool_calls":[{"id":"i","function":{"name":"f","arguments":"{}"}}]}'
    )
    assert Content.of(raw).countable() == "a\nf\n{}\nn\nno"


def test_the_head_is_the_leading_system_and_developer_messages():
    assert head_length(["system", "developer", "user", "system"]) == 2
    assert head_length(["user"]) == 0
    assert head_length(["system"]) == 1
    assert head_length([]) == 0


def test_half_a_character_is_read_as_one_that_can_be_written_and_still_tells_messages_apart() -> None:
    raw = rb'{"role": "user", "content": "a\ud83d", "name": "\ude00"}'
    content = Content.of(raw)
    assert (content.text, content.name, content.exact.text) == ("a\ufffd", "\ufffd", "a\ud83d")
    other = Content.of(raw.replace(b"d83d", b"d83e"))
    assert other.text == content.text
    assert read_message(other).identity != read_message(content).identity

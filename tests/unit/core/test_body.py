"""Bodies: malformed ones are refused in the API's own words, all others pass byte for byte."""

from __future__ import annotations

from contextlib import suppress

import pytest

from proxy.core.dialects.chat.body import Body, read_body
from proxy.core.dialects.registry import CHAT
from proxy.core.formats.json import dumps
from proxy.errors import (
    EmptyArray,
    InvalidEncoding,
    InvalidJSON,
    InvalidType,
    JSONTooDeep,
    MissingParameter,
    RequestError,
    TooManyMessages,
)
from tests.support.conversations import TOO_DEEP

HELLO = b'{"role":"user","content":"hello"}'
LONE = rb'{"role":"user","content":"\ud800"}'
DEEP = b"[" * TOO_DEEP + b"]" * TOO_DEEP


def read(raw: bytes, max_messages: int = 1000) -> Body:
    return read_body(raw, max_messages)


# --- nothing is there ---


def test_an_empty_body_is_invalid_json_at_byte_0():
    with pytest.raises(InvalidJSON) as refused:
        read(b"")
    assert refused.value.offset == 0


def test_a_body_of_white_space_is_invalid_json():
    with pytest.raises(InvalidJSON):
        read(b" \r\n")


@pytest.mark.parametrize("length", range(1, len(HELLO) + 15))
def test_a_truncated_body_is_invalid_json_at_its_end(length: int):
    raw = (b'{"messages": [' + HELLO + b"]}")[:length]
    with pytest.raises(InvalidJSON) as refused:
        read(raw)
    assert refused.value.offset == length


def test_invalid_json_names_the_byte_at_which_it_stops_being_json():
    raw = b'{"messages":[' + HELLO + b'],"x":?}'
    with pytest.raises(InvalidJSON) as refused:
        read(raw)
    assert raw[refused.value.offset : refused.value.offset + 1] == b"?"


def test_a_byte_order_mark_counts_in_the_offset():
    raw = b'\xef\xbb\xbf{"messages":[' + HELLO + b'],"x":?}'
    with pytest.raises(InvalidJSON) as refused:
        read(raw)
    assert raw[refused.value.offset : refused.value.offset + 1] == b"?"


def test_the_offset_is_the_faults_even_where_a_lone_surrogate_stands_before_it():
    raw = b'{"messages":[' + LONE + b'],"x":?}'
    with pytest.raises(InvalidJSON) as refused:
        read(raw)
    assert raw[refused.value.offset : refused.value.offset + 1] == b"?"


@pytest.mark.parametrize("junk", [b"x", b"{}", b"]", b"}"])
def test_bytes_after_the_object_are_invalid_json(junk: bytes):
    with pytest.raises(InvalidJSON):
        read(b'{"messages":[' + HELLO + b"]}" + junk)


# --- what JSON does not allow ---


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"null", b"1", b"true", b" [1] "])
def test_a_body_that_is_no_object_has_the_wrong_type(raw: bytes):
    with pytest.raises(InvalidType):
        read(raw)


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"01", b"+1", b".5", b"1."])
def test_numbers_that_json_has_not_are_invalid_json(number: bytes):
    with pytest.raises(InvalidJSON):
        read(b'{"messages":[' + HELLO + b'],"temperature":' + number + b"}")


def test_an_integer_of_10000_digits_is_forwarded_exactly():
    digits = b"7" * 10_000
    raw = b'{"seed":' + digits + b',"messages":[{"role":"user","content":"x","n":' + digits + b"}]}"
    body = read(raw)
    assert body.with_messages(body.messages) == raw
    assert bytes(body.members.get("seed", b"")) == digits
    assert dumps(body.get("seed")) == digits


# --- other encodings ---


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"\x80"])
def test_bytes_that_are_no_utf_8_are_an_invalid_encoding(bad: bytes):
    with pytest.raises(InvalidEncoding):
        read(b'{"messages":[{"role":"user","content":"' + bad + b'"}]}')


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf_16_is_an_invalid_encoding(encoding: str):
    with pytest.raises(InvalidEncoding):
        read(('{"messages":[' + HELLO.decode() + "]}").encode(encoding))


def test_a_byte_order_mark_is_accepted_and_forwarded():
    raw = b'\xef\xbb\xbf{"messages":[' + HELLO + b"]}"
    body = read(raw)
    assert body.messages == [HELLO]
    assert body.with_messages(body.messages) == raw


def test_a_byte_order_mark_is_accepted_before_a_lone_surrogate():
    raw = b'\xef\xbb\xbf{"messages":[' + LONE + b"]}"
    body = read(raw)
    assert body.messages == [LONE]
    assert body.with_messages(body.messages) == raw


# --- nesting ---


@pytest.mark.parametrize(
    "raw",
    [
        b'{"messages":[' + HELLO + b'],"x":' + DEEP + b"}",
        b'{"messages":[{"role":"user","content":' + DEEP + b"}]}",
        b'{"x":' * TOO_DEEP + b"1" + b"}" * TOO_DEEP,
        b'{"messages":' + DEEP + b"}",
    ],
    ids=["beside the messages", "in a message", "objects", "as messages"],
)
def test_nesting_that_python_does_not_read_is_too_deep(raw: bytes):
    with pytest.raises(JSONTooDeep):
        read(raw)


def test_nesting_is_too_deep_beside_a_lone_surrogate_as_well():
    with pytest.raises(JSONTooDeep):
        read(b'{"messages":[' + LONE + b'],"x":' + DEEP + b"}")


# --- the messages ---


def test_a_body_without_messages_misses_a_parameter():
    with pytest.raises(MissingParameter) as refused:
        read(b'{"model":"m"}')
    assert refused.value.param == "messages"


@pytest.mark.parametrize("messages", [b"{}", b'"x"', b"null", b"1", rb'"\ud800"'])
def test_messages_that_are_no_array_have_the_wrong_type(messages: bytes):
    with pytest.raises(InvalidType) as refused:
        read(b'{"messages":' + messages + b"}")
    assert refused.value.param == "messages"


def test_no_messages_at_all_are_an_empty_array():
    with pytest.raises(EmptyArray) as refused:
        read(b'{"messages":[ ]}')
    assert refused.value.param == "messages"


@pytest.mark.parametrize("element", [b"null", b'"x"', b"1", b"[]", rb'"\ud800"'])
def test_a_message_that_is_no_object_has_the_wrong_type_and_is_named(element: bytes):
    with pytest.raises(InvalidType) as refused:
        read(b'{"messages":[' + HELLO + b", " + element + b"]}")
    assert refused.value.param == "messages[1]"


# --- messages of any kind pass ---


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"narrator","content":"x"}',
        b'{"role":"user","content":[{"type":"hologram","x":1}]}',
        b'{"role":"user","content":null}',
        b'{"role":"user","content":17}',
        b'{"role":"tool","tool_call_id":"lost","content":"x"}',
        b"{}",
        b'{"role":null}',
    ],
)
def test_odd_messages_are_read_as_sent(message: bytes):
    body = read(b'{"messages":[' + message + b"]}")
    assert body.messages == [message]


# --- very many messages ---


def test_more_messages_than_allowed_are_too_many():
    with pytest.raises(TooManyMessages) as refused:
        read(b'{"messages":[{},{},{}]}', max_messages=2)
    assert refused.value.status == 413


def test_a_million_messages_are_too_many():
    with pytest.raises(TooManyMessages):
        read(b'{"messages":[' + b",".join([b"{}"] * 1_000_000) + b"]}", max_messages=100_000)


def test_as_many_messages_as_allowed_are_read():
    assert len(read(b'{"messages":[{},{},{}]}', max_messages=3).messages) == 3


# --- odd characters ---


@pytest.mark.parametrize(
    "text",
    [
        rb"\ud800",
        rb"\udfff x",
        rb"\ud83d\ude00 and \ud83d",
        rb"\\ud800",
        rb"\\\ud800 \" \\",
        rb"\u0000",
        "\u202eright to left\u202c".encode(),
        "zero\u200b\u200d\ufeffwidth".encode(),
        "𝄞🌉\U0010ffff".encode(),
        "line\u2028and\u2029paragraph".encode(),
    ],
)
def test_strange_characters_are_preserved_exactly(text: bytes):
    message = b'{"role" : "user","content":"' + text + b'"}'
    raw = b'{"messages":[' + message + b',{"role":"user"}], "x" :"' + text + b'"}'
    body = read(raw)
    assert body.messages == [message, b'{"role":"user"}']
    assert bytes(body.members.get("x", b"")) == b'"' + text + b'"'
    assert body.with_messages(body.messages) == raw


def test_a_body_with_lone_surrogates_and_a_name_twice_is_read():
    body = read(b'{"messages":[' + LONE + b'],"a":1,"a":2}')
    assert body.messages == [LONE]
    assert body.get("a") == 2


def test_names_that_differ_only_in_lone_surrogates_are_different_names():
    raw = rb'{"\ud800":1,"\ud801":2,"messages":[' + LONE + b"]}"
    body = read(raw)
    assert body.messages == [LONE]
    assert body.with_messages(body.messages) == raw


# --- splicing


def test_only_the_array_is_replaced():
    raw = b' { "model" : "m" , "messages" : [ {"role":"user"} , {} ] , "n" : 1e2 } \n'
    assert read(raw).with_messages([b"1", b"2"]) == b' { "model" : "m" , "messages" : [1,2] , "n" : 1e2 } \n'


def test_an_escaped_member_name_is_found():
    raw = rb'{"n":1,"mess\u0061ges":[{}],"stream":true}'
    body = read(raw)
    assert body.messages == [b"{}"]
    assert body.with_messages([b'{"a":1}']) == rb'{"n":1,"mess\u0061ges":[{"a":1}],"stream":true}'


def test_a_member_name_within_a_string_is_not_the_member():
    raw = rb'{"x":"\"messages\":[1]","messages":[{}],"y":{"messages":[{"a":1}]}}'
    body = read(raw)
    assert body.messages == [b"{}"]
    assert body.with_messages([]) == raw.replace(b'"messages":[{}]', b'"messages":[]')


def test_of_a_name_that_stands_twice_the_last_value_counts():
    raw = b'{"messages":[{"a":1}],"n":1,"messages":[{"b":2}],"n":2}'
    body = read(raw)
    assert body.messages == [b'{"b":2}']
    assert body.get("n") == 2
    again = read(body.with_messages([b'{"c":3}']))
    assert (again.messages, again.get("n")) == ([b'{"c":3}'], 2)


def test_a_name_that_stands_twice_with_equal_values_is_replaced_whichever_is_read():
    body = read(b'{"messages":[{}],"messages":[{}]}')
    again = read(body.with_messages([b'{"c":3}']))
    assert again.messages == [b'{"c":3}']
    assert b"{}" not in again.raw


def test_an_absent_member_reads_as_nothing():
    body = read(b'{"messages":[{}]}')
    assert body.get("stream") is None
    assert bytes(body.members.get("stream", b"")) == b""


def test_members_are_decoded_on_demand():
    body = read(rb'{"messages":[{}],"stream":true,"user":"\ud800","seed":123456789012345678901234567890}')
    assert body.get("stream") is True
    assert body.get("user") == "\ud800"
    assert body.get("seed") == 123456789012345678901234567890


def test_every_refusal_is_the_requests_fault():
    for raw in (b"", b"[]", b"{}", b'{"messages":[]}', b"\xff"):
        with pytest.raises(RequestError):
            read(raw)


# --- one tool more


TOOL = b'{"type":"function"}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"a": 1, "messages":[%b] }', b'{"tools":[{"type":"function"}],"a": 1, "messages":[%b] }'),
        (
            b'{"messages":[%b], "tools" : [ {"x":1} ] , "n":1}',
            b'{"messages":[%b], "tools" : [ {"x":1},{"type":"function"} ] , "n":1}',
        ),
        (b'{"tools":[],"messages":[%b]}', b'{"tools":[{"type":"function"}],"messages":[%b]}'),
        (b'{"tools":[ ],"messages":[%b]}', b'{"tools":[{"type":"function"} ],"messages":[%b]}'),
        (b'{"tools":null,"messages":[%b]}', b'{"tools":[{"type":"function"}],"messages":[%b]}'),
    ],
)
def test_a_tool_is_added_and_every_other_byte_stays(before: bytes, after: bytes):
    for message in (HELLO, LONE):
        body = read(before % message).with_tool(TOOL)
        assert body.raw == after % message
        assert body.with_messages([HELLO, HELLO]) == after % (HELLO + b"," + HELLO)
        assert body.get("tools")[-1] == {"type": "function"}


def test_a_tool_is_added_after_a_byte_order_mark():
    raw = b'\xef\xbb\xbf{"messages":[' + HELLO + b"]}"
    assert read(raw).with_tool(TOOL).raw == raw.replace(b"{", b'{"tools":[' + TOOL + b"],", 1)


def test_a_tool_is_added_to_the_last_of_two_lists_of_tools():
    body = read(b'{"tools":[1],"messages":[' + HELLO + b'],"tools":[2]}').with_tool(TOOL)
    assert read(body.with_messages([HELLO])).get("tools") == [2, {"type": "function"}]


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (b'{"model":"gpt-4o","messages":[]}', "gpt-4o"),
        (b' { "model" : "a b", "x": 1}', "a b"),
        (b'\xef\xbb\xbf{"messages":[{"model":"within"}],"model":"last"}', "last"),
        (b'{"messages":["\\ud800"],"model":"odd"}', ""),
        (b'{"messages":[{"content":"\\ud800"}],"model":"odd"}', "odd"),
        (b'{"model":"\\u00e9t\\u00e9"}', "été"),
        ('{"model":"été"}'.encode(), "été"),
        (b'{"model":3}', ""),
        (b'{"model":null,"messages":[]}', ""),
        (b"[1]", ""),
        (b'{"messages":', ""),
        (b"\xff\xfe", ""),
        (b'{"x":1,"model":"\xed\xa0\x80"}', ""),
        (b"[" * 100_000, ""),
        (b'{"x":' + b"[" * 100_000, ""),
    ],
)
def test_the_model_is_read_without_the_rest(body: bytes, model: str) -> None:
    assert CHAT.model_of(body) == model


def test_a_person_with_half_a_character_in_the_name_can_be_stored():
    body = read(rb'{"model":"m","user":"u\ud800","messages":[' + HELLO + b"]}")
    assert body.person.encode() == "u\ufffd".encode()


@pytest.mark.parametrize("member", [b"model", b"user"])
def test_a_name_that_is_no_text_is_none_or_the_body_too_deep(member: bytes):
    for depth in range(500, 1_000):
        deep = b"[" * depth + b"]" * depth
        with suppress(JSONTooDeep):
            body = read(b'{"%b":%b,"messages":[%b]}' % (member, deep, HELLO))
            assert (body.model, body.person) == ("", "")

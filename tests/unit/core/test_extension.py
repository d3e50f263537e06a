"""The body's own member: read, and spliced out."""

from __future__ import annotations

import json

import pytest

from proxy.core.conversation.extension import ABSENT, Extension, take_extension
from proxy.core.dialects.chat.body import Body, read_body
from proxy.errors import InvalidType, InvalidValue, MissingParameter, RequestError, UnknownParameter

MESSAGES = b'"messages": [{"role":"user","content":"\\ud800"}, {"role":"user"}]'


def read(raw: bytes) -> Body:
    return read_body(raw, 10)


def taken(member: str) -> Extension:
    return take_extension(read(b'{"unabridged":%b,%b}' % (member.encode(), MESSAGES)))[1]


def test_a_body_without_the_member_is_the_same_object():
    body = read(b"{%b}" % MESSAGES)
    assert take_extension(body) == (body, ABSENT)
    assert take_extension(body)[0] is body


@pytest.mark.parametrize(
    ("raw", "left"),
    [
        (b'{"unabridged": {"pin": [0]}, %b, "x": 1}', b'{%b, "x": 1}'),
        (b'{%b, "unabridged": {"pin": [0]}, "x": 1}', b'{%b, "x": 1}'),
        (b'{%b, "x": 1, "unabridged": {"pin": [0]}}', b'{%b, "x": 1}'),
        (b'{ \n"unabridged" :\t{"pin":[0]} , %b }\r\n', b"{ \n%b }\r\n"),
        (b'{"unabr\\u0069dged": {"pin": [0]}, %b}', b"{%b}"),
        (b'\xef\xbb\xbf{%b,"unabridged":{"pin":[0]}\n}', b"\xef\xbb\xbf{%b\n}"),
        (b'{%b,"unabridged":{},"unabridged":{"pin":[0]}}', b"{%b}"),
    ],
)
def test_the_member_goes_and_every_other_byte_stays(raw: bytes, left: bytes):
    for messages in (MESSAGES, MESSAGES.replace(b"\\ud800", b"a")):
        body, extension = take_extension(read(raw % messages))
        shorter = left % messages
        if raw.count(b"unabridged") == 1 or raw.startswith(b'{"unabr'):
            assert body.raw == shorter
        assert json.loads(body.raw.decode("utf-8-sig")) == json.loads(shorter.decode("utf-8-sig"))
        assert extension.pins == [0]
        again = read(body.raw)
        assert again.messages == body.messages
        assert body.with_messages([b"{}"]) == again.with_messages([b"{}"])


def test_what_is_handed_in_is_read():
    injection = taken('{"inject": {"text": "x"}}').inject
    assert injection is not None
    assert injection.text == "x"
    for nothing in ("{}", '{"inject": {}}'):
        assert taken(nothing) == Extension(2, [])


@pytest.mark.parametrize(
    ("member", "kind", "param"),
    [
        ("null", InvalidType, "unabridged"),
        ("[]", InvalidType, "unabridged"),
        ('"pin"', InvalidType, "unabridged"),
        ('{"pins": [0]}', UnknownParameter, "unabridged.pins"),
        ('{"pin": null}', InvalidType, "unabridged.pin"),
        ('{"pin": 1}', InvalidType, "unabridged.pin"),
        ('{"pin": {"0": 1}}', InvalidType, "unabridged.pin"),
        ('{"pin": ["0"]}', InvalidType, "unabridged.pin"),
        ('{"pin": [true]}', InvalidType, "unabridged.pin"),
        ('{"pin": [0.0]}', InvalidType, "unabridged.pin"),
        ('{"pin": [[0]]}', InvalidType, "unabridged.pin"),
        ('{"pin": [%s]}' % ("9" * 30), InvalidValue, "unabridged.pin"),
        ('{"pin": [%s]}' % ("9" * 10_000), InvalidType, "unabridged.pin"),
        ('{"pin": [0, 2]}', InvalidValue, "unabridged.pin"),
        ('{"pin": [-1]}', InvalidValue, "unabridged.pin"),
        ('{"inject": []}', InvalidType, "unabridged.inject"),
        ('{"inject": null}', InvalidType, "unabridged.inject"),
        ('{"inject": {"tool": []}}', UnknownParameter, "unabridged.inject.tool"),
        ('{"inject": {"tools": [{"name": "x"}]}}', MissingParameter, "unabridged.inject.tools[0].arguments"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(member: str, kind: type[RequestError], param: str):
    with pytest.raises(kind) as refused:
        taken(member)
    assert refused.value.param == param
    assert refused.value.status == 400


def test_a_strange_name_is_told_in_plain_letters_and_not_at_any_length():
    with pytest.raises(UnknownParameter) as refused:
        taken(json.dumps({"\ud800" + "x" * 1000: 1}))
    assert refused.value.param is not None
    assert refused.value.param.isascii()
    assert len(refused.value.param) < 100


def test_pins_are_places_before_the_end_and_none_of_the_head():
    extension = Extension(5, [0, 1, 4])
    assert extension.pins_from_end(0) == (5, 4, 1)
    assert extension.pins_from_end(1) == (4, 1)

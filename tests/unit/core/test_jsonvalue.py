"""JSON values: nothing is lost on the way in, and the same value has the same bytes on the way out."""

from __future__ import annotations

import json

import pytest

from proxy.core.formats.json import dumps, loads, loads_writable, writable


@pytest.mark.parametrize("digits", ["1" * 19, "9" * 20, "1" * 300, "-" + "7" * 50, "3" * 3999])
def test_an_integer_keeps_every_digit(digits: str):
    assert loads(digits) == int(digits)
    assert dumps(loads(digits)) == digits.encode()


def test_an_integer_too_long_for_python_is_written_as_the_number_it_was():
    assert dumps(loads("8" * 9000)) == b"8" * 9000


def test_a_number_too_large_for_a_float_is_not_written_as_something_that_is_no_json():
    json.loads(dumps(loads('{"x":1e400}')), parse_constant=pytest.fail)


@pytest.mark.parametrize("raw", [rb'"\ud800"', rb'"a\udfffb"', rb'{"\ud800":"\udc00"}'])
def test_a_lone_surrogate_survives(raw: bytes):
    assert dumps(loads(raw)) == raw
    assert loads(raw.decode()) == loads(raw)


def test_a_lone_surrogate_in_a_python_string_is_read():
    assert loads('"\ud800"') == "\ud800"


@pytest.mark.parametrize("raw", ["", "{", "nope", '{"a":}', "1 2", b"\xff", b"{'a':1}"])
def test_what_is_no_json_is_a_value_error(raw: str | bytes):
    with pytest.raises(ValueError, match=r".*"):
        loads(raw)


@pytest.mark.parametrize("raw", ["[" * 100_000, "[" * 100_000 + "]" * 100_000, '["\\ud800",' + "[" * 100_000])
def test_what_is_nested_too_deeply_is_a_value_error(raw: str):
    with pytest.raises(ValueError, match=r"."):
        loads(raw)


def test_writing_is_compact_and_keeps_text_readable():
    assert dumps({"b": [1, None, True], "a": "橋 🌉"}) == '{"b":[1,null,true],"a":"橋 🌉"}'.encode()


def test_what_is_writable_has_no_lone_surrogate_and_every_other_byte() -> None:
    assert writable(rb'{"a": "\ud83d \uD83D\uDE00 \\ud83d \\\ud83d \udc00\ud83d\ud83d\ude00 \u4e2d"}') == (
        rb'{"a": "\ufffd \uD83D\uDE00 \\ud83d \\\ufffd \ufffd\ufffd\ud83d\ude00 \u4e2d"}'
    )
    assert loads_writable('{"a": "\\ud83d"}') == {"a": "\ufffd"}

"""The event stream of WHATWG HTML 9.2.6, as chunks of bytes cut anywhere."""

from __future__ import annotations

import pytest

from proxy.core.formats.sse import Decoder, Event, begins_stream


def events(*chunks: bytes) -> list[Event]:
    decoder = Decoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)]


def data(*chunks: bytes) -> list[bytes]:
    return [event.data for event in events(*chunks)]


def test_an_event_is_dispatched_by_its_blank_line_and_not_before() -> None:
    decoder = Decoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\n") == [Event("message", b"a")]


def test_one_chunk_may_hold_many_events() -> None:
    assert data(b"data: a\n\ndata: b\n\ndata: c\n\n") == [b"a", b"b", b"c"]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_line_ends_at_lf_cr_or_crlf(end: bytes) -> None:
    assert data(b"data: a" + end + b"data: b" + end + end) == [b"a\nb"]


def test_a_crlf_split_between_two_chunks_is_one_line_end() -> None:
    assert data(b"data: a\r", b"\ndata: b\r\n\r", b"\n") == [b"a\nb"]


def test_a_cr_ends_the_event_without_waiting_for_an_lf() -> None:
    assert data(b"data: a\r\r") == [b"a"]


def test_an_lf_after_a_cr_that_dispatched_does_not_start_an_event() -> None:
    assert data(b"data: a\r\r", b"\n", b"data: b\n\n") == [b"a", b"b"]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\u0085", "\x0b", "\x0c", "\x1c"])
def test_no_other_character_ends_a_line(separator: str) -> None:
    text = f"a{separator}b".encode()
    assert data(b"data: " + text + b"\n\n") == [text]


def test_one_bom_is_stripped_from_the_start_however_it_is_cut() -> None:
    assert data(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]
    assert data(b"\xef", b"\xbb", b"\xbf", b"data: a\n\n") == [b"a"]


def test_a_second_bom_belongs_to_the_line() -> None:
    assert data(b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n") == []


def test_comments_and_unknown_fields_are_skipped() -> None:
    assert data(b": keep-alive\n\nid: 7\nretry: 10\nfuture: x\ndata: a\n\n") == [b"a"]


def test_the_error_field_of_llama_cpp_is_an_error_event() -> None:
    assert events(b'error: {"code": 400}\n\ndata: [DONE]\n\n') == [
        Event("error", b'{"code": 400}'),
        Event("message", b"[DONE]"),
    ]


def test_an_event_without_data_is_not_dispatched_and_its_name_is_forgotten() -> None:
    assert events(b"event: ping\n\ndata: a\n\n") == [Event("message", b"a")]


def test_an_empty_data_line_is_data() -> None:
    assert data(b"data\n\ndata:\n\ndata:\ndata:\n\n") == [b"", b"", b"\n"]


def test_only_one_space_after_the_colon_is_stripped() -> None:
    assert data(b"data:a\n\ndata:  b\n\n") == [b"a", b" b"]


def test_an_event_carries_its_last_name() -> None:
    assert events(b"event: x\nevent: error\ndata: {}\n\n") == [Event("error", b"{}")]


def test_an_event_that_the_end_cuts_off_is_not_dispatched() -> None:
    assert data(b"data: a\n\ndata: b\n") == [b"a"]


def test_extra_blank_lines_are_nothing() -> None:
    assert data(b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n\n") == [b"a", b"b"]


def test_an_endless_line_makes_the_decoder_give_up_for_good() -> None:
    decoder = Decoder(limit=100)
    assert decoder.feed(b"data: a\n\n" + b"x" * 60) == [Event("message", b"a")]
    assert not decoder.overflowed
    assert decoder.feed(b"x" * 60) == []
    assert decoder.overflowed
    assert decoder.feed(b"\n\ndata: b\n\n") == []


@pytest.mark.parametrize("cut", [1, 50, 107, 108])
def test_an_event_past_the_limit_overflows_wherever_it_is_cut(cut: int) -> None:
    decoder = Decoder(limit=100)
    stream = b"data: " + b"x" * 95 + b"\n\ndata: b\n\n"
    assert decoder.feed(stream[:cut]) + decoder.feed(stream[cut:]) == []
    assert decoder.overflowed


@pytest.mark.parametrize("cut", [1, 50, 100, 101, 102])
def test_an_event_of_exactly_the_limit_is_dispatched_wherever_it_is_cut(cut: int) -> None:
    decoder = Decoder(limit=100)
    stream = b"data: " + b"x" * 94 + b"\n\n"
    assert decoder.feed(stream[:cut]) + decoder.feed(stream[cut:]) == [Event("message", b"x" * 94)]
    assert not decoder.overflowed


@pytest.mark.parametrize(
    ("body", "is_stream"),
    [
        (b"", None),
        (b"\r\n ", None),
        (b"dat", None),
        (b"data:x", True),
        (b"\xef\xbb\xbf\n: ping", True),
        (b"event: completion\ndata: {}\n\n", True),
        (b'{"data": 1}', False),
        (b"<html>data: x", False),
        (b"datum", False),
    ],
)
def test_first_bytes_tell_a_stream_from_anything_else(body: bytes, is_stream: bool | None) -> None:
    assert begins_stream(body) is is_stream

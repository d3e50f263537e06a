"""The final event of a stream waits; everything before it passes at once, however the bytes are cut."""

from __future__ import annotations

import pytest

from proxy.core.dialects.chat.stream_filters import FinalEvent

STREAM = (
    b': comment\r\n\r\ndata: {"choices":[{"delta":{"content":"data: [DONE]"}}]}\n\n'
    b"event: data: [DONE] is not here\ndata: dat\xc3\xa4\n\ndata: [DONE]\n\n: after\n\n"
)
END = b"data: [DONE]\n\n: after\n\n"


def passed(*chunks: bytes) -> tuple[list[bytes], bytes]:
    final = FinalEvent()
    return [final.feed(chunk) for chunk in chunks], final.rest()


@pytest.mark.parametrize("cut", range(len(STREAM) + 1))
def test_the_end_is_held_wherever_the_stream_is_cut(cut: int) -> None:
    sent, held = passed(STREAM[:cut], STREAM[cut:])
    assert b"".join(sent) == STREAM.removesuffix(END)
    assert held == END


def test_a_stream_that_comes_byte_by_byte_is_held_at_its_end() -> None:
    sent, held = passed(*(STREAM[i : i + 1] for i in range(len(STREAM))))
    assert b"".join(sent) == STREAM.removesuffix(END)
    assert held == END


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_is_one(line_end: bytes) -> None:
    sent, held = passed(b"data: 1" + line_end * 2 + b"data:[DONE]" + line_end * 2)
    assert sent == [b"data: 1" + line_end * 2]
    assert held == b"data:[DONE]" + line_end * 2


def test_text_is_not_kept_waiting() -> None:
    sent, held = passed(b"data: a word\n\n", b"data: [", b"DO", b"UBT]\n\n", b"da", b"te")
    assert sent == [b"data: a word\n\n", b"", b"", b"data: [DOUBT]\n\n", b"", b"date"]
    assert held == b""


def test_the_final_event_may_be_the_first() -> None:
    final = FinalEvent()
    assert final.feed(b"data: [DONE]") == b""
    assert final.has_found


def test_a_stream_without_a_final_event_holds_nothing_back() -> None:
    sent, held = passed(b"data: 1\n\ndata", b": 2\n\nd")
    assert b"".join(sent) + held == b"data: 1\n\ndata: 2\n\nd"

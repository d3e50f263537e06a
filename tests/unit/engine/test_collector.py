"""What is known of an answer at each moment at which its bytes go by."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from proxy.core.dialects.registry import CHAT
from proxy.engine.flow import PeekedResponse
from proxy.engine.recording.collector import Collector

EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "%b"}}]}\n\n'
END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


class Answer:
    """The head of an upstream's answer."""

    status = 200

    headers: Sequence[tuple[bytes, bytes]] = ()

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b""

    async def aclose(self) -> None:
        """Nothing is open."""


def stream() -> Collector:
    return Collector(CHAT, PeekedResponse(Answer(), b"", is_over=False, is_stream=True))


def test_what_has_gone_by_is_known_at_once() -> None:
    collector = stream()
    collector.feed(EVENT % b"One")
    assert collector.is_truncated
    assert collector.answer().message == b'{"role":"assistant","content":"One"}'
    collector.feed(EVENT % b", two")
    collector.feed(END)
    assert not collector.is_truncated
    assert collector.answer().message == b'{"role":"assistant","content":"One, two"}'
    assert collector.answer().complete


def test_a_long_stream_is_known_to_its_last_word() -> None:
    collector, words = stream(), [b"word%d " % number for number in range(2_000)]
    for word in words:
        collector.feed(EVENT % word)
    collector.feed(END)
    message = collector.answer().message
    assert message is not None
    assert message.endswith(b'"content":"%b"}' % b"".join(words))


def test_where_a_stream_broke_off_within_an_event_it_is_told_apart() -> None:
    collector = stream()
    collector.feed(EVENT % b"One" + b'data: {"choices": [')
    assert collector.separator == b"\n\n"

"""Wherever the upstream's bytes are cut, the client's bytes and what is kept of the answer are the same."""

from __future__ import annotations

import itertools
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.dialects.answers import Answer
from proxy.core.dialects.chat.completion import StreamCollector
from proxy.core.dialects.chat.stream_filters import FinalEvent, UsageRemover
from proxy.core.dialects.registry import CHAT
from proxy.errors import UpstreamTruncated
from tests.support.streams import STREAMS, USAGE

TRUNCATED = CHAT.error_event(UpstreamTruncated().body())

ENDS = [b"\n", b"\r\n", b"\r"]

Outcome = tuple[bytes, Answer, bool, bytes]


def outcome(chunks: list[bytes]) -> Outcome:
    """What the client gets and what is known in the end, with the usage taken out."""
    remover, collector = UsageRemover(), StreamCollector()
    passed = b""
    for chunk in chunks:
        collector.feed(chunk)
        passed += remover.feed(chunk)
    return passed + remover.rest(), collector.answer(), collector.truncated, collector.separator


def events_of(stream: bytes) -> list[tuple[bytes, bytes]]:
    """Names and data of a whole stream's events, by WHATWG HTML 9.2.6; a plain reading of the standard."""
    events: list[tuple[bytes, bytes]] = []
    name, data = b"", list[bytes]()
    *lines, _ = re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))
    for line in lines:
        field, _, value = line.partition(b":")
        if not line and data:
            events.append((name, b"\n".join(data)))
        if not line:
            name, data = b"", []
        elif field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
    return events


def is_usage(event: tuple[bytes, bytes]) -> bool:
    try:
        chunk = json.loads(event[1])
    except ValueError:
        return False
    return chunk.get("choices") == [] and "usage" in chunk


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", STREAMS)
def test_a_cut_at_any_offset_changes_neither_the_clients_bytes_nor_the_turn(name: str, end: bytes) -> None:
    stream = STREAMS[name].replace(b"\n", end)
    whole = outcome([stream])
    for at in range(len(stream) + 1):
        assert outcome([stream[:at], stream[at:]]) == whole, stream[:at]
    assert outcome([stream[at : at + 1] for at in range(len(stream))]) == whole


@pytest.mark.parametrize("end", ENDS)
def test_any_two_cuts_around_the_usage_change_nothing(end: bytes) -> None:
    stream = (b'data: {"choices":[{}]}\n\n' + USAGE + b"data: [DONE]\n\n").replace(b"\n", end)
    for first, second in itertools.combinations(range(len(stream) + 1), 2):
        assert outcome([stream[:first], stream[first:second], stream[second:]]) == outcome([stream])


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", STREAMS)
def test_of_a_streams_events_only_the_usage_is_absent(name: str, end: bytes) -> None:
    stream = STREAMS[name].replace(b"\n", end)
    passed, *_ = outcome([stream])
    assert events_of(passed) == [event for event in events_of(stream) if not is_usage(event)]


line_ends = st.sampled_from(ENDS)


@given(st.data(), st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 999), max_size=6))
def test_line_ends_may_be_mixed(data: st.DataObject, name: str, points: list[int]) -> None:
    lines = STREAMS[name].split(b"\n")
    ends = [data.draw(line_ends) for _ in lines[1:]]
    stream = b"".join(map(b"".join, zip(lines, [*ends, b""], strict=True)))
    marks = [0, *sorted(point % (len(stream) + 1) for point in points), len(stream)]
    whole = outcome([stream])
    assert outcome([stream[start:stop] for start, stop in itertools.pairwise(marks)]) == whole
    assert events_of(whole[0]) == [event for event in events_of(stream) if not is_usage(event)]


def is_over(stream: bytes) -> bool:
    """Whether a client knows that nothing is missing, or what went wrong."""
    finish: dict[int, str | None] = {}
    for name, data in events_of(stream):
        if data == b"[DONE]" or name == b"error":
            return True
        for choice in json.loads(data).get("choices", ()):
            finish[choice["index"]] = choice.get("finish_reason") or finish.get(choice["index"])
    return bool(finish) and None not in finish.values()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", sorted(STREAMS.keys() - {"llama.cpp's own error field"}))
def test_wherever_a_stream_breaks_off_the_client_can_be_told(name: str, end: bytes) -> None:
    stream = STREAMS[name].replace(b"\n", end)
    for at in range(len(stream) + 1):
        collector = StreamCollector()
        collector.feed(stream[:at])
        assert collector.truncated is not is_over(stream[:at]), stream[:at]
        if collector.truncated:
            *before, last = events_of(stream[:at] + collector.separator + TRUNCATED)
            assert json.loads(last[1])["error"]["code"] == "upstream_truncated"
            assert before[: len(events_of(stream[:at]))] == events_of(stream[:at])


def test_an_event_that_is_whole_is_followed_at_once_by_the_next() -> None:
    collector = StreamCollector()
    collector.feed(b'data: {"choices":[{"index":0,"delta":{"content":"x"}}]}\n\n')
    assert (collector.truncated, collector.separator) == (True, b"")
    collector.feed(b"data: {")
    assert (collector.truncated, collector.separator) == (True, b"\n\n")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("name", STREAMS)
def test_what_waits_for_its_record_waits_wherever_the_stream_is_cut(name: str, end: bytes) -> None:
    stream = STREAMS[name].replace(b"\n", end)
    done = stream.find(b"data: [DONE]")
    for first, second in itertools.pairwise((*range(len(stream) + 1), len(stream))):
        final = FinalEvent()
        passed = b"".join(map(final.feed, (stream[:first], stream[first:second], stream[second:])))
        assert final.has_found is (done >= 0)
        assert passed == (stream[:done] if final.has_found else passed)
        assert passed + final.rest() == stream

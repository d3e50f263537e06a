"""However a stream is cut, ended or split into deltas, the answer is the same."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.dialects.answers import Answer
from proxy.core.dialects.chat.completion import StreamCollector, read_completion
from proxy.core.formats.sse import Decoder, Event

RECORDED = (
    "\ufeff: hello\n\n"
    'data: {"id":"c1","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
    'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"Grüße \u2028 😀"}}]}\n\n'
    'event: message\ndata: {"id":"c1","choices":[{"index":0,\ndata: "delta":{"content":"\\ud83d"}}]}\n\n'
    'data: {"id":"c1","choices":[{"index":0,"delta":{"content":"\\ude00"}}]}\n\n\n'
    'data: {"id":"c1","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function",'
    '"function":{"name":"f","arguments":"{}"}}]}}]}\n\n'
    'data:{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3}}\n\n'
    "data: [DONE]\n\n"
).encode()


def cut(stream: bytes, points: list[int]) -> list[bytes]:
    marks = [0, *sorted(point % (len(stream) + 1) for point in points), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(marks)]


def decoded(chunks: list[bytes], limit: int = 1 << 20) -> tuple[list[Event], bool]:
    decoder = Decoder(limit)
    return [event for chunk in chunks for event in decoder.feed(chunk)], decoder.overflowed


def collected(chunks: list[bytes]) -> tuple[Answer, bool]:
    collector = StreamCollector()
    for chunk in chunks:
        collector.feed(chunk)
    return collector.answer(), collector.truncated


WHOLE = collected([RECORDED])


def test_the_recorded_stream_is_read_whole() -> None:
    answer, truncated = WHOLE
    assert json.loads(answer.message or b"")["content"] == "Grüße \u2028 😀😀"
    assert answer.complete
    assert answer.tool_calls
    assert not truncated


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_a_cut_at_any_single_offset_changes_nothing(end: bytes) -> None:
    stream = RECORDED.replace(b"\n", end)
    events = decoded([stream])
    for at in range(len(stream) + 1):
        assert decoded([stream[:at], stream[at:]]) == events
        assert collected([stream[:at], stream[at:]]) == WHOLE


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_byte_by_byte_is_the_same_as_at_once(end: bytes) -> None:
    stream = RECORDED.replace(b"\n", end)
    chunks = [bytes([byte]) for byte in stream]
    assert decoded(chunks) == decoded([stream])
    assert collected(chunks) == WHOLE


@given(st.lists(st.integers(0, 4000)), st.sampled_from([b"\n", b"\r", b"\r\n"]))
def test_cuts_anywhere_change_nothing(points: list[int], end: bytes) -> None:
    stream = RECORDED.replace(b"\n", end)
    assert decoded(cut(stream, points)) == decoded([stream])
    assert collected(cut(stream, points)) == WHOLE


noise = st.lists(
    st.sampled_from(
        [b"data", b":", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b"event: x", b"\xef\xbb\xbf", b"\xe2\x80\xa8"]
    )
    | st.binary(max_size=8)
).map(b"".join)


@given(noise, st.lists(st.integers(0, 200)), st.integers(1, 40))
def test_noise_gives_the_same_events_for_every_cut_and_none_past_the_limit(
    stream: bytes, points: list[int], limit: int
) -> None:
    events, overflowed = decoded(cut(stream, points), limit)
    assert (events, overflowed) == decoded([stream], limit)
    assert all(len(event.data) <= limit for event in events)


NAMES = [
    *(
        "choices",
        "index",
        "delta",
        "message",
        "content",
        "role",
        "tool_calls",
        "function",
        "function_call",
        "id",
    ),
    *(
        "arguments",
        "name",
        "usage",
        "prompt_tokens",
        "prompt_tokens_details",
        "error",
        "finish_reason",
        "model",
    ),
]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)
garbage = st.lists(
    json_values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=20), max_size=6
)


@given(garbage, garbage)
def test_garbage_never_raises_and_what_is_kept_is_json(choices: list[bytes], events: list[bytes]) -> None:
    deltas = [b'{"choices": [{"index": 0, "delta": ' + value + b"}]}" for value in choices]
    for value in (*deltas, *events):
        answer, _ = collected([b"data: " + value + b"\n\n", b"data: " + value + b"\n\n"])
        for kept in (
            answer.message,
            answer.error,
            read_completion(value).message,
            read_completion(value).error,
        ):
            if kept is not None:
                json.loads(kept)


text = st.text(st.characters(codec="utf-8") | st.sampled_from('"\\\n\u2028😀'), max_size=30)
tool_calls = st.lists(st.tuples(st.text("abc", min_size=1, max_size=5), text), max_size=3)


@st.composite
def streamed(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A message, and the deltas of some upstream that streams it: each text in order, interleaved."""
    message: dict[str, Any] = {"role": "assistant", "content": draw(text.filter(bool))}
    for name in ("refusal", "reasoning", "reasoning_content"):
        if said := draw(text):
            message[name] = said
    lanes: list[list[dict[str, Any]]] = [
        [{name: part} for part in pieces(draw, message[name])] for name in message if name != "role"
    ]
    calls: list[dict[str, Any]] = []
    for index, (name, arguments) in enumerate(draw(tool_calls)):
        opening = {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": ""}}
        calls.append({**opening, "function": {"name": name, "arguments": arguments}})
        parts = [{"index": index, "function": {"arguments": part}} for part in pieces(draw, arguments)]
        lanes.append([{"tool_calls": [part]} for part in ({"index": index, **opening}, *parts)])
    if calls:
        message["tool_calls"] = calls
    order = draw(st.permutations([number for number, lane in enumerate(lanes) for _ in lane]))
    return message, [{"role": "assistant"}, *(lanes[number].pop(0) for number in order)]


def pieces(draw: st.DrawFn, whole: str) -> list[str]:
    """A text in UTF-16 units, cut anywhere: upstreams that stream escapes cut emoji in two."""
    units = whole.encode("utf-16-le")
    parts = cut(units, [point * 2 for point in draw(st.lists(st.integers(0, len(units) // 2), max_size=4))])
    return [part.decode("utf-16-le", "surrogatepass") for part in parts]


@given(streamed(), st.booleans())
def test_the_reassembled_message_is_the_one_that_is_not_streamed(
    both: tuple[dict[str, Any], list[dict[str, Any]]], escaped: bool
) -> None:
    message, deltas = both
    stream = b""
    for delta in deltas:
        chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        try:
            stream += b"data: " + json.dumps(chunk, ensure_ascii=escaped).encode() + b"\n\n"
        except UnicodeEncodeError:  # half an emoji has no other form than its escape
            stream += b"data: " + json.dumps(chunk).encode() + b"\n\n"
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode()
    answer, _ = collected(
        [stream, b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n']
    )
    whole = read_completion(body)
    assert json.loads(answer.message or b"") == json.loads(whole.message or b"") == message
    assert (
        (answer.complete, answer.tool_calls)
        == (whole.complete, whole.tool_calls)
        == (True, "tool_calls" in message)
    )

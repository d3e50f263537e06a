"""Hidden calls, over random answers, deltas and cuts: the client is told one answer and never sees one."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.core.dialects.answers import HiddenCallRules, ToolCall
from tests.support.conversations import identity_of
from tests.support.streams import STREAMS
from tests.support.tool_loop import Answers, always, collected, cut, in_one_piece, never, read, streamed

TOOLS = ["get_a", "get_b", "set_c", "recall", "other"]
words = st.text('ab {}"\\é🐘\u2028', max_size=12)
arguments = st.dictionaries(st.sampled_from("xy"), st.integers(0, 3), max_size=2).map(json.dumps)
calls = st.lists(st.tuples(st.sampled_from(TOOLS), arguments), max_size=3)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
cuts = st.lists(st.integers(0, 6000), max_size=8)

Message = dict[str, Any]
Rounds = tuple[tuple[Message, list[Message]], ...]


@st.composite
def answer(draw: st.DrawFn, number: int = 0) -> tuple[Message, list[Message]]:
    """One answer of the upstream: as a completion, and as the chunks of a stream."""
    message: Message = {"role": "assistant", "content": draw(words)}
    if reasoning := draw(words):
        message["reasoning_content"] = reasoning
    made = draw(calls)
    texts = [name for name in ("reasoning_content", "content") if name in message]
    lanes: list[list[Message]] = [[{name: part} for part in _parts(draw, message[name])] for name in texts]
    if made:
        message["tool_calls"] = [
            {"id": f"c{number}{at}", "type": "function", "function": {"name": tool, "arguments": said}}
            for at, (tool, said) in enumerate(made)
        ]
        lanes += [_call_deltas(draw, at, call) for at, call in enumerate(message["tool_calls"])]
    deltas = [{"role": "assistant", "content": ""}, *_merged(draw, lanes)]
    finish = "tool_calls" if made else "stop"
    shared = {"id": f"id{number}", "created": number, "model": "m", "object": "chat.completion.chunk"}
    last: Message = deltas.pop() if draw(st.booleans()) else {}
    chunks = [_chunk(shared, delta, None) for delta in deltas] + [_chunk(shared, last, finish)]
    usage = {"prompt_tokens": 10 + number, "completion_tokens": 1, "details": {"cached": number}}
    chunks.append({**shared, "choices": [], "usage": usage})
    whole = {
        **shared,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": usage,
    }
    return whole, chunks


def _merged(draw: st.DrawFn, lanes: list[list[Message]]) -> list[Message]:
    """Deltas in an order that upstreams write: a call begins once the one before it has its name."""
    interleaves, deltas = draw(st.booleans()), list[Message]()
    while lanes := [lane for lane in lanes if lane]:
        ready = [lane for at, lane in enumerate(lanes) if not any(_is_name(each[0]) for each in lanes[:at])]
        deltas.append((draw(st.sampled_from(ready)) if interleaves else lanes[0]).pop(0))
    return deltas


def _is_name(delta: Message) -> bool:
    return "name" in delta.get("tool_calls", [{}])[0].get("function", {})


def _parts(draw: st.DrawFn, text: str) -> list[str]:
    points = sorted(draw(st.lists(st.integers(0, len(text)), max_size=2)))
    marks = [0, *points, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(marks)]


def _call_deltas(draw: st.DrawFn, at: int, call: Message) -> list[Message]:
    """A call's deltas: its name whole or in pieces, with its arguments or before them."""
    function = call["function"]
    names = _parts(draw, function["name"]) if draw(st.booleans()) else [function["name"]]
    first: Message = {"index": at, "id": call["id"], "type": "function", "function": {"name": names[0]}}
    deltas = [first, *({"index": at, "function": {"name": name}} for name in names[1:])]
    deltas += [{"index": at, "function": {"arguments": part}} for part in _parts(draw, function["arguments"])]
    if draw(st.booleans()):
        deltas = [{**first, "function": function}]
    return [{"tool_calls": [delta]} for delta in deltas]


def _chunk(shared: Message, delta: Message, finish: str | None) -> Message:
    return {**shared, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def stream_of(chunks: list[Message], end: bytes) -> bytes:
    events = [b"data: " + json.dumps(chunk).encode() + end + end for chunk in chunks]
    return b"".join([b": hello" + end + end, *events, b"data: [DONE]" + end + end])


answers = st.integers(1, 4).flatmap(lambda many: st.tuples(*(answer(number) for number in range(many))))


def by_arguments(call: ToolCall) -> bool:
    return call.tool == "recall" or '"x"' not in (call.arguments or "")


deciding = st.sampled_from([always, never, by_arguments])


@given(answers, ends, cuts, st.sampled_from([always, by_arguments]))
def test_wherever_the_upstreams_bytes_are_cut_the_client_is_told_the_same(
    rounds: Rounds, end: bytes, points: list[int], answered: Answers
) -> None:
    streams = [stream_of(chunks, end) for _, chunks in rounds]
    at_once = streamed([[stream] for stream in streams], answered)
    in_pieces = streamed([cut(stream, points) for stream in streams], answered)
    assert in_pieces.whole == at_once.whole
    assert in_pieces.visible == at_once.visible


@given(answers, deciding)
def test_what_is_streamed_is_what_is_told_in_one_piece(rounds: Rounds, answered: Answers) -> None:
    told = streamed([[stream_of(chunks, b"\n")] for _, chunks in rounds], answered)
    body, visible = in_one_piece([json.dumps(whole).encode() for whole, _ in rounds], answered)
    piece, stream = read(body), told.answer
    assert _said(stream.message) == _said(piece.message)
    assert (stream.finish_reason, stream.usage, stream.id) == (piece.finish_reason, piece.usage, piece.id)
    assert stream.complete
    assert piece.complete
    assert identity_of(visible) == identity_of(piece.message or b"")
    assert identity_of(told.visible) == identity_of(stream.message or b"")


def _said(message: bytes | None) -> Message:
    """A message without what says nothing."""
    read: Message = json.loads(message or b"{}")
    return {name: value for name, value in read.items() if value not in (None, "")}


@given(answers, cuts)
def test_no_hidden_call_reaches_the_client_in_a_stream(rounds: Rounds, points: list[int]) -> None:
    told = streamed([cut(stream_of(chunks, b"\n"), points) for _, chunks in rounds], by_arguments)
    assert b"recall" not in told.whole
    seen = _said(told.answer.message).get("tool_calls", [])
    assert {(call["id"], call["function"]["name"]) for call in seen}.isdisjoint(
        (call.id, call.tool) for call in told.hidden
    )
    assert [call["id"] for call in seen] == sorted(call["id"] for call in seen)
    assert told.answer.finish_reason == ("tool_calls" if seen else "stop")


@given(answers, cuts)
def test_no_hidden_call_reaches_the_client_in_one_piece(rounds: Rounds, points: list[int]) -> None:
    body, _ = in_one_piece([json.dumps(whole).encode() for whole, _ in rounds], by_arguments)
    assert b"recall" not in body


@given(answer(), ends, cuts)
def test_an_answer_of_which_nothing_is_hidden_says_the_same_in_the_same_order(
    one: tuple[Message, list[Message]], end: bytes, points: list[int]
) -> None:
    whole, chunks = one
    if "recall" in json.dumps(whole):
        return
    stream = stream_of(chunks, end)
    told = streamed([cut(stream, points)], never)
    assert told.answer == collected(stream)
    asks = any(call["function"]["name"].startswith("get") for call in _calls(whole))
    if not asks:
        assert told.whole == stream
    assert in_one_piece([json.dumps(whole).encode()], never)[0] == json.dumps(whole).encode()


def _calls(whole: Message) -> list[Message]:
    return whole["choices"][0]["message"].get("tool_calls", [])


@given(
    answers, st.integers(0, 6000), st.binary(max_size=20) | st.just(b'data: {"error": {"message": "no"}}\n\n')
)
def test_a_stream_that_breaks_off_leaks_nothing_and_is_not_complete(
    rounds: Rounds, at: int, garbage: bytes
) -> None:
    streams = [stream_of(chunks, b"\n") for _, chunks in rounds]
    broken = streams[-1][: at % (streams[-1].index(b'"finish_reason": "'))]
    told = streamed([*([stream] for stream in streams[:-1]), [broken, garbage]], always)
    assert b"recall" not in told.whole


NOTHING = HiddenCallRules(may_answer=frozenset[str]().__contains__, is_own_tool=frozenset[str]().__contains__)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("name", STREAMS)
def test_where_nothing_can_be_hidden_the_bytes_are_the_upstreams(name: str, end: bytes) -> None:
    stream = STREAMS[name].replace(b"\n", end)
    for at in range(len(stream) + 1):
        assert streamed([[stream[:at], stream[at:]]], always, NOTHING).whole == stream, stream[:at]

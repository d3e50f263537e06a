"""Answers that say in part what no answer may say: never complete without it, and the rest stays."""

from __future__ import annotations

import itertools
import json
from copy import deepcopy
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from proxy.core.dialects.chat.completion import read_completion
from proxy.core.dialects.chat.delta import PartialMessage, is_odd
from tests.support.tool_loop import Answers, always, collected, in_one_piece, never, streamed

Shape = dict[str, Any]
Path = tuple[str | int, ...]

CALL: Shape = {"index": 0, "id": "a", "type": "function", "function": {"name": "get_a", "arguments": "{"}}
CHUNK: Shape = {
    "id": "c",
    "choices": [
        {
            "index": 0,
            "delta": {
                "role": "assistant",
                "content": "and ",
                "refusal": "r",
                "tool_calls": [CALL],
                "function_call": {"name": "f", "arguments": "{}"},
            },
            "finish_reason": None,
        }
    ],
}
CHOICE: Path = ("choices", 0)
DELTA: Path = (*CHOICE, "delta")
IN_CALL: list[Path] = [
    *((name,) for name in ("index", "id", "type", "function")),
    *(("function", name) for name in ("name", "arguments")),
]
IN_DELTA: list[Path] = [
    *((name,) for name in ("role", "content", "refusal", "tool_calls", "function_call")),
    *(("function_call", name) for name in ("name", "arguments")),
    *(("tool_calls", 0, *path) for path in ((), *IN_CALL)),
]
PLACES: list[Path] = [
    ("choices",),
    CHOICE,
    *((*CHOICE, name) for name in ("index", "delta", "finish_reason")),
    *((*DELTA, *path) for path in IN_DELTA),
]
KINDS = (str, int, list, dict)

words = st.text("ab", max_size=3)
values = (
    words
    | st.booleans()
    | st.floats(0.1, 0.9)
    | st.integers(-3, 3)
    | st.lists(words | st.integers(0, 3) | st.dictionaries(words, words, max_size=2), max_size=2)
    | st.dictionaries(st.sampled_from(["type", "text", "content"]), words, max_size=2)
)


def put(shape: Shape, path: Path, value: object) -> Shape:
    changed: Any = deepcopy(shape)
    inner = changed
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return changed


def at(shape: Shape, path: Path) -> Any:
    inner: Any = shape
    for step in path:
        inner = inner[step]
    return inner


def kind(value: object) -> type:
    return type(value) if isinstance(value, bool | float) else next(k for k in KINDS if isinstance(value, k))


@st.composite
def odd(draw: st.DrawFn, shape: Shape, places: list[Path]) -> Shape:
    """The shape, one member of which has another type than the API's, or is a role that there is not."""
    path = draw(st.sampled_from(places))
    usual = "" if path[-1] == "finish_reason" else at(shape, path)
    value = draw(values.filter(lambda value: kind(value) is not kind(usual)))
    if path[-1] == "role":
        value = draw(st.just(value) | st.just("banana"))
    return put(shape, path, value)


def event(chunk: object) -> bytes:
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def said(text: str, finish: str | None = None) -> bytes:
    return event({"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]})


def stream(*chunks: object) -> bytes:
    middle = b"".join(map(event, chunks))
    return said("Before ") + middle + said("after.", "stop") + b"data: [DONE]\n\n"


@given(odd(CHUNK, PLACES))
def test_a_stream_with_an_odd_chunk_is_incomplete_and_keeps_what_was_said_beside_it(chunk: Shape) -> None:
    answer = collected(stream(chunk))
    assert (answer.complete, answer.is_malformed) == (False, True)
    content = json.loads(answer.message or b"")["content"]
    assert content.startswith("Before ")
    assert content.endswith("after.")


@pytest.mark.parametrize("answered", [always, never])
@given(chunk=odd(CHUNK, PLACES))
def test_an_odd_chunk_is_not_lost_where_calls_may_be_answered(answered: Answers, chunk: Shape) -> None:
    whole = stream(chunk)
    told = streamed([[whole], [stream()]], answered)
    assert told.whole == whole
    assert not told.hidden


@given(odd(CHUNK, PLACES))
def test_an_odd_chunk_after_an_answered_call_is_passed_and_the_answer_incomplete(chunk: Shape) -> None:
    calling = {"choices": [{"index": 0, "delta": {"tool_calls": [CALL]}, "finish_reason": "tool_calls"}]}
    told = streamed([[event(calling), b"data: [DONE]\n\n"], [stream(chunk)]], always)
    assert not told.answer.complete
    assert b"Before " in told.whole
    assert b"after." in told.whole


@given(pieces=st.lists(st.sampled_from([CALL, Shape()]) | odd(CALL, IN_CALL), max_size=2))
def test_pieces_of_calls_are_odd_where_the_message_of_them_is(pieces: list[Shape]) -> None:
    delta, message = {"tool_calls": Raw(json.dumps(pieces).encode())}, PartialMessage()
    message.add(delta)
    assert is_odd(delta) == message.is_odd


MESSAGE: Shape = {
    name: value if name != "tool_calls" else [{**CALL, "index": 0}]
    for name, value in CHUNK["choices"][0]["delta"].items()
}
COMPLETION: Shape = {"id": "c", "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}]}
IN_COMPLETION: list[Path] = [
    *((*CHOICE, name) for name in ("index", "finish_reason")),
    *((*CHOICE, "message", *path) for path in IN_DELTA),
]


@given(odd(COMPLETION, IN_COMPLETION))
def test_an_odd_answer_in_one_piece_is_kept_as_written_and_incomplete(shape: Shape) -> None:
    body = json.dumps(shape).encode()
    answer = read_completion(body)
    assert (answer.complete, answer.is_malformed) == (False, True)
    written = shape["choices"][0]["message"]
    kept = json.loads(answer.message or b"{}") if answer.message else written
    assert {**kept, "role": 0} == {**written, "role": 0}
    for answered in (always, never):
        assert in_one_piece([body], answered)[0] == body


texts = st.sampled_from([None, "", "assistant", "tool", "said", 1, 0.5, True, [], ["said"], {}, {"a": 1}])


@given(st.dictionaries(st.sampled_from(["role", "content", "refusal", "reasoning"]), texts, max_size=4))
def test_a_message_in_one_piece_is_odd_where_it_would_be_as_a_delta(message: Shape) -> None:
    whole = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    chunk = {"choices": [{"index": 0, "delta": message, "finish_reason": "stop"}]}
    answer, told = read_completion(json.dumps(whole).encode()), collected(stream(chunk))
    assert (answer.is_malformed, answer.complete) == (told.is_malformed, told.complete)


@given(st.sampled_from([["choices"], 5, "x", True, {"0": {}}]))
def test_choices_that_are_none_leave_no_complete_answer(choices: object) -> None:
    assert not read_completion(json.dumps({"choices": choices}).encode()).complete


names = st.sampled_from(
    ["role", "content", "tool_calls", "function_call", "function", "name", "arguments", "id", "type", "more"]
)
anything = st.recursive(
    st.just("") | st.integers(0, 2) | st.booleans(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)


def marked(value: Any, marks: Any) -> Any:
    """The value with every text in it one that is nowhere else."""
    if isinstance(value, str):
        return f"~{next(marks)}~"
    if isinstance(value, list):
        return [marked(each, marks) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: marked(each, marks) for name, each in cast("Shape", value).items()}
    return value


@given(st.lists(st.dictionaries(names, anything, max_size=3), max_size=4), st.data())
def test_no_complete_answer_lacks_a_text_that_was_sent(deltas: list[Shape], data: st.DataObject) -> None:
    marks = itertools.count()
    chunks = [{"choices": [{"delta": marked(delta, marks), "finish_reason": None}]} for delta in deltas]
    answer = collected(stream(*chunks))
    missing = [number for number in range(next(marks)) if b"~%d~" % number not in (answer.message or b"")]
    assert not (answer.complete and missing)

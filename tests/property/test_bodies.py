"""Bodies, whatever a client writes: spliced without a changed byte, or refused with an error of our own."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from proxy.core.conversation.extension import take_extension
from proxy.core.dialects.answers import Ask
from proxy.core.dialects.chat.body import Body, read_body
from proxy.core.dialects.registry import CHAT
from proxy.errors import RequestError

_space = st.sampled_from(["", "", "", " ", "\n", "\t \r\n"])
_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(10**30, 10**32),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=()), max_size=8),
    st.sampled_from(["\ud800", "x\udfff", '"messages":[', "}],", "\\"]),
)
_values = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
_names = st.sampled_from(["role", "content", "x", "messages", "\u00e9", 'a"b', "\ud83d\ude00"])
_objects = st.dictionaries(_names, _values, max_size=3)


@st.composite
def _printed(draw: st.DrawFn, value: Any) -> str:
    """A JSON value with white space anywhere and escapes at will."""
    before, after = draw(_space), draw(_space)
    if isinstance(value, dict):
        members = [f"{draw(_printed(name))}:{draw(_printed(inner))}" for name, inner in value.items()]  # pyright: ignore[reportUnknownVariableType]
        return f"{before}{{{draw(_space)}{','.join(members)}}}{after}"
    if isinstance(value, list):
        items = [draw(_printed(inner)) for inner in value]  # pyright: ignore[reportUnknownVariableType]
        return f"{before}[{draw(_space)}{','.join(items)}]{after}"
    ascii_only = draw(st.booleans()) or not _is_encodable(value)
    return before + json.dumps(value, ensure_ascii=ascii_only) + after


def _is_encodable(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A body, and the bytes of each of its messages."""
    messages = [
        draw(_printed(message)).strip(" \t\r\n")
        for message in draw(st.lists(_objects, min_size=1, max_size=4))
    ]
    array = "[" + ",".join(draw(_space) + message + draw(_space) for message in messages) + "]"
    name = draw(st.sampled_from(['"messages"', '"mess\\u0061ges"', '"\\u006dessages"']))
    members = [f"{draw(_space)}{name}{draw(_space)}:{draw(_space)}{array}{draw(_space)}"]
    for key, value in draw(st.dictionaries(st.sampled_from(["model", "seed", "é", "x"]), _values)).items():
        member = draw(_printed(key)) + ":" + draw(_printed(value))
        members.insert(draw(st.integers(0, len(members))), member)
    mark = draw(st.sampled_from(["", "", "\ufeff"]))
    raw = mark + draw(_space) + "{" + ",".join(members) + "}" + draw(_space)
    return raw.encode(), [message.encode() for message in messages]


def outside(body: Body) -> tuple[bytes, bytes]:
    """The bytes before and after the array, found by putting a mark in its place."""
    before, found, after = body.with_messages([b'"the mark"']).partition(b'["the mark"]')
    assert found
    return before, after


@given(bodies())
def test_each_message_is_a_slice_of_the_body(drawn: tuple[bytes, list[bytes]]):
    raw, messages = drawn
    assert read_body(raw, 10).messages == messages


@given(bodies())
def test_every_byte_outside_the_array_is_untouched(drawn: tuple[bytes, list[bytes]]):
    raw, messages = drawn
    before, after = outside(read_body(raw, 10))
    assert raw.startswith(before)
    assert raw.endswith(after)
    array = raw[len(before) : len(raw) - len(after)]
    assert array[:1] + array[-1:] == b"[]"
    rest = array[1:-1]
    for message in messages:
        rest = rest.lstrip(b" \t\r\n,")
        assert rest.startswith(message)
        rest = rest[len(message) :]
    assert not rest.strip(b" \t\r\n")


@given(bodies())
def test_the_same_messages_give_the_same_body_up_to_white_space_between_them(
    drawn: tuple[bytes, list[bytes]],
):
    raw, messages = drawn
    body = read_body(raw, 10)
    before, after = outside(body)
    assert body.with_messages(body.messages) == before + b"[" + b",".join(messages) + b"]" + after


@given(bodies(), st.data())
def test_a_member_that_is_put_in_and_taken_out_leaves_the_body_as_it_was(
    drawn: tuple[bytes, list[bytes]], data: st.DataObject
):
    raw, messages = drawn
    mine = b'"unabridged"%b:%b{"pin":[0]}' % (data.draw(_space).encode(), data.draw(_space).encode())
    opening, closing = raw.index(b"{") + 1, raw.rindex(b"}")
    first = opening + len(raw[opening:]) - len(raw[opening:].lstrip(b" \t\r\n"))
    end = len(raw[:closing].rstrip(b" \t\r\n"))
    space = data.draw(_space).encode()
    for whole in (
        raw[:first] + mine + space + b"," + space + raw[first:],
        raw[:end] + space + b"," + space + mine + raw[end:],
    ):
        body, extension = take_extension(read_body(whole, 10))
        assert body.raw == raw
        assert body.messages == messages
        assert extension.pins == [0]
        assert body.with_messages(messages) == read_body(raw, 10).with_messages(messages)


@given(st.one_of(st.binary(), st.binary().map(b'{"messages":'.__add__)))
@example(b'{"messages":[{}],"\\ud800":1,"\\ud800":1}')
@example(b'{"messages":[{"a":"\\ud800"}],"x":' + b"[" * 2_000)
@example(b'\xef\xbb\xbf\xef\xbb\xbf{"messages":[{}]}')
def test_arbitrary_bytes_are_read_or_refused_with_an_error_of_our_own(raw: bytes):
    try:
        body = read_body(raw, 10)
    except RequestError:
        return
    assert body.raw == raw
    assert body.messages


@given(bodies(), st.data())
def test_a_damaged_body_is_read_or_refused_with_an_error_of_our_own(
    drawn: tuple[bytes, list[bytes]], data: st.DataObject
):
    raw = drawn[0]
    place = data.draw(st.integers(0, len(raw) - 1))
    damaged = raw[:place] + data.draw(st.binary(max_size=2)) + raw[place + data.draw(st.integers(0, 2)) :]
    try:
        body = read_body(damaged, 10)
    except RequestError:
        return
    read_body(body.with_messages(body.messages), 10)


_tails = st.sampled_from(
    [b"", b"", b"]", b",", b"]}", b",]}", b'],"messages":[{}]}', b'],"model":1}', b'{"a":1}]}', b"\xff"]
)
_noise = st.sampled_from([b"", b"", b"", b" \n", b",", b"1", b"]", b'],"a":[{}', b"{}", b",1", b"\xff"])


@given(bodies(), st.lists(_objects, max_size=3), _noise, _tails, st.data())
def test_what_is_read_after_a_known_beginning_is_what_is_read_as_a_whole(
    drawn: tuple[bytes, list[bytes]], more: list[Any], noise: bytes, tail: bytes, data: st.DataObject
) -> None:
    raw, _ = drawn
    try:
        beginning = read_body(raw, 10).prefix()
    except RequestError:
        return
    if beginning is None:
        return
    new = "".join("," + data.draw(_printed(message)) for message in more).encode()
    grown = raw[: beginning.end] + new + noise + (tail or raw[beginning.end :])
    body = beginning.continued(grown, 10)
    if body is None:
        return
    whole = read_body(grown, 10)
    assert (body.messages, list(body.members)) == (whole.messages, list(whole.members))
    assert body.written.spans == whole.written.spans
    assert all(bytes(body.members[name]) == bytes(whole.members[name]) for name in whole.members)
    assert body.with_messages([b"{}"]) == whole.with_messages([b"{}"])
    assert body.followed_by([b"{}"]) == whole.followed_by([b"{}"])


@given(
    st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": st.text()}), min_size=1, max_size=5)
)
def test_a_conversation_that_goes_on_is_read_from_where_it_goes_on(messages: list[Any]) -> None:
    def printed(count: int) -> bytes:
        return json.dumps({"model": "m", "messages": messages[:count], "seed": count}).encode()

    beginning = None
    for count in range(1, len(messages) + 1):
        body = beginning.continued(printed(count), 10) if beginning else read_body(printed(count), 10)
        assert body is not None
        assert body.get("seed") == count
        beginning = body.prefix()


PRIVATE = (
    "user",
    "safety_identifier",
    "metadata",
    "store",
    "stream",
    "stream_options",
    "n",
    "max_tokens",
    "x",
)
OF_THE_PROMPT = ("model", "tools", "tool_choice", "parallel_tool_calls", "prompt_cache_key")


@given(bodies(), st.dictionaries(st.sampled_from([*PRIVATE, *OF_THE_PROMPT]), _values), st.booleans())
def test_a_question_after_a_conversation_has_its_messages_its_prompt_and_nothing_else_of_it(
    drawn: tuple[bytes, list[bytes]], members: dict[str, Any], plain: bool
):
    raw, messages = drawn
    for name, value in members.items():
        if f'"{name}"' not in raw.decode():
            raw = raw.replace(b"{", b'{"%b":%b,' % (name.encode(), json.dumps(value).encode()), 1)
    before = read_body(raw, 10)
    asked = read_body(CHAT.question_after(raw, Ask("Do", "this.", 7, 0.5), minimal=plain), 10)
    assert [*asked.messages][:-1] == messages
    assert json.loads(asked.messages[-1]) == {"role": "user", "content": "Do\n\nthis."}
    limits = {"max_completion_tokens": 7} if plain else {"max_tokens": 7, "temperature": 0.5}
    assert {name: asked.get(name) for name in asked.members.keys() - {*OF_THE_PROMPT, "messages"}} == limits
    for name in OF_THE_PROMPT:
        assert bytes(asked.members.get(name, b"")) == bytes(before.members.get(name, b""))

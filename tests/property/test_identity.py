"""Identity survives what SDKs do to messages, and nothing that people or models do."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.core.conversation.messages import chain_hashes, root_hash
from proxy.core.formats.json import loads
from tests.support.conversations import Sent, conversations, encode, identity_of

_arguments = st.dictionaries(
    st.text(max_size=4),
    st.recursive(
        st.one_of(st.integers(), st.booleans(), st.text(max_size=5), st.integers(2**60, 2**80)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=5,
    ),
    max_size=4,
)
_texts = st.text(max_size=20)


def _text_part(text: str) -> Sent:
    return {"type": "text", "text": text}


def _image_part(name: str) -> Sent:
    return {"type": "image_url", "image_url": {"url": name, "detail": "low"}}


_parts = st.one_of(st.builds(_text_part, _texts), st.builds(_image_part, _texts))


@st.composite
def answers(draw: st.DrawFn) -> Sent:
    """An assistant message as an API sends it."""
    calls = [
        {
            "id": f"call_{place}",
            "type": "function",
            "function": {"name": "f", "arguments": json.dumps(values)},
        }
        for place, values in enumerate(draw(st.lists(_arguments, max_size=2)))
    ]
    content = draw(st.one_of(st.none(), _texts, st.lists(_parts, max_size=3)))
    return {
        "role": "assistant",
        "content": content,
        "refusal": None,
        "tool_calls": calls or None,
        "annotations": [],
    }


def _shuffled(data: st.DataObject, value: Any) -> Any:
    if isinstance(value, dict):
        members: list[tuple[str, Any]] = list(value.items())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return {name: _shuffled(data, inner) for name, inner in data.draw(st.permutations(members))}
    if isinstance(value, list):
        return [_shuffled(data, inner) for inner in value]  # pyright: ignore[reportUnknownVariableType]
    return value


def _sent_back(data: st.DataObject, message: Sent) -> Sent:
    """The message after it went through some SDK."""
    again = dict(message)
    flips = st.booleans()
    if data.draw(flips):
        again = {name: value for name, value in again.items() if value not in (None, [], "")}
    if isinstance(again.get("content"), str):
        if data.draw(flips):
            again["content"] = data.draw(st.sampled_from(["", "\n", "  "])) + again["content"] + "\n"
        if data.draw(flips):
            again["content"] = [
                {"type": "text", "text": again["content"], "cache_control": {"type": "ephemeral"}}
            ]
    calls: list[Sent] = again.get("tool_calls") or []
    for call in calls:
        values = json.loads(call["function"]["arguments"])
        call["function"] = dict(call["function"])
        call["function"]["arguments"] = json.dumps(
            _shuffled(data, values),
            ensure_ascii=data.draw(flips),
            separators=data.draw(st.sampled_from([None, (",", ":"), (" , ", " : ")])),
            indent=data.draw(st.sampled_from([None, 2])),
        )
    if data.draw(flips):
        again |= {
            "reasoning_content": "hm",
            "annotations": [{"x": 1}],
            "provider_specific_fields": {"x": [1]},
        }
    return _shuffled(data, again)


@given(answers(), st.data())
def test_what_sdks_do_to_an_answer_leaves_its_identity(message: Sent, data: st.DataObject):
    before = identity_of(encode(message))
    assert identity_of(encode(_sent_back(data, message))) == before


@given(answers(), st.data())
def test_what_a_person_changes_in_an_answer_changes_its_identity(message: Sent, data: st.DataObject):
    before = identity_of(encode(message))
    calls: list[Sent] = message["tool_calls"] or []
    added = {"id": "new", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    changes: list[Sent] = [
        {"role": "user"},
        {"content": [*_as_parts(message["content"]), {"type": "text", "text": "!"}]},
        {"tool_calls": [*calls, added]},
        {"tool_call_id": "call_9"},
    ]
    if len(calls) == 2:
        changes += [{"tool_calls": calls[1:]}, {"tool_calls": calls[::-1]}]
    changed = message | data.draw(st.sampled_from(changes))
    assert identity_of(encode(changed)) != before


def _as_parts(content: Any) -> list[Any]:
    return list(content) if isinstance(content, list) else [{"type": "text", "text": content or ""}]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


@given(st.text(), st.text())
def test_texts_that_differ_within_make_different_messages(one: str, other: str):
    assume(one.strip() != other.strip())
    first, second = ({"role": "user", "content": text} for text in (one, other))
    assert identity_of(encode_any(first)) != identity_of(encode_any(second))


def encode_any(message: Sent) -> bytes:
    return json.dumps(message).encode()


@given(conversations, st.integers(0, 40))
def test_a_continuation_begins_with_the_chain_that_it_continues(messages: list[Sent], length: int):
    identities = [identity_of(encode(message)) for message in messages]
    assert chain_hashes(identities[:length], root_hash()) == chain_hashes(identities, root_hash())[:length]


@given(st.binary(max_size=40))
def test_any_bytes_have_an_identity(raw: bytes):
    assert len(identity_of(raw)) == 32


@given(answers())
def test_identity_does_not_hang_on_how_the_bytes_are_escaped(message: Sent):
    plain, escaped = encode(message), json.dumps(message, ensure_ascii=True, indent=1).encode()
    assert loads(plain) == loads(escaped)
    assert identity_of(plain) == identity_of(escaped)

"""Reasoning that providers sign, as Chat Completions carries it: found in a message, and left out of one.

The API itself has no such members; these are what its speakers have added. LiteLLM has `thinking_blocks`,
each with a `signature` (or `data`, where it is redacted), beside `reasoning_content`, and repeats them in
`provider_specific_fields`. OpenRouter has `reasoning_details`, with a `signature` or encrypted `data`, beside
`reasoning`. Others put a `signature` beside `reasoning_content`.

What is not signed stays: DeepSeek and Moonshot refuse calls whose plain `reasoning_content` is missing. So
does Gemini with the signatures of its calls, which it binds to no prefix.
"""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from proxy.core.dialects.chat.body import decode_elements, decode_members, masked, member_spans
from proxy.core.formats.json import as_mapping, dumps, loads

_BLOCKS = ("thinking_blocks", "reasoning_details")
_SIGNATURES = ("signature", "reasoning_signature", "thinking_signature")
"""Beside `reasoning_content`."""
_REASONING = frozenset({*_BLOCKS, *_SIGNATURES, "reasoning_content", "reasoning"})
_NESTED = "provider_specific_fields"
_NOT_BOUND = "google-gemini"
"""How the `format` of blocks begins without which Gemini refuses the calls beside them."""


def holds_reasoning(raw: bytes) -> bool:
    """Whether a message, or one of several with commas between them, has any, or cannot be read."""
    if not any(hint in raw for hint in (b"reasoning", b"thinking", b"signature", b"\\u")):
        return False
    try:
        messages = _listed(loads(b"[%b]" % raw))
    except ValueError:
        return True
    nested = [as_mapping(message.get(_NESTED)) for message in messages]
    return any(message.get(name) for message in (*messages, *nested) for name in _REASONING)


def holds_signed_reasoning(raw: bytes) -> bool:
    """Whether a message has reasoning that is signed or encrypted."""
    if b"reasoning" not in raw and b"thinking_blocks" not in raw:
        return False
    try:
        return _is_signed(as_mapping(loads(raw)))
    except ValueError:
        return False


def without_reasoning(raw: bytes) -> bytes:
    """A message without its reasoning, if that is signed, and every other byte as it was.

    Also several messages with commas between them.
    """
    if b"reasoning" not in raw and b"thinking_blocks" not in raw:
        return raw
    text = masked(raw)
    try:
        messages = [bytes(message) for message in decode_elements(b"[%b]" % text)]
    except msgspec.DecodeError:
        return raw
    left, position = bytearray(), 0
    for each in messages:
        start = text.index(each, position)
        message = raw[start : start + len(each)]
        left += raw[position:start]
        left += _without(message) if holds_signed_reasoning(message) else message
        position = start + len(each)
    return bytes(left + raw[position:])


def _is_signed(message: Mapping[str, Any]) -> bool:
    if any(_is_bound(block) for name in _BLOCKS for block in _listed(message.get(name))):
        return True
    if message.get("reasoning_content") and any(message.get(name) for name in _SIGNATURES):
        return True
    nested = message.get(_NESTED)
    return isinstance(nested, dict) and _is_signed(cast("dict[str, Any]", nested))


def _is_bound(block: Mapping[str, Any]) -> bool:
    """Whether a block is signed, or encrypted, for the conversation before it."""
    made_by = block.get("format")
    if isinstance(made_by, str) and made_by.startswith(_NOT_BOUND):
        return False
    return bool(block.get("signature") or block.get("data"))


def _listed(value: object) -> list[Mapping[str, Any]]:
    return [as_mapping(each) for each in cast("list[object]", value)] if isinstance(value, list) else []


def _without(message: bytes) -> bytes:
    """An object without the members that carry reasoning, also within the nested ones."""
    text = masked(message)
    members = decode_members(text)
    spans = member_spans(text, members)
    if spans is None:  # a name is written twice: of such a message each reader knows the last value alone
        members_of = as_mapping(loads(message)).items()
        return dumps({name: value for name, value in members_of if name not in (*_REASONING, _NESTED)})
    left = bytearray(message[: text.index(b'"')] if spans else message[:1])
    position, is_first = len(left), True
    for name, (start, end) in spans.items():
        if name not in _REASONING:
            # What is first now loses the comma of what was before it.
            begins = text.index(b'"', position) if is_first else position
            left += message[begins:start]
            value = message[start:end]
            left += _without(value) if name == _NESTED and value.startswith(b"{") else value
            is_first = False
        position = end
    return bytes(left + message[position:])

"""A message of Chat Completions: its role, texts, tool calls and reasoning, read and rewritten."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, cast

import msgspec

from proxy.core.dialects import dialect
from proxy.core.dialects.chat.images import image_size, image_tokens, other_part_tokens
from proxy.core.formats.json import as_mapping, dumps, loads, text_or_empty, writable
from proxy.core.formats.splice import JSONObject, element_slices


class Content(dialect.Content):
    """A decoded message; everything that is asked of its members is read in one pass."""

    __slots__ = (
        "_raw",
        "audio",
        "calls",
        "is_exact",
        "members",
        "name",
        "parts",
        "refusal",
        "result_of",
        "role",
    )

    def __init__(self, members: Mapping[str, Any], raw: bytes = b"") -> None:
        role, content = members.get("role"), members.get("content")
        self.members = members
        self.role = role if isinstance(role, str) else ""
        self.name = text_or_empty(members["name"]) if "name" in members else ""
        self.refusal = text_or_empty(members["refusal"]) if "refusal" in members else ""
        self.audio = text_or_empty(as_mapping(members["audio"]).get("id")) if "audio" in members else ""
        self.parts: Sequence[Mapping[str, Any]] = ()
        if isinstance(content, str):
            self.parts = ({"type": "text", "text": content},)
        elif isinstance(content, list):
            self.parts = [as_mapping(part) for part in cast("list[object]", content)]
            if self.parts and all(part.get("type") == "refusal" for part in self.parts):
                # A refusal is sent back as a part of the content, or as the member with which it came.
                self.refusal = "\n".join(text_or_empty(part.get("refusal")) for part in self.parts)
                self.parts = ()
        self.calls = _calls(members) if "tool_calls" in members or "function_call" in members else ()
        self.result_of: Sequence[str] = ()
        if role == "function":
            self.result_of = ("function:" + self.name,)
        elif role == "tool" or "tool_call_id" in members:
            call_id = text_or_empty(members.get("tool_call_id"))
            self.result_of = (call_id,) if call_id or role == "tool" else ()
        self.is_exact = not raw
        self._raw = raw
        """The original bytes, if the message has lone surrogates; else empty."""

    @classmethod
    def of(cls, raw: bytes) -> "Content":
        """Decode a message's bytes; anything but an object is read as an empty message."""
        text = writable(raw) if b"\\u" in raw else raw
        try:
            value = loads(text)
        except ValueError:
            return cls({})
        members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        return cls(members, b"" if text == raw else raw)

    @property
    def exact(self) -> Self:
        return type(self)(as_mapping(loads(self._raw))) if self._raw else self

    def media_tokens(self, model: str) -> int:
        total = 0
        for part in self.parts:
            image = part.get("image_url")
            if part.get("type") == "image_url" or image is not None:
                detail = text_or_empty(as_mapping(image).get("detail")) or None
                total += image_tokens(_url_of(part), detail, model)
            elif "text" not in part:
                total += other_part_tokens(part)
        return total

    def with_texts(self, texts: Sequence[str]) -> Self:
        content, left = self.exact.members.get("content"), iter(texts)
        if not isinstance(content, list):
            return self._with_content(next(left, content))
        parts = cast("list[object]", content)
        are_texts = [isinstance(as_mapping(part).get("text"), str) for part in parts]
        return self._with_content(
            [
                {**as_mapping(part), "text": next(left)} if is_text else part
                for part, is_text in zip(parts, are_texts, strict=True)
            ]
        )

    def with_text(self, text: str) -> Self:
        is_list = isinstance(self.members.get("content"), list)
        return self._with_content([{"type": "text", "text": text}] if is_list else text)

    def without_pictures(self, line: Callable[[dialect.Size | None], str]) -> Self | None:
        content = self.exact.members.get("content")
        listed = cast("list[object]", content) if isinstance(content, list) else []
        parts = [as_mapping(each) for each in listed]
        kinds = [part.get("type") for part in parts]
        if "image_url" not in kinds or not all(kind in ("text", "image_url") for kind in kinds):
            return None
        return self._with_content(
            [
                {"type": "text", "text": line(image_size(_url_of(part)))} if kind == "image_url" else part
                for part, kind in zip(parts, kinds, strict=True)
            ]
        )

    def _with_content(self, content: object) -> Self:
        """Return the message with other content; its other members stay as written."""
        return type(self)({**self.exact.members, "content": content})

    def written(self) -> bytes:
        return dumps(self.members)


def _calls(members: Mapping[str, Any]) -> Sequence[dialect.Call]:
    """The tool calls; a legacy function call gets an id made from its name."""
    found: list[dialect.Call] = []
    calls = members.get("tool_calls")
    for call in map(as_mapping, cast("list[object]", calls) if isinstance(calls, list) else ()):
        body = as_mapping(call.get("function") or call.get("custom"))
        members_of_call = (call.get("id"), body.get("name"), body.get("arguments", body.get("input")))
        call_id, name, arguments = map(text_or_empty, members_of_call)
        found.append((call_id, name, arguments))
    legacy = as_mapping(members.get("function_call"))
    if legacy:
        name = text_or_empty(legacy.get("name"))
        found.append(("function:" + name, name, text_or_empty(legacy.get("arguments"))))
    return found


def _url_of(part: Mapping[str, Any]) -> str:
    """The URL of a part's image; a bare URL in place of the object is accepted too."""
    image = part.get("image_url")
    return text_or_empty(as_mapping(image).get("url")) or text_or_empty(image)


def sent_back(answer: bytes) -> bytes:
    """Return an answer's message as a request may have it: what was spoken is named by its id alone.

    The sound and its transcript, which the API refuses there, would be sent with every later request.
    """
    if b'"audio"' not in answer:
        return answer
    message = JSONObject.read(answer)
    audio = as_mapping(loads(bytes(message.members.get("audio", b"null"))))
    if not isinstance(audio.get("id"), str) or len(audio) == 1:
        return answer
    return message.changed({"audio": dumps({"id": audio["id"]})}).raw


# --- signed reasoning: found in a message, and removed from one ---

# OpenAI's API has no such members; other servers have added them. LiteLLM has `thinking_blocks`, each with a
# `signature` (or `data`, where it is redacted), beside `reasoning_content`, and repeats them in
# `provider_specific_fields`. OpenRouter has `reasoning_details`, with a `signature` or encrypted `data`,
# beside `reasoning`. Others put a `signature` beside `reasoning_content`.
#
# Unsigned reasoning stays: DeepSeek and Moonshot refuse calls whose plain `reasoning_content` is missing.
# Gemini's signatures stay too: Gemini refuses calls without them, and does not bind them to a prefix.


_BLOCKS = ("thinking_blocks", "reasoning_details")
_SIGNATURES = ("signature", "reasoning_signature", "thinking_signature")
"""Members that sign a `reasoning_content` beside them."""
_REASONING = frozenset({*_BLOCKS, *_SIGNATURES, "reasoning_content", "reasoning"})
_NESTED = "provider_specific_fields"
_NOT_BOUND = "google-gemini"
"""Prefix of the `format` of Gemini's blocks; Gemini refuses calls without the blocks beside them."""


def holds_reasoning(raw: bytes) -> bool:
    """Whether a message, or one of several joined by commas, has reasoning or cannot be read."""
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
    """Remove the reasoning from a message, or from several joined by commas, where it is signed.

    Every other byte is unchanged.
    """
    if b"reasoning" not in raw and b"thinking_blocks" not in raw:
        return raw
    try:
        messages = element_slices(b"[%b]" % raw)
    except msgspec.DecodeError:
        return raw
    left, position = bytearray(), 0
    for each in messages:
        start = raw.index(each, position)
        left += raw[position:start] + (_without(each) if holds_signed_reasoning(each) else each)
        position = start + len(each)
    return bytes(left)


def _is_signed(message: Mapping[str, Any]) -> bool:
    for block in (block for name in _BLOCKS for block in _listed(message.get(name))):
        made_by = block.get("format")
        is_bound = not (isinstance(made_by, str) and made_by.startswith(_NOT_BOUND))
        if is_bound and (block.get("signature") or block.get("data")):
            return True
    if message.get("reasoning_content") and any(message.get(name) for name in _SIGNATURES):
        return True
    nested = message.get(_NESTED)
    return isinstance(nested, dict) and _is_signed(cast("dict[str, Any]", nested))


def _listed(value: object) -> list[Mapping[str, Any]]:
    return [as_mapping(each) for each in cast("list[object]", value)] if isinstance(value, list) else []


def _without(message: bytes) -> bytes:
    """Return an object without the members that carry reasoning, including nested ones."""
    written = JSONObject.read(message)
    changes: dict[str, bytes | None] = {name: None for name in written.members if name in _REASONING}
    nested = bytes(written.members.get(_NESTED, b""))
    return written.changed(changes | ({_NESTED: _without(nested)} if nested.startswith(b"{") else {})).raw

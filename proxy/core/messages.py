"""Messages as the planner sees them: roles, calls, texts. Everything else stays in the raw bytes.

A :class:`Message` holds no content, so a process can remember it for as long as it likes; content is read
from the raw slice again in the rare moment that an epoch is planned.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from proxy.core.jsonvalue import loads

HEAD_ROLES = frozenset({"system", "developer"})
TOOL_ROLES = frozenset({"tool", "function"})


class Message(msgspec.Struct, frozen=True, gc=False):
    """What must be known of a message to place it in a chain and a unit."""

    role: str
    identity: bytes
    """SHA-256 over what SDKs keep of a message (:mod:`proxy.core.identity`)."""
    calls: tuple[str, ...] = ()
    """Ids of the tool calls that it makes."""
    answers: str | None = None
    """Id of the tool call that it answers."""

    @property
    def is_final(self) -> bool:
        """Whether it ends an exchange: an answer without tool calls."""
        return self.role == "assistant" and not self.calls


class Content:
    """A decoded message, every odd shape tolerated: what is not as expected reads as absent."""

    __slots__ = ("members",)

    def __init__(self, members: Mapping[str, Any]) -> None:
        self.members = members

    @classmethod
    def of(cls, raw: bytes) -> "Content":
        """Decode a message's bytes; one that is no object reads as an empty message."""
        try:
            value = loads(raw)
        except ValueError:
            return cls({})
        return cls(as_mapping(value))

    @property
    def role(self) -> str:
        return text_or_empty(self.members.get("role"))

    @property
    def name(self) -> str:
        return text_or_empty(self.members.get("name"))

    @property
    def answers(self) -> str | None:
        """The id of the call that this message is the result of (a legacy function result: its name)."""
        if self.role == "function":
            return "function:" + self.name
        found = self.members.get("tool_call_id")
        return found if isinstance(found, str) else None

    def parts(self) -> Iterator[Mapping[str, Any]]:
        """Content parts; a string is one text part."""
        content = self.members.get("content")
        if isinstance(content, str):
            yield {"type": "text", "text": content}
        elif isinstance(content, list):
            yield from (as_mapping(part) for part in cast("list[object]", content))

    def texts(self) -> list[str]:
        """The text parts."""
        return [part["text"] for part in self.parts() if isinstance(part.get("text"), str)]

    @property
    def text(self) -> str:
        """All text parts, one under the other."""
        return "\n".join(self.texts())

    def tool_calls(self) -> Iterator[tuple[str, str, str]]:
        """Each tool call as (id, name, arguments); a legacy function call has its name for an id."""
        calls = self.members.get("tool_calls")
        if isinstance(calls, list):
            for call in cast("list[object]", calls):
                yield _read_call(as_mapping(call))
        legacy = as_mapping(self.members.get("function_call"))
        if legacy:
            name = text_or_empty(legacy.get("name"))
            yield "function:" + name, name, text_or_empty(legacy.get("arguments"))

    def countable(self) -> str:
        """The text that costs tokens: content, names and arguments of calls, refusal."""
        texts = self.texts()
        for _, name, arguments in self.tool_calls():
            texts += [name, arguments]
        texts += [text for key in ("name", "refusal") if (text := text_or_empty(self.members.get(key)))]
        return "\n".join(texts)


def _read_call(call: Mapping[str, Any]) -> tuple[str, str, str]:
    body = as_mapping(call.get("function") or call.get("custom"))
    arguments = body.get("arguments", body.get("input"))
    return text_or_empty(call.get("id")), text_or_empty(body.get("name")), text_or_empty(arguments)


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value itself if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def text_or_empty(value: object) -> str:
    """The value itself if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def head_length(roles: Sequence[str]) -> int:
    """How many leading messages are system or developer messages: the part of the head that is messages."""
    for index, role in enumerate(roles):
        if role not in HEAD_ROLES:
            return index
    return len(roles)

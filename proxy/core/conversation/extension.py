"""The body member `unabridged`: a client's instructions to the proxy, which the upstream never sees.

It pins messages (``pin``), and hands in what the session is to begin with (``inject``): see docs/api.md.
Keeps law 1 (transparent): the member is spliced out and every other byte stays. Its members are defined by
the proxy alone, so an unknown one is a client's mistake and is refused.

What is handed in comes before the conversation in every request of its session, as messages of the proxy's.
They are a pure function of what is stored (law 3), in the order that every upstream accepts: a user's text,
then tool calls, each with its result (law 2). What is remembered of other sessions comes before it, in a
fence of its own, and is stored with it.
"""

import hashlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, cast

import msgspec

from proxy.core.conversation.notes import injection_note, memory_note
from proxy.core.dialects.dialect import Body, Dialect
from proxy.core.formats.json import as_mapping, dumps, loads
from proxy.core.text.words import language_of
from proxy.errors import InvalidType, InvalidValue, MissingParameter, RequestError, UnknownParameter

MEMBER = "unabridged"
_PARAMETERS = ("pin", "inject")
_MOST_TOOLS = 100
MOST_BYTES = 1 << 20
"""Bytes of text, names, arguments and results together."""
MOST_EXCHANGES = 1_000_000
ROLE = "user"
_MEMBERS = ("text", "tools")
_TOOL_MEMBERS = ("name", "arguments", "result", "cache_exchanges", "call_id")
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
"""Function names that the API accepts."""
_CALL_ID = re.compile(r"[!-~]{1,64}\Z")
_ID_LENGTH = 9
"""Characters of an id that the proxy assigns: nine letters and digits, a form that every API accepts."""
_MEMBER_LENGTH = 40
"""Characters of an unknown member's name that the error quotes."""


@dataclass(frozen=True, slots=True)
class InjectedResult:
    """A tool result that the caller already had."""

    name: str
    arguments: str
    """A JSON object as text."""
    result: str
    cache_exchanges: int | None = None
    """Number of exchanges for which the result is fresh; None: as the policy says for the tool."""
    call_id: str = ""


@dataclass(frozen=True)
class Injection:
    """What a session begins with: what is remembered of other sessions, and what was handed in.

    Made by :func:`read_injection` and :meth:`combined`, or from stored ``raw`` bytes.
    """

    raw: bytes
    """Canonical JSON: the same content gives the same bytes."""

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of ``raw``, which identifies the injection."""
        return hashlib.sha256(self.raw).digest()

    @classmethod
    def combined(cls, memory: str, handed_in: Self | None = None) -> Self:
        """Combine what is remembered of other sessions with what was handed in."""
        members = as_mapping(loads(handed_in.raw) if handed_in else {"text": "", "tools": []})
        told = {"memory": memory} if memory else {}
        return cls(dumps(told | {name: members[name] for name in _MEMBERS}))

    @cached_property
    def memory(self) -> str:
        """What is remembered of other sessions; empty where there is nothing."""
        return cast("str", self._members.get("memory", ""))

    @cached_property
    def text(self) -> str:
        """The text that a caller handed in; empty where there are only results."""
        return cast("str", self._members["text"])

    @cached_property
    def injected(self) -> Self | None:
        """The part that a caller handed in; None where there is none."""
        if not (self.text or self.tools):
            return None
        return type(self).combined("", self) if self.memory else self

    @cached_property
    def tools(self) -> tuple[InjectedResult, ...]:
        """The tool results, in order."""
        tools = cast("Sequence[Mapping[str, Any]]", self._members["tools"])
        return tuple(InjectedResult(**tool) for tool in tools)

    def messages(self, dialect: Dialect) -> tuple[bytes, ...]:
        """The messages to put before the conversation: texts as user messages, then calls and results."""
        if dialect.name not in self._written:
            said = [memory_note(self.memory, language_of(self.memory))] if self.memory else []
            said += [injection_note(self.text, language_of(self.text))] if self.injected else []
            written = [dialect.note(text, ROLE) for text in said]
            for tool in self.tools:
                written.append(dialect.call(tool.call_id, tool.name, tool.arguments))
                written.append(dialect.result(tool.call_id, tool.result))
            self._written[dialect.name] = tuple(written)
        return self._written[dialect.name]

    @cached_property
    def _written(self) -> dict[str, tuple[bytes, ...]]:
        """The messages by the name of the dialect that wrote them, once they were needed."""
        return {}

    @property
    def _members(self) -> Mapping[str, Any]:
        return as_mapping(loads(self.raw))


class Extension(msgspec.Struct, frozen=True):
    """The content of the member."""

    sent: int
    """Number of messages in the request that it came with."""
    pins: Sequence[int] = ()
    """Indexes of the pinned messages in that request."""
    inject: Injection | None = None
    """What the caller hands in; None where it is nothing."""

    def pins_from_end(self, head: int) -> tuple[int, ...]:
        """The pins as distances from the end of the chain, where 1 is the request's last message.

        ``head`` is the number of leading system messages in the request; those are always sent.
        """
        return tuple(self.sent - index for index in self.pins if index >= head)


ABSENT = Extension(0)
"""The extension of a request without the member."""


def take_extension(body: Body) -> tuple[Body, Extension]:
    """Split a body into the body to forward and the content of the member.

    Raises InvalidType, InvalidValue, MissingParameter or UnknownParameter, each naming the parameter.
    """
    if MEMBER not in body.members:
        return body, ABSENT
    sent, members = len(body.messages), _object(body.get(MEMBER), MEMBER, _PARAMETERS)
    pinned, name = members.get("pin", []), f"{MEMBER}.pin"
    indexes = cast("list[object]", pinned) if isinstance(pinned, list) else [None]
    pins = [index for index in indexes if isinstance(index, int) and not isinstance(index, bool)]
    if len(pins) < len(indexes):
        raise _wrong_type(name, "an array of indexes of messages")
    if not all(0 <= index < sent for index in pins):
        raise _invalid(name, f"the messages of this request are 0 to {sent - 1}")
    inject = read_injection(members.get("inject", {}), f"{MEMBER}.inject")
    return body.without(MEMBER), Extension(sent, pins, inject)


def read_injection(value: object, name: str) -> Injection | None:
    """Read what a client hands in; None where that is nothing. ``name`` is the parameter that holds it.

    Raises InvalidType, InvalidValue, MissingParameter or UnknownParameter, each naming its parameter.
    """
    members = _object(value, name, _MEMBERS)
    text, tools = members.get("text", ""), members.get("tools", [])
    if not isinstance(text, str):
        raise _wrong_type(f"{name}.text", "a string")
    if not isinstance(tools, list):
        raise _wrong_type(f"{name}.tools", "an array")
    listed = cast("list[object]", tools)
    if len(listed) > _MOST_TOOLS:
        raise _invalid(f"{name}.tools", f"at most {_MOST_TOOLS} results may be handed in")
    results = [_result(each, f"{name}.tools[{index}]") for index, each in enumerate(listed)]
    _name_calls(results, f"{name}.tools")
    if not text and not results:
        return None
    raw = dumps({"text": text, "tools": results})
    if len(raw) > MOST_BYTES:
        raise _invalid(name, f"at most {MOST_BYTES} bytes may be handed in")
    return Injection(raw)


def _result(value: object, name: str) -> dict[str, Any]:
    """Read one result into the form in which it is stored; its call may have no id yet."""
    tool = _object(value, name, _TOOL_MEMBERS)
    for required in ("name", "arguments", "result"):
        if required not in tool:
            param = f"{name}.{required}"
            raise MissingParameter(f"Missing required parameter: '{param}'.", param=param)
    called = _matching(tool["name"], _TOOL_NAME, f"{name}.name")
    arguments, result = _arguments(tool["arguments"], f"{name}.arguments"), tool["result"]
    text = result if isinstance(result, str) else _written(result, f"{name}.result")
    exchanges, call_id = tool.get("cache_exchanges"), tool.get("call_id")
    if exchanges is not None and (not isinstance(exchanges, int) or isinstance(exchanges, bool)):
        raise _wrong_type(f"{name}.cache_exchanges", "an integer")
    if exchanges is not None and not 0 <= exchanges <= MOST_EXCHANGES:
        raise _invalid(f"{name}.cache_exchanges", f"it must be 0 to {MOST_EXCHANGES}")
    return {
        "name": called,
        "arguments": arguments,
        "result": text,
        "cache_exchanges": exchanges,
        "call_id": "" if call_id is None else _matching(call_id, _CALL_ID, f"{name}.call_id"),
    }


def _arguments(value: object, name: str) -> str:
    """Return arguments as the text of a JSON object."""
    if isinstance(value, Mapping):
        return _written(cast("object", value), name)
    if not isinstance(value, str):
        raise _wrong_type(name, "an object, or one as JSON in a string")
    try:
        is_object = isinstance(loads(value), Mapping)
    except ValueError:
        is_object = False
    if not is_object:
        raise _invalid(name, "the string must hold a JSON object")
    return value


def _name_calls(results: Sequence[dict[str, Any]], name: str) -> None:
    """Assign a unique id to each call without one. Raises InvalidValue where a client gave one twice."""
    taken: set[str] = set()
    for index, each in enumerate(results):
        if each["call_id"] in taken:
            raise _invalid(f"{name}[{index}].call_id", "two results have the same")
        taken |= {each["call_id"]} - {""}
    for each in results:
        if not each["call_id"]:
            written = dumps([each["name"], each["arguments"], each["result"]])
            while (call_id := hashlib.sha256(written).hexdigest()[:_ID_LENGTH]) in taken:
                written += b"."
            each["call_id"] = call_id
            taken.add(call_id)


def _object(value: object, name: str, allowed: Collection[str]) -> Mapping[str, Any]:
    """Check that a value is an object with only ``allowed`` members, and return it.

    Raises InvalidType or UnknownParameter where it is not.
    """
    if not isinstance(value, Mapping):
        raise _wrong_type(name, "an object")
    members = as_mapping(cast("object", value))
    unknown = next((member for member in members if member not in allowed), None)
    if unknown is not None:
        param = f"{name}.{unknown[:_MEMBER_LENGTH]}".encode("ascii", "backslashreplace").decode()
        raise UnknownParameter(f"Unknown parameter: '{param}'.", param=param)
    return members


def _matching(value: object, pattern: re.Pattern[str], name: str) -> str:
    if not isinstance(value, str):
        raise _wrong_type(name, "a string")
    if not pattern.match(value):
        raise _invalid(name, f"it must match {pattern.pattern.removesuffix(chr(92) + 'Z')}")
    return value


def _written(value: object, name: str) -> str:
    try:
        return dumps(value).decode()
    except RecursionError as error:
        raise _invalid(name, "it is nested too deeply") from error


def _wrong_type(name: str, expected: str) -> RequestError:
    return InvalidType(f"Invalid type for '{name}': expected {expected}.", param=name)


def _invalid(name: str, why: str) -> RequestError:
    return InvalidValue(f"Invalid '{name}': {why}.", param=name)

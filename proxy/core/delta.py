"""An assistant message put together from the deltas of a stream.

Merging works on the JSON text itself: the insides of two JSON strings, written one after the other, are the
inside of their concatenation. So nothing is decoded on the way, numbers keep every digit, and a surrogate
pair that was cut between two deltas is whole again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from proxy.core.rawjson import elements, integer, members, string

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from msgspec import Raw

_STRING, _ARRAY = ord('"'), ord("[")
_ENDS = {_STRING: b'"', _ARRAY: b"]"}
_SAID_ONCE = frozenset({"role", "id", "type"})
_SAID_AGAIN = _SAID_ONCE | {"name"}
"""What some upstreams say again with a later delta; any other string comes in parts."""
_NESTED = ("function", "custom")
_LEADING = ("role", "content", "refusal")


class Members:
    """Members of a JSON object under construction.

    Strings are concatenated and arrays extended; of anything else, and where the type changes, the last one
    wins. Role, id and type are said once, and a name that is repeated word for word is still one name.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        # Strings and arrays stand here without their last byte, so that they can grow.
        self._open: dict[str, bytearray] = {}

    def add(self, name: str, raw: bytes) -> None:
        """Merge one member of a delta. Null adds nothing."""
        if raw == b"null":
            return
        value, kind = self._open.get(name), raw[0]
        if value is None or value[0] != kind or kind not in _ENDS:
            self._open[name] = _opened(raw)
        elif kind == _STRING:
            if name not in _SAID_AGAIN or not _is_repeated(name, value, raw):
                value += raw[1:-1]
        else:
            inner = raw[1:-1].strip()
            value += b"," + inner if inner and len(value) > 1 else inner

    def add_all(self, delta: Mapping[str, Raw]) -> None:
        """Merge all members of a delta."""
        for name, raw in delta.items():
            self.add(name, bytes(raw))

    def closed(self) -> dict[str, bytes]:
        """The members as complete JSON values, in the order in which they were first seen."""
        return {name: bytes(value) + _ENDS.get(value[0], b"") for name, value in self._open.items()}


class ToolCall:
    """One call of a tool under construction; `index` is its place in the message."""

    __slots__ = ("_members", "_nested", "id", "index")

    def __init__(self, index: int, call_id: str | None) -> None:
        self.index = index
        self.id = call_id
        self._members = Members()
        self._nested: dict[str, Members] = {}

    def add(self, delta: Mapping[str, Raw]) -> None:
        """Merge what a delta says about this call."""
        self.id = self.id or string(delta.get("id"))
        for name, raw in delta.items():
            if name in _NESTED and (inner := members(raw)):
                self._nested.setdefault(name, Members()).add_all(inner)
            elif name not in ("index", *_NESTED):
                self._members.add(name, bytes(raw))

    @property
    def name(self) -> str:
        """The function's name as far as it has been said; empty for another kind of tool."""
        return self._said("name") or ""

    @property
    def arguments(self) -> str | None:
        """The function's arguments as far as they have been said; None where they are no text."""
        return self._said("arguments")

    def _said(self, member: str) -> str | None:
        function = self._nested.get("function")
        return string(function.closed().get(member, b'""')) if function else ""

    def json(self) -> bytes:
        """The call as a client sends it back: id, type, function or custom, then whatever else was said."""
        own = self._members.closed()
        nested = {name: inner.closed() for name, inner in self._nested.items()}
        if "function" in nested:
            nested["function"].setdefault("arguments", b'""')  # the API requires them of us, not of upstreams
        own.setdefault("type", b'"custom"' if "custom" in nested else b'"function"')
        pairs = [(name, own.pop(name)) for name in ("id", "type") if name in own]
        pairs += [(name, object_of(inner.items())) for name, inner in nested.items()]
        return object_of([*pairs, *own.items()])


class PartialMessage:
    """The message of one choice, grown delta by delta."""

    __slots__ = ("_calls", "_function_call", "_members")

    def __init__(self) -> None:
        self._members = Members()
        self._function_call = Members()
        self._calls: list[ToolCall] = []

    @property
    def calls(self) -> Sequence[ToolCall]:
        """The calls in the order in which they began."""
        return self._calls

    @property
    def has_calls(self) -> bool:
        """Whether the message calls a tool, or a function the old way."""
        return bool(self._calls or self._function_call.closed())

    def add(self, delta: Mapping[str, Raw]) -> None:
        """Merge one delta."""
        for name, raw in delta.items():
            if name == "tool_calls":
                self._add_calls(raw)
            elif name == "function_call":
                self._function_call.add_all(members(raw) or {})
            else:
                self._members.add(name, bytes(raw))

    def json(self, without: Collection[ToolCall] = ()) -> bytes:
        """The message as a client sends it back, its members in one order however the deltas were cut.

        ``without`` these calls of it.
        """
        own, function_call = self._members.closed(), self._function_call.closed()
        own.setdefault("role", b'"assistant"')
        calls = sorted((call for call in self._calls if call not in without), key=lambda call: call.index)
        speaks_otherwise = bool(calls or function_call) or "refusal" in own
        if "content" not in own or (own["content"] == b'""' and speaks_otherwise):
            own["content"] = b"null"
        pairs = [(name, own.pop(name)) for name in _LEADING if name in own]
        pairs += own.items()
        if function_call:
            pairs.append(("function_call", object_of(function_call.items())))
        if calls:
            pairs.append(("tool_calls", b"[" + b",".join(call.json() for call in calls) + b"]"))
        return object_of(pairs)

    def _add_calls(self, raw: Raw) -> None:
        for element in elements(raw) or []:
            delta = members(element)
            if delta:
                self.call_of(delta).add(delta)

    def call_of(self, delta: Mapping[str, Raw]) -> ToolCall:
        """The call that a delta continues, begun where it is new.

        It is that of its index, failing that of its id, else the latest. A new id under a known index is a
        new call: some upstreams number every parallel call 0.
        """
        index, call_id = integer(delta.get("index")), string(delta.get("id"))
        for call in reversed(self._calls):
            same_id = not call_id or not call.id or call.id == call_id
            if call.index == index and same_id:
                return call
            if index is None and (call.id == call_id if call_id else not _is_named(delta)):
                return call
        self._calls.append(ToolCall(len(self._calls) if index is None else index, call_id))
        return self._calls[-1]


def _opened(raw: bytes) -> bytearray:
    if raw[0] == _ARRAY:
        return bytearray(raw[:-1].rstrip())  # so that an empty one is one byte long
    return bytearray(raw[:-1] if raw[0] == _STRING else raw)


def _is_repeated(name: str, value: bytearray, raw: bytes) -> bool:
    return len(value) > 1 if name in _SAID_ONCE else bytes(value[1:]) == raw[1:-1]


def _is_named(call: Mapping[str, Raw]) -> bool:
    return any(string((members(call[part]) or {}).get("name")) for part in _NESTED if part in call)


def object_of(pairs: Iterable[tuple[str, bytes | Raw]]) -> bytes:
    """A JSON object of members whose values are written already."""
    return b"{" + b",".join(json.dumps(name).encode() + b":" + bytes(value) for name, value in pairs) + b"}"

"""An assistant message put together from the deltas of a stream.

Merging works on the JSON text itself: the insides of two JSON strings, written one after the other, are the
inside of their concatenation. So nothing is decoded on the way, numbers keep every digit, and a surrogate
pair that was cut between two deltas is whole again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from msgspec import Raw

from proxy.core.formats.json import elements, integer, members, string

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

_STRING, _ARRAY, _OBJECT, _SCALAR = *b'"[{', 0
_KINDS = frozenset({_STRING, _ARRAY, _OBJECT})
_ENDS = {_STRING: b'"', _ARRAY: b"]"}
_ONCE = frozenset({"role", "id", "type"})
_ONCE_IF_EQUAL = frozenset({"name", "format", "signature"})
_BLOCKS = frozenset({"thinking_blocks", "reasoning_details"})
_DEEPEST = 8
"""Objects within objects that are merged; deeper ones must be said in one delta."""
NESTED = ("function", "custom")
_LEADING = ("role", "content", "refusal")
NULL = Raw(b"null")

Shape = dict[str, "Shape | None"]
"""Members whose type the API lays down: None for a string, the shape of an object."""
_FUNCTION: Shape = {"name": None, "arguments": None}
_CALL: Shape = {"id": None, "type": None, "function": _FUNCTION, "custom": {"name": None, "input": None}}
_MESSAGE: Shape = {"role": None, "content": None, "refusal": None, "function_call": _FUNCTION}
_ANY: Shape = {}
ROLES = frozenset(
    {b"", b'""', b'"assistant"', b'"user"', b'"system"', b'"developer"', b'"tool"', b'"function"'}
)


class Members:
    """Members of a JSON object under construction.

    Strings are concatenated, arrays extended and objects merged; of numbers and booleans the last one wins.
    Role, id and type are said once, and a name, a signature or an object that is repeated word for word is
    still one. What was said stays: a value of another type than the API's, or than what was said before, is
    left out. Blocks of reasoning are put together from their pieces (:class:`Blocks`).
    """

    __slots__ = ("_blocks", "_depth", "_has_left_out", "_open", "_shape")

    def __init__(self, shape: Shape = _ANY, depth: int = 0) -> None:
        self._shape = shape
        self._depth = depth
        # Strings and arrays stand here without their last byte, so that they can grow.
        self._open: dict[str, bytearray | Members] = {}
        self._blocks: dict[str, Blocks] = {}
        self._has_left_out = False

    @property
    def is_odd(self) -> bool:
        """Whether something was said that could not be merged: it is missing here."""
        for value in self._open.values():
            if isinstance(value, Members) and value.is_odd:
                return True
        return self._has_left_out or any(blocks.is_odd for blocks in self._blocks.values())

    def add(self, name: str, raw: bytes) -> None:
        """Merge one member of a delta. Null adds nothing."""
        if raw == b"null":
            return
        value, kind = self._open.get(name), raw[0] if raw[0] in _KINDS else _SCALAR
        if kind != self._kind(name, value, kind):
            self._has_left_out = True
        elif isinstance(value, Members) or (kind == _OBJECT and self._shape.get(name)):
            self._merge(name, value, raw)
        elif value is None or kind == _SCALAR:
            # An empty array becomes one byte long.
            is_open, value = kind in (_ARRAY, _STRING), raw[:-1]
            self._open[name] = bytearray((value.rstrip() if kind == _ARRAY else value) if is_open else raw)
        elif kind == _OBJECT:
            if bytes(value) != raw:
                self._merge(name, value, raw)
        elif kind == _ARRAY:
            inner = raw[1:-1].strip()
            value += b"," + inner if inner and len(value) > 1 else inner
        elif name in _ONCE and len(value) > 1:
            self._has_left_out |= raw[1:-1] not in (b"", bytes(value[1:]))
        elif name not in _ONCE_IF_EQUAL or bytes(value[1:]) != raw[1:-1]:
            value += raw[1:-1]

    def _kind(self, name: str, value: bytearray | Members | None, kind: int) -> int:
        """The type that a member has by the API, or by what was said of it; else this one."""
        if name in self._shape:
            return _STRING if self._shape[name] is None else _OBJECT
        if value is None:
            return kind
        first = _OBJECT if isinstance(value, Members) else value[0]
        return first if first in _KINDS else _SCALAR

    def _merge(self, name: str, value: bytearray | Members | None, raw: bytes) -> None:
        """Go on with an object, which from here on is one of members of its own."""
        added = members(raw)
        if added is None or self._depth == _DEEPEST:
            self._has_left_out = True
            return
        if not isinstance(value, Members):
            whole = Members(self._shape.get(name) or _ANY, self._depth + 1)
            whole.add_all(members(bytes(value)) or {} if value else {})
            self._open[name] = value = whole
        value.add_all(added)

    def add_all(self, delta: Mapping[str, Raw]) -> None:
        """Merge all members of a delta."""
        for name, raw in delta.items():
            is_new = name in _BLOCKS and name not in self._open and bytes(raw).startswith(b"[")
            if is_new or name in self._blocks:
                self._blocks.setdefault(name, Blocks(self._depth + 1)).add(raw)
            else:
                self.add(name, bytes(raw))

    def leave_out(self) -> None:
        """Something was said that has no place here."""
        self._has_left_out = True

    def get(self, name: str) -> bytes:
        """One of the members as a complete JSON value; empty where it is not there."""
        return _closed(self._open[name]) if name in self._open else b""

    def inner(self, name: str) -> dict[str, bytes]:
        """The members of an object that is one of the members; none where it is not there."""
        value = self._open.get(name)
        return value.closed() if isinstance(value, Members) else {}

    def closed(self) -> dict[str, bytes]:
        """The members as complete JSON values, in the order in which they were first seen."""
        own = {name: _closed(value) for name, value in self._open.items()}
        return own | {name: blocks.json() for name, blocks in self._blocks.items()}


class Blocks:
    """Blocks of reasoning under construction, in the end as they are where nothing is streamed.

    OpenRouter numbers them, and a piece goes on with the block of its index. LiteLLM does not: there it goes
    on with the block before it, until that has its signature, or is one that is encrypted.
    """

    __slots__ = ("_blocks", "_depth", "_has_left_out")

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._blocks: list[Members] = []
        self._has_left_out = False

    @property
    def is_odd(self) -> bool:
        """Whether something was said that could not be merged: it is missing here."""
        return self._has_left_out or any(block.is_odd for block in self._blocks)

    def add(self, raw: Raw) -> None:
        """Merge the elements of an array. Null adds nothing."""
        added = elements(raw)
        self._has_left_out |= added is None and raw != NULL
        for element in added or ():
            piece = members(element)
            if piece is None:
                self._has_left_out = True
            else:
                self._block_of(piece).add_all(piece)

    def _block_of(self, piece: Mapping[str, Raw]) -> Members:
        """The block that a piece goes on with, begun where it is new."""
        index = integer(piece.get("index"))
        latest = self._blocks[-1:] if index is None else reversed(self._blocks)
        for block in latest:
            is_same = all(
                block.get(name) in (b"", b'""', bytes(piece[name]))
                for name in ("type", "id")
                if piece.get(name, NULL) != NULL
            )
            is_ended = index is None and any(
                block.get(name) not in (b"", b'""') for name in ("signature", "data")
            )
            if is_same and not is_ended and integer(block.get("index") or None) == index:
                return block
        self._blocks.append(Members(depth=self._depth))
        return self._blocks[-1]

    def json(self) -> bytes:
        """All of them as a JSON array."""
        return b"[" + b",".join(object_of(block.closed().items()) for block in self._blocks) + b"]"


class PartialCall:
    """One call of a tool under construction; `index` is its place in the message."""

    __slots__ = ("_members", "id", "index")

    def __init__(self, index: int, call_id: str | None) -> None:
        self.index = index
        self.id = call_id
        self._members = Members(_CALL)

    def add(self, delta: Mapping[str, Raw]) -> None:
        """Merge what a delta says about this call."""
        self.id = self.id or string(delta.get("id"))
        for name, raw in delta.items():
            if name != "index":
                self._members.add(name, bytes(raw))
            elif integer(raw) is None and raw != NULL:
                self._members.leave_out()

    @property
    def is_odd(self) -> bool:
        """Whether something was said of it that is missing here."""
        return self._members.is_odd

    @property
    def name(self) -> str:
        """The function's name as far as it has been said; empty for another kind of tool."""
        return self._text_of("name") or ""

    @property
    def arguments(self) -> str | None:
        """The function's arguments as far as they have been said; None where they are no text."""
        return self._text_of("arguments")

    def _text_of(self, member: str) -> str | None:
        return string(self._members.inner("function").get(member, b'""'))

    def json(self) -> bytes:
        """The call as a client sends it back: id, type, function or custom, then whatever else was said."""
        own = self._members.closed()
        if function := self._members.inner("function"):
            function.setdefault("arguments", b'""')  # the API requires them of us, not of upstreams
            own["function"] = object_of(function.items())
        own.setdefault("type", b'"custom"' if self._members.inner("custom") else b'"function"')
        pairs = [(name, own.pop(name)) for name in ("id", "type", *NESTED) if name in own]
        return object_of([*pairs, *own.items()])


class PartialMessage:
    """The message of one choice, grown delta by delta."""

    __slots__ = ("_calls", "_members")

    def __init__(self) -> None:
        self._members = Members(_MESSAGE)
        self._calls: list[PartialCall] = []

    @property
    def calls(self) -> Sequence[PartialCall]:
        """The calls in the order in which they began."""
        return self._calls

    @property
    def has_calls(self) -> bool:
        """Whether the message calls a tool, or a function the old way."""
        return bool(self._calls or self._members.inner("function_call"))

    @property
    def is_odd(self) -> bool:
        """Whether something was said that is missing here, for it is nothing that a message may say."""
        is_no_role = self._members.get("role") not in ROLES
        return is_no_role or self._members.is_odd or any(call.is_odd for call in self._calls)

    def add(self, delta: Mapping[str, Raw]) -> None:
        """Merge one delta."""
        for name, raw in delta.items():
            if name == "tool_calls":
                self.add_calls(raw)
            else:
                self._members.add_all({name: raw})

    def add_calls(self, raw: Raw) -> list[tuple[dict[str, Raw], PartialCall]]:
        """Merge what a delta says of calls; each with the call that it is about."""
        taken: list[tuple[dict[str, Raw], PartialCall]] = []
        added = elements(raw)
        if added is None and raw != NULL:
            self._members.leave_out()
        for element in added or ():
            delta = members(element)
            if delta:
                call = self._call_of(delta)
                call.add(delta)
                taken.append((delta, call))
            elif delta is None and element != NULL:
                self._members.leave_out()
        return taken

    def json(self, without: Collection[PartialCall] = ()) -> bytes:
        """The message as a client sends it back, its members in one order however the deltas were cut.

        ``without`` these calls of it.
        """
        own = self._members.closed()
        function_call = own.pop("function_call", b"")
        if own.get("role", b'""') == b'""':
            own["role"] = b'"assistant"'
        calls = sorted((call for call in self._calls if call not in without), key=lambda call: call.index)
        speaks_otherwise = bool(calls or function_call) or "refusal" in own
        if "content" not in own or (own["content"] == b'""' and speaks_otherwise):
            own["content"] = b"null"
        pairs = [(name, own.pop(name)) for name in _LEADING if name in own]
        pairs += own.items()
        if function_call:
            pairs.append(("function_call", function_call))
        if calls:
            pairs.append(("tool_calls", b"[" + b",".join(call.json() for call in calls) + b"]"))
        return object_of(pairs)

    def _call_of(self, delta: Mapping[str, Raw]) -> PartialCall:
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
        self._calls.append(PartialCall(len(self._calls) if index is None else index, call_id))
        return self._calls[-1]


def _closed(value: bytearray | Members) -> bytes:
    if isinstance(value, Members):
        return object_of(value.closed().items())
    return bytes(value) + _ENDS.get(value[0], b"")


def _is_named(call: Mapping[str, Raw]) -> bool:
    return any(string((members(call[part]) or {}).get("name")) for part in NESTED if part in call)


def object_of(pairs: Iterable[tuple[str, bytes | Raw]]) -> bytes:
    """A JSON object of members whose values are written already."""
    return b"{" + b",".join(json.dumps(name).encode() + b":" + bytes(value) for name, value in pairs) + b"}"

"""Assembles an assistant message from the deltas of a stream.

Merging works on the JSON text itself: the contents of two JSON strings, joined, are the content of their
concatenation. So nothing is decoded, numbers keep every digit, and a surrogate pair that was split between
two deltas is whole again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Raw

from proxy.core.formats.json import UNREADABLE, elements, integer, loads, members, object_of, string

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_STRING, _ARRAY, _OBJECT = b'"[{'
_ONCE = frozenset({"role", "id", "type"})
_ONCE_IF_EQUAL = frozenset({"name", "format", "signature"})
_BLOCKS = frozenset({"thinking_blocks", "reasoning_details"})
_DEEPEST = 8
"""Depth to which nested objects are merged; deeper ones must come in one delta."""
_MANY = 256
"""Number of values of one member after which they are merged early, to save memory."""
NESTED = ("function", "custom")
_TEXTS = frozenset({"content", "reasoning_content", "reasoning"})
_CALLS_ALONE = ("tool_calls",)
_CONTINUED = frozenset({"text", "thinking"})
"""Types of the parts of a content that come in pieces."""
_LEADING = ("role", "content", "refusal")
NULL = Raw(b"null")

Deltas = dict[str, list[bytes]]
"""The deltas of one object: the values received for each member, in order."""
Shape = dict[str, "Shape | None"]
"""Members whose type the API defines: None for a string, a shape for an object."""
_FUNCTION: Shape = {"name": None, "arguments": None}
_CALL: Shape = {"id": None, "type": None, "function": _FUNCTION, "custom": {"name": None, "input": None}}
_MESSAGE: Shape = {"role": None, "content": None, "refusal": None, "function_call": _FUNCTION}
_ANY: Shape = {}
ROLES = frozenset(
    {b"", b'""', b'"assistant"', b'"user"', b'"system"', b'"developer"', b'"tool"', b'"function"'}
)


class Merger:
    """Merges all deltas of an object into one JSON object.

    Strings are concatenated, arrays extended and objects merged; of numbers and booleans the last one wins.
    Role, id and type are taken once. A name, a format, a signature or an object that is repeated verbatim
    counts once. A value of another type than the API's, or than the earlier values, is left out.
    """

    def __init__(self) -> None:
        self.is_odd = False
        """Whether a value could not be merged, so that it is missing."""

    def merged(self, deltas: Deltas, shape: Shape = _ANY, depth: int = 0) -> dict[str, bytes]:
        """The members as JSON, in the order in which they first came, blocks of reasoning last."""
        found = {name: self.value(name, values, shape, depth) for name, values in deltas.items()}
        written = [(name, value) for name, value in found.items() if value]
        return dict(sorted(written, key=lambda pair: pair[0] in _BLOCKS and pair[1][0] == _ARRAY))

    def value(self, name: str, values: Sequence[bytes], shape: Shape, depth: int = 0) -> bytes:
        """The merged value of one member; empty where no value of its type came."""
        kind = _kind(values[0])
        if name in shape:
            if name == "content" and any(_kind(each) == _ARRAY for each in values):
                return self._parts(values, depth)
            kind = _STRING if shape[name] is None else _OBJECT
        same = [each for each in values if _kind(each) == kind]
        self.is_odd |= len(same) < len(values)
        if not same:
            return b""
        if kind == _STRING:
            return self._text(name, same)
        if kind == _ARRAY and name in _BLOCKS:
            return self._blocks(same, depth)
        if kind == _ARRAY:
            inner = [each[1:-1].strip() for each in same]
            return b"[" + b",".join(filter(None, inner)) + b"]"
        return self._object(same, shape.get(name), depth) if kind == _OBJECT else same[-1]

    def _text(self, name: str, texts: Sequence[bytes]) -> bytes:
        if name in _ONCE:
            first = next((each for each in texts if each != b'""'), b'""')
            self.is_odd |= any(each not in (b'""', first) for each in texts)
            return first
        if name not in _ONCE_IF_EQUAL:
            return b'"%b"' % b"".join([each[1:-1] for each in texts])
        whole = b""
        for each in texts:
            whole += each[1:-1] if each[1:-1] != whole else b""
        return b'"%b"' % whole

    def _object(self, objects: Sequence[bytes], shape: Shape | None, depth: int) -> bytes:
        if not shape:
            differs = next((at for at, each in enumerate(objects) if each != objects[0]), len(objects))
            objects = objects[differs - 1 :]
            if len(objects) == 1:
                return objects[0]
        deltas: Deltas = {}
        for each in objects:
            added = members(each) if depth < _DEEPEST else None
            self.is_odd |= added is None
            add(deltas, added or {}, shape or _ANY)
        if not deltas and not shape:
            return objects[0]
        return object_of(self.merged(deltas, shape or _ANY, depth + 1).items())

    def _parts(self, values: Sequence[bytes], depth: int) -> bytes:
        """Assemble a content that is a list of parts, as Mistral's reasoning models have it.

        A text between such lists is one more part. A text or thinking continues the part before it, if that
        is of its type.
        """
        parts: list[Deltas] = []
        for each in values:
            if each == b'""':
                continue
            added = elements(b'[{"type":"text","text":%b}]' % each if _kind(each) == _STRING else each)
            self.is_odd |= not added
            for piece in map(members, added or ()):
                kind = None if piece is None else string(piece.get("type"))
                if piece is None or kind is None:
                    self.is_odd = True
                    continue
                if not (parts and kind in _CONTINUED and string(Raw(parts[-1]["type"][0])) == kind):
                    parts.append({})
                add(parts[-1], piece)
        written = [object_of(self.merged(part, depth=depth + 1).items()) for part in parts]
        return b"[" + b",".join(written) + b"]" if written else b""

    def _blocks(self, arrays: Sequence[bytes], depth: int) -> bytes:
        """Assemble blocks of reasoning from their pieces, as they would be in an answer without streaming.

        OpenRouter numbers its blocks, and a piece continues the block with its index. LiteLLM does not: there
        a piece continues the last block, until that has its signature or is an encrypted one.
        """
        blocks: list[Deltas] = []
        for array in arrays:
            added = elements(array) if depth < _DEEPEST else None
            self.is_odd |= added is None
            for piece in map(members, added or ()):
                self.is_odd |= piece is None
                if piece is not None:
                    add(_block_of(blocks, piece), piece)
        written = [object_of(self.merged(each, depth=depth + 1).items()) for each in blocks]
        return b"[" + b",".join(written) + b"]"


def add(deltas: Deltas, delta: Mapping[str, Raw], shape: Shape = _ANY) -> None:
    """Add one more delta to those of an object; null values are ignored."""
    for name, raw in delta.items():
        value = bytes(raw)
        if value == b"null":
            continue
        values = deltas.get(name)
        if values is None:
            deltas[name] = [value]
            continue
        values.append(value)
        if len(values) == _MANY:
            merger = Merger()
            whole = merger.value(name, values, shape)
            if not merger.is_odd:
                values[:] = [whole]


def _kind(value: bytes) -> int:
    """The first byte of a JSON string, array or object; 0 for any other value."""
    return value[0] if value[0] in b'"[{' else 0


def _block_of(blocks: list[Deltas], piece: Mapping[str, Raw]) -> Deltas:
    """Return the block that a piece continues, or a new one."""
    index = integer(piece.get("index"))

    def said(block: Deltas, name: str) -> bytes:
        return next((value for value in block.get(name, ()) if value != b'""'), b"")

    for block in blocks[-1:] if index is None else reversed(blocks):
        is_same = all(
            said(block, name) in (b"", bytes(piece[name]))
            for name in ("type", "id")
            if piece.get(name, NULL) != NULL
        )
        is_ended = index is None and (said(block, "signature") or said(block, "data"))
        if is_same and not is_ended and integer(block.get("index", [b"null"])[-1]) == index:
            return block
    blocks.append({})
    return blocks[-1]


class PartialCall:
    """One tool call, assembled delta by delta."""

    __slots__ = ("_deltas", "_is_index_odd", "id", "index", "place")

    def __init__(self, place: int, index: int) -> None:
        self.place = place
        """Index among the calls of its message, in the order in which they began."""
        self.index = index
        """The upstream's index, by which the calls of the message are ordered."""
        self.id: str | None = None
        self._deltas: Deltas = {}
        self._is_index_odd = False

    def add(self, delta: Mapping[str, Raw]) -> None:
        """Take a delta of this call."""
        index, call_id = delta.get("index", NULL), string(delta.get("id"))
        self._is_index_odd |= integer(index) is None and index != NULL
        left_out = ("index", "id") if self.id and call_id else ("index",)  # the first id counts
        self.id = self.id or call_id
        add(self._deltas, {name: raw for name, raw in delta.items() if name not in left_out}, _CALL)

    def is_before(self, delta: Mapping[str, Raw]) -> bool:
        """Whether a delta without this call's id begins another call, also under its index.

        Some upstreams number every parallel call 0, and some give the pieces of one call other ids. Some
        repeat the name with every piece of the arguments.
        """
        bodies = [members(delta[part]) or {} for part in NESTED if part in delta]
        name = next(filter(None, (string(body.get("name")) for body in bodies)), None)
        if not name or integer(delta.get("index")) is None or (self.id and string(delta.get("id"))):
            return bool(name)
        begun = (string(body.get("arguments")) or "" for body in bodies)
        is_other = name != self.name or any(map(str.strip, begun))
        if not self.name or not is_other:
            return False
        # It does where this call's arguments are a whole JSON object.
        pieces = (members(raw) or {} for raw in reversed(self._deltas.get("function", ())))
        ends = (string(body.get("arguments")) or "" for body in pieces)
        if not next(filter(str.strip, ends), "").rstrip().endswith("}"):  # to join them all costs more
            return False
        try:
            return isinstance(loads(self.arguments or ""), dict)
        except ValueError:
            return False

    @property
    def name(self) -> str:
        """The function's name as far as it has come; empty for another kind of tool."""
        return self._text_of("name") or ""

    @property
    def arguments(self) -> str | None:
        """The function's arguments as far as they have come; None where they are not text."""
        return self._text_of("arguments")

    def _text_of(self, member: str) -> str | None:
        function = Merger().value("function", self._deltas.get("function", [b"{}"]), _CALL)
        return string((members(function or b"{}") or {}).get(member, b'""'))

    def written(self) -> tuple[bytes, bool]:
        """Return the call as a client sends it back, and whether some of what came is missing in it.

        Its members are id, type, function or custom, then all others.
        """
        merger = Merger()
        own = merger.merged(self._deltas, _CALL)
        if function := members(own.get("function", b"{}")):
            # The API requires arguments of us, not of upstreams.
            own["function"] = object_of({**function, "arguments": function.get("arguments", b'""')}.items())
        own.setdefault("type", b'"custom"' if own.get("custom", b"{}") != b"{}" else b'"function"')
        pairs = [(name, own.pop(name)) for name in ("id", "type", *NESTED) if name in own]
        return object_of([*pairs, *own.items()]), merger.is_odd or self._is_index_odd


class PartialMessage:
    """The message of one choice, assembled delta by delta."""

    __slots__ = ("_deltas", "_has_odd_calls", "calls")

    def __init__(self) -> None:
        self._deltas: Deltas = {}
        self._has_odd_calls = False
        self.calls: list[PartialCall] = []
        """The tool calls, in the order in which they began."""

    @property
    def has_calls(self) -> bool:
        """Whether the message calls a tool, or makes a legacy function call."""
        return bool(self.calls) or any(members(each) for each in self._deltas.get("function_call", ()))

    @property
    def is_odd(self) -> bool:
        """Whether some of what came is missing here, because no message may have it."""
        return self.written()[1]

    def add(self, delta: Mapping[str, Raw]) -> None:
        """Take one delta."""
        if "tool_calls" in delta:
            self.add_calls(delta["tool_calls"])
            delta = {name: raw for name, raw in delta.items() if name != "tool_calls"}
        add(self._deltas, delta, _MESSAGE)

    def add_calls(self, raw: Raw) -> list[tuple[dict[str, Raw], PartialCall]]:
        """Take a delta's ``tool_calls``, and return each of its elements with the call that it belongs to."""
        taken: list[tuple[dict[str, Raw], PartialCall]] = []
        added = elements(raw)
        self._has_odd_calls |= added is None and raw != NULL
        for element in added or ():
            delta = members(element)
            if delta:
                call = self._call_of(delta)
                call.add(delta)
                taken.append((delta, call))
            self._has_odd_calls |= delta is None and element != NULL
        return taken

    def written(self, without: Collection[PartialCall] = ()) -> tuple[bytes, bool]:
        """Return the message as a client sends it back, ``without`` these calls, and whether it is odd.

        The order of its members does not depend on how the deltas were split.
        """
        merger = Merger()
        own = merger.merged(self._deltas, _MESSAGE)
        is_odd = self._has_odd_calls or merger.is_odd or own.get("role", b"") not in ROLES
        function_call = own.pop("function_call", b"")
        if own.get("role", b'""') == b'""':
            own["role"] = b'"assistant"'
        calls = [(call, *call.written()) for call in sorted(self.calls, key=lambda call: call.index)]
        is_odd = is_odd or any(is_call_odd for _, _, is_call_odd in calls)
        shown = [written for call, written, _ in calls if call not in without]
        speaks_otherwise = bool(shown or function_call) or any(
            own.get(name, b"null") not in (b"null", b'""') for name in ("refusal", "audio")
        )
        if own.get("content", b"null") in (b"null", b'""'):  # without calls the API refuses null
            own["content"] = b"null" if speaks_otherwise else b'""'
        pairs = [(name, own.pop(name)) for name in _LEADING if name in own]
        pairs += own.items()
        if function_call:
            pairs.append(("function_call", function_call))
        if shown:
            pairs.append(("tool_calls", b"[" + b",".join(shown) + b"]"))
        return object_of(pairs), is_odd

    def json(self, without: Collection[PartialCall] = ()) -> bytes:
        """Return the message as :meth:`written` does, alone."""
        return self.written(without)[0]

    def _call_of(self, delta: Mapping[str, Raw]) -> PartialCall:
        """Return the call that a delta continues, or a new one.

        It is the call with the delta's index, of several the one with its id, else the latest; without an
        index the one with its id; without both the latest.
        """
        index, call_id = integer(delta.get("index")), string(delta.get("id"))
        alike = [call for call in self.calls if index is None or call.index == index]
        for call in reversed(alike):
            if call_id and call.id == call_id:
                return call
        if alike and (index is not None or not call_id) and not alike[-1].is_before(delta):
            return alike[-1]
        place = len(self.calls)
        self.calls.append(PartialCall(place, place if index is None else index))
        return self.calls[-1]


class _Function(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    name: str | None = None
    arguments: str | None = None


class _Piece(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A piece of a tool call as nearly all upstreams write it."""

    index: int
    id: str | None = None
    type: str | None = None
    function: _Function | None = None


_PIECES = msgspec.json.Decoder(list[_Piece])


def is_odd(delta: Mapping[str, Raw]) -> bool:
    """Whether a delta by itself has something that no message may have.

    Text, and a single piece of a call, are told from the rest at a tenth of the cost.
    """
    if delta.keys() <= _TEXTS and all(bytes(raw)[:1] in (b'"', b"n") for raw in delta.values()):
        return False
    if tuple(delta) == _CALLS_ALONE:
        try:
            if len(_PIECES.decode(delta["tool_calls"])) == 1:
                return False
        except UNREADABLE:
            pass
    message = PartialMessage()
    message.add(delta)
    return message.is_odd

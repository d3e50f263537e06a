"""A JSON object whose members are slices of the original text, and can be changed without other changes.

The text is scanned once by msgspec. msgspec refuses lone surrogate escapes, which the APIs accept. In that
case the scan runs over a copy in which each is replaced by another escape of the same length, so that every
offset in the copy holds in the original.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from typing import Self

import msgspec
from msgspec import Raw

from proxy.core.formats.json import dumps, loads, object_of

OPENING = ord("{")
decode_elements = msgspec.json.Decoder(list[Raw]).decode
_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_MEMBER_NAME = re.compile(rb'[ \t\r\n{,]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_ESCAPE = re.compile(rb"\\(u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL)

Members = Mapping[str, bytes | Raw | memoryview]
"""Members by name, each as the bytes of its value."""
Spans = dict[str, tuple[int, int]]
"""Start and end offset of each member's value."""


class JSONObject(msgspec.Struct, eq=False):
    """An object and its members; if a name occurs twice, the last value counts."""

    raw: bytes
    members: Members
    _spans: Spans | None = None

    @classmethod
    def read(cls, raw: bytes) -> Self:
        """Read an object. Raises msgspec.DecodeError, UnicodeDecodeError or RecursionError for others."""
        try:
            return cls(raw, _decode_members(raw.removeprefix(BOM_UTF8)))
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            if b"\\u" not in raw:
                raise
        scanned = masked(raw)
        members = _decode_members(scanned.removeprefix(BOM_UTF8))
        spans = _spans_of(scanned, members)
        if spans is None:
            values: dict[str, object] = dict(loads(raw.removeprefix(BOM_UTF8)))
            return cls(raw, {name: dumps(value) for name, value in values.items()})
        return cls(raw, {name: raw[start:end] for name, (start, end) in spans.items()}, spans)

    @property
    def spans(self) -> Spans | None:
        """The offsets of the members; None where a name occurs twice, so that they are ambiguous."""
        if self._spans is None:
            self._spans = _spans_of(self.raw, self.members)
        return self._spans

    def changed(self, changes: Mapping[str, bytes | None]) -> "JSONObject":
        """Return the object with changed values, new members at the front, and without those set to None.

        Every other byte stays; but if a name occurs twice, the object is rewritten with each name once.
        """
        new = {name: value for name, value in changes.items() if name not in self.members}
        values = {**new, **self.members, **changes}.items()
        members = {name: value for name, value in values if value is not None}
        if self.spans is None:
            return JSONObject(object_of(members.items()), members)
        raw, opening = self.raw, self.raw.index(b"{") + 1
        position = raw.index(b'"') if self.spans else opening
        parts = [raw[:opening]]
        for name, value in new.items():
            if value is not None:
                parts += dumps(name), b":", value, b"," if self.spans else b""
        parts.append(raw[opening:position])
        is_first = True
        for name, (start, end) in self.spans.items():
            value = changes[name] if name in changes else raw[start:end]
            if value is not None:
                # The member that is first now loses the comma before it.
                begin = raw.index(b'"', position) if is_first else position
                parts += raw[begin:start], value
                is_first = False
            position = end
        parts.append(raw[position:])
        return JSONObject(b"".join(parts), members)


def element_slices(array: bytes | Raw | memoryview) -> list[bytes]:
    """The elements of an array as raw slices. Raises as :meth:`JSONObject.read` does."""
    try:
        return [*map(bytes, decode_elements(array))]
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        text = bytes(array)
        if b"\\u" not in text:
            raise
    scanned, slices, position = masked(text), list[bytes](), 1
    for element in map(bytes, decode_elements(scanned)):
        start = scanned.index(element, position)
        position = start + len(element)
        slices.append(text[start:position])
    return slices


def _spans_of(text: bytes, members: Members) -> Spans | None:
    spans = Spans()
    position = len(BOM_UTF8) if text.startswith(BOM_UTF8) else 0
    for name, value in members.items():
        found = _MEMBER_NAME.match(text, position)
        if found is None or loads(found[1]) != name:
            return None
        position = found.end() + memoryview(value).nbytes
        spans[name] = (found.end(), position)
    # If a name occurs twice, more than the closing brace is left here.
    return spans if text[position:].strip() == b"}" else None


def masked(text: bytes) -> bytes:
    """Replace each surrogate escape, which msgspec may refuse, with another escape of the same length."""
    if b"\\u" not in text:
        return text
    return _ESCAPE.sub(lambda match: b"\\ufffd" if len(match[0]) > 2 else match[0], text)

"""JSON as upstreams really write it, opened one level at a time.

Values stay raw slices, so that what we keep of them is what was written: long numbers, escapes, white space.
msgspec reads nearly all; it refuses lone surrogate escapes, which occur where a stream is cut between the two
halves of an emoji, and names that are no UTF-8. For these the standard library reads the level and writes it
again in ASCII. Nothing here raises: what cannot be read is None.
"""

from __future__ import annotations

import json
import re
from typing import NoReturn, cast

import msgspec
from msgspec import Raw

UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
"""What a decoder raises for JSON that it cannot read."""

_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ELEMENTS = msgspec.json.Decoder(list[Raw])
_STRING = msgspec.json.Decoder(str)
_INTEGER = msgspec.json.Decoder(int)


def members(raw: bytes | Raw) -> dict[str, Raw] | None:
    """The members of a JSON object."""
    try:
        return _MEMBERS.decode(raw)
    except msgspec.ValidationError:  # it is another kind of value
        return None
    except UNREADABLE:
        value = _loaded(raw)
    if not isinstance(value, dict):
        return None
    pairs = [(name, _dumped(member)) for name, member in cast("dict[str, object]", value).items()]
    return {name: member for name, member in pairs if member is not None}


def elements(raw: bytes | Raw) -> list[Raw] | None:
    """The elements of a JSON array."""
    try:
        return _ELEMENTS.decode(raw)
    except msgspec.ValidationError:
        return None
    except UNREADABLE:
        value = _loaded(raw)
    if not isinstance(value, list):
        return None
    return [element for element in map(_dumped, cast("list[object]", value)) if element is not None]


def string(raw: bytes | Raw | None) -> str | None:
    """The text of a JSON string, where it is one that UTF-8 can write."""
    if raw is None:
        return None
    try:
        return _STRING.decode(raw)
    except msgspec.ValidationError:
        return None
    except UNREADABLE:
        value = _loaded(raw)
    return value if isinstance(value, str) and not _SURROGATE.search(value) else None


def integer(raw: bytes | Raw | None) -> int | None:
    """The value of a JSON number that is whole, 12.0 included."""
    if raw is None:
        return None
    try:
        return _INTEGER.decode(raw)
    except UNREADABLE:
        value = _loaded(raw)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def well_formed(text: bytes) -> bytes:
    """The same text in valid UTF-8, other bytes replaced by U+FFFD. Cutting a raw slice checks none."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return text.decode("utf-8", "replace").encode()
    return text


def _loaded(raw: bytes | Raw) -> object:
    try:
        return json.loads(bytes(raw).decode("utf-8", "replace"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _dumped(value: object) -> Raw | None:
    try:
        return Raw(json.dumps(value, allow_nan=False, separators=(",", ":")).encode())
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")

"""Reads JSON without loss, and writes the same bytes for the same value.

The API accepts what strict parsers refuse (lone surrogate escapes, numbers of any length), and so does this
module. A number that no Python number holds exactly stays text.

A lone surrogate is not a character and cannot be encoded in UTF-8, so it cannot be in a record, search or
summary. Texts for those are therefore read with `writable`; values that are only compared or forwarded stay
exact.

JSON from upstreams is opened one level at a time (`members`, `elements`): values stay raw slices, so long
numbers, escapes and white space are kept as written. msgspec reads nearly all of it; it refuses lone
surrogate escapes, which occur where a stream is split between the two halves of an emoji, and names that are
not UTF-8. In these cases the standard library reads the level and rewrites it in ASCII. None of these
functions raises: what cannot be read is None.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, cast

import msgspec
from msgspec import Raw

_decode = msgspec.json.Decoder().decode
_64_BITS = 18
"""Number of digits that always fit into 64 bits, the largest integers that the encoder writes."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)


def loads(raw: bytes | str) -> Any:
    """Decode JSON. Raises ValueError where it is not JSON, or nested too deeply to be read."""
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        pass
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    try:
        return json.loads(
            raw,
            parse_int=lambda digits: int(digits) if len(digits) <= _64_BITS else Raw(digits.encode()),
            parse_float=lambda text: value if math.isfinite(value := float(text)) else Raw(text.encode()),
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def writable(raw: bytes) -> bytes:
    """Replace each lone surrogate escape in JSON with U+FFFD."""
    if b"\\u" not in raw or not _SURROGATE.search(raw):
        return raw
    return _ESCAPE.sub(lambda escape: b"\\ufffd" if escape[1] else escape[0], raw)


def loads_writable(raw: bytes | str) -> Any:
    """Decode JSON with U+FFFD for each lone surrogate; raises ValueError as `loads` does."""
    return loads(writable(raw.encode(errors="replace") if isinstance(raw, str) else raw))


def dumps(value: object) -> bytes:
    """Encode as compact JSON, the same bytes for the same value; lone surrogates become escapes again."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=lambda raw: bytes(raw).decode()).encode()


def object_of(pairs: Iterable[tuple[str, bytes | Raw | memoryview]]) -> bytes:
    """Write a JSON object from members whose values are already JSON."""
    return b"{" + b",".join([json.dumps(name).encode() + b":" + bytes(value) for name, value in pairs]) + b"}"


def as_mapping(value: object) -> Mapping[str, Any]:
    """The value itself if it is a JSON object, else an empty one."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def text_or_empty(value: object) -> str:
    """The value itself if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


# --- JSON from upstreams, opened one level at a time ---


UNREADABLE = (msgspec.DecodeError, ValueError, RecursionError)
"""What a decoder raises for JSON that it cannot read."""

_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_MEMBERS = msgspec.json.Decoder(dict[str, Raw])
_ELEMENTS = msgspec.json.Decoder(list[Raw])
_STRING = msgspec.json.Decoder(str)
_INTEGER = msgspec.json.Decoder(int)


def members(raw: bytes | Raw) -> dict[str, Raw] | None:
    """The members of a JSON object; None where it is not one."""
    try:
        return _MEMBERS.decode(raw)
    except msgspec.ValidationError:  # another type of value
        return None
    except UNREADABLE:
        value = _loaded(raw)
    if not isinstance(value, dict):
        return None
    pairs = [(name, _dumped(member)) for name, member in cast("dict[str, object]", value).items()]
    return {name: member for name, member in pairs if member is not None}


def elements(raw: bytes | Raw) -> list[Raw] | None:
    """The elements of a JSON array; None where it is not one."""
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
    """The text of a JSON string; None where it is not one, or cannot be encoded in UTF-8."""
    if raw is None:
        return None
    try:
        return _STRING.decode(raw)
    except msgspec.ValidationError:
        return None
    except UNREADABLE:
        value = _loaded(raw)
    return value if isinstance(value, str) and not _LONE_SURROGATE.search(value) else None


def integer(raw: bytes | Raw | None) -> int | None:
    """The value of a whole JSON number, including 12.0; None where it is not one."""
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
    """Return text as valid UTF-8, with invalid bytes replaced by U+FFFD. Raw slices are unchecked."""
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

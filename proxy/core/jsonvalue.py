"""JSON values as a planner needs them: read with nothing lost, written the same way each time.

The API accepts what strict parsers refuse (lone surrogate escapes, numbers of any length); so do we. A number
that no Python number holds exactly stays the text it was.
"""

import json
import math
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_64_BITS = 18
"""Digits that always fit into 64 bits, which is what the encoder writes as a number."""


def loads(raw: bytes | str) -> Any:
    """Decode JSON; raises ValueError where it is no JSON, or nested too deeply to be read."""
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        pass
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    try:
        return json.loads(raw, parse_int=_integer, parse_float=_float)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _integer(digits: str) -> int | msgspec.Raw:
    return int(digits) if len(digits) <= _64_BITS else msgspec.Raw(digits.encode())


def _float(text: str) -> float | msgspec.Raw:
    value = float(text)
    return value if math.isfinite(value) else msgspec.Raw(text.encode())


def dumps(value: object) -> bytes:
    """Encode as compact JSON, the same bytes for the same value; lone surrogates become escapes again."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=lambda raw: bytes(raw).decode()).encode()

"""JSON values as a planner needs them: read with nothing lost, written the same way each time.

The API accepts what strict parsers refuse (lone surrogate escapes, integers of any length); so do we.
"""

import json
from decimal import Decimal
from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode
_INTEGER_DIGITS = 4_000
"""CPython refuses to convert integers of more than 4,300 digits; a Decimal keeps them."""


def loads(raw: bytes | str) -> Any:
    """Decode JSON; integers past 64 bits keep every digit, a lone surrogate stays one in the string.

    Raises ValueError where it is no JSON, or nested too deeply to be read.
    """
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeError):
        pass
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    try:
        return json.loads(raw, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < _INTEGER_DIGITS else Decimal(digits)


def dumps(value: object) -> bytes:
    """Encode as compact JSON, the same bytes for the same value; lone surrogates become escapes again."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":"), default=str).encode()

"""The one codec of every stored record: a byte for the schema's version, then msgpack.

Members that a record gained since it was written take their defaults, and those it lost are skipped, so the
version changes only where a reader of the old schema would be wrong. Encryption belongs here, nowhere else.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from proxy.errors import StoreUnavailable

VERSION: Final = b"\x01"

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


class UnreadableRecord(StoreUnavailable):
    """What the store holds is not what we write: damaged, or of another version."""

    default_message = "A record of the store cannot be read."


def encode(record: object) -> bytes:
    """The record as it is stored."""
    return VERSION + _encoder.encode(record)


def decode(stored: bytes, kind: type[T]) -> T:
    """The record as it was. Raises UnreadableRecord."""
    if stored[:1] != VERSION:
        raise UnreadableRecord
    try:
        return _decoder(kind).decode(memoryview(stored)[1:])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UnreadableRecord from error


def is_readable(stored: bytes, kind: type[object]) -> bool:
    """Whether a record can be decoded."""
    try:
        decode(stored, kind)
    except UnreadableRecord:
        return False
    return True


def integer(stored: bytes) -> int:
    """A plain counter. Raises UnreadableRecord."""
    try:
        return int(stored)
    except ValueError as error:
        raise UnreadableRecord from error


def seconds(stored: bytes) -> float:
    """A plain time. Raises UnreadableRecord."""
    try:
        return float(stored)
    except ValueError as error:
        raise UnreadableRecord from error


def hashes(stored: bytes, length: int) -> tuple[bytes, ...]:
    """Hashes of ``length`` bytes that stand one after the other. Raises UnreadableRecord."""
    if len(stored) % length:
        raise UnreadableRecord
    return tuple(stored[start : start + length] for start in range(0, len(stored), length))


@cache
def _decoder(kind: type[T]) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)

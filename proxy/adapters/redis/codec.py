"""The one codec of every stored record: a byte for the schema's version, then msgpack.

Members that a record gained since it was written take their defaults, and those it lost are skipped, so the
version changes only where a reader of the old schema would be wrong. Where a keyring says so, the whole is
sealed (:mod:`proxy.adapters.redis.sealing`); what is sealed and what is plain may stand side by side.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final, TypeVar

import msgspec

from proxy.adapters.redis.sealing import SEALED, BrokenSealError, Keyring, UnknownSecret
from proxy.errors import StoreUnavailable
from proxy.ports import SessionKey

VERSION: Final = b"\x01"

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()


class UnreadableRecord(StoreUnavailable):
    """What the store holds is not what we write: damaged, or of another version."""

    default_message = "A record of the store cannot be read."


class Codec:
    """Encodes and decodes the records of one session; a record's `place` is where in it that stands."""

    def __init__(self, key: SessionKey, keyring: Keyring | None = None) -> None:
        self._session = f"{key.tag}/{key.sid}"
        self._keyring = keyring

    def encode(self, record: object, place: bytes) -> bytes:
        """The record as it is stored."""
        plain = VERSION + _encoder.encode(record)
        if self._keyring is None or not self._keyring.encrypts():
            return plain
        return self._keyring.seal(plain, self._session, place)

    def decode(self, stored: bytes, kind: type[T], place: bytes) -> T:
        """The record as it was. Raises UnreadableRecord, and UnknownSecret where it is sealed."""
        plain = self._opened(stored, place) if stored[:1] == SEALED else stored
        if plain[:1] != VERSION:
            raise UnreadableRecord
        try:
            return _decoder(kind).decode(memoryview(plain)[1:])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadableRecord from error

    def _opened(self, sealed: bytes, place: bytes) -> bytes:
        if self._keyring is None:
            raise UnknownSecret
        try:
            return self._keyring.open(sealed, self._session, place)
        except BrokenSealError as error:
            raise UnreadableRecord from error


# --- what the scripts merge: plain ---


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

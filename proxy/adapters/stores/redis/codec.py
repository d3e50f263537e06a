"""The codec of all stored records: one byte for the version of the schema, then msgpack.

Fields that a record type gained since a record was written take their defaults, and fields it lost are
skipped; so the version changes only if a reader of the old schema would go wrong. A record with an unknown
version was written by another release: it is neither read nor replaced. No version is 0, 255 or a printable
character, so that bytes that are no record at all can be recognised as such.

If the keyring says so, records are sealed, that is encrypted with AES-256-GCM, with keys derived from the
server's secrets (HKDF, RFC 5869); sealed and plain records may be mixed. A sealed record consists of
:data:`SEALED`, the id of its secret's key (4 bytes), a nonce (12 bytes), ciphertext and tag. Each session has
a key of its own, so that random nonces stay far below their bound (2^32 records under one key, NIST SP
800-38D clause 8.3). A record's place within the session is authenticated data: a record that was moved to
another place or session is as unreadable as a damaged one. Records are sealed with the newest secret, and
opened with the secret that they name.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from proxy.adapters.stores.redis import keys
from proxy.ports import SessionKey, UnreadableRecord
from proxy.telemetry import log_warning

# --- sealing ---


SEALED: Final = b"\xe1"
"""The first byte of a sealed record: 0xe0 plus the version byte of the plain record."""

_ID: Final = 4
_NONCE: Final = 12
_KEY: Final = 32
_HEADER: Final = len(SEALED) + _ID + _NONCE
_SESSIONS: Final = 1024
"""How many sessions' ciphers are cached."""


class ForeignRecord(UnreadableRecord):
    """A record that this server cannot read, but that seems undamaged: it is left as it is."""


class UnknownSecret(ForeignRecord):
    """A record is sealed with a secret that this server does not have."""

    default_message = "The store holds records that are encrypted with another UNABRIDGED_SECRET."
    reason = "unknown_secret"


class DamagedRecord(UnreadableRecord):
    """A stored value is not a record of any release, or was not written at this place."""


class Keyring:
    """Seals and opens records with `secrets`, newest first; `encrypts` returns whether writes are sealed."""

    def __init__(self, secrets: Sequence[str], encrypts: Callable[[], bool]) -> None:
        self._keys = {
            _derived(secret, b"unabridged store id 1", _ID): _derived(secret, b"unabridged store 1", _KEY)
            for secret in secrets
        }
        self._newest = next(iter(self._keys))

        @lru_cache(_SESSIONS)
        def cipher(key: bytes, session: SessionKey) -> AESGCM:
            return AESGCM(hmac.digest(self._keys[key], keys.listed(session).encode(), "sha256"))

        self._cipher = cipher
        self._has_warned = False
        self.encrypts = encrypts

    @property
    def ids(self) -> tuple[bytes, ...]:
        """The ids of the secrets, newest first; they reveal nothing about the secrets."""
        return tuple(self._keys)

    def seal(self, record: bytes, session: SessionKey, place: bytes) -> bytes:
        """Return the record encrypted with the newest secret."""
        nonce = os.urandom(_NONCE)
        sealed = self._cipher(self._newest, session).encrypt(nonce, record, place)
        return b"".join((SEALED, self._newest, nonce, sealed))

    def open(self, sealed: bytes, session: SessionKey, place: bytes) -> bytes:
        """Return the decrypted record. Raises UnknownSecret and DamagedRecord."""
        if len(sealed) < _HEADER:
            raise DamagedRecord
        key, nonce = sealed[1 : 1 + _ID], sealed[1 + _ID : _HEADER]
        if key not in self._keys:
            if not self._has_warned:
                self._has_warned = True
                log_warning(
                    "the store holds records that are encrypted with another secret; they stay as they are"
                )
            raise UnknownSecret
        try:
            return self._cipher(key, session).decrypt(nonce, memoryview(sealed)[_HEADER:], place)
        except InvalidTag as error:
            raise DamagedRecord from error


def _derived(secret: str, purpose: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt=None, info=purpose).derive(secret.encode())


# --- records to bytes, and back ---


VERSION: Final = b"\x01"
LINK: Final = b"\x1e"
"""The version of a node that is a link: it has a digest instead of its bytes, which another node holds."""

T = TypeVar("T")
N = TypeVar("N", int, float)

_encoder = msgspec.msgpack.Encoder()
_decoder_of: Callable[[type], msgspec.msgpack.Decoder[Any]] = cache(msgspec.msgpack.Decoder)


def digest(raw: bytes) -> bytes:
    """Return the digest that identifies the bytes of a message within its session."""
    return hashlib.sha256(raw).digest()[: keys.DIGEST]


class UnknownVersion(ForeignRecord):
    """A record was written by a newer release."""

    default_message = "The store holds records that a newer release of the proxy has written."
    reason = "newer_release"


def beginnings(keyring: Keyring | None) -> tuple[bytes, ...]:
    """Return the first bytes of the records that can be read here, and therefore may be replaced."""
    return (VERSION, LINK, *(SEALED + known for known in keyring.ids)) if keyring else (VERSION, LINK)


@dataclass
class Codec:
    """Encodes and decodes the records of one session. A record's `place` identifies it within the session."""

    key: SessionKey
    keyring: Keyring | None
    warn_of_newer: Callable[[SessionKey], None] = lambda _: None
    """Called for a record that was written by a newer release."""

    def encode(self, record: object, place: bytes, version: bytes = VERSION) -> bytes:
        plain = version + _encoder.encode(record)
        if self.keyring is None or not self.keyring.encrypts():
            return plain
        return self.keyring.seal(plain, self.key, place)

    def decode(self, stored: bytes, kind: type[T], place: bytes) -> T:
        """Return a stored record. Raises DamagedRecord, UnknownVersion and (sealed records) UnknownSecret."""
        return self.decode_any(stored, kind, place, (VERSION,))[0]

    def decode_any(
        self, stored: bytes, kind: type[T], place: bytes, versions: Sequence[bytes]
    ) -> tuple[T, bytes]:
        """Return a stored record that has one of these versions, and its version. Raises as `decode` does."""
        plain = stored
        if stored[:1] == SEALED:
            if self.keyring is None:
                raise UnknownSecret
            plain = self.keyring.open(stored, self.key, place)
        if plain[:1] not in versions:
            fault = _fault(plain)
            if isinstance(fault, UnknownVersion):
                self.warn_of_newer(self.key)
            raise fault
        try:
            return _decoder_of(kind).decode(memoryview(plain)[1:]), plain[:1]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedRecord from error


# --- plain values, which the scripts merge ---


def number(kind: type[N], stored: bytes) -> N:
    """Parse a plain counter or time. Raises DamagedRecord and UnknownVersion."""
    try:
        return kind(stored)
    except ValueError as error:
        raise _fault(stored) from error


def hashes(stored: bytes, length: int) -> tuple[bytes, ...]:
    """Split concatenated hashes of ``length`` bytes each. Raises DamagedRecord and UnknownVersion."""
    if len(stored) % length:
        raise _fault(stored)
    return tuple(stored[start : start + length] for start in range(0, len(stored), length))


SCORE: Final = "s"
"""The letter of an event that changed only a score."""
_OTHER: Final = "e"
"""The letter of all other events."""
_ROW: Final = struct.Struct(">cI")


def row(record: bytes, *, is_score: bool) -> bytes:
    """Return an event's record as it is stored in a log: letter, length, record."""
    return _ROW.pack((SCORE if is_score else _OTHER).encode(), len(record)) + record


def rows(log: bytes) -> Iterator[tuple[bool, bytes]]:
    """Iterate over the records of a log, oldest first, each after whether it changed only a score."""
    start = 0
    while start + _ROW.size <= len(log):
        letter, size = _ROW.unpack_from(log, start)
        start += _ROW.size + size
        if start > len(log):
            return  # the log is damaged from here on
        yield letter == SCORE.encode(), log[start - size : start]


def _fault(stored: bytes) -> DamagedRecord | UnknownVersion:
    """Return the error for a value that cannot be read."""
    first = stored[:1].decode("latin-1")
    is_none = first in {"", "\0", "\xff"} or (first.isascii() and first.isprintable())
    return DamagedRecord() if is_none else UnknownVersion()

"""The one codec of every stored record: a byte for the schema's version, then msgpack.

Members that a record gained since it was written take their defaults, and those it lost are skipped, so
the version changes only where a reader of the old schema would be wrong. What begins with a version that
is not known here another release wrote: it is neither read nor replaced. No version is 0, 255 or a
printable character, so what is no record at all can be told from that.

Where a keyring says so, the whole is sealed: AES-256-GCM, with keys that are derived from the server's
secrets (HKDF, RFC 5869); sealed and plain records may stand side by side. A sealed one is
:data:`SEALED`, the id of its secret's key (4 bytes), a nonce (12 bytes), then ciphertext and tag. Each
session has a key of its own, so that random nonces stay far from their bound (2^32 records under one
key, NIST SP 800-38D clause 8.3), and a record's place within the session is authenticated with it: one
that was moved to another place, or into another session, is as unreadable as a damaged one. What is
written is sealed with the newest secret; what is read is opened with the secret that it names.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
from collections.abc import Callable, Iterator, Sequence
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
"""The first byte of a sealed record: the version of its schema with which a plain one begins, and 0xe0."""

_ID: Final = 4
_NONCE: Final = 12
_KEY: Final = 32
_HEADER: Final = len(SEALED) + _ID + _NONCE
_SESSIONS: Final = 1024
"""Sessions whose ciphers are kept ready."""


class ForeignRecord(UnreadableRecord):
    """A record is not for this server to read. It is whole as far as anybody can tell, and stays as it is."""


class UnknownSecret(ForeignRecord):
    """It is sealed with a secret that this server was not given."""

    default_message = "The store holds records that are encrypted with another UNABRIDGED_SECRET."
    reason = "unknown_secret"


class DamagedRecord(UnreadableRecord):
    """What the store holds is not what anybody writes, or stands where it was not written."""


class Keyring:
    """Seals and opens. `secrets` are the server's, newest first; `encrypts` whether writes are sealed."""

    def __init__(self, secrets: Sequence[str], encrypts: Callable[[], bool]) -> None:
        self._keys = {
            _derived(secret, b"unabridged store id 1", _ID): _derived(secret, b"unabridged store 1", _KEY)
            for secret in secrets
        }
        self._newest = next(iter(self._keys))

        @lru_cache(_SESSIONS)
        def cipher(key: bytes, session: str) -> AESGCM:
            return AESGCM(hmac.digest(self._keys[key], session.encode(), "sha256"))

        self._cipher = cipher
        self._has_warned = False
        self.encrypts = encrypts

    @property
    def ids(self) -> tuple[bytes, ...]:
        """The ids of the secrets, newest first; they tell nothing else."""
        return tuple(self._keys)

    def seal(self, record: bytes, session: str, place: bytes) -> bytes:
        """The record, unreadable without the newest secret."""
        nonce = os.urandom(_NONCE)
        sealed = self._cipher(self._newest, session).encrypt(nonce, record, place)
        return b"".join((SEALED, self._newest, nonce, sealed))

    def open(self, sealed: bytes, session: str, place: bytes) -> bytes:
        """The record as it was. Raises UnknownSecret, DamagedRecord."""
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
"""The version of a node with a digest in the place of its bytes, which another node of the session holds."""

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_decoder_of: Callable[[type], msgspec.msgpack.Decoder[Any]] = cache(msgspec.msgpack.Decoder)


def digest(raw: bytes) -> bytes:
    """What names the bytes of a message within its session."""
    return hashlib.sha256(raw).digest()[: keys.DIGEST]


class UnknownVersion(ForeignRecord):
    """It was written by a release that knows more than this one."""

    default_message = "The store holds records that a newer release of the proxy has written."
    reason = "newer_release"


def beginnings(keyring: Keyring | None) -> tuple[bytes, ...]:
    """With what the records begin that can be read here, and so may be replaced."""
    return (VERSION, LINK, *(SEALED + known for known in keyring.ids)) if keyring else (VERSION, LINK)


class Codec:
    """Encodes and decodes the records of one session; a record's `place` is where in it that stands.

    `warn_of_newer` is called where one was written by another release.
    """

    def __init__(
        self,
        key: SessionKey,
        keyring: Keyring | None = None,
        warn_of_newer: Callable[[SessionKey], None] = lambda _: None,
    ) -> None:
        self._session = f"{key.tag}/{key.sid}"
        self._keyring = keyring
        self._key = key
        self._warn_of_newer = warn_of_newer

    def encode(self, record: object, place: bytes, version: bytes = VERSION) -> bytes:
        """The record as it is stored."""
        plain = version + _encoder.encode(record)
        if self._keyring is None or not self._keyring.encrypts():
            return plain
        return self._keyring.seal(plain, self._session, place)

    def decode(self, stored: bytes, kind: type[T], place: bytes) -> T:
        """The record as it was. Raises DamagedRecord and UnknownVersion, where it is sealed UnknownSecret."""
        return self.decode_any(stored, kind, place, (VERSION,))[0]

    def decode_any(
        self, stored: bytes, kind: type[T], place: bytes, versions: Sequence[bytes]
    ) -> tuple[T, bytes]:
        """The same where it is of one of these versions, and of which."""
        plain = stored
        if stored[:1] == SEALED:
            if self._keyring is None:
                raise UnknownSecret
            plain = self._keyring.open(stored, self._session, place)
        if plain[:1] not in versions:
            fault = _fault(plain)
            if isinstance(fault, UnknownVersion):
                self._warn_of_newer(self._key)
            raise fault
        try:
            return _decoder_of(kind).decode(memoryview(plain)[1:]), plain[:1]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise DamagedRecord from error


# --- what the scripts merge: plain ---


def integer(stored: bytes) -> int:
    """A plain counter. Raises DamagedRecord, UnknownVersion."""
    try:
        return int(stored)
    except ValueError as error:
        raise _fault(stored) from error


def seconds(stored: bytes) -> float:
    """A plain time. Raises DamagedRecord, UnknownVersion."""
    try:
        return float(stored)
    except ValueError as error:
        raise _fault(stored) from error


def hashes(stored: bytes, length: int) -> tuple[bytes, ...]:
    """Hashes of ``length`` bytes that stand one after the other. Raises DamagedRecord, UnknownVersion."""
    if len(stored) % length:
        raise _fault(stored)
    return tuple(stored[start : start + length] for start in range(0, len(stored), length))


SCORE: Final = "s"
"""The letter of an event that changed a score alone,"""
_OTHER: Final = "e"
"""and that of others."""
_ROW: Final = struct.Struct(">cI")


def row(record: bytes, *, is_score: bool) -> bytes:
    """An event's record as it stands in a log."""
    return _ROW.pack((SCORE if is_score else _OTHER).encode(), len(record)) + record


def rows(log: bytes) -> Iterator[tuple[bool, bytes]]:
    """The records of a log, oldest first, and whether each changed a score alone."""
    start = 0
    while start + _ROW.size <= len(log):
        letter, size = _ROW.unpack_from(log, start)
        start += _ROW.size + size
        if start > len(log):
            return  # it is damaged from here on
        yield letter == SCORE.encode(), log[start - size : start]


def _fault(stored: bytes) -> DamagedRecord | UnknownVersion:
    """Why a value that is not ours cannot be read."""
    first = stored[:1].decode("latin-1")
    is_none = first in {"", "\0", "\xff"} or (first.isascii() and first.isprintable())
    return DamagedRecord() if is_none else UnknownVersion()

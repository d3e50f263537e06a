"""Encryption at rest: AES-256-GCM, with keys that are derived from the server's secrets (HKDF, RFC 5869).

A sealed record is :data:`SEALED`, the id of its secret's key (4 bytes), a nonce (12 bytes), then ciphertext
and tag. Each session has a key of its own, so that random nonces stay far from their bound (2^32 records
under one key, NIST SP 800-38D clause 8.3), and a record's place within the session is authenticated with it:
one that was moved to another place, or into another session, is as unreadable as a damaged one.

What is written is sealed with the newest secret; what is read is opened with the secret that it names.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from proxy.errors import StoreUnavailable
from proxy.telemetry import log_warning

SEALED: Final = b"\xe1"
"""The first byte of a sealed record; a plain one begins with the version of its schema."""

_ID: Final = 4
_NONCE: Final = 12
_KEY: Final = 32
_HEADER: Final = len(SEALED) + _ID + _NONCE
_SESSIONS: Final = 1024
"""Sessions whose ciphers are kept ready."""


class UnknownSecret(StoreUnavailable):
    """A record is sealed with a secret that this server was not given. It is whole, and stays as it is."""

    default_message = "The store holds records that are encrypted with another UNABRIDGED_SECRET."


class BrokenSealError(Exception):
    """A sealed record is damaged, or stands where it was not written."""


class Keyring:
    """Seals and opens. `secrets` are the server's, newest first; `encrypts` whether writes are sealed."""

    def __init__(self, secrets: Sequence[str], encrypts: Callable[[], bool]) -> None:
        self._keys = {
            _derived(secret, b"unabridged store id 1", _ID): _derived(secret, b"unabridged store 1", _KEY)
            for secret in secrets
        }
        self._newest = next(iter(self._keys))
        self._cipher = lru_cache(_SESSIONS)(self._new_cipher)
        self._has_told = False
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
        """The record as it was. Raises UnknownSecret, BrokenSealError."""
        if len(sealed) < _HEADER:
            raise BrokenSealError
        key, nonce = sealed[1 : 1 + _ID], sealed[1 + _ID : _HEADER]
        if key not in self._keys:
            self._tell()
            raise UnknownSecret
        try:
            return self._cipher(key, session).decrypt(nonce, memoryview(sealed)[_HEADER:], place)
        except InvalidTag as error:
            raise BrokenSealError from error

    def _new_cipher(self, key: bytes, session: str) -> AESGCM:
        return AESGCM(hmac.digest(self._keys[key], session.encode(), "sha256"))

    def _tell(self) -> None:
        if not self._has_told:
            self._has_told = True
            log_warning(
                "the store holds records that are encrypted with another secret; they stay as they are"
            )


def _derived(secret: str, purpose: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt=None, info=purpose).derive(secret.encode())

"""Bytes without their Content-Encoding, as they arrive and under a cap (RFC 9110 8.4.1).

Requests come as their senders like. We ask for plain answers; what an upstream compresses nevertheless is
passed on as it came, and read here.
"""

from __future__ import annotations

import zlib

_WBITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
CODINGS = frozenset(_WBITS)
"""Those that can be unpacked."""


class UnpackingError(Exception):
    """The bytes are not what they are named, or unpack to more than the cap."""


class UnpackedTooLargeError(UnpackingError):
    """They unpack to more than the cap."""


class Unpacker:
    """One of `CODINGS`, of at most `limit` bytes unpacked.

    `deflate` is zlib's (RFC 9110 8.4.1.2); ``is_bare`` is for senders that leave out its frame.
    """

    def __init__(self, coding: bytes, limit: int, *, is_bare: bool = False) -> None:
        self._wbits = -_WBITS[coding] if is_bare else _WBITS[coding]
        self._room = limit
        self._stream = zlib.decompressobj(self._wbits)

    @property
    def is_whole(self) -> bool:
        """Whether what came so far ends where a member does."""
        return self._stream.eof

    def feed(self, chunk: bytes) -> bytes:
        """What these bytes add (raises UnpackingError)."""
        parts: list[bytes] = []
        while chunk:
            if self._stream.eof:  # a gzip file may have several members (RFC 1952 2.2)
                self._stream = zlib.decompressobj(self._wbits)
            try:
                part = self._stream.decompress(chunk, self._room + 1)
            except zlib.error as error:
                raise UnpackingError from error
            self._room -= len(part)
            if self._room < 0:
                raise UnpackedTooLargeError
            parts.append(part)
            chunk = self._stream.unused_data
        return b"".join(parts)

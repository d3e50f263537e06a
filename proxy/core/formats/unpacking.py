"""An answer's bytes without their Content-Encoding, as they arrive and under a cap (RFC 9110 8.4.1).

We ask for plain answers. What an upstream compresses nevertheless is passed on as it came, and read here.
"""

from __future__ import annotations

import zlib

_WBITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
CODINGS = frozenset(_WBITS)
"""Those that can be unpacked."""


class UnpackingError(Exception):
    """The bytes are not what they are named, or unpack to more than the cap."""


class Unpacker:
    """One of `CODINGS`, of at most `limit` bytes unpacked."""

    def __init__(self, coding: bytes, limit: int) -> None:
        self._wbits = _WBITS[coding]
        self._room = limit
        self._stream = zlib.decompressobj(self._wbits)

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
                raise UnpackingError
            parts.append(part)
            chunk = self._stream.unused_data
        return b"".join(parts)

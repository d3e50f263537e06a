"""Removes a Content-Encoding from bytes as they arrive, up to a size limit (RFC 9110 8.4.1).

Clients may compress requests. The proxy asks upstreams for uncompressed answers; one that is compressed
nevertheless is forwarded unchanged, and unpacked here to be read.
"""

from __future__ import annotations

import zlib

_WBITS = {b"gzip": 31, b"x-gzip": 31, b"deflate": 15}
CODINGS = frozenset(_WBITS)
"""Content codings that can be unpacked."""


class UnpackingError(Exception):
    """The bytes are not in the named coding, or unpack to more than the limit."""


class UnpackedTooLargeError(UnpackingError):
    """The bytes unpack to more than the limit."""


class Unpacker:
    """Unpacks one of `CODINGS` to at most `limit` bytes.

    `deflate` has zlib's format (RFC 9110 8.4.1.2); ``is_bare`` is for senders that omit zlib's framing.
    """

    def __init__(self, coding: bytes, limit: int, *, is_bare: bool = False) -> None:
        self._wbits = -_WBITS[coding] if is_bare else _WBITS[coding]
        self._room = limit
        self._stream = zlib.decompressobj(self._wbits)

    @property
    def is_whole(self) -> bool:
        """Whether the bytes so far end at the end of a compressed member."""
        return self._stream.eof

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes, and return what they unpack to. Raises UnpackingError."""
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

"""What a request's head may look like, once it is whole (RFC 9112), and how long what is not whole may take.

llhttp refuses what two parsers could frame in two ways: a bare LF, folded lines, two lengths, a length beside
chunks, blanks before a colon. This is what it lets pass, and the bounds. A head that is still arriving is
bounded by the protocol.
"""

from __future__ import annotations

import re

from proxy.errors import HeadersTooLarge, InvalidPath, RequestError, URITooLong
from proxy.http.headers import Header

MAX_URI = 16 * 1024
"""Bytes of a request target."""
MAX_HEADERS = 200
MAX_HEADER_BYTES = 64 * 1024
"""Bytes of all header lines together."""

_BESIDES = 3
"""Bytes of a header line besides name, value and its last: a colon, a blank, a carriage return."""
_ABSOLUTE = re.compile(rb"https?://[^/?@]+/", re.IGNORECASE)  # RFC 9112 3.2.2, without user information
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[\w.~%!$&'()*+;=-]+)(?::[0-9]*)?")  # RFC 3986 3.2.2


def check_head(version: str, target: bytes, headers: list[Header]) -> None:
    """Refuse a head that is too large or that could be read in two ways; names are in lower case.

    White space after a value is no part of it (RFC 9112 5.1) and is taken off here. Raises URITooLong,
    HeadersTooLarge, InvalidPath and RequestError.
    """
    if version not in {"1.1", "1.0"}:
        raise RequestError("Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    if len(target) > MAX_URI:
        raise URITooLong
    # A path, or a whole URI (RFC 9112 3.2). `*` and a bare authority ask for what is not done here.
    if b"#" in target or not (target.startswith(b"/") or _ABSOLUTE.match(target)):
        raise InvalidPath
    names = [name for name, _ in headers]
    values = b"\n".join([value for _, value in headers]) + b"\n"  # no value has a line end of its own
    size = len(b"".join(names)) + len(values) + _BESIDES * len(headers)
    if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        raise HeadersTooLarge
    if b" \n" in values or b"\t\n" in values:
        headers[:] = [(name, value.rstrip(b" \t")) for name, value in headers]
    hosts = names.count(b"host")  # exactly one (RFC 9112 3.2); HTTP/1.0 did without
    if hosts > 1 or (not hosts and version != "1.0"):
        raise RequestError("There is no Host header, or more than one.")
    if hosts and not _HOST.fullmatch(headers[names.index(b"host")][1]):
        raise RequestError("The Host header does not name a host.")
    if b"transfer-encoding" in names:
        # A body comes in chunks or with its length (RFC 9112 6.1); llhttp refuses a second such header.
        coding = headers[names.index(b"transfer-encoding")][1]
        if version == "1.0" or coding.lower() != b"chunked":
            raise RequestError("The only Transfer-Encoding that is read is chunked, in HTTP/1.1.")


# --- how long an incomplete request may take ---


SLOWEST = 100
"""Bytes a second of a body, below which its sender holds a connection and uploads nothing."""


class Pace:
    """That of one head, or of one body: when its sender counts as gone. All times are in seconds.

    A head has `timeout` from its first byte to its end. A body may take as long as it likes while it makes
    progress: no silence of `timeout`, and `SLOWEST` bytes a second in each span of that length. While we are
    the ones who do not read, no time passes.
    """

    def __init__(self, timeout: float, *, body: bool) -> None:
        self._timeout = timeout
        self._is_body = body
        self._since = 0.0
        """When this head, or the span of a body that is looked at, began; 0 before its first byte."""
        self._heard = 0.0
        self._came = 0
        """Bytes of the span."""
        self._was_held_back = False
        """Whether we did not read at some time of the span."""

    def heard(self, now: float, size: int, *, held_back: bool) -> None:
        """Bytes have come; `held_back` says that no more will be read for now."""
        self._since = self._since or now
        self._heard = now
        self._came += size
        self._was_held_back = self._was_held_back or held_back

    def is_late(self, now: float, *, held_back: bool) -> bool:
        """Whether time is up; asked at `due`. Begins the next span where it is not."""
        if held_back or self._was_held_back:
            self._since = self._heard = now
            self._came, self._was_held_back = 0, held_back
            return False
        if not self._is_body:
            return now - self._since >= self._timeout
        if now - self._since >= self._timeout:
            if self._came < SLOWEST * self._timeout:
                return True
            self._since, self._came = now, 0
        return now - self._heard >= self._timeout

    @property
    def due(self) -> float:
        """When to ask next."""
        return (min(self._since, self._heard) if self._is_body else self._since) + self._timeout

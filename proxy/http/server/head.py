"""What a request's head may look like, once it is whole (RFC 9112).

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
    _check_target(target)
    if len(headers) > MAX_HEADERS:
        raise HeadersTooLarge
    names = [name for name, _ in headers]
    values = b"\n".join([value for _, value in headers]) + b"\n"  # no value has a line end of its own
    if len(b"".join(names)) + len(values) + _BESIDES * len(headers) > MAX_HEADER_BYTES:
        raise HeadersTooLarge
    if b" \n" in values or b"\t\n" in values:
        headers[:] = [(name, value.rstrip(b" \t")) for name, value in headers]
    _check_host(version, names, headers)
    if b"transfer-encoding" in names:
        _check_coding(version, headers[names.index(b"transfer-encoding")][1])


def _check_target(target: bytes) -> None:
    """A path, or a whole URI (RFC 9112 3.2). `*` and a bare authority ask for what is not done here."""
    if len(target) > MAX_URI:
        raise URITooLong
    if b"#" in target or not (target.startswith(b"/") or _ABSOLUTE.match(target)):
        raise InvalidPath


def _check_host(version: str, names: list[bytes], headers: list[Header]) -> None:
    """Exactly one (RFC 9112 3.2); HTTP/1.0 did without."""
    found = names.count(b"host")
    if not found and version == "1.0":
        return
    if found != 1:
        raise RequestError("There is no Host header, or more than one.")
    if not _HOST.fullmatch(headers[names.index(b"host")][1]):
        raise RequestError("The Host header does not name a host.")


def _check_coding(version: str, coding: bytes) -> None:
    """A body comes in chunks or with its length (RFC 9112 6.1); llhttp refuses a second such header."""
    if version == "1.0" or coding.lower() != b"chunked":
        raise RequestError("The only Transfer-Encoding that is read is chunked, in HTTP/1.1.")

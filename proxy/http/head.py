"""What a request's head may look like, once it is whole (FAULTS, malformed 17 to 19; RFC 9112).

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

_LINE = 4
"""Bytes of a header line besides name and value: a colon, a blank, a line end."""
_BLANKS = frozenset({b" ", b"\t"})
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
    size = 0
    hosts: list[bytes] = []
    for place, (name, value) in enumerate(headers):
        size += len(name) + len(value) + _LINE
        if value[-1:] in _BLANKS:
            value = value.rstrip(b" \t")  # noqa: PLW2901 - as it is meant
            headers[place] = (name, value)
        if name == b"host":
            hosts.append(value)
        elif name == b"transfer-encoding" and (version == "1.0" or value.lower() != b"chunked"):
            raise RequestError("The only Transfer-Encoding that is read is chunked, in HTTP/1.1.")
    if size > MAX_HEADER_BYTES:
        raise HeadersTooLarge
    _check_host(version, hosts)


def _check_target(target: bytes) -> None:
    """A path, or a whole URI (RFC 9112 3.2). `*` and a bare authority ask for what is not done here."""
    if len(target) > MAX_URI:
        raise URITooLong
    if b"#" in target or not (target.startswith(b"/") or _ABSOLUTE.match(target)):
        raise InvalidPath


def _check_host(version: str, hosts: list[bytes]) -> None:
    """Exactly one (RFC 9112 3.2); HTTP/1.0 did without."""
    if not hosts and version == "1.0":
        return
    if len(hosts) != 1:
        raise RequestError("There is no Host header, or more than one.")
    if not _HOST.fullmatch(hosts[0]):
        raise RequestError("The Host header does not name a host.")

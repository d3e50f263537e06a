"""What every client of the upstream does alike: its URL, how a body is framed, what can be passed on."""

import re
from collections.abc import AsyncIterator, Sequence

import httpx2

from proxy.errors import SettingsError

CONNECTIONS = 10_000
"""At most so many connections; a request beyond is refused at once, never queued.

A last guard: how many requests there are at a time, `limits.streams` of a policy says.
"""

KEEPALIVE = 60.0
"""Seconds after which an idle connection is not used again; load balancers drop them after about as long."""

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What parsers let pass in a header's value and no server may send on (RFC 9110 5.5)."""
_FRAMING = frozenset({b"host", b"content-length", b"transfer-encoding"})

Header = tuple[bytes, bytes]


def checked_url(base_url: str) -> httpx2.URL:
    """The upstream's URL. Raises SettingsError for one that cannot be an upstream's."""
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise SettingsError("The upstream's URL is not valid.") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise SettingsError("The upstream's URL must begin with http:// or https:// and name a host.")
    if url.userinfo or url.query or url.fragment:
        raise SettingsError("The upstream's URL must have no user, query or fragment.")
    return url


def framed(headers: Sequence[Header], body: bytes | AsyncIterator[bytes] | None) -> list[Header]:
    """The headers with the length that the body really has; a stream keeps the length that it announced."""
    kept = [header for header in headers if header[0].lower() not in _FRAMING]
    if isinstance(body, bytes):
        kept.append((b"content-length", b"%d" % len(body)))
        return kept
    announced = next((value for name, value in headers if name.lower() == b"content-length"), None)
    if body is not None:
        kept.append(
            (b"transfer-encoding", b"chunked") if announced is None else (b"content-length", announced)
        )
    elif announced is not None:
        kept.append((b"content-length", b"0"))
    return kept


def is_presentable(status: int, headers: Sequence[Header]) -> bool:
    """Whether a server can send this on: a final status (RFC 9110 15) and clean header values."""
    values = b"\t".join([value for _, value in headers])  # a tab may stand in a value
    return 200 <= status < 600 and not _CONTROL.search(values)

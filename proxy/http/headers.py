"""Which headers cross the proxy, in each direction (RFC 9110 7.6.1, RFC 9112 6).

Headers are pairs of raw bytes in their order, repetitions included. What concerns one connection stays on it;
besides, only `X-Unabridged-*` is ours to take. Everything else passes as it was written.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from proxy.errors import InvalidHeader

Header = tuple[bytes, bytes]

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
OURS = b"x-unabridged-"


def values(headers: Sequence[Header], name: bytes) -> list[bytes]:
    """Every value of a header, in order; `name` is in lower case."""
    return [value for key, value in headers if key.lower() == name]


def value(headers: Sequence[Header], name: bytes) -> bytes | None:
    """The first value of a header, None where it is absent; `name` is in lower case."""
    for key, found in headers:
        if key.lower() == name:
            return found
    return None


def content_length(headers: Sequence[Header]) -> int | None:
    """The announced size of the body in bytes; None where none is announced (raises InvalidHeader)."""
    announced = value(headers, b"content-length")
    if announced is None:
        return None
    if not announced.isdigit() or len(announced) > 19:
        raise InvalidHeader("Content-Length is not a number.")
    return int(announced)


def announces_body(headers: Sequence[Header]) -> bool:
    """Whether a request with these headers has a body (RFC 9112 6.3)."""
    length = value(headers, b"content-length") or b"0"
    return length.strip(b"0") != b"" or value(headers, b"transfer-encoding") is not None


def check_credentials(headers: Sequence[Header]) -> None:
    """Refuse two credentials in one request: who is to say which of them counts (raises InvalidHeader)."""
    if len(values(headers, b"authorization")) > 1:
        raise InvalidHeader("There is more than one Authorization header.")


def to_upstream(
    headers: Sequence[Header], *, accept_encoding: bytes | None = None, without: Collection[bytes] = ()
) -> list[Header]:
    """The headers of a request for the upstream; `Host` is left to whoever knows the upstream's name.

    `accept_encoding` replaces the client's own (`b"identity"` where the answer must be read); None relays it.
    `without` names further headers, in lower case, that no longer hold: `content-encoding` of a decoded body.
    """
    dropped = _of_this_connection(headers) | {b"host"} | set(without)
    if accept_encoding is not None:
        dropped.add(b"accept-encoding")
    kept = [
        header
        for header in headers
        if (name := header[0].lower()) not in dropped and not name.startswith(OURS)
    ]
    if accept_encoding is not None:
        kept.append((b"accept-encoding", accept_encoding))
    return kept


def to_client(headers: Sequence[Header], *, same_body: bool = True) -> list[Header]:
    """The headers of an answer for the client; `content-length` only where the body stays the `same_body`."""
    dropped = _of_this_connection(headers)
    if not same_body:
        dropped.add(b"content-length")
    return [header for header in headers if header[0].lower() not in dropped]


def _of_this_connection(headers: Sequence[Header]) -> set[bytes]:
    """The names that end here: hop-by-hop, named in `Connection`, and a length that chunks overrule."""
    names = set(HOP_BY_HOP)
    for key, nominated in headers:
        name = key.lower()
        if name == b"connection":
            names.update(token.strip().lower() for token in nominated.split(b","))
        elif name == b"transfer-encoding":
            names.add(b"content-length")
    return names

"""Heads of requests: which are valid, which headers pass the proxy, and what they ask for.

Headers are pairs of raw bytes in their order, repetitions included. Headers of a single connection stay on it
(RFC 9110 7.6.1, RFC 9112 6); besides these, the proxy removes `X-Unabridged-*`, and from a body that it
changes or decodes what describes the client's own. Everything else passes unchanged.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from functools import cached_property, lru_cache
from itertools import count
from operator import attrgetter

from starlette.types import Scope

from proxy import errors
from proxy.cache import CacheMemory, Lru
from proxy.core.policy.policy import Candidates, PolicySet
from proxy.engine.intake.naming import (
    BODY_DIGESTS,
    BOUNDARY_HEADER,
    BUDGET_HEADER,
    CHANNEL_HEADER,
    POLICY_HEADER,
    SESSION_HEADER,
    WORKSPACE_HEADER,
    Envelope,
    Naming,
)
from proxy.ports import Header, header_of

HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer "
    b"transfer-encoding upgrade".split()
)
OURS = b"x-unabridged-"


def by_name(headers: Sequence[Header]) -> dict[bytes, bytes]:
    """Return values by lower-case name; those of a repeated header are joined by a comma."""
    named: dict[bytes, bytes] = {}
    for name, content in headers:
        lower = name.lower()
        found = named.get(lower)
        named[lower] = content if found is None else found + b"," + content
    return named


def content_length(headers: Sequence[Header]) -> int | None:
    """Return the announced size of the body in bytes, None if there is none (raises InvalidHeader)."""
    announced = header_of(headers, b"content-length")
    if announced is None:
        return None
    if not announced.isdigit() or len(announced) > 19:
        raise errors.InvalidHeader("Content-Length is not a number.")
    return int(announced)


def announces_body(headers: Sequence[Header]) -> bool:
    """Whether a request with these headers has a body (RFC 9112 6.3)."""
    length = header_of(headers, b"content-length") or b"0"
    return length.strip(b"0") != b"" or header_of(headers, b"transfer-encoding") is not None


def asks_for_websocket(headers: Sequence[Header]) -> bool:
    """Whether a connection is to become a WebSocket, which is not relayed."""
    return (header_of(headers, b"upgrade") or b"").lower() == b"websocket"


def check_credentials(headers: Sequence[Header]) -> None:
    """Refuse two credentials in one request: nobody can say which one counts (raises InvalidHeader)."""
    if [name.lower() for name, _ in headers].count(b"authorization") > 1:
        raise errors.InvalidHeader("There is more than one Authorization header.")


def to_upstream(
    headers: Sequence[Header], *, accept_encoding: bytes | None = None, without: Collection[bytes] = ()
) -> list[Header]:
    """Return the request headers to send upstream; the caller adds `Host`, as it knows the upstream's name.

    `accept_encoding` replaces the client's own (`b"identity"` where the answer must be read); None keeps it.
    `without` names further headers to drop, in lower case, such as `content-encoding` of a decoded body.
    """
    dropped = _of_this_connection(headers) | {b"host"} | set(without)
    if accept_encoding is not None:
        dropped.add(b"accept-encoding")
    passed = [
        header
        for header in headers
        if (name := header[0].lower()) not in dropped and not name.startswith(OURS)
    ]
    if accept_encoding is not None:
        passed.append((b"accept-encoding", accept_encoding))
    return passed


def to_client(headers: Sequence[Header], *, same_body: bool = True, is_managed: bool = False) -> list[Header]:
    """Return the response headers to send on; `content-length` only if the body stays the `same_body`.

    ``is_managed``: without those in which another proxy like this one, behind it, tells of its own requests.
    """
    dropped = _of_this_connection(headers)
    if not same_body:
        dropped.add(b"content-length")
    return [
        header
        for header in headers
        if (name := header[0].lower()) not in dropped and not (is_managed and name.startswith(OURS))
    ]


def _of_this_connection(headers: Sequence[Header]) -> set[bytes]:
    """Return names not to pass on: hop-by-hop, listed in `Connection`, or a length that chunks overrule."""
    names = set(HOP_BY_HOP)
    for key, nominated in headers:
        name = key.lower()
        if name == b"connection":
            names.update(token.strip().lower() for token in nominated.split(b","))
        elif name == b"transfer-encoding":
            names.add(b"content-length")
    return names


# --- which heads are valid ---

# llhttp refuses what two parsers could frame differently: a bare LF, folded lines, two lengths, a length
# beside chunks, blanks before a colon. The checks here cover what it lets pass, and the size limits. A head
# that is still arriving is limited by the wire guard.

MAX_URI = 16 * 1024
"""Most bytes of a request target."""
MAX_HEADERS = 200
MAX_HEADER_BYTES = 64 * 1024
"""Most bytes of all header lines together."""

_BESIDES = 3
"""Bytes of a header line besides name, value and its line feed: a colon, a blank, a carriage return."""
_ABSOLUTE = re.compile(rb"https?://[^/?@]+/", re.IGNORECASE)  # RFC 9112 3.2.2, without user information
_HOST = re.compile(rb"(?:\[[0-9A-Za-z:.%_~-]+\]|[\w.~%!$&'()*+;=-]+)(?::[0-9]*)?")  # RFC 3986 3.2.2


def check_head(version: str, target: bytes, headers: list[Header]) -> None:
    """Refuse a head that is too large or ambiguous; names are in lower case.

    White space after a value is not part of it (RFC 9112 5.1) and is removed here. Raises URITooLong,
    HeadersTooLarge, InvalidPath and RequestError.
    """
    if version not in {"1.1", "1.0"}:
        raise errors.RequestError("Only HTTP/1.1 and HTTP/1.0 are spoken here.")
    if len(target) > MAX_URI:
        raise errors.URITooLong
    # A path, or a whole URI (RFC 9112 3.2). `*` and a bare authority ask for methods that are not supported.
    if b"#" in target or not (target.startswith(b"/") or _ABSOLUTE.match(target)):
        raise errors.InvalidPath
    names, contents = zip(*headers, strict=True) if headers else ((), ())
    values = b"\n".join(contents) + b"\n"  # no value contains a line end
    size = len(b"".join(names)) + len(values) + _BESIDES * len(headers)
    if len(headers) > MAX_HEADERS or size > MAX_HEADER_BYTES:
        raise errors.HeadersTooLarge
    if b" \n" in values or b"\t\n" in values:
        headers[:] = [(name, value.rstrip(b" \t")) for name, value in headers]
    hosts = names.count(b"host")  # exactly one (RFC 9112 3.2); HTTP/1.0 did without
    if hosts > 1 or (not hosts and version != "1.0"):
        raise errors.RequestError("There is no Host header, or more than one.")
    if hosts and not _HOST.fullmatch(headers[names.index(b"host")][1]):
        raise errors.RequestError("The Host header does not name a host.")
    if b"transfer-encoding" in names:
        # A body comes in chunks or with its length (RFC 9112 6.1); llhttp refuses a second such header.
        coding = headers[names.index(b"transfer-encoding")][1]
        if version == "1.0" or coding.lower() != b"chunked":
            raise errors.RequestError("The only Transfer-Encoding that is read is chunked, in HTTP/1.1.")


def require_json(content_type: bytes | None) -> None:
    """Raise UnsupportedMediaType for a content type other than JSON; an absent one counts as JSON."""
    media_type = (content_type or b"").split(b";", 1)[0].strip().lower()
    named_json = media_type == b"application/json" or (
        media_type.startswith(b"application/") and media_type.endswith(b"+json")
    )
    if media_type and not named_json:
        raise errors.UnsupportedMediaType


# --- paths: which are valid, and their form at the upstream ---

# A path that two parsers could read differently might pass for `/v1/…` here and name something else at the
# upstream. Such a path is refused, never normalised; percent-encoding is left as it is.

PREFIX = b"/v1"

_AMBIGUOUS = re.compile(
    rb"""
    //                                  # an empty segment
    | \\ | %2f | %5c                    # a separator in disguise
    | %00                               # the end of the string, to some
    | (?:^|/) (?:\.|%2e){1,2} (?:/|$)   # a dot segment, spelled either way
    | [^\x21-\x7e]                      # nothing that belongs in a request line
    """,
    re.IGNORECASE | re.VERBOSE,
)
_UNPRINTABLE = re.compile(rb"[^\x21-\x7e]")


@lru_cache(maxsize=64)
def check_path(raw_path: bytes) -> None:
    """Refuse an ambiguous path (raises InvalidPath)."""
    if not raw_path.startswith(b"/") or _AMBIGUOUS.search(raw_path):
        raise errors.InvalidPath


def upstream_target(raw_path: bytes, query: bytes = b"") -> str:
    """Return what follows the client's `/v1`, query included: `/chat/completions?x=1`.

    Raises InvalidPath, and NotFound for a path that is not below `/v1`.
    """
    check_path(raw_path)
    if not (raw_path == PREFIX or raw_path.startswith(PREFIX + b"/")):
        raise errors.NotFound
    if _UNPRINTABLE.search(query):
        raise errors.InvalidPath("The query is not valid.")
    target = raw_path.removeprefix(PREFIX)
    return (target + b"?" + query if query else target).decode("ascii")


# --- the id of a request ---

_ID = "unabridged.request_id"
_prefix = secrets.token_hex(6)
_numbers = count(1)


def request_id(scope: Scope) -> str:
    """Return the request's id, always the same for one scope: a random prefix of the process and a number."""
    found: str | None = scope.get(_ID)
    if found is None:
        found = scope[_ID] = f"req-{_prefix}-{next(_numbers)}"
    return found


# --- heads of managed requests ---

# A client sends the same head again and again. Only the length of the body differs each time, and it is read
# separately. The cache is limited in bytes; it holds credentials, as the requests themselves do, and is
# neither shown nor logged.

MODE_HEADER = b"x-unabridged-mode"
_MODES = frozenset({"full", "append", "shadow", "off"})
_OUR_NAMES = (
    *(SESSION_HEADER, POLICY_HEADER, BUDGET_HEADER, BOUNDARY_HEADER, MODE_HEADER),
    *(CHANNEL_HEADER, WORKSPACE_HEADER),
)
"""The `X-Unabridged-*` headers that requests may have."""
_MOST_UNKNOWN, _LONGEST = 5, 60
"""Most unknown headers in one warning, and most characters of each name."""
_ODD = re.compile(r"[^0-9A-Za-z_-]")
_LENGTH = b"content-length"
_DECODED = (b"content-encoding", b"expect")
"""Headers that no longer apply to a body that was read whole and decoded."""
_WEIGHT, _HEADER_WEIGHT = 2048, 128
"""Estimated bytes of a head besides its text, and of each header."""

_Key = tuple[bytes, bytes, tuple[Header, ...]]
HEAD = "unabridged.head"
"""The scope key under which the front door passes on the head of a managed request."""


class RequestHead:
    """A request's head without the length of its body."""

    def __init__(self, key: _Key, naming: Naming, warning: bytes, *, is_shadow: bool) -> None:
        self._path, self._query, self._headers = key
        self._naming = naming
        self._is_shadow = is_shadow
        self._named = by_name(self._headers)
        self.encoding = self._named.get(b"content-encoding")
        self.warning = warning
        """The warning in every answer about unknown headers that look like ours; mostly empty."""
        self.origin: bytes | None = None
        """The origin of the web page that asks, once it was found to be allowed; None where no page asks."""
        self.is_examined = False
        self._policies: PolicySet | None = None
        self._candidates: Candidates | None = None

    def candidates(self, policies: PolicySet) -> Candidates:
        """Return the policies in force that the head's requests may get. Raises InvalidPolicy."""
        if self._candidates is None or policies is not self._policies:
            named = self._named.get(POLICY_HEADER, b"").decode("latin-1").strip()
            self._candidates, self._policies = policies.candidates(named, self._named), policies
        return self._candidates

    @cached_property
    def mode(self) -> str:
        """The mode: `full`, `append`, `shadow` or `off`. Raises InvalidHeader."""
        mode = self._named.get(MODE_HEADER, b"").strip().lower().decode("latin-1") or "full"
        if mode not in _MODES:
            raise errors.InvalidHeader("X-Unabridged-Mode is full, append, shadow or off.")
        if self._is_shadow and mode == "append":
            raise errors.InvalidHeader(
                "This server runs in shadow and changes no request; append mode would have to complete yours."
            )
        return "shadow" if self._is_shadow and mode == "full" else mode

    @cached_property
    def envelope(self) -> Envelope:
        """The envelope of a managed request; raises the errors of a head that cannot be read."""
        check_credentials(self._headers)
        require_json(header_of(self._headers, b"content-type"))
        target = upstream_target(self._path, self._query)
        digests = BODY_DIGESTS if self.encoding else frozenset[bytes]()  # of what is decoded here
        dropped = digests.union(_DECODED)
        forwarded = to_upstream(self._headers, accept_encoding=b"identity", without=dropped)
        return Envelope.read(self._naming, target, self._named, forwarded)

    @property
    def size(self) -> int:
        """Estimated bytes of the head."""
        texts = [len(name) + len(value) + _HEADER_WEIGHT for name, value in self._headers]
        return _WEIGHT + 2 * (len(self._path) + len(self._query) + sum(texts))


class RequestHeads:
    """The heads that were read last; ``is_shadow`` says that the server changes no request."""

    def __init__(self, memory: CacheMemory, naming: Naming, *, is_shadow: bool = False) -> None:
        self._naming = naming
        self._is_shadow = is_shadow
        self._heads: Lru[_Key, RequestHead] = Lru(memory, attrgetter("size"))
        self._our_names = {*_OUR_NAMES, naming.tenant_header}

    def of(self, scope: Scope) -> RequestHead:
        headers: Sequence[Header] = scope["headers"]
        lasting = tuple([header for header in headers if header[0] != _LENGTH])
        key = scope["raw_path"], scope["query_string"], lasting
        return self._heads.get_or_make(
            key, lambda: RequestHead(key, self._naming, self.warning(lasting), is_shadow=self._is_shadow)
        )

    def warning(self, headers: Sequence[Header]) -> bytes:
        """Return a warning about a request's unknown headers that look like ours; empty where there are none.

        Their names are quoted without characters that a name may not have.
        """
        names = [lower for name, _ in headers if (lower := name.lower()).startswith(OURS)]
        unknown = list(dict.fromkeys(name for name in names if name not in self._our_names))
        warnings: list[str] = []
        for name in map(_written, unknown[:_MOST_UNKNOWN]):
            nearest = get_close_matches(name, map(_written, _OUR_NAMES), n=1, cutoff=0)[0]
            warnings.append(f"unknown header {name}; did you mean {nearest}?")
        return ", ".join(warnings).encode()


def _written(name: bytes) -> str:
    """Return a header's name as people write it."""
    return _ODD.sub("?", name[:_LONGEST].decode("latin-1")).title()

"""Which web pages may use this server, and by which names (RFC 6454; the Fetch standard's CORS).

A browser sends requests for any page, to this machine too. A page's request that nobody allowed is refused
before anything is spent or disclosed. Programs other than browsers send no Origin. A page whose own name was
made to point to this machine (DNS rebinding) is recognised by that name in Host.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.types import Message, Receive, Scope, Send

from proxy.config import PORTS
from proxy.errors import HostForbidden, OriginForbidden
from proxy.ports import Header, header_of

EXEMPT = frozenset({"/healthz", "/readyz", "/metrics"})
"""Paths open to any host name and any page: nothing is spent there, and no page can read the answer."""
_PAGE = frozenset({"/unabridged", "/unabridged/"})
"""Paths to which another page may link."""
_EXAMINED = frozenset({b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode"})
_PORT = re.compile(rb":\d*$")
_LOCAL_NAME = re.compile(
    rb"(?: [\d.]+ | \[.+\] | (?:.+\.)?localhost\.? | host\.docker\.internal ) (?: :\d* )?",
    re.IGNORECASE | re.VERBOSE,
)
"""Hosts for which no stranger's name server answers: addresses, and names of RFC 6761 clause 6.3."""
_LOCAL_PAGE = re.compile(
    rb"""
    https? :// (?: localhost | 127(?:\.\d{1,3}){3} | \[::1\] ) (?: :\d{1,5} )?
    | (?: app | tauri | vscode-webview | file ) : .*   # of programs that show pages of their own
    """,
    re.IGNORECASE | re.VERBOSE,
)
_METHODS = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"
_REMEMBERED = b"600"
"""Seconds for which a browser may cache the answer to a preflight."""


class Origins:
    """Checks who may ask. ``is_local``: the server is bound to a loopback address.

    ``public_url`` is where browsers find the server, ``named`` are further allowed origins, ``hosts`` further
    names of the server. Off loopback, any host name is accepted if ``hosts`` is empty.
    """

    def __init__(
        self, *, is_local: bool, public_url: str | None, named: Sequence[str], hosts: Sequence[str]
    ) -> None:
        self._is_local = is_local
        self._checks_host = is_local or bool(hosts)
        public = [public_url] if public_url else []
        self._named = frozenset(map(origin_of, [*public, *named]))
        names = [*hosts, *(urlsplit(url).hostname or "" for url in public)]
        self._hosts = frozenset(name.encode() for name in names)

    def check(self, scope: Scope) -> bytes | None:
        """Return the origin of the page that asks; None where no page asks, or it sent no Origin.

        Raises HostForbidden and OriginForbidden.
        """
        found: dict[bytes, bytes] = {}
        for name, content in scope["headers"]:
            if name in _EXAMINED:
                found[name] = b"null" if name in found else content
        host, origin = found.get(b"host"), found.get(b"origin")
        is_strange = host and self._checks_host and not _LOCAL_NAME.fullmatch(host)
        if host and is_strange and _PORT.sub(b"", host).lower() not in self._hosts:
            raise HostForbidden
        if origin is None:
            if found.get(b"sec-fetch-site") == b"cross-site":
                is_navigation = scope["method"] == "GET" and found.get(b"sec-fetch-mode") == b"navigate"
                if not (is_navigation and scope["path"] in _PAGE):  # a person follows a link to our own page
                    raise OriginForbidden
            return None
        lower = origin.lower()
        scheme, _, place = lower.partition(b"://")
        is_own = scheme in {b"http", b"https"} and place == (host or b"").lower()
        is_neighbour = self._is_local and _LOCAL_PAGE.fullmatch(lower) is not None
        if not (is_own or is_neighbour or lower in self._named):
            raise OriginForbidden
        return origin


def origin_of(url: str) -> bytes:
    """Return the origin of a URL as browsers write it: without the scheme's default port."""
    parts = urlsplit(url)
    place = parts.netloc.lower()
    if parts.port == PORTS.get(parts.scheme, -1):
        place = place.rpartition(":")[0]
    return f"{parts.scheme}://{place}".encode()


def is_preflight(scope: Scope) -> bool:
    """Whether the request is a CORS preflight."""
    requested = header_of(scope["headers"], b"access-control-request-method")
    return scope["method"] == "OPTIONS" and requested is not None


async def send_preflight(origin: bytes, scope: Scope, _: Receive, send: Send) -> None:
    """Answer a preflight: the page may send its request."""
    asked = header_of(scope["headers"], b"access-control-request-headers")
    headers: list[Header] = [
        (b"access-control-allow-origin", origin),
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", asked or b"*"),
        (b"access-control-max-age", _REMEMBERED),
        (b"vary", b"Origin"),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body"})


def with_cors(send: Send, origin: bytes) -> Send:
    """Return a `send` whose answer a page of this origin may read, with all of its headers.

    The upstream's own CORS headers are about its own pages, and are removed.
    """

    async def send_readable(message: Message) -> None:
        if message["type"] == "http.response.start":
            passed: list[Header] = [
                header
                for header in message.get("headers", ())
                if not header[0].lower().startswith(b"access-control-")
            ]
            names = b", ".join(dict.fromkeys(name.lower() for name, _ in passed))
            ours = [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", names)]
            message["headers"] = [*passed, *ours, (b"vary", b"Origin")]
        await send(message)

    return send_readable

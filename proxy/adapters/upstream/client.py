"""Clients of the upstream: their common part, and the proxy's own (docs/decisions/own-upstream-client.md).

Connections are kept alive, and the one used last is used again first. If anything has arrived on an idle one,
it is replaced by a new one. Nothing is sent twice (docs/decisions/no-retry-of-a-post.md).
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from itertools import chain
from typing import Final, Protocol

import httpx2

from proxy import errors
from proxy.adapters.faults import fault_of
from proxy.adapters.upstream.connection import Connection, Content, unpresentable
from proxy.config import PORTS
from proxy.ports import Header, UpstreamResponse
from proxy.telemetry import log_warning

CONNECTIONS = 10_000
"""Largest number of connections; a request beyond it is refused at once, never queued.

This is only a last guard: `limits.streams` of a policy limits concurrent requests.
"""

KEEPALIVE = 60.0
"""Seconds after which an idle connection is not used again; load balancers drop them after about as long."""

_FRAMING = frozenset({b"host", b"content-length", b"transfer-encoding"})
_LOOKING = 10.0
"""Seconds for the two requests that check the URL."""
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL})
"""No file descriptor or port is left for a connection: a temporary fault of the proxy, not the upstream."""
_FAILED: Final = 500


class Response(UpstreamResponse, Protocol):
    """An answer whose connection can be released at once."""

    def end(self, *, broken: bool) -> None:
        """Release the connection; a second call has no effect."""
        ...


class Pooled(Protocol):
    """A connection that serves one request after another."""

    idle_since: float
    """Time since which the connection is idle, in monotonic seconds."""

    async def exchange(self, method: str, path: bytes, headers: Sequence[Header], body: Content) -> Response:
        """Send a request and wait for the head of its answer; the answer's end gives the connection back."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has arrived while it was idle: no unrequested answer and no end of the stream."""
        ...

    def close(self) -> None:
        """Close it at once, even during a request."""
        ...


class PooledUpstream(ABC):
    """A `proxy.ports.Upstream`; `base_url`, a valid URL, replaces the `/v1` of the client's request.

    Timeouts are in seconds. The read timeout applies to each wait for the next bytes, to the whole head of an
    answer, and to each wait for room to write. `credentials` are the operator's; they are used to query the
    list of models where the URL seems to lack its `/v1`. `tls` says which certificates to trust, by default
    the system's trust store.
    """

    def __init__(
        self,
        base_url: str,
        *,
        connect_timeout: float = 10.0,
        read_timeout: float = 600.0,
        credentials: Sequence[Header] = (),
        tls: ssl.SSLContext | None = None,
        proxy: httpx2.Proxy | None = None,
    ) -> None:
        self._url = url = httpx2.URL(base_url)
        self.proxy = proxy and f"{proxy.url.scheme}://{proxy.url.netloc.decode('ascii')}"
        """The URL of the outbound proxy that requests go through, without its password."""
        self._path = url.raw_path.rstrip(b"/")
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._credentials = credentials
        self._tls = tls or httpx2.create_ssl_context()
        self._tls.set_alpn_protocols(["http/1.1"])
        self._looking: asyncio.Task[None] | None = None
        self._idle: deque[Pooled] = deque()
        """Idle connections; the one used last is last."""
        self._in_use: set[Pooled] = set()

    async def send(
        self, method: str, target: str, headers: Sequence[Header], body: Content, *, at_root: bool = False
    ) -> UpstreamResponse:
        """Send one request, and return its answer once the head is here; the body is still to come.

        Raises UpstreamUnreachable, UpstreamTimeout, UpstreamInvalidResponse, Overloaded (no connection is
        free), InvalidHeader (one that cannot be sent), and whatever `body` raises.
        """
        path = self._path.removesuffix(b"/v1") if at_root else self._path
        path = path + target.encode("ascii") or b"/"
        framed = _framed(self._url.netloc, headers, body)
        text = b"".join([method.encode("ascii"), path, *chain.from_iterable(framed)])
        if b"\n" in text or b"\r" in text or b"\0" in text:
            raise errors.InvalidHeader("A header cannot be forwarded.")
        try:
            connection = self._take_idle() or await self._connect()
            response = await connection.exchange(method, path, framed, body)
            if wrong := unpresentable(response.status, response.headers):
                response.end(broken=True)
                raise errors.UpstreamInvalidResponse(detail=wrong)
        except errors.UpstreamError as error:
            host = self._url.netloc.decode("ascii")
            where = {"host": host} | ({"proxy": self.proxy} if self.proxy else {})
            why = {"why": error.message, "detail": error.detail}
            log_warning("the upstream failed", code=error.code, **where, **why)
            raise
        if response.status == HTTPStatus.NOT_FOUND and self._looking is None and not at_root:
            self._looking = asyncio.create_task(self._look_below(), name="upstream URL")
        return response

    @abstractmethod
    async def _connect(self) -> Pooled:
        """Open a new connection, and count it as in use."""

    async def _look_below(self) -> None:
        """Log a warning if the list of models is found only below `/v1`."""
        with suppress(errors.UnabridgedError, TimeoutError):
            async with asyncio.timeout(_LOOKING):
                if await self._status("/models") != HTTPStatus.NOT_FOUND:
                    return
                below = await self._status("/v1/models")
            if below < _FAILED and below != HTTPStatus.NOT_FOUND:
                use = f"--upstream {str(self._url).rstrip('/')}/v1"
                log_warning("the upstream's URL seems to lack its /v1", use=use)

    async def _status(self, target: str) -> int:
        response = await self.send("GET", target, self._credentials, None)
        await response.aclose()
        return response.status

    # --- idle connections ---

    def _take_idle(self) -> Pooled | None:
        """Take an idle connection on which nothing has arrived; None where there is none."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < KEEPALIVE and connection.is_quiet:
                self._in_use.add(connection)
                return connection
            connection.close()
        return None

    def _admit(self, connection: Pooled) -> None:
        """Count a new connection as in use. Raises Overloaded where there are too many."""
        if len(self._in_use) >= CONNECTIONS:
            raise errors.Overloaded
        self._in_use.add(connection)

    def _give_back(self, connection: Pooled, *, broken: bool) -> None:
        """Take a connection back; close one that is ``broken``, for it may serve no other request."""
        self._in_use.discard(connection)
        if broken:
            connection.close()
            return
        now = asyncio.get_running_loop().time()
        connection.idle_since = now
        self._idle.append(connection)
        while now - self._idle[0].idle_since >= KEEPALIVE:
            self._idle.popleft().close()

    async def aclose(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        for connection in (*self._idle, *self._in_use):
            connection.close()
        self._idle.clear()


class HttptoolsUpstream(PooledUpstream):
    """The upstream over the proxy's own connections.

    An answer that arrives while the request is still being written is read.
    """

    async def _connect(self) -> Connection:
        connection, loop = Connection(self._read_timeout, self._give_back), asyncio.get_running_loop()
        self._admit(connection)
        port = self._url.port or PORTS[self._url.scheme]
        tls = self._tls if self._url.scheme == "https" else None
        try:
            async with asyncio.timeout(self._connect_timeout):
                await loop.create_connection(lambda: connection, self._url.host, port, ssl=tls)
        except BaseException as error:
            self._in_use.discard(connection)
            if isinstance(error, TimeoutError):
                raise errors.UpstreamTimeout("no connection was made") from error
            if not isinstance(error, (OSError, UnicodeError)):  # UnicodeError: not a valid host name
                raise
            is_ours = getattr(error, "errno", None) in _FULL
            raise (
                errors.Overloaded() if is_ours else errors.UpstreamUnreachable(*fault_of(error))
            ) from error
        return connection


def _framed(host: bytes, headers: Sequence[Header], body: Content) -> list[Header]:
    """Return the headers with the body's real length; a stream keeps the length that was announced."""
    framed, announced = [(b"host", host)], None
    for name, value in headers:
        lower = name.lower()
        if lower == b"content-length" and announced is None:
            announced = value
        if lower not in _FRAMING:
            framed.append((name, value))
    if isinstance(body, bytes):
        framed.append((b"content-length", b"%d" % len(body)))
    elif body is not None and announced is None:
        framed.append((b"transfer-encoding", b"chunked"))
    elif announced is not None:
        framed.append((b"content-length", b"0" if body is None else announced))
    return framed

"""The upstream over connections of our own: HTTP/1.1 by asyncio and httptools, at a tenth of a client's cost.

What a general client does beside moving bytes is most of its cost (docs/benchmarks.md), and none of it is
wanted here. Connections are kept alive and used again newest first; TLS is by the system's trust store. An
answer that comes while the request is still being written is heard.

Nothing is sent twice. Before a kept connection is used it is asked whether anything has arrived on it, and if
so a new one is made; one that breaks after the first byte of a request was written is an error, since the
upstream may have acted on it. Failed connects are not retried either: clients do that, with pauses.
"""

from __future__ import annotations

import asyncio
import errno
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Self

import httpx2

from proxy.adapters.faults import fault_of
from proxy.adapters.upstream.connection import HEAD_FIELDS, TOO_MANY, Answer, Connection
from proxy.errors import (
    InvalidHeader,
    Overloaded,
    SettingsError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.telemetry import log_warning

CONNECTIONS = 10_000
"""At most so many connections; a request beyond is refused at once, never queued.

A last guard: how many requests there are at a time, `limits.streams` of a policy says.
"""

KEEPALIVE = 60.0
"""Seconds after which an idle connection is not used again; load balancers drop them after about as long."""

_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What parsers let pass in a header's value and no server may send on (RFC 9110 5.5)."""
_FRAMING = frozenset({b"host", b"content-length", b"transfer-encoding"})
_PORTS = {"http": 80, "https": 443}
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL})
"""No file descriptor or no port is left for a connection: ours is the fault, and it passes."""


Header = tuple[bytes, bytes]


class HttptoolsUpstream:
    """A `proxy.ports.Upstream`; `base_url` stands for the `/v1` of the client's request.

    `connect_timeout` bounds making a connection, `read_timeout` each wait for the next bytes, for the whole
    head of an answer, and for room to write; both in seconds. Raises SettingsError for a URL that cannot be
    an upstream's.
    """

    def __init__(self, base_url: str, *, connect_timeout: float = 10.0, read_timeout: float = 600.0) -> None:
        self._url = url = checked_url(base_url)
        self._host, self._port = url.host, url.port or _PORTS[url.scheme]
        self._tls = _tls() if url.scheme == "https" else None
        self._path = url.raw_path.rstrip(b"/")
        self._root = self._path.removesuffix(b"/v1")
        self._line = b" HTTP/1.1\r\nhost: " + url.netloc + b"\r\n"
        self._connect_timeout, self._read_timeout = connect_timeout, read_timeout
        self._idle: deque[Connection] = deque()
        """The one used last stands last."""
        self._in_use: set[Connection] = set()

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[Header],
        body: bytes | AsyncIterator[bytes] | None,
        *,
        at_root: bool = False,
    ) -> HttptoolsResponse:
        """Send one request; the answer's body is still to come.

        Raises UpstreamUnreachable, UpstreamTimeout, UpstreamInvalidResponse, Overloaded (no connection is
        free), InvalidHeader (one that cannot be sent), and whatever `body` raises.
        """
        head, is_chunked = self._head(
            method, (self._root if at_root else self._path) + target.encode("ascii"), framed(headers, body)
        )
        response: HttptoolsResponse | None = None
        try:
            connection = self._kept() or await self._connected()
            response = HttptoolsResponse(self, connection, connection.begin(method))
            if isinstance(body, AsyncIterator):
                connection.write(head)
                await response.begun_while(connection.write_all(body, chunked=is_chunked))
            else:
                connection.write(head, body or b"")
                await response.begun()
            response.take_head()
        except BaseException as error:
            if response is not None:
                response.end(broken=True)
            if isinstance(error, UpstreamError):
                tell(self._url, error)
            raise
        return response

    def _head(self, method: str, path: bytes, headers: Sequence[Header]) -> tuple[bytes, bool]:
        """The request's head, and whether its body is chunked. Raises InvalidHeader."""
        lines = [name + b": " + value for name, value in headers]
        head = method.encode("ascii") + b" " + (path or b"/") + self._line + b"\r\n".join([*lines, b"\r\n"])
        ends = len(lines) + 3
        if head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head:
            raise InvalidHeader("A header cannot be forwarded.")
        return head, (b"transfer-encoding", b"chunked") in headers

    def _kept(self) -> Connection | None:
        """A kept connection on which nothing has happened since."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < KEEPALIVE and connection.is_quiet:
                self._in_use.add(connection)
                return connection
            connection.close()
        return None

    async def _connected(self) -> Connection:
        """A new connection."""
        if len(self._in_use) >= CONNECTIONS:
            raise Overloaded
        connection = Connection(self._read_timeout)
        self._in_use.add(connection)
        try:
            await self._connect(connection)
        except BaseException:
            self._in_use.discard(connection)
            raise
        return connection

    async def _connect(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout):
                await loop.create_connection(lambda: connection, self._host, self._port, ssl=self._tls)
        except TimeoutError as error:
            raise UpstreamTimeout("no connection was made") from error
        except (OSError, UnicodeError) as error:  # or a name that cannot be one
            is_ours = getattr(error, "errno", None) in _FULL
            raise (Overloaded() if is_ours else UpstreamUnreachable(*fault_of(error))) from error

    def give_back(self, connection: Connection, *, broken: bool) -> None:
        """Take a connection back, for the next request if it is good for one."""
        self._in_use.discard(connection)
        if broken or not connection.is_reusable:
            connection.close()
            return
        now = asyncio.get_running_loop().time()
        connection.idle_since = now
        self._idle.append(connection)
        while now - self._idle[0].idle_since >= KEEPALIVE:
            self._idle.popleft().close()

    async def aclose(self) -> None:
        """Close all connections."""
        for connection in (*self._idle, *self._in_use):
            connection.close()
        self._idle.clear()


class HttptoolsResponse:
    """A `proxy.ports.UpstreamResponse`."""

    def __init__(self, upstream: HttptoolsUpstream, connection: Connection, answer: Answer) -> None:
        self._upstream = upstream
        self._connection = connection
        self._answer = answer
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False
        self.status = 0
        """The final status, once the head is here."""
        self.headers: Sequence[Header] = ()
        """As they came."""

    def take_head(self) -> None:
        """The head is here. Raises UpstreamInvalidResponse for one that no server can send on."""
        self.status, self.headers = self._answer.status, self._answer.headers
        if wrong := unpresentable(self.status, self.headers):
            raise UpstreamInvalidResponse(detail=wrong)

    async def begun(self) -> None:
        """Wait for the head of the answer."""
        while not self._answer.is_begun:
            if self._answer.fault is not None:
                raise self._answer.fault
            await self._connection.news(self._answer)

    async def begun_while(self, writing: Coroutine[None, None, None]) -> None:
        """Wait for the head of the answer while the request's body is on its way."""
        answer = self._answer
        self._writing = task = asyncio.create_task(writing)
        task.add_done_callback(lambda _: answer.wake())
        while not (answer.is_begun or answer.fault or task.done()):
            await answer.news()
        if task.done():
            task.result()
        await self.begun()

    def chunks(self) -> AsyncIterator[bytes]:
        """The body's bytes, undecoded; there is one such iterator.

        Raises UpstreamTimeout, UpstreamUnreachable (reset), UpstreamInvalidResponse (framing, too short).
        """
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        """All that has come of the body since."""
        answer = self._answer
        while not answer.chunks:
            if answer.is_complete:
                raise StopAsyncIteration
            if answer.fault is not None:
                raise answer.fault
            await self._connection.news(answer)
        return self._connection.take(answer)

    async def aclose(self) -> None:
        """Give the connection back after the whole body, close it otherwise, also while being cancelled."""
        self.end(broken=False)

    def end(self, *, broken: bool) -> None:
        """Part with the connection, once."""
        if self._is_closed:
            return
        self._is_closed = True
        is_half = not self._answer.is_complete or not self._is_written()
        self._upstream.give_back(self._connection, broken=broken or is_half)

    def _is_written(self) -> bool:
        """Whether the whole request went out; what did not will not."""
        task = self._writing
        if task is None:
            return True
        if not task.done():
            task.cancel()
            return False
        return not task.cancelled() and task.exception() is None


def _tls() -> ssl.SSLContext:
    """Trust as the system trusts, or as SSL_CERT_FILE and SSL_CERT_DIR say."""
    context = httpx2.create_ssl_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


# --- what every client of the upstream does alike ---


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


def tell(url: httpx2.URL, error: UpstreamError) -> None:
    """Tell the operator of a request that the upstream did not answer: where, and why."""
    host = url.netloc.decode("ascii")
    log_warning("the upstream failed", code=error.code, host=host, why=error.message, detail=error.detail)


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


def unpresentable(status: int, headers: Sequence[Header]) -> str:
    """Why no server can send this on, else empty: no final status (RFC 9110 15), many headers, odd values."""
    if len(headers) > HEAD_FIELDS:
        return TOO_MANY
    if not 200 <= status < 600:
        return f"status {status}"
    values = b"\t".join([value for _, value in headers])  # a tab may stand in a value
    return "a control character in a header's value" if _CONTROL.search(values) else ""

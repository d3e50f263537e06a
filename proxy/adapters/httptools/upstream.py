"""The upstream over connections of our own: HTTP/1.1 by asyncio and httptools, at a tenth of a client's cost.

What a general client does beside moving bytes is most of its cost (PERFORMANCE), and none of it is wanted
here. Connections are kept alive and used again newest first; TLS is by the system's trust store. An answer
that comes while the request is still being written is heard.

Nothing is sent twice. Before a kept connection is used it is asked whether anything has arrived on it, and if
so a new one is made; one that breaks after the first byte of a request was written is an error, since the
upstream may have acted on it. Failed connects are not retried either: clients do that, with pauses.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from typing import Self

import httpx2

from proxy.adapters.httptools.connection import Answer, Connection
from proxy.adapters.upstream_wire import (
    CONNECTIONS,
    KEEPALIVE,
    Header,
    checked_url,
    framed,
    is_presentable,
)
from proxy.errors import (
    InvalidHeader,
    Overloaded,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
)

_PORTS = {"http": 80, "https": 443}
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL})
"""No file descriptor or no port is left for a connection: ours is the fault, and it passes."""


class HttptoolsUpstream:
    """A `proxy.ports.Upstream`; `base_url` stands for the `/v1` of the client's request.

    `connect_timeout` bounds making a connection, `read_timeout` each wait for the next bytes, and for room to
    write them; both in seconds. Raises SettingsError for a URL that cannot be an upstream's.
    """

    def __init__(self, base_url: str, *, connect_timeout: float = 10.0, read_timeout: float = 600.0) -> None:
        url = checked_url(base_url)
        self._host, self._port = url.host, url.port or _PORTS[url.scheme]
        self._tls = _tls() if url.scheme == "https" else None
        self._path = url.raw_path.rstrip(b"/")
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
    ) -> HttptoolsResponse:
        """Send one request; the answer's body is still to come.

        Raises UpstreamUnreachable, UpstreamTimeout, UpstreamInvalidResponse, Overloaded (no connection is
        free), InvalidHeader (one that cannot be sent), and whatever `body` raises.
        """
        head, is_chunked = self._head(method, target, framed(headers, body))
        connection = self._kept() or await self._connected()
        response = HttptoolsResponse(self, connection, connection.begin(method))
        try:
            if isinstance(body, AsyncIterator):
                connection.write(head)
                await response.begun_while(connection.write_all(body, chunked=is_chunked))
            else:
                connection.write(head, body or b"")
                await response.begun()
            response.take_head()
        except BaseException:
            response.end(broken=True)
            raise
        return response

    def _head(self, method: str, target: str, headers: Sequence[Header]) -> tuple[bytes, bool]:
        """The request's head, and whether its body is chunked. Raises InvalidHeader."""
        path = self._path + target.encode("ascii") or b"/"
        lines = [name + b": " + value for name, value in headers]
        head = method.encode("ascii") + b" " + path + self._line + b"\r\n".join([*lines, b"\r\n"])
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
            raise UpstreamTimeout from error
        except OSError as error:
            raise (Overloaded() if error.errno in _FULL else UpstreamUnreachable()) from error
        except UnicodeError as error:  # a name that cannot be one
            raise UpstreamUnreachable from error

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
        if not is_presentable(self.status, self.headers):
            raise UpstreamInvalidResponse

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

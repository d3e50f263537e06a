"""Clients of the upstream: what all do alike, and ours, at a tenth of a general client's cost.

What a general client does beside moving bytes is most of its cost (docs/benchmarks.md), and none of it is
wanted here. Connections are kept alive and used again newest first.

Nothing is sent twice. Before a kept connection is used it is asked whether anything has arrived on it, and if
so a new one is made; one that breaks after the first byte of a request was written is an error, since the
upstream may have acted on it. Whether to try again is the client's to decide, with pauses.
"""

from __future__ import annotations

import asyncio
import errno
import re
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final, Generic, Protocol, TypedDict, TypeVar, Unpack

import httpx2

from proxy.adapters.faults import fault_of
from proxy.adapters.upstream.connection import HEAD_FIELDS, TOO_MANY, Answer, Connection, Header
from proxy.errors import (
    InvalidHeader,
    Overloaded,
    SettingsError,
    UnabridgedError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.ports import UpstreamResponse
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
_LOOKING = 10.0
"""Seconds for both questions about the URL."""
_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL})
"""No file descriptor or no port is left for a connection: ours is the fault, and it passes."""
_NOT_FOUND: Final = 404
_FAILED: Final = 500


class Pooled(Protocol):
    """A connection that serves one request after another."""

    idle_since: float
    """Monotonic seconds."""

    @property
    def is_reusable(self) -> bool:
        """Whether it may serve another request: its last answer is complete, and nothing came after it."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has arrived while it was idle: no answer that nobody asked for, and no end."""
        ...

    def close(self) -> None:
        """Close it at once, whatever is under way."""
        ...


class Response(UpstreamResponse, Protocol):
    """An answer whose connection can be given up at once."""

    def end(self, *, broken: bool) -> None:
        """Part with the connection, once."""
        ...


C = TypeVar("C", bound=Pooled)


class Options(TypedDict, total=False):
    """What an upstream may be told beside its URL."""

    connect_timeout: float
    """Seconds for making a connection."""
    read_timeout: float
    """Seconds for each wait for the next bytes, for the whole head of an answer, and for room to write."""
    credentials: Sequence[Header]
    """The operator's, for a look at the list of models where the URL seems to lack its `/v1`."""
    tls: ssl.SSLContext
    """Whom to trust, and who we are; the system's trust store unless given."""


class PooledUpstream(ABC, Generic[C]):
    """A `proxy.ports.Upstream`; `base_url` stands for the `/v1` of the client's request.

    Raises SettingsError for a URL that cannot be an upstream's.
    """

    proxy: str | None = None
    """The outbound proxy that requests go by, without its password."""

    def __init__(self, base_url: str, **options: Unpack[Options]) -> None:
        try:
            self._url = url = httpx2.URL(base_url)
        except httpx2.InvalidURL as error:
            raise SettingsError("The upstream's URL is not valid.") from error
        if url.scheme not in {"http", "https"} or not url.host:
            raise SettingsError("The upstream's URL must begin with http:// or https:// and name a host.")
        if url.userinfo or url.query or url.fragment:
            raise SettingsError("The upstream's URL must have no user, query or fragment.")
        self._netloc = url.netloc
        self._path = url.raw_path.rstrip(b"/")
        self._root = self._path.removesuffix(b"/v1")
        self._connect_timeout = options.get("connect_timeout", 10.0)
        self._read_timeout = options.get("read_timeout", 600.0)
        self._credentials = options.get("credentials", ())
        self._tls = options.get("tls") or httpx2.create_ssl_context()
        self._tls.set_alpn_protocols(["http/1.1"])
        self._looking: asyncio.Task[None] | None = None
        self._idle: deque[C] = deque()
        """The one used last stands last."""
        self._in_use: set[C] = set()

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[Header],
        body: bytes | AsyncIterator[bytes] | None,
        *,
        at_root: bool = False,
    ) -> UpstreamResponse:
        """Send one request; the answer's body is still to come.

        Raises UpstreamUnreachable, UpstreamTimeout, UpstreamInvalidResponse, Overloaded (no connection is
        free), InvalidHeader (one that cannot be sent), and whatever `body` raises.
        """
        path = (self._root if at_root else self._path) + target.encode("ascii") or b"/"
        try:
            response = await self._exchange(method, path, _framed(headers, body), body)
            if wrong := _unpresentable(response.status, response.headers):
                response.end(broken=True)
                raise UpstreamInvalidResponse(detail=wrong)
        except UpstreamError as error:
            where = {"host": self._netloc.decode("ascii")} | ({"proxy": self.proxy} if self.proxy else {})
            why = {"why": error.message, "detail": error.detail}
            log_warning("the upstream failed", code=error.code, **where, **why)
            raise
        if response.status == _NOT_FOUND and self._looking is None and not at_root:
            self._looking = asyncio.create_task(self._look_below(), name="upstream URL")
        return response

    @abstractmethod
    async def _exchange(
        self,
        method: str,
        path: bytes,
        headers: Sequence[Header],
        body: bytes | AsyncIterator[bytes] | None,
    ) -> Response:
        """Send a request, and wait for the head of its answer."""

    async def _look_below(self) -> None:
        """Tell the operator where the list of models is found below `/v1` alone."""
        with suppress(UnabridgedError, TimeoutError):
            async with asyncio.timeout(_LOOKING):
                if await self._status("/models") != _NOT_FOUND:
                    return
                below = await self._status("/v1/models")
            if below < _FAILED and below != _NOT_FOUND:
                use = f"--upstream {str(self._url).rstrip('/')}/v1"
                log_warning("the upstream's URL seems to lack its /v1", use=use)

    async def _status(self, target: str) -> int:
        response = await self.send("GET", target, self._credentials, None)
        await response.aclose()
        return response.status

    # --- connections at rest ---

    def _pooled(self) -> C | None:
        """A connection at rest on which nothing has happened since."""
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if now - connection.idle_since < KEEPALIVE and connection.is_quiet:
                self._in_use.add(connection)
                return connection
            connection.close()
        return None

    def _admit(self, connection: C) -> C:
        """A new connection is in use. Raises Overloaded where there are too many."""
        if len(self._in_use) >= CONNECTIONS:
            raise Overloaded
        self._in_use.add(connection)
        return connection

    def _give_back(self, connection: C, *, broken: bool) -> None:
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
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        for connection in (*self._idle, *self._in_use):
            connection.close()
        self._idle.clear()


class HttptoolsUpstream(PooledUpstream[Connection]):
    """Over connections of our own. An answer that comes while the request is still being written is heard."""

    async def _exchange(
        self,
        method: str,
        path: bytes,
        headers: Sequence[Header],
        body: bytes | AsyncIterator[bytes] | None,
    ) -> Answer:
        lines = [name + b": " + value for name, value in headers]
        first = method.encode("ascii") + b" " + path + b" HTTP/1.1\r\nhost: " + self._netloc
        head = b"\r\n".join([first, *lines, b"\r\n"])
        ends = len(lines) + 3
        if head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head:
            raise InvalidHeader("A header cannot be forwarded.")
        connection = self._pooled() or await self._connected()
        answer = connection.begin(method, self._give_back)
        try:
            if isinstance(body, AsyncIterator):
                connection.write(head)
                is_chunked = (b"transfer-encoding", b"chunked") in headers
                await answer.begun_while(connection.write_all(body, chunked=is_chunked))
            else:
                connection.write(head, body or b"")
                await answer.begun()
        except BaseException:
            answer.end(broken=True)
            raise
        return answer

    async def _connected(self) -> Connection:
        connection, loop = self._admit(Connection(self._read_timeout)), asyncio.get_running_loop()
        is_secure = self._url.scheme == "https"
        port, tls = self._url.port or (443 if is_secure else 80), self._tls if is_secure else None
        try:
            async with asyncio.timeout(self._connect_timeout):
                await loop.create_connection(lambda: connection, self._url.host, port, ssl=tls)
        except BaseException as error:
            self._in_use.discard(connection)
            if isinstance(error, TimeoutError):
                raise UpstreamTimeout("no connection was made") from error
            if not isinstance(error, (OSError, UnicodeError)):  # or a name that cannot be one
                raise
            is_ours = getattr(error, "errno", None) in _FULL
            raise (Overloaded() if is_ours else UpstreamUnreachable(*fault_of(error))) from error
        return connection


# --- what may be sent, and what may be sent on ---


def _framed(headers: Sequence[Header], body: bytes | AsyncIterator[bytes] | None) -> list[Header]:
    """The headers with the length that the body really has; a stream keeps the length that it announced."""
    framed = [header for header in headers if header[0].lower() not in _FRAMING]
    if isinstance(body, bytes):
        framed.append((b"content-length", b"%d" % len(body)))
        return framed
    announced = next((value for name, value in headers if name.lower() == b"content-length"), None)
    if body is not None:
        framed.append(
            (b"transfer-encoding", b"chunked") if announced is None else (b"content-length", announced)
        )
    elif announced is not None:
        framed.append((b"content-length", b"0"))
    return framed


def _unpresentable(status: int, headers: Sequence[Header]) -> str:
    """Why no server can send this on, else empty: no final status (RFC 9110 15), many headers, odd values."""
    if len(headers) > HEAD_FIELDS:
        return TOO_MANY
    if not 200 <= status < 600:
        return f"status {status}"
    values = b"\t".join([value for _, value in headers])  # a tab may stand in a value
    return "a control character in a header's value" if _CONTROL.search(values) else ""

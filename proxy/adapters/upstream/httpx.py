"""The upstream over httpx2: its transport called directly, below the client.

The client would add headers, follow redirects and decode bodies; the transport moves bytes, at a fraction of
the cost. HTTP/1.1, connections kept alive, TLS by the system's trust store. Every exception of
the library is translated here, to words without a key or an internal URL.

Nothing is sent twice. Before a pooled connection is used it is asked whether the upstream has closed it, and
if so a new one is made; a connection that breaks after the first byte of a request was written is an error,
since the upstream may have acted on it. Failed connects are not retried either: clients do that, with pauses.

Limits of the library: it reads no answer while it writes a request. An upstream that refuses an upload half
way and closes at once is therefore unreachable to us; one that leaves the connection open is heard.

And it takes 100 KiB for an answer's head, and for what stands between two pieces of its body.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import httpx2

from proxy.adapters.faults import fault_of
from proxy.adapters.upstream.client import (
    CONNECTIONS,
    KEEPALIVE,
    Header,
    checked_url,
    framed,
    tell,
    unpresentable,
)
from proxy.adapters.upstream.connection import HEAD_BYTES, TOO_LARGE
from proxy.errors import (
    InvalidHeader,
    Overloaded,
    UnabridgedError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
)

if TYPE_CHECKING:
    import h11


_CONNECTED = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})
_room: ContextVar[float] = ContextVar("room", default=math.inf)
"""Bytes that may still come before the head of the answer that is waited for is here."""
_head_due: ContextVar[float] = ContextVar("head_due", default=math.inf)
"""When that head must be here; monotonic seconds, and far off until it is waited for."""
_STEP = 4096
"""Of them, those that the library reads without letting anybody else run; it takes long for them."""


class HttpxUpstream:
    """A `proxy.ports.Upstream`; `base_url` stands for the `/v1` of the client's request.

    `connect_timeout` bounds making a connection, `read_timeout` each wait for the next bytes, for the whole
    head of an answer, and for room to write; both in seconds. Raises SettingsError for a URL that cannot be
    an upstream's.
    """

    def __init__(self, base_url: str, *, connect_timeout: float = 10.0, read_timeout: float = 600.0) -> None:
        self._url = checked_url(base_url)
        self._path = self._url.raw_path.rstrip(b"/")
        self._root = self._path.removesuffix(b"/v1")
        self._host = (b"host", self._url.netloc)
        self._timeouts = {
            "connect": connect_timeout,
            "read": read_timeout,
            "write": read_timeout,
            "pool": 0.0,
        }
        limits = httpx2.Limits(
            max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=KEEPALIVE
        )
        self._transport = httpx2.AsyncHTTPTransport(limits=limits, retries=0)

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[Header],
        body: bytes | AsyncIterator[bytes] | None,
        *,
        at_root: bool = False,
    ) -> HttpxResponse:
        """Send one request; the answer's body is still to come.

        Raises UpstreamUnreachable, UpstreamTimeout, UpstreamInvalidResponse, Overloaded (no connection is
        free), InvalidHeader (one that cannot be sent), and whatever `body` raises.
        """
        request = httpx2.Request(
            method,
            self._url,
            headers=[self._host, *framed(headers, body)],
            stream=_Body(body),
            extensions={
                # The URL class would normalise it; this goes out byte for byte.
                "target": (self._root if at_root else self._path) + target.encode("ascii") or b"/",
                "timeout": self._timeouts,
                "trace": _bound,
            },
        )
        try:
            with _translated():
                _room.set(HEAD_BYTES)
                _head_due.set(math.inf)
                response = await self._transport.handle_async_request(request)
                _room.set(math.inf)
            answer = HttpxResponse(response)
            if wrong := unpresentable(answer.status, answer.headers):
                await answer.aclose()
                raise UpstreamInvalidResponse(detail=wrong)
        except UpstreamError as error:
            tell(self._url, error)
            raise
        return answer

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()


class HttpxResponse:
    """A `proxy.ports.UpstreamResponse`."""

    def __init__(self, response: httpx2.Response) -> None:
        self.status: int = response.status_code
        self.headers: Sequence[Header] = response.headers.raw
        self._response = response
        self._stream = cast("httpx2.AsyncByteStream", response.stream)
        self._finished = False
        self._chunks = self._read()

    def chunks(self) -> AsyncIterator[bytes]:
        """The body's bytes, undecoded; there is one such iterator.

        Raises UpstreamTimeout, UpstreamUnreachable (reset), UpstreamInvalidResponse (framing, too short).
        """
        return self._chunks

    async def _read(self) -> AsyncIterator[bytes]:
        with _translated():
            async for chunk in self._stream:
                yield chunk
        self._finished = True

    async def aclose(self) -> None:
        """Give the connection back after the whole body, close it otherwise, also while being cancelled."""
        if self._finished and not _says_more(self._stream):
            await self._stream.aclose()
        else:
            await asyncio.shield(self._break_off())

    async def _break_off(self) -> None:
        await self._response.extensions["network_stream"].aclose()
        await self._stream.aclose()


def _says_more(stream: object) -> bool:
    """Whether more than the answer has arrived (a second answer, a body after HEAD).

    The library would take it for the answer to the next request on this connection, which may be another
    caller's (law 6), and offers no other way to see it than through these members of its own.
    """
    for member in ("_httpcore_stream", "_stream", "_connection", "_h11_state"):
        stream = getattr(stream, member)
    return cast("h11.Connection", stream).trailing_data[0] != b""


class _Body(httpx2.AsyncByteStream):
    """A request's body in the library's terms."""

    def __init__(self, body: bytes | AsyncIterator[bytes] | None) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self._body, bytes):
            yield self._body
        elif self._body is not None:
            async for part in self._body:
                yield part


async def _bound(event: str, info: Mapping[str, Any]) -> None:
    """Bound what a new connection reads before an answer's head, and how long: the library bounds no head."""
    if event not in _CONNECTED:
        return
    stream = info["return_value"]
    read = stream.read

    async def bounded(max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the library's
        room = _room.get()
        if room < math.inf and timeout is not None:
            now = asyncio.get_running_loop().time()
            _head_due.set(min(now + timeout, _head_due.get()))
            timeout = max(_head_due.get() - now, 0.0)
        data: bytes = await read(min(max_bytes, _STEP) if room < math.inf else max_bytes, timeout)
        if room < len(data):
            raise httpx2.RemoteProtocolError(TOO_LARGE)
        _room.set(room - len(data))
        return data

    stream.read = bounded


@contextmanager
def _translated() -> Generator[None]:
    try:
        yield
    except httpx2.TransportError as error:
        raise _translation(error) from error


def _translation(error: httpx2.TransportError) -> UnabridgedError:
    match error:
        case httpx2.PoolTimeout():
            return Overloaded()
        case httpx2.ConnectTimeout():
            return UpstreamTimeout("no connection was made")
        case httpx2.TimeoutException():
            return UpstreamTimeout()
        case httpx2.LocalProtocolError():
            return InvalidHeader("A header cannot be forwarded.")
        case httpx2.RemoteProtocolError():
            return _invalid(str(error))
        case _:
            return UpstreamUnreachable(*fault_of(error))


def _invalid(said: str) -> UpstreamInvalidResponse:
    """What the library says of an answer that is none; it may quote the answer, so that is not told."""
    if "disconnected" in said or "closed connection" in said:
        return UpstreamInvalidResponse("connection closed", "before the answer was complete")
    if said == TOO_LARGE:
        return UpstreamInvalidResponse(detail=said)
    is_large = "Receive buffer too long" in said
    return UpstreamInvalidResponse(detail="head too large" if is_large else "not valid HTTP")

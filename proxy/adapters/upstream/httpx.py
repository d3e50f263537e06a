"""The upstream over httpx2, for what the proxy's own connections lack: proxies, client certificates, HTTP/2.

The library's transport is called directly, because its client would add headers, follow redirects and decode
bodies. Every exception of the library is translated here, to messages without a key or an internal URL.
Each connection has a transport of its own and carries one request at a time, even over HTTP/2
(docs/decisions/http2-unshared.md).

Limits of the library: it reads no answer while it writes a request. So an upstream that refuses an upload
half way and closes at once counts as unreachable; if it leaves the connection open, its answer is read. And
it accepts 100 KiB for an answer's head, 64 over HTTP/2, and 100 between two pieces of the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from http import HTTPStatus
from math import inf
from typing import TYPE_CHECKING, Any, Self, cast

import httpx2

from proxy import errors
from proxy.adapters.faults import fault_of
from proxy.adapters.upstream.client import KEEPALIVE, PooledUpstream
from proxy.adapters.upstream.connection import HEAD_BYTES, TOO_LARGE, Content
from proxy.ports import Header

if TYPE_CHECKING:
    import h11

_STEP = 4096
"""Bytes of a head that the library parses at once; parsing is slow and blocks the event loop."""
_CLOSED = ("disconnected", "closed connection", "ConnectionTerminated")
"""The library's words for a connection that was closed too early."""


class HttpxUpstream(PooledUpstream):
    """See `PooledUpstream`. With `http2`, HTTP/2 is used over TLS if the upstream offers it."""

    def __init__(
        self, base_url: str, *, proxy: httpx2.Proxy | None = None, http2: bool = False, **options: Any
    ) -> None:
        super().__init__(base_url, proxy=proxy, **options)
        self._transport: Callable[[], httpx2.AsyncHTTPTransport] = lambda: httpx2.AsyncHTTPTransport(
            verify=self._tls,
            proxy=proxy,
            http2=http2,
            limits=httpx2.Limits(max_connections=1, keepalive_expiry=KEEPALIVE),
        )
        self._closing: set[asyncio.Task[None]] = set()

    async def _connect(self) -> HttpxConnection:
        timeouts = (self._connect_timeout, self._read_timeout)
        connection = HttpxConnection(
            self._url,
            self._transport(),
            timeouts,
            self._give_back,
            self._closing,
            is_proxied=self.proxy is not None,
        )
        self._admit(connection)
        return connection

    async def aclose(self) -> None:
        await super().aclose()
        if self._closing:
            await asyncio.wait(self._closing)


class HttpxConnection:
    """A connection of the library's, with the limits that it lacks: on an answer's head and on each wait."""

    def __init__(
        self,
        url: httpx2.URL,
        transport: httpx2.AsyncHTTPTransport,
        timeouts: tuple[float, float],
        give_back: Callable[..., None],
        closing: set[asyncio.Task[None]],
        *,
        is_proxied: bool,
    ) -> None:
        self.idle_since = 0.0
        self._url = url
        self._transport = transport
        self._connect_timeout, self._read_timeout = timeouts
        self.give_back = give_back
        self._closing = closing
        self._is_forwarded = is_proxied and url.scheme == "http"
        self._is_at_proxy = is_proxied
        """Whether there is no connection to the upstream yet, but one to the outbound proxy at best."""
        self._stream: Any = None
        """The library's network stream, once there is a connection."""
        self._making: asyncio.Timeout | None = None
        self._is_written = False
        """Whether any part of the request was sent."""
        self._is_head = True
        """Whether the head of the answer is still to come."""
        self._room = 0
        """Bytes that may still be received before the head, or the next piece of the body, is complete."""
        self._due = inf
        """Deadline for that, in monotonic seconds; infinite while the request is being written."""

    async def exchange(
        self, method: str, path: bytes, headers: Sequence[Header], body: Content
    ) -> HttpxResponse:
        connect, read = self._connect_timeout, self._read_timeout
        extensions: dict[str, Any] = {
            "target": path,  # the URL class would normalise it; this goes out byte for byte
            "timeout": {"connect": connect, "read": read, "write": read, "pool": connect},
            "trace": self.trace,
        }
        request = httpx2.Request(
            method, self._url, headers=[*headers], stream=_Body(body), extensions=extensions
        )
        self._is_written, self._is_head, self._room, self._due = False, True, HEAD_BYTES, inf
        self._making = making = asyncio.timeout(connect)
        try:
            try:
                async with making:
                    answer = await self._transport.handle_async_request(request)
            except (httpx2.TransportError, TimeoutError) as error:
                if isinstance(error, TimeoutError) and not making.expired():
                    raise  # a timeout of the request's body
                raise self._translation(error) from error
        except BaseException:
            self.give_back(self, broken=True)
            raise
        self._is_head = False
        if self._is_forwarded and answer.status_code == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            self.give_back(self, broken=True)
            raise _refused(str(answer.status_code))
        return HttpxResponse(self, answer)

    async def read(self, stream: AsyncIterator[bytes]) -> bytes:
        """Read the next piece of an answer's body. Raises StopAsyncIteration at its end."""
        self._room, self._due = HEAD_BYTES, asyncio.get_running_loop().time() + self._read_timeout
        try:
            return await anext(stream)
        except StopAsyncIteration:
            raise
        except Exception as error:  # over HTTP/2 also exceptions of another library
            raise self._translation(error) from error

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """The library's trace hook: called before and after each of its steps."""
        name = event.partition(".")[2]
        request = info.get("request")
        is_tunnel = request is not None and request.method == b"CONNECT"
        if name in {"connect_tcp.complete", "start_tls.complete"}:
            self._stream = info["return_value"]
            self._stream.read = self._bounded(self._stream.read)
        elif event == "proxy.start_tls.started":
            self._is_at_proxy = False
        elif name == "send_request_headers.started" and not is_tunnel:
            if self._is_written:  # the library would resend a request that a closing upstream did not accept
                raise errors.UpstreamInvalidResponse("connection closed", "before the answer began")
            self._is_written, self._is_at_proxy = True, False
            if self._making is not None:
                self._making.reschedule(None)
        elif name == "receive_response_headers.started" and not is_tunnel:
            self._due = asyncio.get_running_loop().time() + self._read_timeout

    def _bounded(self, read: Callable[..., Any]) -> Callable[..., Any]:
        async def bounded(max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the library's
            left = max(self._due - asyncio.get_running_loop().time(), 0.0)
            most = min(max_bytes, _STEP) if self._is_head else max_bytes
            data: bytes = await read(most, left if timeout is None else min(timeout, left))
            if self._room < len(data):
                raise httpx2.RemoteProtocolError(TOO_LARGE)
            self._room -= len(data)
            return data

        return bounded

    @property
    def _is_http2(self) -> bool:
        tls = None if self._stream is None else self._stream.get_extra_info("ssl_object")
        return tls is not None and tls.selected_alpn_protocol() == "h2"

    @property
    def is_quiet(self) -> bool:
        return not self._stream.get_extra_info("is_readable")

    def close(self) -> None:
        """Close it in a task of its own, even during a request, since the caller may be cancelled."""

        async def closing() -> None:
            if self._stream is not None:
                await self._stream.aclose()
            await self._transport.aclose()

        task = asyncio.create_task(closing(), name="closing an upstream's connection")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def _translation(self, error: Exception) -> errors.UnabridgedError:
        """Translate an error; the library's own message may quote the answer, so it is not passed on."""
        if self._is_at_proxy:
            return _fault_of_proxy(error)
        message = str(error)
        match error:
            case httpx2.TimeoutException() | TimeoutError():
                return errors.UpstreamTimeout("" if self._is_written else "no connection was made")
            case httpx2.LocalProtocolError() if not self._is_http2:
                return errors.InvalidHeader("A header cannot be forwarded.")
            case httpx2.NetworkError():
                return errors.UpstreamUnreachable(*fault_of(error))
            case _ if "StreamReset" in message:
                return errors.UpstreamUnreachable("connection reset", "the HTTP/2 stream")
            case _ if any(words in message for words in _CLOSED):
                return errors.UpstreamInvalidResponse("connection closed", "before the answer was complete")
            case _ if message == TOO_LARGE:
                return errors.UpstreamInvalidResponse(detail=message)
            case _:
                is_large = "Receive buffer too long" in message
                return errors.UpstreamInvalidResponse(
                    detail="head too large" if is_large else "not valid HTTP"
                )


class HttpxResponse:
    """A `proxy.ports.UpstreamResponse`."""

    def __init__(self, connection: HttpxConnection, response: httpx2.Response) -> None:
        self.status: int = response.status_code
        self.headers: Sequence[Header] = response.headers.raw
        self._connection = connection
        self._is_http2 = response.extensions["http_version"] == b"HTTP/2"
        self._stream = cast("httpx2.AsyncByteStream", response.stream)
        self._pieces = aiter(self._stream)
        self._is_complete = False
        self._is_ended = False

    def chunks(self) -> Self:
        return self

    __aiter__ = chunks

    async def __anext__(self) -> bytes:
        try:
            return await self._connection.read(self._pieces)
        except StopAsyncIteration:
            self._is_complete = True
            raise

    async def aclose(self) -> None:
        is_good = self._is_complete and not self._is_ended
        if is_good and not self._is_http2:
            # Bytes that arrived after the answer (a second answer, a body after HEAD) the library would take
            # for the answer to the next request on this connection, which may be another caller's (law 6).
            # They can only be seen through these private members of the library.
            stream: object = self._stream
            for member in ("_httpcore_stream", "_stream", "_connection", "_h11_state"):
                stream = getattr(stream, member)
            is_good = cast("h11.Connection", stream).trailing_data[0] == b""
        try:
            if is_good:
                await self._stream.aclose()
        except BaseException:
            is_good = False
            raise
        finally:
            self.end(broken=not is_good)

    def end(self, *, broken: bool) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._connection.give_back(self._connection, broken=broken)


class _Body(httpx2.AsyncByteStream):
    """A request's body as the library's stream type."""

    def __init__(self, body: Content) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self._body, bytes):
            yield self._body
        elif self._body is not None:
            async for part in self._body:
                yield part


def _fault_of_proxy(error: Exception) -> errors.UnabridgedError:
    match error:
        case httpx2.ProxyError():
            return _refused(str(error)[:3])
        case httpx2.TimeoutException() | TimeoutError():
            return errors.UpstreamTimeout("the outbound proxy made no connection")
        case httpx2.ProtocolError():
            return errors.UpstreamUnreachable("the outbound proxy gave no valid answer")
        case _:
            kind, detail = fault_of(error)
            return errors.UpstreamUnreachable(f"the outbound proxy: {kind}", detail)


def _refused(status: str) -> errors.UpstreamUnreachable:
    wants = "wants other credentials" if status == "407" else "refused"
    return errors.UpstreamUnreachable(f"the outbound proxy {wants} ({status})")

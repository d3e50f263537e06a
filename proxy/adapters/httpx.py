"""The upstream over httpx2: its transport called directly, below the client.

The client would add headers, follow redirects and decode bodies; the transport moves bytes, at a fraction of
the cost (PERFORMANCE). HTTP/1.1, connections kept alive, TLS by the system's trust store. Every exception of
the library is translated here, to words without a key or an internal URL.

Nothing is sent twice. Before a pooled connection is used it is asked whether the upstream has closed it, and
if so a new one is made; a connection that breaks after the first byte of a request was written is an error,
since the upstream may have acted on it. Failed connects are not retried either: clients do that, with pauses.

A limit of the library: it reads no answer while it writes a request. An upstream that refuses an upload half
way and closes at once is therefore unreachable to us; one that leaves the connection open is heard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import httpx2

from proxy.adapters.upstream_wire import CONNECTIONS, KEEPALIVE, Header, checked_url, framed, is_presentable
from proxy.errors import (
    InvalidHeader,
    Overloaded,
    UnabridgedError,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
)

if TYPE_CHECKING:
    import h11


class HttpxUpstream:
    """A `proxy.ports.Upstream`; `base_url` stands for the `/v1` of the client's request.

    `connect_timeout` bounds making a connection, `read_timeout` each wait for the next bytes, and for room to
    write them; both in seconds. Raises SettingsError for a URL that cannot be an upstream's.
    """

    def __init__(self, base_url: str, *, connect_timeout: float = 10.0, read_timeout: float = 600.0) -> None:
        self._url = checked_url(base_url)
        self._base_path = self._url.raw_path.rstrip(b"/")
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
                "target": self._base_path + target.encode("ascii") or b"/",
                "timeout": self._timeouts,
            },
        )
        with _translated():
            response = await self._transport.handle_async_request(request)
        answer = HttpxResponse(response)
        if not is_presentable(answer.status, answer.headers):
            await answer.aclose()
            raise UpstreamInvalidResponse
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
        case httpx2.TimeoutException():
            return UpstreamTimeout()
        case httpx2.LocalProtocolError():
            return InvalidHeader("A header cannot be forwarded.")
        case httpx2.RemoteProtocolError():
            return UpstreamInvalidResponse()
        case _:
            return UpstreamUnreachable()

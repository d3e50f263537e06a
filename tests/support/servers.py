"""Real servers on loopback: an upstream that does what a test scripts, any ASGI application under uvicorn.

The upstream speaks raw bytes in the test's own event loop, so that a test can hold it between two of them and
see exactly what arrived. The application runs as in production (uvicorn, httptools, uvloop) in a thread.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import socket
import ssl
import struct
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.http.server import server_config

T = TypeVar("T")

Script = Callable[["Exchange"], Awaitable[None]]
"""The behaviour of the upstream for one request."""

Header = tuple[bytes, bytes]

PATIENCE = 5.0
"""Seconds after which something that must happen counts as not happening."""

_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
_PORTS = itertools.cycle(range(10_000 + 2_500 * (_WORKER % 8), 12_500 + 2_500 * (_WORKER % 8)))
"""Ports of this process alone, below those that systems give to connections."""
_ACCEPTING = 3
"""Passes of asyncio's loop from a socket that is accepted to a connection that is served."""


@dataclass
class Received:
    """A request as the upstream saw it."""

    line: bytes
    headers: list[Header]
    raw_head: bytes
    raw_body: bytearray = field(default_factory=bytearray)
    """The body's bytes as they arrived, including chunk framing."""
    body: bytearray = field(default_factory=bytearray)

    @property
    def method(self) -> str:
        return self.line.split(b" ")[0].decode()

    @property
    def target(self) -> str:
        return self.line.split(b" ")[1].decode()

    def values(self, name: str) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name.encode()]

    def value(self, name: str) -> bytes | None:
        return next(iter(self.values(name)), None)

    def json(self) -> object:
        return json.loads(self.body)


class Exchange:
    """One request, which a script answers. `raw` writes any bytes; the other methods write HTTP."""

    def __init__(self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.request = request
        self._reader = reader
        self._writer = writer
        self._is_over = False

    async def part(self) -> bytes:
        """Return the next bytes of the body as they arrive, without framing; empty at its end."""
        if (self.request.value("transfer-encoding") or b"").lower() == b"chunked":
            return await self._chunk()
        left = int(self.request.value("content-length") or b"0") - len(self.request.body)
        part = await self._reader.read(min(left, 65536)) if left else b""
        self.request.raw_body += part
        self.request.body += part
        return part

    async def _chunk(self) -> bytes:
        if self._is_over:
            return b""
        size_line = await self._reader.readuntil(b"\r\n")
        part = await self._reader.readexactly(int(size_line, 16))
        self._is_over = not part
        self.request.raw_body += size_line + part + await self._reader.readexactly(2)
        self.request.body += part
        return part

    async def body(self) -> bytes:
        """Return the whole body."""
        while await self.part():
            pass
        return bytes(self.request.body)

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def start(self, status: int = 200, headers: Iterable[Header] = ()) -> None:
        """Begin a chunked answer."""
        head = b"HTTP/1.1 %d Status\r\n" % status
        for name, value in (*headers, (b"Transfer-Encoding", b"chunked")):
            head += name + b": " + value + b"\r\n"
        await self.raw(head + b"\r\n")

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def answer(self, status: int = 200, headers: Iterable[Header] = (), body: bytes = b"") -> None:
        """Send a whole answer, after the request was read to its end."""
        await self.body()
        head = b"HTTP/1.1 %d Status\r\n" % status
        for name, value in (*headers, (b"Content-Length", b"%d" % len(body))):
            head += name + b": " + value + b"\r\n"
        await self.raw(head + b"\r\n" + body)

    async def answer_json(self, value: object, status: int = 200) -> None:
        await self.answer(status, [(b"Content-Type", b"application/json")], json.dumps(value).encode())

    async def stream_events(self, events: Iterable[object]) -> None:
        """Send an event stream, one chunk per event, and `[DONE]`."""
        await self.body()
        await self.start(200, [(b"Content-Type", b"text/event-stream")])
        for event in events:
            await self.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
        await self.chunk(b"data: [DONE]\n\n")
        await self.end()

    async def gone(self) -> None:
        """Wait until the peer has closed its side."""
        try:
            while await self._reader.read(65536):
                pass
        except ConnectionError:
            pass

    def close(self) -> None:
        """Close the connection in an orderly way (FIN)."""
        self._writer.close()

    def reset(self) -> None:
        """Tear the connection down (RST)."""
        peer: socket.socket = self._writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


async def ok(exchange: Exchange) -> None:
    await exchange.answer_json({"ok": True})


class Counted(Protocol):
    """Something that counts its connections."""

    @property
    def open_connections(self) -> int: ...


class FakeUpstream:
    """A scripted upstream. `requests` are in the order of arrival; failures of a script fail the test.

    A script that ends leaves the connection open for the next request; `script` may be replaced at any time.
    """

    def __init__(self, script: Script = ok) -> None:
        self.script = script
        self.requests: list[Received] = []
        self.connections = 0
        self.open_connections = 0
        self.port = 0
        self.proxies: list[Counted] = []
        """The proxies that connect to this upstream."""
        self._failures: list[BaseException] = []
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def is_left(self) -> bool:
        """Whether no connection to it is left."""
        return self.open_connections + sum(proxy.open_connections for proxy in self.proxies) == 0

    @asynccontextmanager
    async def serve(self, tls: ssl.SSLContext | None = None) -> AsyncGenerator[FakeUpstream]:
        server = await asyncio.start_server(self._connected, sock=listener(), limit=2**20, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            # Who was accepted just now becomes a connection first: asyncio would lose it (`Server._attach`).
            asyncio.get_running_loop().remove_reader(server.sockets[0].fileno())
            for _ in range(_ACCEPTING):
                await asyncio.sleep(0)
            server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
        if self._failures:
            raise self._failures[0]

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._connection(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        task.add_done_callback(lambda _: writer.close())  # of one that was cancelled before it began, too

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            while not writer.is_closing():
                request = await _read_head(reader)
                self.requests.append(request)
                await self.script(Exchange(request, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The peer left, or the script closed the connection.
        except Exception as error:  # noqa: BLE001 - kept for the test, which raises it
            self._failures.append(error)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self.open_connections -= 1


async def _read_head(reader: asyncio.StreamReader) -> Received:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *lines = head[:-4].split(b"\r\n")
    headers = [(name, value.strip()) for name, _, value in (text.partition(b":") for text in lines)]
    return Received(line, headers, head)


class _Server(uvicorn.Server):
    """Uvicorn, stopped by events: itself it looks ten times a second, and tests start hundreds."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._up = threading.Event()
        self._stopped = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._up.set()
        await self._stopped.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in (*self.servers, *(sockets or ())):
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.002)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()

    def stop(self) -> None:
        assert self._up.wait(PATIENCE), "the server did not start"
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._stopped.set)


def _closed_by(app: ASGIApp, shutdown: Callable[[], Awaitable[None]]) -> ASGIApp:
    async def closing(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await app(scope, receive, send)
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await shutdown()
        await send({"type": "lifespan.shutdown.complete"})

    return closing


def listener() -> socket.socket:
    """Listen on a port that this run has not used for long.

    What still asks a server that is gone, or has yet to come, must not be heard by that of another test.
    """
    for port in _PORTS:
        with suppress(OSError):  # somebody else listens there
            return socket.create_server(("127.0.0.1", port))
    raise AssertionError


@contextmanager
def serve(
    app: ASGIApp,
    shutdown: Callable[[], Awaitable[None]] | None = None,
    *,
    request_timeout: float = PATIENCE,
) -> Generator[str]:
    """Serve an application in a thread; yields its URL. `shutdown` is for an app without a lifespan."""
    heard = listener()
    served = app if shutdown is None else _closed_by(app, shutdown)
    server = _Server(server_config(served, request_timeout=request_timeout))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [heard]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{heard.getsockname()[1]}"
    finally:
        server.stop()
        thread.join(PATIENCE)
        heard.close()


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fail if it does not within three times `PATIENCE`."""
    async with asyncio.timeout(3 * PATIENCE):
        while not condition():  # noqa: ASYNC110 - the condition is another thread's
            await asyncio.sleep(0.005)


async def awaited(ask: Callable[[], Awaitable[T]], is_meant: Callable[[T], object] = bool) -> T:
    """Return the answer once it is the one that is meant; fail if it is not within three times `PATIENCE`."""
    async with asyncio.timeout(3 * PATIENCE):
        while not is_meant(answer := await ask()):  # noqa: ASYNC110 - another process, or thread, changes it
            await asyncio.sleep(0.01)
    return answer


async def until(expected: object, ask: Callable[[], Awaitable[object]]) -> None:
    """Wait until the answer is as expected; fail if it is not within three times `PATIENCE`."""
    await awaited(ask, lambda answer: answer == expected)


class RawClient:
    """A client that writes and reads plain bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def until(self, marker: bytes) -> bytes:
        """Read everything up to and including `marker`."""
        async with asyncio.timeout(PATIENCE):
            return await self._reader.readuntil(marker)

    async def rest(self) -> bytes:
        """Read everything until the server closes the connection."""
        async with asyncio.timeout(PATIENCE):
            return await self._reader.read()

    def end(self) -> None:
        """Close the sending side only."""
        self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def connect(url: str) -> AsyncGenerator[RawClient]:
    """Connect to a server of this module."""
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=2**20)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()

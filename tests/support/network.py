"""A shim between a client and a server, which does to their bytes what networks do: a real one, on loopback.

Each fault is a member, set and taken back while it runs. What is under way keeps what was set when it began.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

_PACKET = 2048
"""Bytes that go through a slow line at once."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Shim:
    """Counts round trips, and can change the server's replies. A reply is what arrives in one piece."""

    connect: Callable[[], Awaitable[Streams]]
    url: str = ""
    trips: int = 0
    waiting: bool = False
    """Whether a request was sent whose reply has not begun."""
    refuses: bool = False
    """Whether connections end as they begin, as where no server is."""
    lag: float = 0.0
    """Seconds by which replies are delayed."""
    drip: float | None = None
    """Seconds between the single bytes of a reply."""
    rate: float | None = None
    """Bytes of replies that the line takes in a second; all connections share it."""
    stall: int | None = None
    """Number of bytes of a reply after which nothing more comes on its connection, which stays open."""
    lose_replies: bool = False
    """Whether the connection ends where a reply would begin."""
    lose_from: int | None = None
    """The round trip from which on the connection ends so; None: at none."""
    swallow: bool = False
    """Whether replies vanish while the connection stays open."""
    swallowed: int = 0
    cut: int | None = None
    """Number of bytes of a reply after which the connection ends."""
    resets: bool = False
    """Whether connections end by RST instead of FIN."""
    half_close: bool = False
    """Whether the server half-closes the connection after a reply."""
    garbage: bytes = b""
    """Bytes that are inserted before a reply."""
    stray: bytes = b""
    """Bytes that are inserted after a reply: an unrequested answer."""

    _line: asyncio.Lock = field(default_factory=asyncio.Lock)
    _upload: float | None = None
    _upload_line: asyncio.Lock = field(default_factory=asyncio.Lock)
    _clients: dict[asyncio.Task[None], asyncio.StreamWriter] = field(
        default_factory=dict["asyncio.Task[None]", asyncio.StreamWriter]
    )

    def upload(self, rate: float | None) -> None:
        """Have the line take so many bytes of requests in a second; with 0 it takes no more."""
        self._upload = rate
        for client in self._clients.values():
            _take_little_ahead(client)

    def part(self) -> None:
        """End all connections."""
        for writer in self._clients.values():
            writer.close()

    async def aclose(self) -> None:
        """End all connections, and wait until they have ended."""
        for task in (tasks := list(self._clients)):
            task.cancel()
        await asyncio.gather(*tasks)
        await asyncio.sleep(0)  # a transport closes its socket in the pass after

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay between one client and the server until either leaves."""
        # The server may be gone, or go; and asyncio reports a task of a server that was cancelled as a fault.
        with closing(writer), suppress(OSError, asyncio.CancelledError), self._known(writer):
            if self.refuses:
                raise ConnectionRefusedError
            server_reader, server_writer = await self.connect()
            pieces = asyncio.Queue[tuple[float, bytes]](maxsize=8)
            asked = asyncio.create_task(self._ask(reader, server_writer))
            read = asyncio.create_task(self._read(server_reader, pieces))
            with closing(server_writer):
                try:
                    await self._answer(pieces, writer)
                finally:
                    asked.cancel()
                    read.cancel()
                    if self.resets:
                        _reset(writer)

    @contextmanager
    def _known(self, writer: asyncio.StreamWriter) -> Generator[None]:
        task = asyncio.current_task()
        assert task is not None
        self._clients[task] = writer
        if self._upload is not None:
            _take_little_ahead(writer)
        try:
            yield
        finally:
            del self._clients[task]

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while request := await reader.read(65536):
                if not self.waiting:
                    self.trips += 1
                self.waiting = True
                await self._pass(request, writer, self._upload, self._upload_line)
        writer.close()

    async def _read(self, reader: asyncio.StreamReader, pieces: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Note when each piece is due: each is delayed by the lag, however soon it follows another."""
        with suppress(OSError):
            while piece := await reader.read(65536):
                await pieces.put((asyncio.get_running_loop().time() + self.lag, piece))
        await pieces.put((0.0, b""))

    async def _answer(self, pieces: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        is_closed = False
        while (due_and_reply := await pieces.get())[1]:
            due, reply = due_and_reply
            self.waiting = False
            if is_closed:
                continue
            if self.lose_replies or (self.lose_from is not None and self.trips >= self.lose_from):
                return
            if self.swallow:
                self.swallowed += 1
                continue
            await asyncio.sleep(due - asyncio.get_running_loop().time())
            whole = self.garbage + reply + self.stray
            most = self.cut if self.stall is None else self.stall
            await self._reply(whole if most is None else whole[:most], writer)
            if self.stall is not None and len(whole) > self.stall:
                await asyncio.Event().wait()
            if self.cut is not None:
                return
            if self.half_close:
                writer.write_eof()
                is_closed = True

    async def _reply(self, reply: bytes, writer: asyncio.StreamWriter) -> None:
        if self.drip is None:
            await self._pass(reply, writer, self.rate, self._line)
            return
        for byte in reply:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(self.drip)

    async def _pass(
        self, what: bytes, writer: asyncio.StreamWriter, rate: float | None, line: asyncio.Lock
    ) -> None:
        """Write it at once, or packet by packet at the rate of a line that others share."""
        size = len(what) if rate is None else _PACKET
        for at in range(0, len(what), size):
            packet = what[at : at + size]
            async with line if rate else nullcontext():
                if rate is not None:
                    await (asyncio.sleep(len(packet) / rate) if rate else asyncio.Event().wait())
                writer.write(packet)
                await writer.drain()


def _take_little_ahead(client: asyncio.StreamWriter) -> None:
    """Read no more at once than goes through a slow line, where asyncio reads a quarter of a megabyte."""
    cast("Any", client.transport).max_size = _PACKET


def _reset(writer: asyncio.StreamWriter) -> None:
    peer: socket.socket = writer.get_extra_info("socket")
    with suppress(OSError):  # one that has left by itself
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@asynccontextmanager
async def relaying(server: Path) -> AsyncGenerator[Shim]:
    """Run a shim in front of a server on a unix socket."""
    with tempfile.TemporaryDirectory(prefix="ua-") as directory:
        shim = Shim(lambda: asyncio.open_unix_connection(server), f"unix://{directory}/r")
        listener = await asyncio.start_unix_server(shim.serve, f"{directory}/r", limit=_PACKET)
        try:
            yield shim
        finally:
            listener.close()
            await shim.aclose()


@asynccontextmanager
async def relaying_to_port(port: int) -> AsyncGenerator[Shim]:
    """Run a shim in front of a server on a port of loopback."""
    shim = Shim(lambda: asyncio.open_connection("127.0.0.1", port))
    listener = await asyncio.start_server(shim.serve, "127.0.0.1", 0, limit=_PACKET)
    shim.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield shim
    finally:
        listener.close()
        await shim.aclose()

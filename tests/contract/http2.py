"""An HTTP/2 server on loopback, behind TLS, that does what a test scripts and keeps each stream."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

Script = Callable[["Stream"], Awaitable[None]]
OK = [(":status", "200")]


@dataclass
class Stream:
    """One request, in the hands of a script."""

    connection: Connection
    number: int
    headers: dict[bytes, bytes]
    body: bytearray = field(default_factory=bytearray)
    is_whole: asyncio.Event = field(default_factory=asyncio.Event)
    is_reset: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, body: bytes = b"", status: str = "200") -> None:
        """A whole answer, after the request was read to its end."""
        await self.is_whole.wait()
        self.connection.send_headers(self.number, [(":status", status)])
        await self.chunk(body, end=True)

    async def chunk(self, data: bytes, *, end: bool = False) -> None:
        """A piece of the answer, as fast as it is taken."""
        is_over = False
        while not is_over:
            room = await self.connection.room(self.number) if data else 0
            is_over = len(data) <= room or not data
            await self.connection.send_data(self.number, data[:room], end=end and is_over)
            data = data[room:]


class Connection:
    """One connection, with the streams on it."""

    def __init__(
        self, server: HTTP2Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.streams: dict[int, Stream] = {}
        self.h2: Any = import_module("h2.connection").H2Connection(
            import_module("h2.config").H2Configuration(client_side=False)
        )
        self._server = server
        self._reader, self._writer = reader, writer
        self._moves = asyncio.Event()

    async def serve(self) -> None:
        self.h2.initiate_connection()
        self.flush()
        tasks: list[asyncio.Task[None]] = []
        try:
            while data := await self._reader.read(65536):
                for event in self.h2.receive_data(data):
                    if type(event).__name__ == "RequestReceived":
                        stream = Stream(self, event.stream_id, dict(event.headers))
                        self.streams[stream.number] = stream
                        self._server.streams.append(stream)
                        tasks.append(asyncio.create_task(self._run(stream)))
                    self._on(event)
                self.flush()
                self._moves.set()
        finally:
            for task in tasks:
                task.cancel()

    def _on(self, event: Any) -> None:
        stream = self.streams.get(getattr(event, "stream_id", None) or 0)
        match type(event).__name__:
            case "DataReceived" if stream is not None:
                stream.body += event.data
                self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case "StreamEnded" if stream is not None:
                stream.is_whole.set()
            case "StreamReset" if stream is not None:
                stream.is_reset.set()
            case _:
                pass

    async def _run(self, stream: Stream) -> None:
        with suppress(ConnectionError):
            await self._server.script(stream)

    # --- for scripts ---

    def flush(self) -> None:
        self._writer.write(self.h2.data_to_send())

    def send_headers(self, number: int, headers: list[tuple[str, str]]) -> None:
        self.h2.send_headers(number, headers)
        self.flush()

    async def room(self, number: int) -> int:
        """Bytes that a stream may send at once; waits until there are some."""
        while not (room := min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size)):
            self._moves.clear()
            await self._moves.wait()
        return room

    async def send_data(self, number: int, data: bytes, *, end: bool = False) -> None:
        if data or end:
            self.h2.send_data(number, data, end_stream=end)
            self.flush()
            await self._writer.drain()

    def goodbye(self, last: int) -> None:
        """Take no streams after the last."""
        self.h2.close_connection(last_stream_id=last)
        self.flush()

    def raw(self, data: bytes) -> None:
        self._writer.write(data)

    def close(self) -> None:
        self._writer.close()


async def ok(stream: Stream) -> None:
    await stream.answer(b'{"ok": true}')


class HTTP2Server:
    """A scripted server; `script` may be replaced at any time."""

    def __init__(self, script: Script = ok) -> None:
        self.script = script
        self.streams: list[Stream] = []
        self.connections = 0
        self.open_connections = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open_connections += 1
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await Connection(self, reader, writer).serve()
        finally:
            writer.close()
            self.open_connections -= 1

    @asynccontextmanager
    async def serve(self, tls: ssl.SSLContext) -> AsyncGenerator[HTTP2Server]:
        tls.set_alpn_protocols(["h2"])
        tasks: set[asyncio.Task[None]] = set()

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

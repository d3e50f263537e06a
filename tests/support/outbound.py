"""An outbound HTTP proxy on loopback, as companies have them: it tunnels by CONNECT and forwards whole URLs.

Whatever name is asked for, it connects to one server, so that tests may ask for names that are nobody's.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import struct
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field


@dataclass
class OutboundProxy:
    """A proxy that connects to `port`. Tests set its members while it runs."""

    port: int = 0
    tls: ssl.SSLContext | None = None
    """The TLS context with which tunnels are decrypted; None passes their bytes on."""
    password: str | None = None
    """The required credentials as `user:password`; None: none are required."""
    answer: bytes | None = None
    """The answer to each request, instead of serving it."""
    is_silent: bool = False
    open_connections: int = 0
    url: str = ""
    carried: list[str] = field(default_factory=list[str])
    """The request lines of all requests."""
    credentials: list[str] = field(default_factory=list[str])
    """The credentials of all requests that had any."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        self.open_connections += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                line, *headers = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
                if self.is_silent:
                    await reader.read()
                elif (refusal := self._refusal(line, headers)) is not None:
                    writer.write(refusal)
                else:
                    await self._lead(line, headers, reader, writer)
        finally:
            writer.close()
            self.open_connections -= 1

    def _refusal(self, line: bytes, headers: list[bytes]) -> bytes | None:
        self.carried.append(line.decode())
        said = [each.rpartition(b" ")[2] for each in headers if each.startswith(b"Proxy-Authorization:")]
        self.credentials += [base64.b64decode(each).decode() for each in said]
        if self.answer is None and self.password and self.password not in self.credentials[-1:]:
            return b"HTTP/1.1 407 Who?\r\nContent-Length: 0\r\n\r\n"
        return self.answer

    async def _lead(
        self,
        line: bytes,
        headers: list[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        answers, upstream = await asyncio.open_connection("127.0.0.1", self.port)
        is_tunnel = line.startswith(b"CONNECT ")
        tasks: list[asyncio.Task[None]] = []
        try:
            if is_tunnel:
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
                if self.tls is not None:
                    await writer.start_tls(self.tls)
            else:
                kept = [each for each in headers if not each.startswith(b"Proxy-Authorization:")]
                upstream.write(_origin_form(b"\r\n".join([line, *kept, b"\r\n"])))
            ways = (_pass_on(reader, upstream, bytes if is_tunnel else _origin_form),)
            tasks = [asyncio.create_task(each) for each in (*ways, _pass_on(answers, writer, bytes))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            upstream.close()


def _origin_form(data: bytes) -> bytes:
    """Return a request with an absolute URL in the form for an origin server."""
    first, _, rest = data.partition(b"\r\n")
    words = first.split(b" ")
    if len(words) != 3 or not words[1].startswith(b"http://"):
        return data
    words[1] = b"/" + words[1].split(b"/", 3)[3]
    return b" ".join(words) + b"\r\n" + rest


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rewrite: Callable[[bytes], bytes]
) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(rewrite(data))
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        writer.close()
    except ConnectionError:
        peer: socket.socket = writer.get_extra_info("socket")
        with suppress(OSError):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


@asynccontextmanager
async def outbound_proxy(port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncGenerator[OutboundProxy]:
    """Run a proxy that connects to a port of loopback."""
    proxy, tasks = OutboundProxy(port, tls), set[asyncio.Task[None]]()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(proxy.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**20)
    proxy.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

"""Just enough HTTP for a client that may leave at any byte: a connection a request, nothing in between.

A client of a library costs more here than the proxies that are tested.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit


class ConnectionBrokenError(Exception):
    """The server closed before the message was whole."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of an answer, and its body as it arrives."""

    status: int
    headers: Mapping[str, str]
    _reader: asyncio.StreamReader

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body's bytes. Raises ConnectionBrokenError where it ends too early."""
        try:
            if self.headers.get("transfer-encoding") == "chunked":
                while size := int(await self._reader.readuntil(b"\r\n"), 16):
                    yield (await self._reader.readexactly(size + 2))[:-2]
            else:
                yield await self._reader.readexactly(int(self.headers["content-length"]))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ConnectionBrokenError from error


@asynccontextmanager
async def post(url: str, headers: Mapping[str, str], body: bytes) -> AsyncGenerator[Answer]:
    """Send a request; whoever leaves the context leaves the server. Raises ConnectionBrokenError."""
    parts = urlsplit(url)
    lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"Content-Length: {len(body)}", "", ""]
    writer: asyncio.StreamWriter | None = None
    try:
        reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
        writer.write("\r\n".join(lines).encode() + body)
        yield await _head(reader)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        raise ConnectionBrokenError from error
    finally:
        if writer is not None:
            writer.close()


async def _head(reader: asyncio.StreamReader) -> Answer:
    status, *lines = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    return Answer(int(status.split(" ")[1]), headers, reader)

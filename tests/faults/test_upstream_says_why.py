"""An upstream that does not answer: clients hear what kind of fault it is, and the log where."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.clients import CHAT, HELLO, KEY, proxying
from tests.support.servers import PATIENCE
from tests.support.stores import free_port

CERTIFICATE = Path(__file__).parents[1] / "contract" / "certificate" / "certificate.pem"
SILENCE = 0.4
"""Seconds that the proxies here wait for the upstream."""
Server = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write_eof()  # what is still to be read would make a reset of it
    await reader.read()


async def resetting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    peer: socket.socket = writer.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


FAULTS: dict[str, tuple[str, Server, int, str, str]] = {
    "a closed port": ("http://localhost:{closed}", silent, 502, "upstream_unreachable", "connection refused"),
    "no such name": ("http://nobody.invalid", silent, 502, "upstream_unreachable", "name not found"),
    "a certificate of its own": (
        "https://localhost:{tls}",
        silent,
        502,
        "upstream_unreachable",
        "certificate not trusted",
    ),
    "no TLS": ("https://localhost:{port}", plain, 502, "upstream_unreachable", "TLS handshake failed"),
    "silence": ("http://localhost:{port}", silent, 504, "upstream_timeout", "timed out"),
    "silence while connecting": ("https://localhost:{port}", silent, 504, "upstream_timeout", "timed out"),
    "an end": ("http://localhost:{port}", closing, 502, "upstream_invalid_response", "connection closed"),
    "a reset": ("http://localhost:{port}", resetting, 502, "upstream_unreachable", "connection reset"),
}


async def listening(stack: AsyncExitStack, server: Server, tls: ssl.SSLContext | None = None) -> int:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await server(reader, writer)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    await stack.enter_async_context(listener)
    return listener.sockets[0].getsockname()[1]


@pytest.fixture(params=["httptools", "httpx"])
def http_client(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("what", FAULTS)
async def test_what_keeps_it_from_answering_is_said(
    http_client: str, what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    url, server, status, code, kind = FAULTS[what]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_name("key.pem"))
    async with AsyncExitStack() as stack:
        ports = await listening(stack, server), await listening(stack, server, context)
        url = url.format(port=ports[0], tls=ports[1], closed=free_port())
        limits: dict[str, Any] = {"upstream_connect_timeout": SILENCE, "upstream_read_timeout": SILENCE}
        proxy = await stack.enter_async_context(
            proxying(f"{url}/inner/v1", http_client=http_client, **limits)
        )
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=proxy, timeout=PATIENCE))
        headers = {"Authorization": KEY, "Content-Type": "application/json"}
        managed = await client.post(CHAT, content=HELLO, headers=headers)
        relayed = await client.get("/v1/files?marker=1", headers=headers)
    for refused in (managed, relayed):
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (status, code)
        assert kind in error["message"]
        assert not any(word in error["message"] for word in ("local", "invalid:", "127", "inner", "http:"))
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    told = [line for line in lines if line["message"] == "the upstream failed"]
    assert len(told) >= 2
    for line in told:
        assert line["code"] == code
        assert kind in line["why"]
        assert line["host"] == url.partition("//")[2]
        assert not any(word in str(line) for word in ("sk-test", "marker", "inner"))

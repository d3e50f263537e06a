"""Clients that leave a stream at any chunk, and clients that dawdle."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

import httpx2
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.app import create_app
from proxy.config import Settings
from tests.support.clients import CHAT, SECRET, STREAMED, Chats, Small
from tests.support.servers import Exchange, FakeUpstream, RawClient, connect, eventually, serve
from tests.support.upstreams import (
    DONE,
    EVENTS,
    JSON,
    Model,
    events,
    said,
    sse,
)


def watched(app: ASGIApp) -> ASGIApp:
    """The application, which also tells at ``/tasks`` how many tasks there are in its event loop."""

    async def watching(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/tasks":
            await app(scope, receive, send)
            return
        body = str(len(asyncio.all_tasks())).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    return watching


@asynccontextmanager
async def watched_proxy(upstream: str) -> AsyncGenerator[str]:
    settings = Settings.load(upstream=upstream, store="memory://", secret=SECRET, admin_token="admin")
    server = serve(watched(create_app(settings)))
    try:
        yield server.__enter__()
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)


def request(body: bytes = STREAMED, **headers: str) -> bytes:
    lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    lines = [f"POST {CHAT} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *lines]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def settled(client: httpx2.AsyncClient) -> tuple[int, float]:
    """Tasks in the proxy, and the streams that it counts, once they no longer change."""
    seen = [(-1, -1.0), (0, 0.0)]
    while len(set(seen[-3:])) > 1:
        await asyncio.sleep(0.01)
        tasks = int((await client.get("/tasks")).text)
        lines = (await client.get("/metrics")).text.splitlines()
        streams = next(line for line in lines if line.startswith("unabridged_streams_active"))
        seen.append((tasks, float(streams.split()[1])))
    return seen[-1]


PIECES = [*map(sse, events(said("Hello there"))), DONE]
LEAVING: dict[str, tuple[list[bytes], bytes]] = {
    "before the answer": ([], b""),
    "within the first event": ([PIECES[0][:20]], b""),
    **{
        f"after chunk {number}": (PIECES[:number], PIECES[number - 1]) for number in range(1, len(PIECES) + 1)
    },
    "within an event": ([*PIECES[:2], PIECES[2][:20]], PIECES[2][:20]),
    "within the usage": ([*PIECES[:2], b'data: {"choices":[],"us'], PIECES[1]),
}


async def test_a_client_that_leaves_at_any_chunk_leaves_nothing_behind() -> None:
    model = Model()
    async with (
        FakeUpstream(model.serve_one).serve() as upstream,
        watched_proxy(f"{upstream.url}/v1") as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        assert (await client.post(CHAT, content=STREAMED, headers=[JSON])).status_code == 200
        before = await settled(client)
        for pieces, seen in LEAVING.values():
            await leave(model, url, pieces, seen)
        await eventually(lambda: upstream.open_connections <= 1)
        assert await settled(client) == before


async def leave(model: Model, url: str, pieces: list[bytes], seen: bytes) -> None:
    """Ask, see as much as can be seen, hang up; the upstream's connection is closed within a second."""
    waiting, gone = asyncio.Event(), asyncio.Event()

    async def waits(exchange: Exchange) -> None:
        if pieces:
            await exchange.start(200, [EVENTS])
            await asyncio.sleep(0)
        for piece in pieces:
            await exchange.chunk(piece)
        waiting.set()
        await exchange.gone()
        gone.set()

    model.replies.append(waits)
    async with connect(url) as raw:
        await raw.send(request())
        await waiting.wait()
        if seen:
            await raw.until(seen)
    async with asyncio.timeout(1):
        await gone.wait()


async def test_after_clients_have_left_background_work_goes_on(
    model: Model, chats: Chats, small: Small
) -> None:
    """Summaries are written only while nobody is being answered: somebody who left must not count."""
    url = await small(800)
    for pieces, seen in LEAVING.values():
        await leave(model, url, pieces, seen)
    chat = chats(url)
    summaries: list[str] = []
    for number in range(12):
        response = await chat.ask(f"Question {number}: what became of it? " + "Tell me all of it. " * 8)
        summaries.append(response.headers["x-unabridged-summary"])
    assert {"ready", "waited"} & set(summaries)


async def test_a_client_that_reads_slowly_slows_the_upstream_down(model: Model, url: str) -> None:
    """Memory stays flat: what the client does not take, the upstream cannot send."""
    written = 0
    event = b": %b\n\n" % (b"x" * 60_000)

    async def pours(exchange: Exchange) -> None:
        nonlocal written
        await exchange.start(200, [EVENTS])
        for _ in range(256 * 2**20 // len(event)):
            await exchange.chunk(event)
            written += len(event)

    model.replies.append(pours)
    async with narrow(url) as raw:
        await raw.send(request())
        await raw.until(b"\r\n\r\n")
        full = await standstill(lambda: written)
        assert full < 32 * 2**20, "what fits into the sockets between them, and no more"
        for _ in range(full // len(event)):
            await raw.until(b"\n\n")
        assert await standstill(lambda: written) > full, "it goes on when the client does"


@asynccontextmanager
async def narrow(url: str) -> AsyncGenerator[RawClient]:
    """A client whose socket takes little at a time."""
    host, port = url.removeprefix("http://").split(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (host, int(port)))
    reader, writer = await asyncio.open_connection(sock=sock, limit=2**17)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()


async def standstill(value: Callable[[], int]) -> int:
    """The value, once it has stopped growing."""
    last = -1
    while last < value():
        last = value()
        await asyncio.sleep(0.1)
    return last

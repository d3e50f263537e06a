"""`unabridged serve` is told to end while it answers: readiness, then the streams, then the listener."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.servers import PATIENCE, Exchange, FakeUpstream, connect
from tests.upstreams import DONE, EVENTS, Model, sse

START = 30.0
HELLO = {"model": "gpt-test", "messages": [{"role": "user", "content": "Hello"}]}
STREAM = HELLO | {"stream": True}


class Served:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.chat = f"{url}/v1/chat/completions"

    async def ends(self) -> int:
        return await asyncio.to_thread(self.process.wait, PATIENCE * 2)


def start(data: Path, upstream: str, *flags: str, **variables: str) -> subprocess.Popen[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("UNABRIDGED_", "OPENAI_"))
    }
    environment |= {"UNABRIDGED_DATA_DIR": str(data), "UNABRIDGED_UPSTREAM": upstream, **variables}
    words = [sys.executable, "-m", "proxy", "serve", "--port", "0", "--json", "--store", "memory://", *flags]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=quiet, text=True, env=environment)


@asynccontextmanager
async def serving(data: Path, upstream: str, *flags: str, **variables: str) -> AsyncGenerator[Served]:
    process = start(data, upstream, *flags, **variables)
    assert process.stdout is not None
    try:
        told = json.loads(await asyncio.to_thread(process.stdout.readline) or "{}")
        served = Served(process, told["base_url"].removesuffix("/v1"))
        await becomes(served, 200, START)
        yield served
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        process.stdout.close()


async def readiness(served: Served) -> int | None:
    """What a probe is told, on a connection of its own; None where nobody listens."""
    try:
        async with httpx2.AsyncClient(timeout=PATIENCE) as probe:
            return (await probe.get(f"{served.url}/readyz")).status_code
    except httpx2.HTTPError:
        return None


async def becomes(served: Served, status: int | None, within: float = PATIENCE) -> None:
    async with asyncio.timeout(within):
        while await readiness(served) != status:
            assert served.process.poll() is None or status is None, "serve ended"
            await asyncio.sleep(0.02)


class Streaming(Model):
    """A model whose streams stop in the middle until they may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()

    async def serve_one(self, exchange: Exchange) -> None:
        body = json.loads(await exchange.body() or b"{}")
        if not body.get("stream"):
            await exchange.answer_json({"choices": []})
            return
        await exchange.start(200, [EVENTS])
        await exchange.chunk(sse({"choices": [], "first": True}))
        await self.go_on.wait()
        await exchange.chunk(sse({"choices": [], "last": True}) + DONE)
        await exchange.end()


@pytest.fixture
async def model() -> AsyncIterator[Streaming]:
    model = Streaming()
    async with FakeUpstream(model.serve_one).serve() as upstream:
        model.url = f"{upstream.url}/v1"
        yield model


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(timeout=PATIENCE * 2) as opened:
        yield opened


async def ask(client: httpx2.AsyncClient, served: Served) -> httpx2.Response:
    return await client.post(served.chat, json=HELLO)


async def streaming(client: httpx2.AsyncClient, served: Served) -> asyncio.Task[str]:
    """A stream that has begun; its whole text in the end."""
    begun = asyncio.Event()

    async def read() -> str:
        text = ""
        async with client.stream("POST", served.chat, json=STREAM) as response:
            async for piece in response.aiter_text():
                text += piece
                begun.set()
        return text

    task = asyncio.create_task(read())
    await asyncio.wait_for(begun.wait(), PATIENCE)
    return task


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_streams_drain_while_readiness_says_no_and_then_it_ends(
    model: Streaming, client: httpx2.AsyncClient, tmp_path: Path, workers: str
) -> None:
    async with serving(tmp_path, model.url, "--workers", workers) as served:
        streams = [await streaming(client, served) for _ in range(6)]
        served.process.send_signal(signal.SIGTERM)
        await becomes(served, 503)
        late = await ask(client, served)
        assert (late.status_code, late.headers["connection"]) == (200, "close")
        model.go_on.set()
        for text in await asyncio.gather(*streams):
            assert '"last": true' in text
            assert text.endswith(DONE.decode())
        assert await served.ends() == 0


async def test_a_connection_that_was_kept_alive_is_told_too(
    model: Streaming, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    async with serving(tmp_path, model.url) as served, connect(served.url) as kept:
        probe = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n"
        await kept.send(probe)
        assert (await kept.until(b"}")).startswith(b"HTTP/1.1 200 ")
        stream = await streaming(client, served)
        served.process.send_signal(signal.SIGTERM)
        await becomes(served, 503)
        await kept.send(probe)
        answer = await kept.rest()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nconnection: close\r\n" in answer
        model.go_on.set()
        assert (await stream).endswith(DONE.decode())


async def test_after_a_grace_new_requests_are_sent_elsewhere(
    model: Streaming, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    async with serving(tmp_path, model.url, UNABRIDGED_DRAIN_TIMEOUT="4") as served:
        stream = await streaming(client, served)
        served.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(4):
            while (late := await ask(client, served)).status_code == 200:  # noqa: ASYNC110 - its time passes
                await asyncio.sleep(0.05)
        assert (late.status_code, late.json()["error"]["code"]) == (503, "unavailable")
        assert (late.headers["retry-after"], late.headers["connection"]) == ("1", "close")
        assert await readiness(served) == 503
        model.go_on.set()
        assert (await stream).endswith(DONE.decode())
        assert await served.ends() == 0


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_stream_that_does_not_end_is_cut_off_when_time_is_up(
    model: Streaming, client: httpx2.AsyncClient, tmp_path: Path, workers: str
) -> None:
    flags = ("--workers", workers)
    async with serving(tmp_path, model.url, *flags, UNABRIDGED_DRAIN_TIMEOUT="0.5") as served:
        stream = await streaming(client, served)
        served.process.send_signal(signal.SIGTERM)
        assert await served.ends() == 0
        with pytest.raises(httpx2.HTTPError):
            await stream


async def test_a_second_ctrl_c_does_not_wait(
    model: Streaming, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    async with serving(tmp_path, model.url) as served:
        stream = await streaming(client, served)
        served.process.send_signal(signal.SIGINT)
        await becomes(served, 503)
        served.process.send_signal(signal.SIGINT)
        assert await served.ends() == 0
        with pytest.raises(httpx2.HTTPError):
            await stream


async def test_with_nothing_under_way_it_ends_at_once(model: Streaming, tmp_path: Path) -> None:
    async with serving(tmp_path, model.url) as served, connect(served.url) as idle:
        served.process.send_signal(signal.SIGTERM)
        assert await served.ends() == 0
        assert await idle.rest() == b""

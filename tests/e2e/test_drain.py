"""`unabridged serve` is told to end while it answers: readiness, then the streams, then the listener."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx2
import pytest

from tests.support.processes import LOG, Serving, serving
from tests.support.servers import PATIENCE, Exchange, FakeUpstream, awaited, connect
from tests.support.upstreams import DONE, EVENTS, Model, sse

HELLO = {"model": "gpt-test", "messages": [{"role": "user", "content": "Hello"}]}
STREAM = HELLO | {"stream": True}


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


def before(
    model: Model, data: Path, *flags: str, timeout: str = "30"
) -> AbstractAsyncContextManager[Serving]:
    """A server that drains for `timeout` seconds at most."""
    words = ("--upstream", model.url, *flags)
    return serving(data, *words, UNABRIDGED_DRAIN_TIMEOUT=timeout)


async def ask(client: httpx2.AsyncClient, served: Serving) -> httpx2.Response:
    return await client.post(f"{served.url}/v1/chat/completions", json=HELLO)


async def streaming(client: httpx2.AsyncClient, served: Serving) -> asyncio.Task[str]:
    """A stream that has begun; its whole text in the end."""
    begun = asyncio.Event()

    async def read() -> str:
        text = ""
        async with client.stream("POST", f"{served.url}/v1/chat/completions", json=STREAM) as response:
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
    async with before(model, tmp_path, "--workers", workers) as served:
        streams = [await streaming(client, served) for _ in range(6)]
        served.process.send_signal(signal.SIGTERM)
        await served.becomes(503)
        while (late := await ask(client, served)).status_code == 503:
            assert workers == "2", "the only one still has streams"  # another, without any, was just ending
            assert (late.json()["error"]["code"], late.headers["retry-after"]) == ("unavailable", "1")
        assert (late.status_code, late.headers["connection"]) == (200, "close")
        model.go_on.set()
        for text in await asyncio.gather(*streams):
            assert '"last": true' in text
            assert text.endswith(DONE.decode())
        assert await served.ends() == 0


async def test_a_connection_that_was_kept_alive_is_told_too(
    model: Streaming, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    async with before(model, tmp_path) as served, connect(served.url) as kept:
        probe = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
        await kept.send(probe)
        assert (await kept.until(b"}")).startswith(b"HTTP/1.1 200 ")
        stream = await streaming(client, served)
        served.process.send_signal(signal.SIGTERM)
        await served.becomes(503)
        await kept.send(probe)
        answer = await kept.rest()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nconnection: close\r\n" in answer
        model.go_on.set()
        assert (await stream).endswith(DONE.decode())


async def test_after_a_grace_new_requests_are_sent_elsewhere(
    model: Streaming, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    async with before(model, tmp_path, timeout="4") as served:
        stream = await streaming(client, served)
        served.process.send_signal(signal.SIGTERM)
        late = await awaited(lambda: ask(client, served), lambda answer: not answer.is_success)
        assert (late.status_code, late.json()["error"]["code"]) == (503, "unavailable")
        assert (late.headers["retry-after"], late.headers["connection"]) == ("1", "close")
        assert await served.readiness() == 503
        model.go_on.set()
        assert (await stream).endswith(DONE.decode())
        assert await served.ends() == 0


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.soak)])
async def test_a_stream_that_does_not_end_is_cut_off_when_time_is_up(
    model: Streaming, client: httpx2.AsyncClient, tmp_path: Path, workers: str
) -> None:
    flags = ("--workers", workers)
    async with before(model, tmp_path, *flags, timeout="0.5") as served:
        stream = await streaming(client, served)
        served.process.send_signal(signal.SIGTERM)
        assert await served.ends() == 0
        with pytest.raises(httpx2.HTTPError):
            await stream


async def test_a_second_ctrl_c_does_not_wait(
    model: Streaming, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    async with before(model, tmp_path) as served:
        stream = await streaming(client, served)
        served.process.send_signal(signal.SIGINT)
        await served.becomes(503)
        served.process.send_signal(signal.SIGINT)
        assert await served.ends() == 0
        with pytest.raises(httpx2.HTTPError):
            await stream
    assert "Traceback" not in (tmp_path / LOG).read_text()


async def test_with_nothing_under_way_it_ends_at_once(model: Streaming, tmp_path: Path) -> None:
    async with before(model, tmp_path) as served, connect(served.url) as idle:
        served.process.send_signal(signal.SIGTERM)
        assert await served.ends() == 0
        assert await idle.rest() == b""


async def test_whoever_watches_the_page_does_not_hold_the_server_up(
    model: Streaming, client: httpx2.AsyncClient, tmp_path: Path
) -> None:
    async with before(model, tmp_path) as served:
        token = (tmp_path / "admin-token").read_text(encoding="ascii").strip()
        headers = {"Authorization": f"Bearer {token}"}
        async with client.stream("GET", f"{served.url}/unabridged/v1/events", headers=headers) as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            ended = asyncio.create_task(served.end())
            async for _ in lines:
                pass
            assert await ended == 0

"""What becomes of an answer on its way through the relay, byte by byte and while it is made."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from tests.support.relay import MIB, Stage, head
from tests.support.servers import (
    PATIENCE,
    Exchange,
    RawClient,
    eventually,
)


async def test_an_answer_keeps_status_headers_and_bytes(stage: Stage) -> None:
    async def script(exchange: Exchange) -> None:
        headers = [
            (b"Retry-After", b"7"),
            (b"Set-Cookie", b"a=1"),
            (b"Set-Cookie", b"b=2"),
            (b"X-Request-Id", b"upstream"),
            (b"Connection", b"keep-alive, X-Private"),
            (b"X-Private", b"mine"),
            (b"Keep-Alive", b"timeout=5"),
        ]
        await exchange.answer(429, headers, b'{"error": {}}')

    stage.upstream.script = script
    response = await stage.client.get("/v1/models")
    assert response.status_code == 429
    assert response.content == b'{"error": {}}'
    assert response.headers.multi_items() == [
        ("retry-after", "7"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
        ("x-request-id", "upstream"),
        ("content-length", "13"),
    ]


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503, 529])
async def test_an_error_of_the_upstream_passes(stage: Stage, status: int) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer_json({"error": {"code": "theirs"}}, status)

    stage.upstream.script = script
    response = await stage.client.post("/v1/embeddings", json={})
    assert (response.status_code, response.json()) == (status, {"error": {"code": "theirs"}})


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_without_a_body_is_complete(stage: Stage, status: int) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 %d X\r\nContent-Length: 5\r\n\r\n" % status if status == 304 else b"")
        await exchange.raw(b"HTTP/1.1 204 X\r\n\r\n" if status == 204 else b"")

    stage.upstream.script = script
    for _ in range(2):
        assert (await stage.client.get("/v1/models")).status_code == status


async def test_a_redirect_is_the_clients_to_follow(stage: Stage) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(302, [(b"Location", b"http://elsewhere.invalid/")])

    stage.upstream.script = script
    response = await stage.client.get("/v1/files/f/content", headers={"authorization": "Bearer key"})
    assert (response.status_code, response.headers["location"]) == (302, "http://elsewhere.invalid/")
    assert len(stage.upstream.requests) == 1


@pytest.mark.parametrize("coding", [b"gzip", b"br", b"zstd", b"gzip, br"])
async def test_a_compressed_answer_is_not_unpacked(stage: Stage, raw: RawClient, coding: bytes) -> None:
    packed = gzip.compress(b"text " * 1000)  # what it is named is all that counts

    async def script(exchange: Exchange) -> None:
        await exchange.answer(200, [(b"Content-Encoding", coding)], packed)

    stage.upstream.script = script
    await raw.send(head("GET /v1/models HTTP/1.1", "Connection: close"))
    answer_head, body = (await raw.rest()).split(b"\r\n\r\n", 1)
    assert body == packed
    assert b"content-encoding: " + coding in answer_head.lower()
    assert b"content-length: %d\r\n" % len(packed) in answer_head.lower() + b"\r\n"


async def test_a_client_has_each_event_before_the_upstream_sends_the_next(stage: Stage) -> None:
    events = [b'data: {"n": %d}\n\n' % n for n in range(5)]
    seen = asyncio.Semaphore(0)

    async def script(exchange: Exchange) -> None:
        await exchange.start(200, [(b"Content-Type", b"text/event-stream")])
        for event in events:
            await exchange.chunk(event)
            await seen.acquire()
        await exchange.end()

    stage.upstream.script = script
    arrived: list[bytes] = []
    async with stage.client.stream("POST", "/v1/responses", json={"stream": True}) as response:
        async for chunk in response.aiter_raw():
            arrived.append(chunk)
            seen.release()
    assert arrived == events


async def test_audio_is_heard_while_it_is_made(stage: Stage) -> None:
    sound = [bytes([n]) * 4000 for n in range(5)]
    heard = asyncio.Semaphore(0)

    async def script(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.start(200, [(b"Content-Type", b"audio/mpeg")])
        for part in sound:
            await exchange.chunk(part)
            await heard.acquire()
        await exchange.end()

    stage.upstream.script = script
    arrived: list[bytes] = []
    async with stage.client.stream("POST", "/v1/audio/speech", json={"input": "Hello"}) as response:
        async for part in response.aiter_raw():
            arrived.append(part)
            heard.release()
    assert arrived == sound


async def test_an_answer_comes_no_faster_than_the_client_reads(stage: Stage, raw: RawClient) -> None:
    sent = 0
    stalled = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.start()
        while True:
            try:
                async with asyncio.timeout(0.3):
                    await exchange.chunk(b"a" * MIB)
            except TimeoutError:
                stalled.set()
                await exchange.gone()
                return
            sent += 1
            assert sent < 100, "the proxy reads on while its client does not"

    stage.upstream.script = script
    await raw.send(head("GET /v1/files/f/content HTTP/1.1"))
    await asyncio.wait_for(stalled.wait(), PATIENCE)
    raw.close()


async def test_connections_are_used_again(stage: Stage) -> None:
    for _ in range(3):
        await stage.client.post("/v1/embeddings", json={"input": "a"})
    assert (len(stage.upstream.requests), stage.upstream.connections) == (3, 1)


async def test_an_idle_connection_that_the_upstream_closed_fails_no_request(stage: Stage) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer()
        exchange.close()

    stage.upstream.script = script
    for _ in range(3):
        assert (await stage.client.post("/v1/embeddings", json={})).status_code == 200
        await eventually(lambda: stage.upstream.open_connections == 0)

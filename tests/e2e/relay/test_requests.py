"""What becomes of a request on its way through the relay, byte by byte."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.relay import MIB, Stage, head
from tests.support.servers import (
    PATIENCE,
    Exchange,
    RawClient,
)


async def test_path_and_query_arrive_as_they_were_written(stage: Stage, raw: RawClient) -> None:
    await raw.send(head("GET /v1/files/a%2Bb%20%7e;v=1?after=%41&&x HTTP/1.1"))
    await raw.until(b"}")
    assert stage.upstream.requests[0].target == "/base/files/a%2Bb%20%7e;v=1?after=%41&&x"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"])
async def test_every_method_is_relayed(stage: Stage, method: str) -> None:
    response = await stage.client.request(method, "/v1/files/f")
    assert response.status_code == 200
    assert stage.upstream.requests[0].method == method


async def test_head_has_the_headers_of_an_answer_and_no_body(stage: Stage) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX-A: 1\r\n\r\n")

    stage.upstream.script = script
    for _ in range(2):
        response = await stage.client.head("/v1/files/f/content")
        assert (response.headers["content-length"], response.headers["x-a"]) == ("1234", "1")


async def test_request_headers_cross_but_for_those_of_the_connection_and_ours(
    stage: Stage, raw: RawClient
) -> None:
    await raw.send(
        head(
            "GET /v1/models HTTP/1.1",
            "Authorization: Bearer key",
            "X-Two: 1",
            "X-Two: 2",
            "Accept-Encoding: br, zstd",
            "Connection: keep-alive, X-Private",
            "X-Private: mine",
            "Keep-Alive: timeout=5",
            "TE: trailers",
            "X-Unabridged-Session: s",
            "x-stainless-retry-count: 0",
        )
    )
    await raw.until(b"}")
    assert stage.upstream.requests[0].headers == [
        (b"host", f"127.0.0.1:{stage.upstream.port}".encode()),
        (b"authorization", b"Bearer key"),
        (b"x-two", b"1"),
        (b"x-two", b"2"),
        (b"accept-encoding", b"br, zstd"),
        (b"x-stainless-retry-count", b"0"),
    ]


async def test_a_multipart_upload_arrives_byte_for_byte(stage: Stage) -> None:
    audio = bytes(range(256)) * 1000
    request = stage.client.build_request(
        "POST", "/v1/audio/transcriptions", files={"file": ("a.wav", audio)}, data={"model": "whisper-1"}
    )
    await request.aread()
    await stage.client.send(request)
    received = stage.upstream.requests[0]
    assert bytes(received.body) == request.content
    assert received.value("content-type") == request.headers["content-type"].encode()
    assert received.value("content-length") == b"%d" % len(request.content)


@pytest.mark.parametrize("framing", ["Content-Length: 20971520", "Transfer-Encoding: chunked"])
async def test_a_large_upload_arrives_while_it_is_being_sent(
    stage: Stage, raw: RawClient, framing: str
) -> None:
    first_seen = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        assert len(await exchange.part()) > 0
        first_seen.set()
        await exchange.answer()

    stage.upstream.script = script
    part = b"a" * MIB
    wire = part if "Length" in framing else b"%x\r\n%b\r\n" % (len(part), part)
    await raw.send(head("POST /v1/files HTTP/1.1", framing) + wire)
    await asyncio.wait_for(first_seen.wait(), PATIENCE)
    for _ in range(19):
        await raw.send(wire)
    if "chunked" in framing:
        await raw.send(b"0\r\n\r\n")
    assert (await raw.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert stage.upstream.requests[0].body == part * 20


async def test_an_upload_goes_no_faster_than_the_upstream_reads(stage: Stage, raw: RawClient) -> None:
    read_on = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await read_on.wait()
        await exchange.answer()

    stage.upstream.script = script
    size = 64 * MIB
    await raw.send(head("POST /v1/files HTTP/1.1", f"Content-Length: {size}"))
    sent = 0

    async def upload() -> None:
        nonlocal sent
        while sent < size:
            await raw.send(b"a" * MIB)
            sent += MIB

    uploading = asyncio.create_task(upload())
    before = -1
    while before != sent:
        before = sent
        await asyncio.sleep(0.15)
    # What was accepted so far stands in the sockets' buffers, not in the proxy.
    assert sent < size
    read_on.set()
    await asyncio.wait_for(uploading, PATIENCE)
    assert (await raw.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert len(stage.upstream.requests[0].body) == size


async def test_a_client_that_asks_before_it_uploads_is_told_to_go_on(stage: Stage, raw: RawClient) -> None:
    await raw.send(head("POST /v1/files HTTP/1.1", "Content-Length: 5", "Expect: 100-continue"))
    assert (await raw.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
    await raw.send(b"audio")
    assert (await raw.until(b"}")).startswith(b"HTTP/1.1 200")
    assert stage.upstream.requests[0].body == b"audio"


async def test_an_upload_that_the_upstream_refuses_half_way_is_refused(stage: Stage) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.part()
        await exchange.raw(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        await exchange.gone()

    stage.upstream.script = script
    response = await stage.client.post("/v1/files", content=b"a" * 20 * MIB)
    assert (response.status_code, response.text) == (413, "no")

"""What the relay does between a real client and a scripted upstream, byte by byte."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx2
import pytest
from starlette.types import Scope

from proxy.adapters.httpx import HttpxUpstream
from proxy.http.relay import Relay
from tests.servers import (
    PATIENCE,
    Exchange,
    FakeUpstream,
    RawClient,
    Script,
    connect,
    eventually,
    serve,
)

REQUEST_ID = "req_1"
MIB = 2**20


@dataclass
class Stage:
    """A relay, the upstream behind it, and a client before it."""

    url: str
    upstream: FakeUpstream
    client: httpx2.AsyncClient


@contextmanager
def relay_to(base_url: str) -> Generator[str]:
    upstream = HttpxUpstream(base_url, connect_timeout=1.0, read_timeout=1.0)
    with serve(Relay(upstream, request_id, lambda _: None), upstream.aclose) as url:
        yield url


def request_id(scope: Scope) -> str:
    return REQUEST_ID


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with FakeUpstream().serve() as upstream:
        with relay_to(upstream.url + "/base") as url:
            async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
                yield Stage(url, upstream, client)


@pytest.fixture
async def raw(stage: Stage) -> AsyncIterator[RawClient]:
    async with connect(stage.url) as client:
        yield client


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join((line, "Host: proxy", *headers, "", "")).encode("latin-1")


# --- requests ---


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


# --- answers ---


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


# --- clients that leave ---


async def until_first_byte(exchange: Exchange) -> None:
    await exchange.body()


async def in_the_answer(exchange: Exchange) -> None:
    await exchange.body()
    await exchange.start()
    await exchange.chunk(b"first")


async def in_the_request(exchange: Exchange) -> None:
    await exchange.part()


@pytest.mark.parametrize("moment", [until_first_byte, in_the_answer, in_the_request])
async def test_a_client_that_leaves_takes_the_upstream_connection_with_it(
    stage: Stage, raw: RawClient, moment: Script
) -> None:
    reached, gone = asyncio.Event(), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await moment(exchange)
        reached.set()
        await exchange.gone()
        gone.set()

    stage.upstream.script = script
    body = b"half" if moment is in_the_request else b"12345678"
    await raw.send(head("POST /v1/responses HTTP/1.1", "Content-Length: 8") + body)
    await asyncio.wait_for(reached.wait(), PATIENCE)
    raw.close()
    await asyncio.wait_for(gone.wait(), 1.0)


# --- errors of our own ---


def assert_error(response: httpx2.Response, status: int, code: str) -> None:
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"] == REQUEST_ID
    assert "127.0.0.1" not in response.text
    assert "secret" not in response.text


async def garbage(exchange: Exchange) -> None:
    await exchange.body()
    await exchange.raw(b"\x00 garbage\r\n\r\n")
    exchange.close()


async def reset(exchange: Exchange) -> None:
    await exchange.body()
    exchange.reset()


async def hang(exchange: Exchange) -> None:
    await exchange.gone()


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (garbage, 502, "upstream_invalid_response"),
        (reset, 502, "upstream_unreachable"),
        (hang, 504, "upstream_timeout"),
    ],
)
async def test_a_fault_before_the_first_byte_is_an_error_in_openais_shape(
    stage: Stage, script: Script, status: int, code: str
) -> None:
    stage.upstream.script = script
    response = await stage.client.post("/v1/embeddings", json={}, headers={"authorization": "Bearer secret"})
    assert_error(response, status, code)


async def test_an_upstream_that_is_not_there_is_an_error_even_to_a_long_upload() -> None:
    with relay_to("http://127.0.0.1:1/v1") as url:
        async with httpx2.AsyncClient(base_url=url) as client:
            assert_error(await client.post("/v1/files", content=b"a" * 20 * MIB), 502, "upstream_unreachable")


@pytest.mark.parametrize("framing", [b"Content-Length: 100", b"Transfer-Encoding: chunked"])
async def test_a_fault_after_the_first_byte_is_a_truncation_that_shows(
    stage: Stage, raw: RawClient, framing: bytes
) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n5\r\nfirst\r\n")
        exchange.close()

    stage.upstream.script = script
    await raw.send(head("GET /v1/files/f/content HTTP/1.1"))
    answer = await raw.rest()
    assert b"first" in answer
    assert not answer.endswith(b"0\r\n\r\n")
    assert len(answer.split(b"\r\n\r\n", 1)[1]) < 100


async def test_a_fault_in_one_answer_leaves_the_others_alone(stage: Stage) -> None:
    async def script(exchange: Exchange) -> None:
        await (reset if exchange.request.target.endswith("bad") else in_full)(exchange)

    async def in_full(exchange: Exchange) -> None:
        await exchange.answer_json([1])

    stage.upstream.script = script
    answers = await asyncio.gather(*(stage.client.get(f"/v1/{name}") for name in ["bad", "good"] * 5))
    assert [answer.status_code for answer in answers] == [502, 200] * 5


@pytest.mark.parametrize(
    "path", ["/v1/../unabridged/v1/sessions", "/v1/%2e%2e/x", "/v1//x", "/v1/a%2fb", "/v1/a%00", "/v1/a%5cb"]
)
async def test_an_ambiguous_path_is_refused_and_not_relayed(stage: Stage, raw: RawClient, path: str) -> None:
    await raw.send(head(f"GET {path} HTTP/1.1", "Connection: close"))
    answer_head, body = (await raw.rest()).split(b"\r\n\r\n", 1)
    assert answer_head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["code"] == "invalid_path"
    assert stage.upstream.requests == []


async def test_two_credentials_are_refused_and_one_of_any_scheme_passes(stage: Stage) -> None:
    two = [("authorization", "Bearer a"), ("authorization", "Bearer b")]
    assert_error(await stage.client.get("/v1/models", headers=two), 400, "invalid_header")
    assert stage.upstream.requests == []
    await stage.client.get("/v1/models", headers={"authorization": "Basic x"})
    assert stage.upstream.requests[0].value("authorization") == b"Basic x"


async def test_a_websocket_is_refused_with_501(stage: Stage, raw: RawClient) -> None:
    await raw.send(
        head(
            "GET /v1/realtime?model=m HTTP/1.1",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        )
    )
    answer = await raw.until(b"}}")
    assert answer.startswith(b"HTTP/1.1 501")
    assert b"not_implemented" in answer
    assert stage.upstream.requests == []


async def test_many_streams_at_once_are_each_whole(stage: Stage) -> None:
    async def script(exchange: Exchange) -> None:
        name = exchange.request.target
        await exchange.stream_events([{"from": name, "n": n} for n in range(20)])

    stage.upstream.script = script

    async def ask(n: int) -> bool:
        response = await stage.client.get(f"/v1/{n}")
        return response.text.count(f'"/base/{n}"') == 20 and response.text.endswith("data: [DONE]\n\n")

    assert all(await asyncio.gather(*(ask(n) for n in range(50))))

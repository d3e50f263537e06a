"""What the proxy does with bytes that are no plain request, over real sockets; clients beside them go on."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from tests.support.clients import HELLO, STREAMED, proxying
from tests.support.servers import PATIENCE, Exchange, FakeUpstream, RawClient, connect, serve
from tests.support.upstreams import DONE, EVENTS, Model, sse

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOON = 0.3
"""The request timeout of the proxies here, in seconds."""

SETTINGS = {"request_timeout": SOON}

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
MIB = 2**20


def chat(body: bytes = HELLO) -> bytes:
    return HEAD + b"Content-Length: %d\r\n\r\n%b" % (len(body), body)


def read(answer: bytes) -> tuple[int, str]:
    """Status and code of the one error of ours that was answered; its shape is checked on the way."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert re.search(rb"\r\nx-request-id: \S+", head)
    assert b"\r\nconnection: close" in head
    assert b"\r\ncontent-length: %d" % len(body) in head
    error: dict[str, Any] = json.loads(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return int(head.split(b" ", 2)[1]), error["code"]


async def refused(url: str, *pieces: bytes) -> tuple[int, str]:
    async with connect(url) as client:
        for piece in pieces:
            await client.send(piece)
        return read(await client.rest())


async def is_answered(raw: RawClient) -> bool:
    await raw.send(chat())
    answer = await raw.until(b"}}")
    return answer.startswith(b"HTTP/1.1 200 ")


# --- heads ---


@pytest.mark.parametrize(
    ("head", "status", "code"),
    [
        (b"GET /v1/models HTTP/1.1\r\n\r\n", 400, "invalid_request"),
        (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n", 400, "invalid_request"),
        (
            b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 200 + b"\r\n",
            431,
            "headers_too_large",
        ),
        (
            b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: %b\r\n\r\n" % (b"y" * 66_000),
            431,
            "headers_too_large",
        ),
        (b"GET /v1/%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"y" * 17_000), 414, "uri_too_long"),
        (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "invalid_request"),
        (HEAD + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 400, "invalid_request"),
        (HEAD + b"Content-Length: 2\r\n  2\r\n\r\n{}", 400, "invalid_request"),
        (HEAD.replace(b"\r\n", b"\n") + b"Content-Length: 2\n\n{}", 400, "invalid_request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "invalid_request"),
    ],
    ids="no-host two-hosts count size uri length-and-chunks two-lengths fold bare-lf tls".split(),
)
async def test_a_head_that_is_wrong_or_too_large_is_refused_and_the_connection_ends(
    url: str, model: Model, head: bytes, status: int, code: str
) -> None:
    assert await refused(url, head) == (status, code)
    assert not model.chats + model.others


async def test_heads_up_to_the_limits_pass(raw: RawClient, model: Model) -> None:
    await raw.send(b"GET /v1/%b HTTP/1.1\r\nHost: localhost\r\n" % (b"y" * 16_000))
    await raw.send(b"".join(b"X-%d: %b\r\n" % (n, b"z" * 300) for n in range(199)) + b"\r\n")
    assert (await raw.until(b"}")).startswith(b"HTTP/1.1 200 ")
    assert len(model.others[0].value("x-198") or b"") == 300


async def test_a_refusal_is_heard_by_those_who_send_on(url: str) -> None:
    async with connect(url) as raw:
        await raw.send(b"GET /v1/models HTTP/1.1\r\nX: ")
        for _ in range(32):  # far more than sockets hold
            try:
                await raw.send(b"y" * 128 * 1024)
            except ConnectionError:
                break
        assert read(await raw.rest()) == (431, "headers_too_large")


async def test_a_refused_client_that_stays_is_shut_out(raw: RawClient) -> None:
    await raw.send(b"garbage\r\n\r\n")
    assert read(await raw.rest()) == (400, "invalid_request")

    async def send_on() -> None:
        while True:
            await raw.send(b"more")
            await asyncio.sleep(0.02)

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(send_on(), PATIENCE)


# --- paths ---

PATHS = [
    "/v1/../unabridged/v1/sessions",
    "/v1/./models",
    "/v1/%2e%2e/unabridged",
    "/v1/.%2E/unabridged",
    "/v1/a%2fb",
    "/v1/a%2Fb",
    "/v1//models",
    "//v1/models",
    "/v1/models%00",
    "/v1/a%5cb",
    "/v1\\models",
    "/v1/models#fragment",
    "http://x/v1/../unabridged",
    "http://x//v1/models",
    "http://x",
    "http://user@x/v1/models",
    "*",
    "v1/models",
]


@pytest.mark.parametrize("path", PATHS)
async def test_a_path_that_could_be_read_in_two_ways_is_refused(url: str, model: Model, path: str) -> None:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert await refused(url, request.encode()) == (400, "invalid_path")
    assert not model.others


async def test_a_tunnel_is_refused(url: str, model: Model) -> None:
    for target in (b"api.openai.com:443", b"/v1/models"):
        request = b"CONNECT %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % target
        assert await refused(url, request) == (400, "invalid_path")


async def test_a_whole_uri_is_read_as_its_path(raw: RawClient, model: Model) -> None:
    await raw.send(b"GET http://elsewhere.example:81/v1/models?a=b HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert (await raw.until(b"}")).startswith(b"HTTP/1.1 200 ")
    assert model.others[0].target == "/v1/models?a=b"


# --- half a request, then silence ---

HALVES = {
    "a method": b"PO",
    "a request line": b"GET /v1/models HT",
    "a head": HEAD + b"Content-Len",
    "a head but for its last byte": HEAD + b"\r",
    "no body": HEAD + b"Content-Length: 5\r\n\r\n",
    "half a body": HEAD + b"Content-Length: 50000\r\n\r\n" + b"a" * 40_000,
    "half a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
    "no last chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "half an upload": b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{}",
}


@pytest.mark.parametrize("half", HALVES.values(), ids=list(HALVES))
async def test_half_a_request_and_then_silence_is_answered_408(
    url: str, raw: RawClient, model: Model, half: bytes
) -> None:
    began = asyncio.get_running_loop().time()
    slow = asyncio.create_task(refused(url, half))
    assert await is_answered(raw), "others are not affected"
    assert await slow == (408, "request_timeout")
    assert asyncio.get_running_loop().time() - began > SOON * 0.9


@pytest.mark.parametrize(
    "half", [HEAD + b"X: ", HEAD + b"Content-Length: 1000\r\n\r\n"], ids=["head", "body"]
)
async def test_a_byte_now_and_then_is_no_request(raw: RawClient, half: bytes) -> None:
    async def drip() -> None:
        await raw.send(half)
        while True:
            await raw.send(b"a")
            await asyncio.sleep(SOON / 6)

    dripping = asyncio.create_task(drip())
    try:
        assert read(await raw.rest()) == (408, "request_timeout")
    finally:
        dripping.cancel()


async def test_line_ends_are_no_request_at_all(raw: RawClient) -> None:
    await raw.send(b"\r\n\r\n")
    assert await raw.rest() == b""


async def test_an_idle_connection_is_no_half_request(raw: RawClient, model: Model) -> None:
    assert await is_answered(raw)
    await asyncio.sleep(SOON * 2)
    assert await is_answered(raw)


async def test_a_connection_may_wait_before_its_first_request(raw: RawClient) -> None:
    await asyncio.sleep(SOON * 2)
    assert await is_answered(raw)


async def test_a_body_that_goes_on_may_take_longer(raw: RawClient, model: Model) -> None:
    body = HELLO.replace(b"Hello", b"Hello " * 1000)
    await raw.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(body))
    pieces = 12
    size = -(-len(body) // pieces)
    for at in range(0, len(body), size):
        await raw.send(body[at : at + size])
        await asyncio.sleep(SOON / 4)
    assert (await raw.until(b"}}")).startswith(b"HTTP/1.1 200 ")
    assert bytes(model.chats[0].body) == body


async def test_a_long_answer_is_no_silence_of_its_client(raw: RawClient, model: Model) -> None:
    async def slowly(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        await asyncio.sleep(SOON * 3)
        await exchange.chunk(sse({"choices": []}) + DONE)
        await exchange.end()

    model.replies.append(slowly)
    await raw.send(chat(STREAMED))
    assert (await raw.until(b"0\r\n\r\n")).startswith(b"HTTP/1.1 200 ")


async def test_an_upload_that_the_upstream_takes_slowly_is_not_its_clients_fault() -> None:
    async def waiting(exchange: Exchange) -> None:
        await asyncio.sleep(SOON * 4)
        await exchange.answer()

    async def upload() -> AsyncIterator[bytes]:
        for _ in range(24):
            yield b"a" * MIB

    async with (
        FakeUpstream(waiting).serve() as slow,
        proxying(slow.url, request_timeout=SOON) as url,
        httpx2.AsyncClient(timeout=PATIENCE) as client,
    ):
        response = await client.post(f"{url}/v1/files", content=upload())
    assert response.status_code == 200
    assert len(slow.requests[0].body) == 24 * MIB


async def test_a_client_that_waits_to_be_told_to_go_on_may_wait() -> None:
    async def hesitant(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(SOON * 2)
        assert (await receive())["body"] == b"abc"
        await send({"type": "http.response.start", "status": 204})
        await send({"type": "http.response.body"})

    with serve(hesitant, _nothing, request_timeout=SOON) as url:
        async with connect(url) as waiting:
            await waiting.send(HEAD + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
            assert (await waiting.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
            await waiting.send(b"abc")
            assert (await waiting.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")


async def _nothing() -> None:
    pass


# --- several on one connection ---


async def test_an_answer_that_is_under_way_is_whole_before_a_bad_request_is_refused(
    raw: RawClient, model: Model
) -> None:
    go_on = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        await exchange.chunk(sse({"choices": []}))
        await go_on.wait()
        await exchange.chunk(DONE)
        await exchange.end()

    model.replies.append(held)
    await raw.send(chat(STREAMED))
    await raw.until(b"\n\n\r\n")
    await raw.send(b"garbage\r\n\r\n")
    go_on.set()
    answer, _, refusal = (await raw.rest()).partition(b"0\r\n\r\n")
    assert DONE in answer
    assert read(refusal) == (400, "invalid_request")


async def test_pipelined_requests_are_answered_in_order(raw: RawClient, model: Model) -> None:
    await raw.send(chat() * 3 + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    answers = await raw.rest()
    assert answers.count(b"HTTP/1.1 200 ") == 4
    assert answers.endswith(b'{"status":"ok"}')
    assert [bytes(each.body) for each in model.chats] == [HELLO] * 3


async def test_an_offer_of_http_2_is_passed_over(raw: RawClient, model: Model) -> None:
    offer = (
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n"
    )
    await raw.send(HEAD + offer + b"Content-Length: %d\r\n\r\n%b" % (len(HELLO), HELLO))
    assert (await raw.until(b"}}")).startswith(b"HTTP/1.1 200 ")
    assert bytes(model.chats[0].body) == HELLO
    assert model.chats[0].value("http2-settings") is None
    assert await is_answered(raw)


# --- a ceiling for all bodies ---


async def test_bodies_beyond_the_memory_for_them_are_told_to_come_again(model: Model) -> None:
    body = HELLO.replace(b"Hello", b"a" * 600_000)
    held = asyncio.Event()
    arrived = asyncio.Event()

    async def hold(exchange: Exchange) -> None:
        arrived.set()
        await held.wait()
        await exchange.answer_json({"choices": []})

    async with proxying(model.url, body_memory="1MiB") as url, httpx2.AsyncClient(timeout=PATIENCE) as client:
        model.replies.append(hold)
        ask = f"{url}/v1/chat/completions"
        first = asyncio.create_task(client.post(ask, content=body))
        await asyncio.wait_for(arrived.wait(), PATIENCE)

        async def chunked() -> AsyncIterator[bytes]:
            yield body

        for content in (body, chunked()):
            second = await client.post(ask, content=content)
            assert (second.status_code, second.json()["error"]["code"]) == (503, "overloaded")
            assert int(second.headers["retry-after"]) >= 1
        larger = HELLO.replace(b"Hello", b"a" * 2**20)  # than there will ever be room for
        assert (await client.post(ask, content=larger)).json()["error"]["code"] == "request_too_large"
        assert (await client.post(ask, content=HELLO)).status_code == 200, "what fits is answered"
        held.set()
        assert (await first).status_code == 200
        assert (await client.post(ask, content=body)).status_code == 200, "there is room again"

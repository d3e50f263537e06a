"""Clients that leave the relay, upstreams that fail it, and what it refuses by itself."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from tests.support.relay import MIB, Stage, head, relay_to
from tests.support.servers import (
    PATIENCE,
    Exchange,
    RawClient,
    Script,
)

# --- clients that leave ---


async def until_first_byte(exchange: Exchange) -> None:
    await exchange.body()


async def in_the_answer(exchange: Exchange) -> None:
    await exchange.body()
    await exchange.start()
    await exchange.chunk(b"first")


async def in_the_request(exchange: Exchange) -> None:
    await exchange.part()


async def in_an_answer_of_known_length(exchange: Exchange) -> None:
    await exchange.body()
    await exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")


@pytest.mark.parametrize(
    "moment", [until_first_byte, in_the_answer, in_an_answer_of_known_length, in_the_request]
)
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
    await asyncio.wait_for(gone.wait(), PATIENCE / 2)


# --- errors of our own ---


def assert_error(response: httpx2.Response, status: int, code: str) -> None:
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"].startswith("req-")
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
    ],
)
async def test_a_fault_before_the_first_byte_is_an_error_in_openais_shape(
    stage: Stage, script: Script, status: int, code: str
) -> None:
    stage.upstream.script = script
    response = await stage.client.post("/v1/embeddings", json={}, headers={"authorization": "Bearer secret"})
    assert_error(response, status, code)


@pytest.mark.parametrize("stage", [0.2], indirect=True, ids=["hasty"])
async def test_an_upstream_that_never_answers_is_an_error_in_openais_shape(stage: Stage) -> None:
    stage.upstream.script = hang
    assert_error(await stage.client.post("/v1/embeddings", json={}), 504, "upstream_timeout")


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

"""What the upstream does wrong reaches the client as what it is, and nothing of ours leaks with it."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from tests.support.clients import CHAT, HELLO, STREAMED, Chats, admin, only_session, proxying, user
from tests.support.servers import Exchange, FakeUpstream, awaited, connect, eventually
from tests.support.upstreams import DONE, EVENTS, JSON, Model, events, in_pieces, plainly, said, sse


async def post(client: httpx2.AsyncClient, body: bytes = HELLO) -> httpx2.Response:
    return await client.post(CHAT, content=body, headers={"Content-Type": "application/json"})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [401, 404, 422, 429, 500, 503, 529])
async def test_an_upstreams_error_passes_with_its_headers_and_body(
    model: Model, client: httpx2.AsyncClient, status: int, *, stream: bool
) -> None:
    body = b'{ "error": {"message": "no", "odd": 1e400} }\n'
    headers = [JSON, (b"Retry-After", b"7"), (b"X-Ratelimit-Reset", b"1s")]
    model.replies.append(plainly(status, headers, body))
    response = await post(client, (STREAMED if stream else HELLO).replace(b"gpt-test", b"gpt-4o"))
    assert (response.status_code, response.content) == (status, body)
    assert response.headers["retry-after"] == "7"
    assert response.headers["x-ratelimit-reset"] == "1s"
    assert response.headers["x-unabridged-stage"] == "calm"
    assert len(model.chats) == 1, "the SDK does its own retries"


@pytest.mark.parametrize("path", [CHAT, "/v1/embeddings"])
async def test_a_head_without_end_is_a_bad_gateway_and_nobody_waits_for_it(path: str) -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\nX-A: ")
        while True:
            await exchange.raw(b"a" * 65536)

    async with FakeUpstream(endless).serve() as upstream, proxying(f"{upstream.url}/v1") as url:
        async with httpx2.AsyncClient(base_url=url) as client:
            response = await client.post(path, content=HELLO, headers={"Content-Type": "application/json"})
            assert (await client.get("/healthz")).status_code == 200
        await eventually(lambda: upstream.open_connections == 0)
    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_invalid_response")


async def test_an_upstream_that_is_down_is_a_bad_gateway_in_openais_shape() -> None:
    async with proxying("http://127.0.0.1:9/v1") as url, httpx2.AsyncClient(base_url=url) as client:
        response = await post(client)
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["type"]) == (
        502,
        "upstream_unreachable",
        "server_error",
    )
    assert "127.0.0.1" not in response.text
    assert response.headers["x-request-id"]


async def test_an_upstream_that_hangs_is_a_gateway_timeout(model: Model) -> None:
    model.replies.append(model.hang)
    async with (
        proxying(model.url, upstream_read_timeout=0.2) as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        response = await post(client)
    assert (response.status_code, response.json()["error"]["code"]) == (504, "upstream_timeout")


async def test_garbage_instead_of_http_is_an_invalid_response() -> None:
    async def garbage(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.raw(b"\x16\x03\x01 no HTTP at all\r\n\r\n")
        exchange.close()

    async with (
        FakeUpstream(garbage).serve() as upstream,
        proxying(upstream.url) as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        response = await post(client)
    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_invalid_response")


async def test_html_with_a_200_is_passed_on(model: Model, client: httpx2.AsyncClient, url: str) -> None:
    model.replies.append(plainly(200, [(b"Content-Type", b"text/html")], b"<html>Login</html>"))
    response = await post(client)
    assert (response.status_code, response.content) == (200, b"<html>Login</html>")


CUT_OFF = {
    "an orderly end": in_pieces(*map(sse, events(said("Hello there"))[:2])),
    "a connection that closes": in_pieces(*map(sse, events(said("Hello there"))[:2]), end=False),
}


@pytest.mark.parametrize("how", CUT_OFF)
async def test_a_stream_that_ends_too_early_says_so(
    model: Model, client: httpx2.AsyncClient, url: str, how: str
) -> None:
    model.replies.append(CUT_OFF[how])
    response = await post(client, STREAMED)
    first, second, last = response.text.split("\n\n")[:3]
    assert [json.loads(event[6:])["object"] for event in (first, second)] == ["chat.completion.chunk"] * 2
    error = json.loads(last[6:])["error"]
    assert (error["code"], error["type"]) == ("upstream_truncated", "server_error")
    session = await only_session(url)
    transcript = (await admin(url, f"sessions/{session['id']}/transcript"))["messages"]
    assert [each["complete"] for each in transcript] == [True, False]


async def test_a_stream_that_ends_within_its_first_event_says_so(
    model: Model, client: httpx2.AsyncClient
) -> None:
    model.replies.append(in_pieces(b'data: {"id": "chatcmpl-1"'))
    response = await post(client, STREAMED)
    assert response.text.startswith('data: {"id": "chatcmpl-1"')
    assert '"code": "upstream_truncated"' in response.text or '"code":"upstream_truncated"' in response.text


async def test_an_answer_shorter_than_it_promised_is_cut_off_too(model: Model, url: str) -> None:
    async def short(exchange: Exchange) -> None:
        await exchange.raw(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
        )
        exchange.close()

    model.replies.append(short)
    async with httpx2.AsyncClient(base_url=url) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await post(client)


@pytest.mark.parametrize("finish", [True, False])
async def test_a_stream_with_either_a_finish_reason_or_done_is_whole(
    model: Model, client: httpx2.AsyncClient, *, finish: bool
) -> None:
    whole = events(said("Hello there"))
    pieces = [sse(event) for event in (whole if finish else whole[:-1])] + ([] if finish else [DONE])
    model.replies.append(in_pieces(*pieces))
    assert (await post(client, STREAMED)).content == b"".join(pieces)


async def test_an_error_in_mid_stream_is_forwarded_and_the_turn_is_incomplete(
    model: Model, client: httpx2.AsyncClient, url: str
) -> None:
    pieces = [*map(sse, events(said("Hello there"))[:2]), sse({"error": {"message": "overloaded"}}), DONE]
    model.replies.append(in_pieces(*pieces))
    assert (await post(client, STREAMED)).content == b"".join(pieces)
    session = await only_session(url)
    transcript = (await admin(url, f"sessions/{session['id']}/transcript"))["messages"]
    assert [each["complete"] for each in transcript] == [True, False]


async def leave_in_mid_stream(url: str, model: Model, body: bytes) -> None:
    """A client that hangs up once it has seen the first words."""
    gone = asyncio.Event()

    async def waits(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        for event in events(said("Hello there"))[:2]:
            await exchange.chunk(sse(event))
        await exchange.gone()
        gone.set()

    model.replies.append(waits)
    async with connect(url) as raw:
        head = (
            f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\n"
            "X-Unabridged-Session: s\r\nAuthorization: Bearer sk-test\r\n"
        )
        await raw.send(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await raw.until(b"Hello th")
    async with asyncio.timeout(1):
        await gone.wait()


async def test_a_client_that_leaves_in_mid_stream_takes_the_upstreams_connection_with_it(
    model: Model, url: str
) -> None:
    await leave_in_mid_stream(url, model, STREAMED)
    await eventually_recorded(url, 2)
    session = await only_session(url)
    transcript = (await admin(url, f"sessions/{session['id']}/transcript"))["messages"]
    assert [(each["message"]["content"], each["complete"]) for each in transcript] == [
        ("Hello", True),
        ("Hello th", False),
    ]


async def eventually_recorded(url: str, messages: int) -> None:
    async def so_far() -> int:
        if not (sessions := (await admin(url, "sessions"))["sessions"]):
            return 0
        return len((await admin(url, f"sessions/{sessions[0]['id']}/transcript"))["messages"])

    await awaited(so_far, lambda count: count >= messages)


async def test_a_later_turn_that_was_left_is_in_the_transcript_as_incomplete_and_in_no_view(
    model: Model, url: str, chats: Chats
) -> None:
    chat = chats(url, X_Unabridged_Session="s")
    await chat.ask("Hi")
    messages = [*chat.messages, user("Go on")]
    body = json.dumps({"model": "gpt-test", "stream": True, "messages": messages}).encode()
    await leave_in_mid_stream(url, model, body)
    await eventually_recorded(url, 4)
    session = await only_session(url)
    transcript = (await admin(url, f"sessions/{session['id']}/transcript"))["messages"]
    assert [each["complete"] for each in transcript] == [True, True, True, False]
    assert session["turns"] == 1
    view = (await admin(url, f"sessions/{session['id']}/view"))["messages"]
    assert "Hello th" not in json.dumps(view)


async def test_a_turn_that_was_cut_off_and_sent_again_is_there_once(
    model: Model, url: str, chats: Chats
) -> None:
    await leave_in_mid_stream(url, model, STREAMED)
    chat = chats(url, X_Unabridged_Session="s")
    model.replies.append(said("Hello there"))
    await chat.ask("Hello")
    session = await only_session(url)
    transcript = (await admin(url, f"sessions/{session['id']}/transcript"))["messages"]
    complete = [each["message"]["content"] for each in transcript if each["complete"]]
    assert complete == ["Hello", "Hello there"]
    assert session["turns"] == 1


async def test_a_slow_upstream_keeps_nobody_else_waiting(model: Model, client: httpx2.AsyncClient) -> None:
    model.replies.append(model.hang)
    slow = asyncio.create_task(post(client))
    await eventually(lambda: model.hanging == 1)
    assert (await post(client)).status_code == 200
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
    await eventually(lambda: model.hanging == 0)

"""What HTTP asks of whoever stands in the middle (RFC 9110 7), on the managed route and before it."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Callable
from contextlib import suppress

import httpx2
import pytest

from tests.support.canaries import logged
from tests.support.clients import CHAT, HELLO, admin, user
from tests.support.servers import PATIENCE, RawClient
from tests.support.upstreams import DONE, EVENTS, JSON, Model, completion, in_pieces, plainly, said, sse

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def ask(client: httpx2.AsyncClient, path: str = CHAT, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.post(path, content=HELLO, headers={"Content-Type": "application/json", **named})


async def test_headers_of_the_clients_connection_end_here(raw: RawClient, model: Model) -> None:
    await raw.send(
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Connection: keep-alive, X-Private\r\nX-Private: mine\r\nKeep-Alive: timeout=5\r\n"
        "Proxy-Connection: keep-alive\r\nProxy-Authorization: Basic eDp5\r\nTE: trailers\r\n"
        "Trailer: X-End\r\nX-Two: 1\r\nX-Two: 2\r\nX-Unabridged-Session: s\r\n"
        f"Transfer-Encoding: chunked\r\n\r\n{len(HELLO):x}\r\n".encode()
    )
    await raw.send(HELLO + b"\r\n0\r\nX-End: 1\r\nX-Unabridged-Budget: 1\r\n\r\n")
    assert (await raw.until(b"}}")).startswith(b"HTTP/1.1 200 ")
    (chat,) = model.chats
    assert bytes(chat.body) == HELLO
    assert chat.values("x-two") == [b"1", b"2"]
    names = {name.lower() for name, _ in chat.headers}
    assert names == {b"host", b"content-type", b"x-two", b"accept-encoding", b"content-length"}


async def test_headers_of_the_upstreams_connection_end_here(client: httpx2.AsyncClient, model: Model) -> None:
    headers = [
        JSON,
        (b"Connection", b"keep-alive, X-Private"),
        (b"X-Private", b"theirs"),
        (b"Keep-Alive", b"timeout=5"),
        (b"Proxy-Authenticate", b"Basic"),
        (b"Upgrade", b"h2c"),
        (b"Set-Cookie", b"a=1; Path=/"),
        (b"Set-Cookie", b"b=2"),
        (b"X-Request-Id", b"theirs"),
        (b"Server", b"theirs"),
    ]
    model.replies.append(plainly(200, headers, json.dumps(completion(said("Hi"))).encode()))
    answer = await ask(client)
    ours = "x-unabridged-"
    passed = [(name, value) for name, value in answer.headers.multi_items() if not name.startswith(ours)]
    assert passed == [
        ("content-type", "application/json"),
        ("set-cookie", "a=1; Path=/"),
        ("set-cookie", "b=2"),
        ("x-request-id", "theirs"),
        ("server", "theirs"),
        ("content-length", str(len(answer.content))),
    ]


async def test_a_query_goes_with_a_chat(client: httpx2.AsyncClient, model: Model) -> None:
    await ask(client, f"{CHAT}?api-version=2026-01-01&&a=%20%2f&b")
    assert model.chats[0].target == "/v1/chat/completions?api-version=2026-01-01&&a=%20%2f&b"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_the_clients_to_follow_with_its_key(
    client: httpx2.AsyncClient, model: Model, status: int
) -> None:
    model.replies.append(plainly(status, [(b"Location", b"http://elsewhere.invalid/v1")], b""))
    answer = await ask(client, Authorization="Bearer key")
    assert (answer.status_code, answer.headers["location"]) == (status, "http://elsewhere.invalid/v1")
    assert len(model.chats) == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE"])
async def test_other_methods_on_the_path_of_chats_are_relayed(
    client: httpx2.AsyncClient, model: Model, method: str
) -> None:
    model.replies.append(plainly(200, [(b"X-A", b"1")], b""))
    answer = await client.request(method, f"{CHAT}?limit=1")
    assert (answer.status_code, answer.headers["x-a"]) == (200, "1")
    assert "x-unabridged-session" not in answer.headers
    assert [(chat.method, chat.target) for chat in model.chats] == [(method, f"{CHAT}?limit=1")]


async def test_a_websocket_is_refused_in_clear_words(raw: RawClient, model: Model) -> None:
    with logged() as lines:
        await raw.send(
            b"GET /v1/realtime?model=m HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        head, _, body = (await raw.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 501 ")
    assert json.loads(body)["error"]["code"] == "not_implemented"
    assert not model.others
    assert not [line for line in lines if "relayed, not managed" in line]


# --- answers that are compressed, though nobody asked for it ---


@pytest.mark.parametrize(("coding", "pack"), [(b"gzip", gzip.compress), (b"deflate", zlib.compress)])
async def test_a_chats_compressed_answer_passes_as_it_is_and_is_understood(
    client: httpx2.AsyncClient, url: str, model: Model, coding: bytes, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(json.dumps(completion(said("Packed words"))).encode())
    model.replies.append(plainly(200, [JSON, (b"Content-Encoding", coding)], packed))
    name = f"packed-{coding.decode()}"
    async with client.stream("POST", CHAT, content=HELLO, headers={"X-Unabridged-Session": name}) as answer:
        assert b"".join([part async for part in answer.aiter_raw()]) == packed
        assert answer.headers["content-encoding"] == coding.decode()
    assert await is_stored(url, name, "Packed words")


async def test_a_compressed_stream_is_understood_too(
    client: httpx2.AsyncClient, url: str, model: Model
) -> None:
    delta = {"index": 0, "delta": {"role": "assistant", "content": "Packed"}, "finish_reason": "stop"}
    packed = gzip.compress(sse({"choices": [delta]}) + DONE)
    pieces = [packed[at : at + 7] for at in range(0, len(packed), 7)]
    model.replies.append(in_pieces(*pieces, headers=[EVENTS, (b"Content-Encoding", b"gzip")]))
    async with client.stream(
        "POST", CHAT, content=HELLO, headers={"X-Unabridged-Session": "packed-stream"}
    ) as answer:
        assert b"".join([part async for part in answer.aiter_raw()]) == packed
    assert await is_stored(url, "packed-stream", "Packed")


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br"])
@pytest.mark.parametrize("kind", [JSON, EVENTS], ids=["in one piece", "streamed"])
async def test_an_answer_that_cannot_be_read_passes_as_it_is_says_so_and_comes_with_the_next_body(
    client: httpx2.AsyncClient, url: str, model: Model, kind: tuple[bytes, bytes], coding: str
) -> None:
    packed, name = bytes(range(256)) * 40, f"unread {coding} {kind[1].decode()}"
    model.replies.append(plainly(200, [kind, (b"Content-Encoding", coding.encode())], packed))
    headers = {"X-Unabridged-Session": name}
    async with client.stream("POST", CHAT, content=HELLO, headers=headers) as answer:
        assert b"".join([part async for part in answer.aiter_raw()]) == packed
        assert answer.headers["content-encoding"] == coding
        assert answer.headers["x-unabridged-degraded"] == "answer-unread"
    model.replies.append(said("That was all."))
    messages = [*json.loads(HELLO)["messages"], said("What was packed"), user("And now?")]
    answered = await client.post(CHAT, json={"model": "gpt-test", "messages": messages}, headers=headers)
    assert "x-unabridged-degraded" not in answered.headers
    assert await is_stored(url, name, "That was all.")
    (session,) = (each for each in (await admin(url, "sessions"))["sessions"] if each["name"] == name)
    told = await admin(url, f"sessions/{session['id']}/transcript")
    assert [each["message"]["content"] for each in told["messages"]][-3:-1] == ["What was packed", "And now?"]


async def test_an_error_that_cannot_be_read_is_an_error_and_nothing_else(
    client: httpx2.AsyncClient, model: Model
) -> None:
    model.replies.append(plainly(400, [JSON, (b"Content-Encoding", b"br")], b"packed"))
    async with client.stream("POST", CHAT, content=HELLO) as answer:
        assert (answer.status_code, b"".join([part async for part in answer.aiter_raw()])) == (400, b"packed")
        assert "x-unabridged-degraded" not in answer.headers


async def test_an_answer_that_would_burst_is_passed_and_not_unpacked(
    client: httpx2.AsyncClient, model: Model
) -> None:
    packed = gzip.compress(b" " * 200 * 2**20)
    model.replies.append(plainly(200, [JSON, (b"Content-Encoding", b"gzip")], packed))
    async with client.stream("POST", CHAT, content=HELLO) as answer:
        assert b"".join([part async for part in answer.aiter_raw()]) == packed


async def is_stored(url: str, name: str, answer: str) -> bool:
    """Whether our transcript comes to say that the model said this."""
    (session,) = (each for each in (await admin(url, "sessions"))["sessions"] if each["name"] == name)
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while True:
                told = await admin(url, f"sessions/{session['id']}/transcript")
                if told["messages"][-1]["message"]["content"] == answer:
                    return True
                await asyncio.sleep(0.01)
    return False


async def test_chats_ask_for_answers_that_can_be_read(client: httpx2.AsyncClient, model: Model) -> None:
    await ask(client, Accept_Encoding="br, zstd, gzip")
    assert model.chats[0].values("accept-encoding") == [b"identity"]

"""Clients that close their sending side once they have asked: they are answered, unless they are gone."""

from __future__ import annotations

import asyncio

import h11
import pytest

from tests.support.clients import CHAT
from tests.support.servers import PATIENCE, Exchange, RawClient, connect
from tests.support.upstreams import DONE, EVENTS, JSON, Behaviour, Model, completion, events, said, sse

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAUSE = 0.3
"""Seconds in which it is asked several times whether a client is there."""
ROUTES = {"managed": CHAT.encode(), "relayed": b"/v1/responses"}
BODY = b'{"model":"gpt-test","messages":[{"role":"user","content":"Hello"}]}'
PIECES = [*map(sse, events(said("All of it."))), DONE]
WHOLE = sse(completion(said("All of it.")))

routes = pytest.mark.parametrize("route", ROUTES)


def request(route: str, version: bytes = b"1.1") -> bytes:
    head = (
        b"POST %b HTTP/%b\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    return head % (ROUTES[route], version, len(BODY)) + BODY


def read(raw: bytes) -> tuple[int, bytes]:
    """Status and body of the one answer in these bytes."""
    reader = h11.Connection(h11.CLIENT)
    reader.send(h11.Request(method="POST", target="/", headers=[("Host", "a"), ("Content-Length", "0")]))
    reader.send(h11.EndOfMessage())
    reader.receive_data(raw)
    reader.receive_data(b"")
    status, body = 0, b""
    while not isinstance(event := reader.next_event(), h11.EndOfMessage):
        assert isinstance(event, h11.Response | h11.Data)
        if isinstance(event, h11.Response):
            status = event.status_code
        else:
            body += bytes(event.data)
    assert reader.trailing_data[0] == b""
    return status, body


async def streamed(exchange: Exchange) -> None:
    await asyncio.sleep(PAUSE)
    await exchange.start(200, [EVENTS])
    for number, piece in enumerate(PIECES):
        await exchange.chunk(piece)
        await asyncio.sleep(PAUSE if number < 2 else 0)
    await exchange.end()


async def in_one_piece(exchange: Exchange) -> None:
    await asyncio.sleep(PAUSE)
    await exchange.answer(200, [JSON], WHOLE)


async def with_a_length(exchange: Exchange) -> None:
    await exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(WHOLE))
    for part in (WHOLE[:5], WHOLE[5:]):
        await asyncio.sleep(PAUSE)
        await exchange.raw(part)


@routes
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("behave", [streamed, in_one_piece, with_a_length])
async def test_whoever_half_closes_is_answered(
    model: Model, url: str, route: str, version: bytes, behave: Behaviour
) -> None:
    model.replies.append(behave)
    model.elsewhere["/responses"] = behave
    async with connect(url) as raw:
        await raw.send(request(route, version))
        raw.end()
        answer = await raw.rest()
    assert read(answer) == (200, b"".join(PIECES) if behave is streamed else WHOLE)
    assert b"connection: close" in answer


async def test_all_that_was_asked_before_is_answered(model: Model, url: str) -> None:
    model.replies.extend([streamed, in_one_piece])
    async with connect(url) as raw:
        await raw.send(request("managed") * 2 + b"POST /v1/half HTTP/1.1\r\nHost:")
        raw.end()
        answer = await raw.rest()
    first, second = answer.split(b"HTTP/1.1 200 OK\r\n")[1:]
    assert read(b"HTTP/1.1 200 OK\r\n" + first)[1] == b"".join(PIECES)
    assert read(b"HTTP/1.1 200 OK\r\n" + second)[1] == WHOLE


async def test_a_request_that_can_never_be_whole_is_not_waited_for(raw: RawClient) -> None:
    await raw.send(request("managed")[:-1])
    raw.end()
    assert await raw.rest() == b""


@routes
@pytest.mark.parametrize("seen", [None, b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"])
async def test_one_that_half_closed_and_is_gone_takes_the_upstreams_connection_with_it(
    model: Model, url: str, route: str, seen: bytes | None
) -> None:
    waiting, gone = asyncio.Event(), asyncio.Event()

    async def behave(exchange: Exchange) -> None:
        if seen:
            await exchange.raw(seen)
        elif seen is not None:
            await exchange.start(200, [EVENTS])
            await exchange.chunk(PIECES[0])
        waiting.set()
        await exchange.gone()
        gone.set()

    model.replies.append(behave)
    model.elsewhere["/responses"] = behave
    async with connect(url) as raw:
        await raw.send(request(route))
        raw.end()
        await asyncio.wait_for(waiting.wait(), PATIENCE)
    await asyncio.wait_for(gone.wait(), 1.0 if seen is None else PATIENCE)

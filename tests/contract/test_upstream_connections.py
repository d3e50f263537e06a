"""Connections to an upstream: kept and used again, never leaked, and no answer is another request's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from proxy.errors import UpstreamInvalidResponse
from proxy.ports import Upstream
from tests.support.answers import get, whole
from tests.support.servers import PATIENCE, Exchange, FakeUpstream, eventually


async def test_a_connection_serves_one_request_after_another(
    server: FakeUpstream, upstream: Upstream
) -> None:
    for _ in range(3):
        await get(upstream)
    assert (len(server.requests), server.connections) == (3, 1)


@pytest.mark.parametrize("end", [Exchange.close, Exchange.reset], ids=["closed", "reset"])
async def test_a_connection_that_the_upstream_ended_meanwhile_fails_no_request(
    server: FakeUpstream, upstream: Upstream, end: Callable[[Exchange], None]
) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(200)
        await asyncio.sleep(0.02)
        end(exchange)

    server.script = script
    for sent in range(3):
        await whole(await upstream.send("POST", "/x", [], b"{}"))
        await eventually(lambda: server.is_left)
        assert len(server.requests) == sent + 1


async def test_a_request_that_the_upstream_may_have_acted_on_is_not_sent_again(
    server: FakeUpstream, upstream: Upstream
) -> None:
    await get(upstream)

    async def script(exchange: Exchange) -> None:
        await exchange.body()
        exchange.close()

    server.script = script
    with pytest.raises(UpstreamInvalidResponse):
        await upstream.send("POST", "/x", [], b"{}")
    assert len(server.requests) == 2


async def test_an_unfinished_answer_takes_its_connection_with_it(
    server: FakeUpstream, upstream: Upstream
) -> None:
    gone = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.chunk(b"first")
        await exchange.gone()
        gone.set()

    server.script = script
    response = await upstream.send("GET", "/x", [], None)
    assert await anext(response.chunks()) == b"first"
    await response.aclose()
    await asyncio.wait_for(gone.wait(), PATIENCE)


async def test_a_large_answer_that_nobody_read_holds_up_no_later_request(
    server: FakeUpstream, upstream: Upstream
) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 263000\r\n\r\n" + b"x" * 262_000)
        await asyncio.sleep(0.05)  # so that the end arrives by itself
        await exchange.raw(b"x" * 1_000)

    server.script = script
    unread = await upstream.send("GET", "/x", [], None)
    await asyncio.sleep(0.15)
    await unread.aclose()
    async with asyncio.timeout(PATIENCE):
        assert len(await whole(await upstream.send("GET", "/x", [], None))) == 263_000


@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "in the answer"])
async def test_a_cancelled_request_closes_its_connection(
    server: FakeUpstream, upstream: Upstream, begun: bool
) -> None:
    waiting, gone = asyncio.Event(), asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.body()
        if begun:
            await exchange.start()
        waiting.set()
        await exchange.gone()
        gone.set()

    server.script = script
    task = asyncio.create_task(get(upstream))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(gone.wait(), PATIENCE)


async def test_what_follows_an_answer_unasked_is_no_answer_to_the_next_request(
    server: FakeUpstream, upstream: Upstream
) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(200, body=b"right")
        await exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")

    server.script = script
    for _ in range(3):
        assert await get(upstream) == b"right"


async def test_a_body_sent_to_head_is_no_answer_to_the_next_request(
    server: FakeUpstream, upstream: Upstream
) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(200, body=b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")

    server.script = script
    response = await upstream.send("HEAD", "/x", [], None)
    assert await whole(response) == b""
    assert await get(upstream) == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"


async def test_closing_the_upstream_closes_its_idle_connections(
    server: FakeUpstream, upstream: Upstream
) -> None:
    await get(upstream)
    assert server.open_connections == 1
    await upstream.aclose()
    await eventually(lambda: server.open_connections == 0)

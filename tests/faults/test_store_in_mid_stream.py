"""A store that fails while an answer is on its way: its client sees nothing of it, and no turn is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.support.append_client import kept
from tests.support.clients import Chat, is_ready, proxying, recorded
from tests.support.network import Shim, relaying
from tests.support.servers import PATIENCE, Exchange, until
from tests.support.stores import Server
from tests.support.upstreams import DONE, EVENTS, Model, events, said, sse

HASTE = 0.6
"""The timeout of the store, in seconds."""
LONG = 60.0
"""Seconds of rest after a fault, where nothing is to be tried again."""
WHOLE = b"".join(map(sse, events(said("Hello there, whoever you are.")))) + DONE


class Paused:
    """An answer that stops half way until it may go on."""

    def __init__(self) -> None:
        self.is_half, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        await exchange.chunk(WHOLE[:300])
        self.is_half.set()
        await self.may_go_on.wait()
        await exchange.chunk(WHOLE[300:])
        await exchange.end()


@pytest.fixture
async def shim(durable: Server) -> AsyncIterator[Shim]:
    async with relaying(durable.socket) as between:
        yield between


async def kill(server: Server, _: Shim) -> None:
    await asyncio.to_thread(server.kill)


async def start(server: Server, _: Shim) -> None:
    await asyncio.to_thread(server.start)


def setting(command: str, value: object) -> Callable[[Server, Shim], Awaitable[None]]:
    async def run(server: Server, _: Shim) -> None:
        await asyncio.to_thread(server.run, "CONFIG", "SET", command, str(value))

    return run


def member(name: str, value: object) -> Callable[[Server, Shim], Awaitable[None]]:
    async def run(_: Server, shim: Shim) -> None:
        setattr(shim, name, value)

    return run


HARM = {
    "killed": (kill, start),
    "full": (setting("maxmemory", 1), setting("maxmemory", 0)),
    "silent": (member("swallow", True), member("swallow", False)),
    "cut off": (member("cut", 3), member("cut", None)),
    "garbled": (member("garbage", b"\x00?"), member("garbage", b"")),
}


@pytest.mark.parametrize("how", HARM)
async def test_a_stream_is_whole_and_its_turn_is_kept(
    model: Model, durable: Server, shim: Shim, how: str
) -> None:
    harm, mend = HARM[how]
    paused = Paused()
    model.replies.extend([said("One."), paused, said("Three.")])
    async with proxying(model.url, store=shim.url, store_timeout=HASTE) as url:
        chat = Chat(url, members={"model": "gpt-test", "stream": True})
        chat.headers["X-Unabridged-Session"] = "s"
        async with chat.client:
            await chat.ask("first")
            asked = asyncio.create_task(chat.ask("second"))
            await asyncio.wait_for(paused.is_half.wait(), PATIENCE)
            await harm(durable, shim)
            paused.may_go_on.set()
            assert (await asked).content == WHOLE
            await asyncio.sleep(HASTE)
            await mend(durable, shim)
            await until(True, lambda: is_ready(chat.url))
            assert (await chat.ask("third")).status_code == 200
        assert await kept(url, 6) == [message["content"] for message in chat.messages]
        (session,) = await recorded(url, 3)  # the one too that was written after the next
        assert session["turns"] == 3


async def test_a_silent_store_is_waited_for_once(model: Model, shim: Shim) -> None:
    async with proxying(model.url, store=shim.url, store_timeout=HASTE, store_breaker=LONG) as url:
        chat = Chat(url)
        async with chat.client:
            await chat.ask("first")
            shim.swallow = True
            assert "store" in (await chat.ask("second")).headers["x-unabridged-degraded"]
            trips = shim.trips
            for number in range(5):
                answer = await chat.ask(f"more, {number}")
                assert answer.status_code == 200
                assert "store" in answer.headers["x-unabridged-degraded"]
            assert shim.trips == trips, "it is left alone"

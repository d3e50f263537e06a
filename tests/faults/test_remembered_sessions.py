"""A proxy that remembers its sessions, whose store is taken from it, or comes back with less than it had."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from tests.support.append_client import kept
from tests.support.clients import Chat, is_ready, proxying
from tests.support.servers import PATIENCE, until
from tests.support.stores import Server
from tests.support.upstreams import Model

HASTE = 0.6


@asynccontextmanager
async def chatting(model: Model, server: Server) -> AsyncGenerator[Chat]:
    async with proxying(model.url, owns_store=True, store=server.url, store_timeout=HASTE) as url:
        chat = Chat(url)
        chat.headers["X-Unabridged-Session"] = "s"
        async with chat.client:
            yield chat


async def ready(chat: Chat) -> None:
    await until(True, lambda: is_ready(chat.url))


async def whole(chat: Chat) -> bool:
    told = [message["content"] for message in chat.messages]
    return await kept(chat.url, len(told)) == told


def finds(server: Server) -> int:
    """How many look-ups there were: each reads a lane, as nothing else on the way of a turn does."""
    told = str(server.run("INFO", "commandstats"))
    found = re.search(r"cmdstat_lrange\D*(\d+)", told)
    return int(found[1]) if found else 0


async def test_turn_after_turn_nothing_is_asked_of_a_session_that_is_there(
    model: Model, valkey: Server
) -> None:
    async with chatting(model, valkey) as chat:
        await chat.ask("first")
        await chat.ask("second")
        assert await whole(chat)
        before = finds(valkey)
        for number in range(5):
            assert (await chat.ask(f"more, {number}")).status_code == 200
        assert finds(valkey) == before
        assert await whole(chat)


async def test_where_others_may_write_every_turn_is_asked_about(model: Model, valkey: Server) -> None:
    async with proxying(model.url, store=valkey.url) as url:
        chat = Chat(url)
        async with chat.client:
            await chat.ask("first")
            before = finds(valkey)
            await chat.ask("second")
            assert finds(valkey) > before


async def test_a_store_that_comes_back_empty_is_given_the_session_anew(model: Model, valkey: Server) -> None:
    async with chatting(model, valkey) as chat:
        await chat.ask("first")
        await chat.ask("second")
        await asyncio.to_thread(valkey.kill)
        await asyncio.to_thread(valkey.start)
        assert (await chat.ask("third")).status_code == 200
        await ready(chat)
        assert (await chat.ask("fourth")).status_code == 200
        await ready(chat)
        assert (await chat.ask("fifth")).status_code == 200
        assert await whole(chat)


async def test_while_the_store_is_away_each_answer_says_so(model: Model, valkey: Server) -> None:
    async with chatting(model, valkey) as chat:
        await chat.ask("first")
        await chat.ask("second")
        await asyncio.to_thread(valkey.kill)
        assert (await chat.ask("third")).status_code == 200  # nobody knows yet
        async with asyncio.timeout(PATIENCE):
            while "x-unabridged-degraded" not in (await chat.ask("more")).headers:
                pass
        for number in range(3):
            assert "store" in (await chat.ask(f"again, {number}")).headers["x-unabridged-degraded"]
        await asyncio.to_thread(valkey.start)
        await ready(chat)
        assert (await chat.ask("last")).status_code == 200
        assert await whole(chat)

"""A turn that could not be written is written once the store is back, whatever the client sends next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from tests.support.canaries import logged
from tests.support.clients import ADMIN, Chat, admin, only_session, proxying, recorded, told
from tests.support.network import Shim, relaying
from tests.support.operator import ask
from tests.support.servers import Exchange, awaited, eventually, until
from tests.support.stores import Server
from tests.support.upstreams import Model, said


async def transcript(url: str, **query: str) -> list[str]:
    session = await only_session(url)
    told: Any = await admin(url, f"sessions/{session['id']}/transcript", **query)
    return [entry["message"]["content"] for entry in told["messages"]]


@asynccontextmanager
async def two_workers(
    durable: Server, model: Model, *, knows: bool = True
) -> AsyncGenerator[tuple[Shim, Chat, str]]:
    """A worker that can lose its way to the store, a conversation with it, and another worker's URL.

    The first turn was at the first worker, or at the other one if the first does not know the conversation.
    """
    async with (
        relaying(durable.socket) as relay,
        proxying(model.url, store=relay.url) as url,
        proxying(model.url, store=durable.url) as other,
    ):
        chat = Chat(url if knows else other)
        chat.headers["X-Unabridged-Session"] = "s"
        await chat.ask("first")
        await recorded(other, 1)
        chat.url = url
        try:
            yield relay, chat, other
        finally:
            await chat.client.aclose()


async def test_a_lost_turn_is_written_when_the_store_is_back(durable: Server, model: Model) -> None:
    model.replies.extend([said("One."), said("Two.")])
    async with proxying(model.url, store=durable.url) as url:
        chat = Chat(url)
        chat.headers["X-Unabridged-Session"] = "s"
        await chat.ask("first")
        await recorded(url, 1)
        durable.kill()
        assert told(await chat.ask("second"), "degraded") == "store"
        durable.start()

        async def is_ready() -> bool:
            return (await chat.client.get(f"{url}/readyz")).json() == {"status": "ready"}

        await until(True, is_ready)
        await until(["first", "One.", "second", "Two."], lambda: transcript(url))
        await chat.client.aclose()


async def test_a_turn_that_is_written_late_shortens_no_session_without_a_header(
    durable: Server, model: Model
) -> None:
    async with relaying(durable.socket) as relay, proxying(model.url, store=relay.url) as url:
        chat = Chat(url)

        async def lengths() -> list[int]:
            return [durable.run("HLEN", nodes) for nodes in durable.run("KEYS", "*:nodes")]

        for count in (2, 4):
            await chat.ask("and then?")
            await until([count], lengths)
        relay.refuses = True
        await relay.aclose()
        assert told(await chat.ask("and now?"), "degraded") == "store"
        relay.refuses = False
        await until([6], lengths)
        [nodes] = durable.run("KEYS", "*:nodes")
        assert durable.run("TTL", nodes) > 29 * 86_400
        await chat.client.aclose()


async def test_a_session_that_cannot_be_read_holds_up_no_other(durable: Server, model: Model) -> None:
    async with proxying(model.url, store=durable.url) as url:
        chats = {name: Chat(url) for name in ("of a newer release", "ours")}
        for name, chat in chats.items():
            chat.headers["X-Unabridged-Session"] = name
            await chat.ask("first")
            await recorded(url, 1)
            if name != "ours":
                durable.run("HSET", durable.run("KEYS", "*:named")[0], "record", b"\x02" + name.encode())
        durable.kill()
        for chat in chats.values():
            assert told(await chat.ask("second"), "degraded") == "store"
        durable.start()

        async def messages() -> list[int]:
            return [durable.run("HLEN", key) for key in durable.run("KEYS", "*:nodes")]

        await until([4, 4], messages)
        records = [durable.run("HGET", key, "record") for key in durable.run("KEYS", "*:named")]
        assert b"\x02of a newer release" in records
        for chat in chats.values():
            await chat.client.aclose()


async def test_a_session_that_the_store_refuses_holds_up_no_other(durable: Server, model: Model) -> None:
    async with proxying(model.url, store=durable.url) as url:
        chats = [Chat(url) for _ in range(2)]
        refused, _ = chats
        for chat in chats:
            chat.headers["X-Unabridged-Session"] = f"s{id(chat)}"
        await refused.ask("first")
        await recorded(url, 1)
        [nodes] = durable.run("KEYS", "*:nodes")
        await chats[1].ask("first")
        durable.run("DEL", nodes)
        durable.run("SET", nodes, "of another type")
        for chat in chats:
            await chat.ask("second")
        durable.kill()
        for chat in chats:
            assert told(await chat.ask("third"), "degraded")
        durable.start()

        async def messages() -> list[int]:
            return [durable.run("HLEN", key) for key in durable.run("KEYS", "*:nodes") if key != nodes]

        await until([6], messages)
        for chat in chats:
            await chat.client.aclose()


async def test_a_deleted_session_does_not_come_back(durable: Server, model: Model) -> None:
    async with proxying(model.url, store=durable.url, store_breaker=1.0) as url:
        chat = Chat(url)
        chat.headers["X-Unabridged-Session"] = "s"
        await chat.ask("first")
        await recorded(url, 1)
        session = await only_session(url)
        durable.kill()
        await chat.ask("second")
        durable.start()
        async with httpx2.AsyncClient(base_url=url, headers=ADMIN) as operator:
            path = f"/unabridged/v1/sessions/{session['id']}"
            await awaited(lambda: operator.delete(path), lambda answer: answer.is_success)
        await asyncio.sleep(1.5)
        assert (await admin(url, "sessions"))["sessions"] == []
        await chat.client.aclose()


async def test_a_session_that_was_deleted_at_another_worker_comes_back_with_its_client_alone(
    durable: Server, model: Model
) -> None:
    async with two_workers(durable, model) as (relay, chat, other):
        relay.refuses = True
        await relay.aclose()
        with logged() as lines:
            assert told(await chat.ask("second"), "degraded") == "store"
            assert (await ask(other, "DELETE", "sessions/s")).status_code == 200
            relay.refuses = False
            await eventually(lambda: any("a late turn could not be written" in line for line in lines))
        assert (await admin(other, "sessions"))["sessions"] == []
        assert durable.run("KEYS", "*:nodes") == []
        await chat.ask("third")
        await recorded(other, 1)
        await until([message["content"] for message in chat.messages], lambda: transcript(other))


async def test_a_deleted_session_does_not_come_back_from_a_worker_that_did_not_know_it(
    durable: Server, model: Model
) -> None:
    async with two_workers(durable, model, knows=False) as (relay, chat, other):
        relay.refuses = True
        await relay.aclose()
        with logged() as lines:
            assert told(await chat.ask("second"), "degraded") == "store"
            assert (await ask(other, "DELETE", "sessions/s")).status_code == 200
            relay.refuses = False
            await eventually(lambda: any("a late turn could not be written" in line for line in lines))
        assert (await admin(other, "sessions"))["sessions"] == []
        assert durable.run("KEYS", "*:nodes") == []


async def test_a_conversation_that_begins_under_the_name_of_a_deleted_one_is_written_late(
    durable: Server, model: Model
) -> None:
    async with two_workers(durable, model) as (relay, chat, other):
        assert (await ask(chat.url, "DELETE", "sessions/s")).status_code == 200
        relay.refuses = True
        await relay.aclose()
        chat.messages.clear()
        assert told(await chat.ask("of another matter"), "degraded") == "store"
        relay.refuses = False
        await recorded(other, 1)
        assert await transcript(other) == [message["content"] for message in chat.messages]


async def test_a_late_turn_does_not_become_the_tip_of_a_session_that_has_gone_on(
    durable: Server, model: Model
) -> None:
    model.replies.extend([said("One."), said("Two."), said("Another two."), said("Three.")])
    async with (
        proxying(model.url, store=durable.url, store_breaker=1.0) as url,
        proxying(model.url, store=durable.url) as other,
    ):
        chat = Chat(url)
        chat.headers["X-Unabridged-Session"] = "s"
        await chat.ask("first")
        await recorded(url, 1)
        durable.kill()
        await chat.ask("second")
        durable.start()
        del chat.messages[2:]
        chat.url = other
        await chat.ask("edited")
        await chat.ask("third")
        expected = ["first", "One.", "edited", "Another two.", "third", "Three."]

        async def is_counted() -> bool:
            return "unabridged_lost_turns_total 1.0" in (await chat.client.get(f"{url}/metrics")).text

        await until(True, is_counted)
        assert await transcript(other) == expected
        await chat.client.aclose()


async def test_a_refusal_does_not_spend_the_word_that_a_turn_was_lost(durable: Server, model: Model) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.answer_json({"error": {"message": "later"}}, 429)

    model.replies.extend([said("One."), said("Two."), refuse, said("Three.")])
    async with proxying(model.url, store=durable.url) as url:
        chat = Chat(url)
        chat.headers["X-Unabridged-Session"] = "s"
        await chat.ask("first")
        await recorded(url, 1)
        durable.kill()
        await chat.ask("second")
        durable.start()
        await asyncio.sleep(0.5)
        assert (await chat.ask("third")).status_code == 429
        assert "previous-turn" in told(await chat.send(), "degraded")
        await chat.client.aclose()

"""A client that sends only what is new: no answer without its history, and no turn of it is lost unsaid."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import httpx2
import pytest

from tests.support.append_client import Appender, contents, error_code
from tests.support.clients import proxying, user
from tests.support.network import relaying
from tests.support.servers import Exchange
from tests.support.stores import Server
from tests.support.upstreams import DONE, Behaviour, Message, Model, completion, events, said, sse

PATIENCE = 0.5
"""Seconds after which the store is tried again: its breaker rests for 0.2."""


async def append(url: str, *messages: Message, stream: bool = False, **headers: str) -> httpx2.Response:
    appender = Appender(url, members={"model": "gpt-test", "stream": stream})
    async with appender.client:
        return await appender.say(*messages, **headers)


def after(happening: asyncio.Event, begun: asyncio.Event, text: str) -> Behaviour:
    """An answer that begins, waits for something to happen to the store, and ends well."""

    async def behave(exchange: Exchange) -> None:
        is_stream = b'"stream":true' in (await exchange.body()).replace(b" ", b"")
        begun.set()
        if not is_stream:
            await happening.wait()
            await exchange.answer_json(completion(said(text)))
            return
        await exchange.start(200, [(b"Content-Type", b"text/event-stream")])
        first, *others = map(sse, events(said(text)))
        await exchange.chunk(first)
        await happening.wait()
        for event in (*others, DONE):
            await exchange.chunk(event)
        await exchange.end()

    return behave


async def test_without_the_store_there_is_no_answer_without_its_history(
    durable: Server, model: Model
) -> None:
    async with proxying(model.url, store=durable.url) as url:
        assert (await append(url, user("first"))).status_code == 200
        durable.kill()
        for _ in range(3):
            response = await append(url, user("second"))
            assert (response.status_code, error_code(response)) == (503, "history_unavailable")
            assert int(response.headers["retry-after"]) >= 1
        assert len(model.chats) == 1
        durable.start()
        await asyncio.sleep(PATIENCE)
        assert (await append(url, user("second"))).status_code == 200
        assert contents(model.views()[1])[::2] == ["first", "second"]


async def test_a_paused_store_is_a_history_that_cannot_be_read(durable: Server, model: Model) -> None:
    async with proxying(model.url, store=durable.url, store_timeout=0.6) as url:
        await append(url, user("first"))
        assert durable.process is not None
        os.kill(durable.process.pid, signal.SIGSTOP)
        try:
            assert error_code(await append(url, user("second"))) == "history_unavailable"
        finally:
            os.kill(durable.process.pid, signal.SIGCONT)
        await asyncio.sleep(PATIENCE)
        assert (await append(url, user("second"))).status_code == 200
        assert len(model.views()[-1]) == 3


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_an_answer_whose_turn_cannot_be_saved_says_so_at_its_end(
    durable: Server, model: Model, *, stream: bool
) -> None:
    happening, begun = asyncio.Event(), asyncio.Event()
    model.replies.extend([said("One."), after(happening, begun, "Two."), said("Two again.")])
    async with proxying(model.url, store=durable.url) as url:
        await append(url, user("first"))
        asked = asyncio.create_task(append(url, user("second"), stream=stream))
        await begun.wait()
        durable.kill()
        happening.set()
        response = await asked
        if stream:
            assert "history_not_saved" in response.text.splitlines()[-2]
            assert "[DONE]" not in response.text
        else:
            assert (response.status_code, error_code(response)) == (503, "history_not_saved")
        durable.start()
        await asyncio.sleep(PATIENCE)
        assert (await append(url, user("second"))).status_code == 200
        assert contents(model.views()[2]) == ["first", "One.", "second"]


async def test_a_turn_whose_confirmation_was_lost_is_there_once_when_sent_again(
    durable: Server, model: Model
) -> None:
    """It was written; its client hears that it was not and sends it to another worker: it is one turn."""
    happening, begun = asyncio.Event(), asyncio.Event()
    model.replies.extend([said("One."), after(happening, begun, "Two."), said("Two again."), said("Three.")])
    async with (
        relaying(durable.socket) as relay,
        proxying(model.url, store=relay.url) as url,
        proxying(model.url, store=durable.url) as other,
    ):
        await append(url, user("first"))
        asked = asyncio.create_task(append(url, user("yes"), stream=True))
        await begun.wait()
        relay.lose_replies = True
        happening.set()
        assert "history_not_saved" in (await asked).text
        resent = asyncio.create_task(append(other, user("yes")))
        await asyncio.sleep(PATIENCE)
        relay.lose_replies = False
        assert (await resent).status_code == 200
        await append(other, user("next"))
        assert contents(model.views()[2]) == ["first", "One.", "yes"]
        assert contents(model.views()[3]) == ["first", "One.", "yes", "Two again.", "next"]


async def test_a_turn_whose_confirmation_was_lost_is_told_again_under_its_key(
    durable: Server, model: Model
) -> None:
    """It was written: its client gets that answer, and what it says then is a turn of its own."""
    happening, begun = asyncio.Event(), asyncio.Event()
    model.replies.extend([said("One."), after(happening, begun, "Two."), said("Three.")])
    async with (
        relaying(durable.socket) as relay,
        proxying(model.url, store=relay.url) as url,
        proxying(model.url, store=durable.url) as other,
    ):
        await append(url, user("first"))
        asked = asyncio.create_task(append(url, user("yes"), stream=True, Idempotency_Key="k"))
        await begun.wait()
        await asyncio.sleep(0.2)  # what is under way behind the turn, such as its place in the listing
        relay.lose_replies = True
        happening.set()
        assert "history_not_saved" in (await asked).text
        resent = asyncio.create_task(append(other, user("yes"), Idempotency_Key="k"))
        await asyncio.sleep(PATIENCE)
        relay.lose_replies = False
        assert (await resent).json()["choices"][0]["message"]["content"] == "Two."
        await append(other, user("yes"), Idempotency_Key="k-2")
        assert [contents(view) for view in model.views()[2:]] == [["first", "One.", "yes", "Two.", "yes"]]


async def test_a_store_that_takes_no_writes_gives_no_complete_answer(durable: Server, model: Model) -> None:
    async with proxying(model.url, store=durable.url) as url:
        await append(url, user("first"))
        durable.run("CONFIG", "SET", "maxmemory", "1")
        assert error_code(await append(url, user("second"))) in {"history_unavailable", "history_not_saved"}
        durable.run("CONFIG", "SET", "maxmemory", "0")
        await asyncio.sleep(PATIENCE)
        assert (await append(url, user("second"))).status_code == 200
        assert contents(model.views()[-1])[::2] == ["first", "second"]


async def test_a_history_with_a_hole_is_not_sent(durable: Server, model: Model, tmp_path: Path) -> None:
    async with proxying(model.url, store=durable.url) as url:
        for text in ("first", "second"):
            await append(url, user(text))
        (nodes,) = durable.run("KEYS", "u1:*:nodes")
        names: list[bytes] = durable.run("HKEYS", nodes)
        durable.run("HDEL", nodes, names[0])
        assert error_code(await append(url, user("third"))) == "history_unavailable"
        assert len(model.chats) == 2


async def test_a_session_whose_messages_were_evicted_is_over(durable: Server, model: Model) -> None:
    async with (
        proxying(model.url, store=durable.url) as url,
        proxying(model.url, store=durable.url) as other,
    ):
        for text in ("first", "second"):
            await append(url, user(text))
        (nodes,) = durable.run("KEYS", "u1:*:nodes")
        durable.run("DEL", nodes)
        for each in (url, other) * 2:
            response = await append(each, user("third"))
            assert (response.status_code, error_code(response)) == (410, "session_expired")
        assert len(model.chats) == 2

"""A process that is killed: its client may ask again, and the turn is there once."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.append_client import Appender, contents, hold, kept, transcript
from tests.support.clients import KEY, SECRET, Chat, admin, proxying, told, user
from tests.support.network import Shim, relaying
from tests.support.operator import ask, talk
from tests.support.processes import Serving, serving
from tests.support.servers import PATIENCE, Exchange, eventually
from tests.support.stores import Server
from tests.support.upstreams import Model, completion, said

SESSION = {"X-Unabridged-Session": "s"}


def before(model: Model, data: Path, store: str) -> AbstractAsyncContextManager[Serving]:
    return serving(
        data,
        *("--store", store, "--upstream", model.url),
        UNABRIDGED_SECRET=SECRET,
        UNABRIDGED_ADMIN_TOKEN="admin",
        UNABRIDGED_LINE_LEASE="3",  # a dead worker's place in line; renewed every second
        # It is killed before it gives up: what is written is written, and nobody hears of it.
        UNABRIDGED_STORE_TIMEOUT="60",
        UNABRIDGED_SAVE_TIMEOUT="60",
    )


async def test_a_turn_whose_worker_is_killed_in_mid_stream_is_there_once(
    model: Model, durable: Server, tmp_path: Path
) -> None:
    model.replies.append(lambda exchange: hold(exchange, "Hello there, who"))
    chat = Chat("", headers={"Authorization": KEY, **SESSION})
    body: dict[str, Any] = {"model": "gpt-test", "stream": True, "messages": [user("Hello")]}
    async with before(model, tmp_path, durable.url) as served, chat.client as client:
        chat.url = f"{served.url}/v1/chat/completions"
        async with client.stream("POST", chat.url, json=body, headers=chat.headers) as response:
            pieces = response.aiter_raw()
            assert b"Hello" in await anext(pieces)
            await served.end(signal.SIGKILL)
            with pytest.raises(httpx2.HTTPError):
                await anext(pieces)
    model.replies.append(said("Hello there, whoever you are."))
    async with before(model, tmp_path, durable.url) as served:
        chat = Chat(served.url, headers=chat.headers)
        async with chat.client:
            assert (await chat.ask("Hello")).status_code == 200
        assert await kept(served.url, 2) == ["Hello", "Hello there, whoever you are."]


async def test_where_the_worker_that_compacts_is_killed_requests_go_on(
    model: Model, durable: Server, tmp_path: Path
) -> None:
    model.summary = model.hang
    policies = [tmp_path / name / "mine.toml" for name in ("patient", "hasty")]
    for policy, wait in zip(policies, ("60s", "300ms"), strict=True):
        policy.parent.mkdir()
        policy.write_text(f'extends = "default"\nsummary.wait = "{wait}"\n')
    patient, hasty = map(str, policies)
    flags = ("--store", durable.url, "--upstream", model.url, "--policy", patient)
    async with (
        proxying(model.url, store=durable.url, policy=hasty) as url,
        serving(
            tmp_path,
            *flags,
            UNABRIDGED_SECRET=SECRET,
            UNABRIDGED_ADMIN_TOKEN="admin",
            UNABRIDGED_UPSTREAM_KEY="sk-operator",
        ) as served,
    ):
        chat = Chat(url, headers={"Authorization": KEY, **SESSION})
        async with chat.client:
            await talk(chat, 3)
            compacting = asyncio.create_task(ask(served.url, "POST", "sessions/s/compact"))
            await eventually(lambda: bool(model.summaries))
            await served.end(signal.SIGKILL)
            await asyncio.gather(compacting, return_exceptions=True)
            assert (await admin(url, "sessions/s"))["blocked"] == "compacting", "its place is held"
            response = await chat.ask("And now?")
            assert (response.status_code, told(response, "epoch")) == (200, "0")
            assert (await admin(url, "sessions/s"))["blocked"] == "compacting", "and nobody waits for that"


class Held:
    """An answer that comes when it may."""

    def __init__(self, text: str) -> None:
        self.is_asked, self.may_come = asyncio.Event(), asyncio.Event()
        self._text = text

    async def __call__(self, exchange: Exchange) -> None:
        self.is_asked.set()
        await self.may_come.wait()
        await exchange.answer_json(completion(said(self._text)))


async def write_unheard(
    served: Serving, shim: Shim, durable: Server, held: Held, asked: Awaitable[object]
) -> None:
    """Let a second turn be answered and written, and kill the process before it hears that it is written."""
    task = asyncio.ensure_future(asked)
    await asyncio.wait_for(held.is_asked.wait(), PATIENCE)
    await asyncio.sleep(0.1)  # what is under way behind the turn, such as its place in the listing
    shim.swallow = True
    held.may_come.set()
    (nodes,) = durable.run("KEYS", "*:nodes")
    await eventually(lambda: durable.run("HLEN", nodes) == 4)
    await served.end(signal.SIGKILL)
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.soak
async def test_a_turn_that_was_written_unheard_when_its_worker_was_killed_is_there_once(
    model: Model, durable: Server, tmp_path: Path
) -> None:
    held = Held("Two.")
    model.replies.extend([said("One."), held, said("Three.")])
    chat = Chat("", headers={"Authorization": KEY, **SESSION})
    async with relaying(durable.socket) as shim, before(model, tmp_path, shim.url) as served, chat.client:
        chat.url = served.url
        await chat.ask("first")
        await write_unheard(served, shim, durable, held, chat.ask("second"))
    chat.client = httpx2.AsyncClient(timeout=PATIENCE)
    async with before(model, tmp_path, durable.url) as served, chat.client:
        chat.url = served.url
        assert (await chat.ask("third")).status_code == 200
        assert await kept(served.url, 6) == ["first", "One.", "second", "Two.", "third", "Three."]


async def test_an_appended_turn_that_was_written_unheard_is_there_once_when_it_is_sent_again(
    model: Model, durable: Server, tmp_path: Path
) -> None:
    held = Held("Two.")
    model.replies.extend([said("One."), held, said("Three.")])
    async with relaying(durable.socket) as shim, before(model, tmp_path, shim.url) as served:
        appender = Appender(served.url)
        async with appender.client:
            await appender.ask("first")
            await write_unheard(served, shim, durable, held, appender.ask("second", Idempotency_Key="one"))
    async with before(model, tmp_path, durable.url) as served:
        appender = Appender(served.url)
        async with appender.client:
            assert (await appender.ask("second", Idempotency_Key="one")).status_code == 200
            assert (await appender.ask("third")).status_code == 200
        assert await transcript(served.url) == ["first", "One.", "second", "Two.", "third", "Three."]
        assert contents(model.views()[-1]) == ["first", "One.", "second", "Two.", "third"]

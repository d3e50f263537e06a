"""Background calls and users: who is served one at a time never queues behind a summary, and who never pauses
gets summaries all the same."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles

import httpx2
import pytest

from tests.support.clients import Chat, Chats, making_chats, proxying, told, write_policy
from tests.support.processes import serving
from tests.support.servers import PATIENCE, Exchange, FakeUpstream, eventually
from tests.support.stores import embedded_valkey
from tests.support.upstreams import (
    Behaviour,
    Message,
    Model,
    completion,
    count_tokens,
    is_summary,
    running,
    said,
)

POLICY = """
extends = "balanced"
[budget]
tokens = 800
[summary]
wait = "{wait}"
"""


def question(number: int, of: str) -> str:
    return f"Question {number} of {of}: what became of item {number * 37}? " + "Tell me all of it. " * 8


@dataclass
class OneSlot:
    """Serves one request at a time, in the order of arrival, and notes what became of each."""

    slot: asyncio.Lock = field(default_factory=asyncio.Lock)
    users_waiting: int = 0
    seen: list[str] = field(default_factory=list[str])
    held_up: list[float] = field(default_factory=list[float])
    """Seconds that each user waited who came while a summary was written."""
    is_summarising: bool = False

    async def serve_one(self, exchange: Exchange) -> None:
        whole = await exchange.body()
        if exchange.request.method == "GET":
            await exchange.answer_json({"object": "list", "data": []})
            return
        if len(whole) < int(exchange.request.value("content-length") or b"0"):
            return  # cut off before it was written
        body: Message = json.loads(whole)
        if is_summary(body):
            await self._summarise(exchange, body)
            return
        self.users_waiting += 1
        since, is_held_up = asyncio.get_running_loop().time(), self.is_summarising
        async with self.slot:
            self.users_waiting -= 1
            if is_held_up:
                self.held_up.append(asyncio.get_running_loop().time() - since)
            await asyncio.sleep(0.01)
            text = f"Answer {len(self.seen)}. " + "So it is. " * 12
            await exchange.answer_json(completion(said(text), count_tokens(body)))
        self.seen.append("user served")

    async def _summarise(self, exchange: Exchange, body: Message) -> None:
        async with self.slot:
            self.is_summarising = True
            try:
                await self._write(exchange, body)
            finally:
                self.is_summarising = False

    async def _write(self, exchange: Exchange, body: Message) -> None:
        leaving = asyncio.create_task(exchange.gone())
        done, _ = await asyncio.wait([leaving], timeout=0.15)
        if self.users_waiting and not done:  # it is being cut off: nobody is served before it is
            done, _ = await asyncio.wait([leaving], timeout=PATIENCE)
        if done:
            self.seen.append("summary cut off")
            return
        if self.users_waiting:
            self.seen.append("user waited for a summary")
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await exchange.answer_json(completion(said("They spoke of many items."), count_tokens(body)))
        self.seen.append("summary written")


LEARNING = 0.3
"""Seconds that a user waits at most, of a quick model that serves one at a time, until that is known."""


async def test_no_user_queues_behind_a_summary_once_it_is_known_that_the_model_serves_one_at_a_time(
    tmp_path: Path, chats: Chats
) -> None:
    upstream = OneSlot()
    policy = write_policy(tmp_path, "small", POLICY.format(wait="400ms"))
    async with (
        FakeUpstream(upstream.serve_one).serve() as served,
        proxying(f"{served.url}/v1", policy=str(policy)) as url,
    ):

        async def talk(chat: Chat, name: str, pause: float) -> None:
            for number in range(14):
                response = await chat.ask(question(number, name))
                assert response.status_code == 200
                await asyncio.sleep(pause)

        await asyncio.gather(talk(chats(url), "one", 0.02), talk(chats(url), "two", 0.2))
        await eventually(lambda: "summary written" in upstream.seen)  # in the pause that comes at last
    assert upstream.seen.count("user served") >= 28
    assert "user waited for a summary" not in upstream.seen
    assert "summary cut off" in upstream.seen
    assert sum(seconds > 0.5 * LEARNING for seconds in upstream.held_up) <= 2, (
        "they came while one was learnt from"
    )


@pytest.mark.parametrize("workers", [1, 2])
async def test_clients_that_never_pause_get_their_summaries(
    tmp_path: Path, chats: Chats, workers: int
) -> None:
    policy = write_policy(tmp_path, "small", POLICY.format(wait="0s").replace("800", "2400"))

    async with running(Model(summary=answering(0.5, "They spoke of many items."))) as model:
        with embedded_valkey() as store:
            async with AsyncExitStack() as servers:
                urls = [
                    await servers.enter_async_context(proxying(model.url, policy=str(policy), store=store))
                    for _ in range(workers)
                ]

                async def talk(chat: Chat, name: str) -> None:
                    number, summary = 0, "none"
                    while summary != "ready":
                        chat.url = urls[number % workers]
                        summary = told(await chat.ask(question(number, name)), "summary")
                        number += 1
                    assert "They spoke of many items." in json.dumps(model.views())

                async with asyncio.timeout(6 * PATIENCE):
                    await asyncio.gather(talk(chats(urls[0]), "one"), talk(chats(urls[0]), "two"))


async def test_two_workers_pay_for_no_piece_of_a_summary_twice(tmp_path: Path, chats: Chats) -> None:
    policy = write_policy(tmp_path, "small", POLICY.format(wait="2s"))

    async with running(Model(summary=answering(0.3, "They spoke of many items."))) as model:
        with embedded_valkey() as store:
            async with (
                proxying(model.url, policy=str(policy), store=store) as one,
                proxying(model.url, policy=str(policy), store=store) as two,
            ):
                first, second = chats(one), chats(two)
                number, answers = 0, list[httpx2.Response]()
                while not model.summaries:
                    second.messages = list(first.messages)
                    asked = question(number, "both")
                    answers = await asyncio.gather(first.ask(asked), second.ask(asked))
                    second.messages = list(first.messages)
                    number += 1
                assert {told(answer, "summary") for answer in answers} == {"waited"}
                asked_for = [bytes(call.body) for call in model.summaries]
                assert len(asked_for) == len(set(asked_for))
                assert model.views()[-1] == model.views()[-2]


@pytest.mark.soak
@pytest.mark.timeout(400)
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_for_a_minute_two_clients_that_never_pause_are_answered_as_fast_as_without_summaries(
    tmp_path: Path, workers: str
) -> None:
    took: dict[str, list[float]] = {}
    for enabled in ("false", "true"):
        text = POLICY.format(wait="0s").replace("800", "4000") + f"enabled = {enabled}\n"
        path = write_policy(tmp_path, f"enabled-{enabled}", text)
        async with (
            running(Model(summary=answering(4.0, "They spoke of many items."))) as model,
            serving(tmp_path, "--upstream", model.url, "--policy", str(path), "--workers", workers) as served,
        ):
            talks = [_talk_for_a_minute(served.url, model, name) for name in ("one", "two")]
            first, second = await asyncio.gather(*talks)
        took[enabled] = [*first.seconds, *second.seconds]
        has_summaries = enabled == "true"
        assert [first.has_summary, second.has_summary] == [has_summaries, has_summaries]
    assert median(took["true"]) < 1.1 * median(took["false"])
    assert quantiles(took["true"], n=20)[-1] < 1.1 * quantiles(took["false"], n=20)[-1]


def answering(seconds: float, text: str) -> Behaviour:
    """An answer that takes so long."""

    async def behave(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await exchange.answer_json(completion(said(text)))

    return behave


@dataclass
class Talk:
    """What a client that never pauses has seen."""

    seconds: list[float] = field(default_factory=list[float])
    """How long each answer took."""
    has_summary: bool = False


async def _talk_for_a_minute(url: str, model: Model, name: str) -> Talk:
    talk, now = Talk(), asyncio.get_running_loop().time
    end = now() + 60.0
    async with making_chats() as chats:
        while now() < end:
            chat, opening = chats(url), f"{name} at {now()}"  # no conversation is like another
            for number in range(100):
                model.replies.append(answering(0.1, f"Answer {number}. " + "So it is. " * 12))
                since = now()
                response = await chat.ask(question(number, opening))
                talk.seconds.append(now() - since)
                talk.has_summary |= told(response, "summary") == "ready"
    return talk

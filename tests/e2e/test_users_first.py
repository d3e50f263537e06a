"""Background calls and users on an upstream that serves one request at a time: users never queue behind."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from tests.support.clients import Chat, Chats, proxying, told, write_policy
from tests.support.servers import PATIENCE, Exchange, FakeUpstream, eventually
from tests.support.stores import embedded_valkey
from tests.support.upstreams import Message, Model, completion, count_tokens, is_summary, running, said

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
        async with self.slot:
            self.users_waiting -= 1
            await asyncio.sleep(0.01)
            text = f"Answer {len(self.seen)}. " + "So it is. " * 12
            await exchange.answer_json(completion(said(text), count_tokens(body)))
        self.seen.append("user served")

    async def _summarise(self, exchange: Exchange, body: Message) -> None:
        async with self.slot:
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


async def test_no_user_ever_queues_behind_a_summary(tmp_path: Path, chats: Chats) -> None:
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
    assert upstream.seen.count("user served") >= 28
    assert "user waited for a summary" not in upstream.seen
    assert "summary cut off" in upstream.seen
    assert "summary written" in upstream.seen


async def test_two_workers_pay_for_no_piece_of_a_summary_twice(tmp_path: Path, chats: Chats) -> None:
    policy = write_policy(tmp_path, "small", POLICY.format(wait="2s"))

    async def slowly(exchange: Exchange) -> None:
        await asyncio.sleep(0.3)
        await exchange.answer_json(completion(said("They spoke of many items.")))

    async with running(Model(summary=slowly)) as model:
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


async def test_a_summary_is_prepared_from_trim_on_while_nobody_waits(tmp_path: Path, chats: Chats) -> None:
    policy = write_policy(tmp_path, "small", POLICY.format(wait="0s").replace("800", "2400"))
    async with (
        running(Model()) as model,
        proxying(model.url, policy=str(policy)) as url,
    ):
        chat = chats(url)
        number = 0
        while "trim" not in chat.stages:
            await chat.ask(question(number, "one"))
            number += 1
        assert "compact" not in chat.stages
        await eventually(lambda: len(model.summaries) == 1)
        await asyncio.sleep(0.05)
        while (response := await chat.ask(question(number, "one"))).headers["x-unabridged-cut"] == "0":
            number += 1
        assert told(response, "summary") == "ready"

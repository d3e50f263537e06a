"""The model of the soak: it says the same to the same question, in its own time, and sometimes fails."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from random import Random

from tests.support.remembering import COMPRESSING, ITEMS, TEXTS, bullets_in, note
from tests.support.servers import Exchange
from tests.support.upstreams import DONE, EVENTS, JSON, Message, completion, events, is_summary, said, sse

_PAUSE = 0.002
"""Seconds between two events."""
_HANG = 1.5
"""Seconds for which it says nothing: more than the proxy waits."""


def answer_to(question: str) -> str:
    """What the model says."""
    return f"As to {question[:40]}: " + "so it is, and so it was. " * 12


class Talker:
    """A script for the upstream."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.is_well = True
        """Whether it answers everybody as it should."""

    async def __call__(self, exchange: Exchange) -> None:
        body = await exchange.body()
        if exchange.request.method == "GET" or not exchange.request.target.endswith("/chat/completions"):
            await exchange.answer_json({"object": "list", "data": []})
            return
        if len(body) < int(exchange.request.value("content-length") or b"0"):
            return  # whoever asked has left
        asked: Message = json.loads(body)
        if (written := _for_memory(asked)) is not None:
            await exchange.answer_json(completion(said(written)))
            return
        if is_summary(asked):
            await exchange.answer_json(completion(said("They spoke of the plan; all went well.")))
            return
        await self._fate()(exchange, asked)

    def _fate(self) -> Callable[[Exchange, Message], Awaitable[None]]:
        faults = [_refuse, _garble, _hang, _break_off, _reset]
        if self.is_well or self._random.random() < 0.9:
            return _answer
        return self._random.choice(faults)


def _for_memory(asked: Message) -> str | None:
    """What it writes for a memory; None where that is not what it is asked for."""
    task, text = (str(asked["messages"][place].get("content")) for place in (0, -1))
    if task.startswith(ITEMS):
        return json.dumps({"items": [note(each) for each in sorted({*re.findall(r"I keep [^.]+\.", text)})]})
    if task.startswith(TEXTS):
        return "\n".join(f"- {line}" for line in bullets_in(text)[:10])
    return text.splitlines()[1][:80] if task.startswith(COMPRESSING) else None


async def _answer(exchange: Exchange, asked: Message) -> None:
    message = said(answer_to(str(asked["messages"][-1].get("content"))))
    if asked.get("stream") is not True:
        await exchange.answer_json(completion(message, prompt=None))
        return
    await exchange.start(200, [EVENTS])
    for event in events(message):
        await exchange.chunk(sse(event))
        await asyncio.sleep(_PAUSE)
    await exchange.chunk(DONE)
    await exchange.end()


async def _refuse(exchange: Exchange, _: Message) -> None:
    await exchange.answer(429, [JSON, (b"Retry-After", b"1")], b'{"error": {"message": "slow down"}}')


async def _garble(exchange: Exchange, _: Message) -> None:
    await exchange.raw(b"\x16\x03\x01 no HTTP at all\r\n\r\n")
    exchange.close()


async def _hang(exchange: Exchange, _: Message) -> None:
    await asyncio.sleep(_HANG)
    exchange.close()


async def _break_off(exchange: Exchange, asked: Message) -> None:
    await exchange.start(200, [EVENTS if asked.get("stream") else JSON])
    await exchange.chunk(sse(events(said("I was about to"))[0]))
    exchange.close()


async def _reset(exchange: Exchange, _: Message) -> None:
    await exchange.start(200, [EVENTS])
    exchange.reset()

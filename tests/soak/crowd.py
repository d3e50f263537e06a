"""The clients of the soak: they stream, leave midway, dawdle, append, ask again, and stop half way.

The same conversations come again and again. New sessions come too, and what is remembered of those has a
ceiling that is reached while warming up; so whatever grows for ever is a leak, and no cache that fills.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx2

from tests.soak.talker import answer_to
from tests.support.clients import CHAT, user
from tests.support.servers import connect
from tests.support.upstreams import Message

TOPICS = 40
TURNS = 14
MODES = [*["named"] * 10, "chain", "append"]
MODE = "X-Unabridged-Mode"
PATIENCE = 20.0
"""Seconds after which an answer that has not come never will."""
Named = dict[str, str]
UNDERSTOOD = {200, 429, 502, 504}
"""What clients may hear while the store and the upstream fail."""
WITHOUT_HISTORY = 503
"""What clients that append may hear besides; no other may ever feel that there is no store."""


@dataclass
class Tally:
    """What became of the requests."""

    answers: Counter[str] = field(default_factory=Counter[str])
    wrong: Counter[str] = field(default_factory=Counter[str])
    """What no client should ever see."""

    def heard(self, status: int, told: str, *, appends: bool) -> None:
        """An answer, and what its body says."""
        self.answers[str(status)] += 1
        if status not in UNDERSTOOD and not (appends and status == WITHOUT_HISTORY):
            self.wrong[f"{status} {told[:300]}"] += 1


def question(topic: int, turn: int) -> str:
    return (
        f"Question {turn} of topic {topic}: what became of item {topic * 37 + turn}? "
        f"I keep item{topic * 37 + turn} in box{topic}. " + "Tell it all. " * 8
    )


class Visitor:
    """One client, which begins one conversation after another while the gate is open."""

    def __init__(self, number: int, url: str, gate: asyncio.Event, tally: Tally) -> None:
        self._random = Random(number)
        self._number = number
        self._url = url
        self._gate = gate
        self._tally = tally
        self._begun = 0
        self.is_at_rest = True

    async def visit(self) -> None:
        """Until cancelled."""
        while True:
            self.is_at_rest = True
            await self._gate.wait()
            self.is_at_rest = False
            # A new pool each time: connections come and go as well.
            async with httpx2.AsyncClient(base_url=self._url, timeout=PATIENCE) as client:
                await self._converse(client)

    async def _converse(self, client: httpx2.AsyncClient) -> None:
        self._begun += 1
        topic, mode = (
            self._random.randrange(TOPICS),
            self._random.choice(MODES),
        )
        headers = {"Authorization": f"Bearer sk-{self._number % 3}"}
        if mode == "append":
            session = f"append-{self._number}-{self._begun}"
            headers |= {MODE: "append", "X-Unabridged-Session": session}
        elif mode == "named":
            headers["X-Unabridged-Session"] = f"topic-{topic}"
        named = {"user": f"person{self._number % 5}"} if topic % 2 else {}
        history: list[Message] = []
        for turn in range(self._random.randint(1, TURNS)):
            if not self._gate.is_set():
                return
            asked = user(question(topic, turn))
            sent = [asked] if mode == "append" else [*history, asked]
            for _ in range(2 if mode != "append" and self._random.random() < 0.1 else 1):  # regenerated
                await self._turn(client, headers, sent, named)
            history += [asked, {"role": "assistant", "content": answer_to(asked["content"])}]
            await asyncio.sleep(self._random.uniform(0.01, 0.1))

    async def _turn(
        self, client: httpx2.AsyncClient, headers: Named, messages: list[Message], named: Named
    ) -> None:
        ways: list[tuple[Callable[..., Awaitable[None]], float]] = [
            (self._read, 10),
            (self._wait, 3),
            (self._leave, 2),
            (self._dawdle, 1),
            (self._stop_half_way, 1),
            (self._relay, 1),
        ]
        (way,) = self._random.choices([way for way, _ in ways], [weight for _, weight in ways])
        body = {"model": "gpt-test", "messages": messages, **named}
        try:
            await way(client, headers, body)
        except httpx2.TimeoutException:
            self._tally.wrong["no answer"] += 1
        except (httpx2.HTTPError, OSError):
            self._tally.answers["broken off"] += 1

    async def _read(self, client: httpx2.AsyncClient, headers: Named, body: Any) -> None:
        async with client.stream("POST", CHAT, json={**body, "stream": True}, headers=headers) as response:
            text = (await response.aread()).decode(errors="replace")
        self._tally.heard(response.status_code, text, appends=MODE in headers)

    async def _wait(self, client: httpx2.AsyncClient, headers: Named, body: Any) -> None:
        response = await client.post(CHAT, json=body, headers=headers)
        self._tally.heard(response.status_code, response.text, appends=MODE in headers)

    async def _leave(self, client: httpx2.AsyncClient, headers: Named, body: Any) -> None:
        left = self._random.randint(0, 20)
        async with client.stream("POST", CHAT, json={**body, "stream": True}, headers=headers) as response:
            async for _ in response.aiter_raw():
                left -= 1
                if left < 0:
                    break
        self._tally.answers["left"] += 1

    async def _dawdle(self, client: httpx2.AsyncClient, headers: Named, body: Any) -> None:
        async with client.stream("POST", CHAT, json={**body, "stream": True}, headers=headers) as response:
            async for _ in response.aiter_raw(chunk_size=1024):
                await asyncio.sleep(0.1)
        self._tally.answers["dawdled"] += 1

    async def _stop_half_way(self, _: httpx2.AsyncClient, headers: Named, body: Any) -> None:
        whole = json.dumps(body).encode()
        async with connect(self._url) as raw:
            head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(whole)}\r\n\r\n"
            await raw.send(head.encode() + whole[: self._random.randrange(len(whole))])
            await asyncio.sleep(self._random.uniform(0, 0.2))
        self._tally.answers["stopped half way"] += 1

    async def _relay(self, client: httpx2.AsyncClient, headers: Named, body: Any) -> None:
        response = await client.post("/v1/embeddings", json=body, headers=headers)
        self._tally.heard(response.status_code, response.text, appends=MODE in headers)

"""The upstream of histories: it answers each attempt with words that no other answer has.

What becomes of a request is written in the request, so that a script decides it: `X-Attempt` names it, and
`X-Fate` is `answer`, `slow`, `calls:N` (tool calls), `429`, `500`, `break:N` (the connection breaks after N
chunks) or `error:N` (an error event after N chunks).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from tests.histories.history import END, Forwarded, Message
from tests.support.servers import Exchange, FakeUpstream
from tests.support.upstreams import DONE, EVENTS, JSON, calling, completion, events, said, sse

_SLOWLY = 0.004
"""Seconds between two chunks of a slow answer."""


class EchoModel:
    """The upstream, which records requests by attempt."""

    def __init__(self) -> None:
        self.url = ""
        self.forwarded: dict[str, list[Forwarded]] = {}

    @asynccontextmanager
    async def serve(self) -> AsyncGenerator[EchoModel]:
        async with FakeUpstream(self._serve_one).serve() as upstream:
            self.url = f"{upstream.url}/v1"
            yield self

    def take(self, history: str) -> list[Forwarded]:
        """Return the requests of one history, and drop them."""
        mine = [attempt for attempt in self.forwarded if attempt.startswith(f"{history}.")]
        return [each for attempt in mine for each in self.forwarded.pop(attempt)]

    async def _serve_one(self, exchange: Exchange) -> None:
        raw = await exchange.body()
        if len(raw) < int(exchange.request.value("content-length") or 0):
            return  # the client left, and the proxy with it
        if not exchange.request.target.endswith("/chat/completions"):
            await exchange.answer_json({"object": "list", "data": []})
            return
        attempt = (exchange.request.value("x-attempt") or b"").decode()
        kind, _, number = (exchange.request.value("x-fate") or b"answer").decode().partition(":")
        body: dict[str, Any] = json.loads(raw)
        answer = None if kind.isdigit() else _answer(attempt, kind, int(number or 0), body["messages"])
        kept = self.forwarded.setdefault(attempt, [])
        plain = {name: value for name, value in body.items() if name != "stream_options"}
        kept.append(Forwarded(attempt, tuple(body["messages"]), json.dumps(plain), answer))
        if answer is None:
            error = {"message": "Not now.", "type": "server_error", "param": None, "code": "scripted"}
            await exchange.answer_json({"error": error}, int(kind))
        elif body.get("stream") is True:
            await _stream(exchange, answer, kind, int(number or 0))
        else:
            await _whole(exchange, answer, kind)


def _answer(attempt: str, kind: str, number: int, messages: list[Message]) -> Message:
    if kind == "calls":
        asked = json.dumps({"by": attempt})
        return calling(*((f"{attempt}-{call}", "look", asked) for call in range(number)))
    heard = hashlib.sha256(json.dumps(messages).encode()).hexdigest()[:8]
    return said(f"{attempt} heard {heard}{END}")


async def _whole(exchange: Exchange, answer: Message, kind: str) -> None:
    if kind == "slow":
        await asyncio.sleep(5 * _SLOWLY)
    if kind in ("break", "error"):
        await exchange.start(200, [JSON])
        await exchange.chunk(json.dumps(completion(answer, None)).encode()[:-9])
        exchange.close()
        return
    await exchange.answer_json(completion(answer, None))


async def _stream(exchange: Exchange, answer: Message, kind: str, number: int) -> None:
    """Stream an answer: slow and broken ones event by event, others in one piece."""
    pieces = [sse(event) for event in events(answer)]
    await exchange.start(200, [EVENTS])
    if kind == "slow":
        for piece in pieces:
            await exchange.chunk(piece)
            await asyncio.sleep(_SLOWLY)
    elif kind in ("break", "error"):
        for piece in pieces[:number]:
            await exchange.chunk(piece)
        if kind == "break":
            exchange.close()
            return
        await exchange.chunk(sse({"error": {"message": "Enough.", "code": "scripted"}}))
        await exchange.end()
        return
    else:
        await exchange.chunk(b"".join(pieces[:2]))
        await exchange.chunk(b"".join(pieces[2:]))
    await exchange.chunk(DONE)
    await exchange.end()

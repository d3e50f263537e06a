"""Clients that speak to `/v1/responses`: the proxy relays it, streamed and not, and keeps nothing of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clients.programs import RESPONDERS, Program, converse, here
from tests.clients.python.dialogue import Dialogue, Turn
from tests.clients.serving import sessions
from tests.support.servers import Exchange, FakeUpstream, Header, Received
from tests.support.upstreams import EVENTS, sse

pytestmark = pytest.mark.asyncio(loop_scope="session")

TURNS = [Turn("Which word comes first?", stream=False), Turn("And after it?", stream=True)]
ANSWERS = ["“Aardvark”, 🐘 and\nso on.", "Then comes “abacus”, as anybody can see."]


def response(text: str, status: str = "completed") -> dict[str, Any]:
    item: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }
    done = status == "completed"
    counted = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 18,
    }
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_700_000_000,
        "status": status,
        "model": "scripted",
        "output": [item] if done else [],
        "usage": counted if done else None,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def events(text: str) -> list[dict[str, Any]]:
    """The same response as the events of a stream."""
    item: dict[str, Any] = response(text)["output"][0]
    part: dict[str, Any] = item["content"][0]
    place = {"output_index": 0, "content_index": 0, "item_id": item["id"]}
    deltas = [text[at : at + 8] for at in range(0, len(text), 8)]
    told: list[dict[str, Any]] = [
        {"type": "response.created", "response": response(text, "in_progress")},
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": {**item, "status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": each, "logprobs": []} for each in deltas),
        {"type": "response.output_text.done", **place, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **place, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response(text)},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(told)]


class Responder:
    """An upstream that answers these texts, in the way that each request asks for."""

    def __init__(self, answers: Sequence[str]) -> None:
        self.answers = deque(answers)
        self.requests: list[Received] = []

    async def serve_one(self, exchange: Exchange) -> None:
        await exchange.body()
        if not exchange.request.target.endswith("/responses"):
            await exchange.answer(404)
            return
        self.requests.append(exchange.request)
        asked: Any = exchange.request.json()
        text = self.answers.popleft()
        if not asked.get("stream"):
            await exchange.answer_json(response(text))
            return
        await exchange.start(200, [EVENTS])
        for event in events(text):
            await exchange.chunk(b"event: %b\n" % event["type"].encode() + sse(event))
        await exchange.end()


def sent(request: Received) -> tuple[bytes, bytes, list[Header]]:
    """What arrived, but for what concerns one connection alone: its server, and whether it stays open."""
    headers = [(name.lower(), value) for name, value in request.headers]
    kept = sorted(header for header in headers if header[0] not in {b"host", b"connection"})
    return request.line, bytes(request.body), kept


@pytest.mark.parametrize("program", RESPONDERS, ids=lambda program: program.name)
async def test_responses_pass_through_as_they_are(
    program: Program, upstream: FakeUpstream, proxy: str, home: Path
) -> None:
    before = set(await sessions(proxy))
    arrived: list[list[Any]] = []
    for url in (upstream.url, proxy):
        responder = Responder(ANSWERS)
        upstream.script = responder.serve_one
        dialogue = Dialogue(f"{url}/v1", "sk-test", "scripted", {}, TURNS)
        told = await converse(here(program), dialogue, home)
        assert [each["answer"] for each in told] == ANSWERS
        arrived.append([sent(request) for request in responder.requests])
    direct, relayed = arrived
    assert [line for line, _, _ in direct] == [b"POST /v1/responses HTTP/1.1"] * len(TURNS)
    assert relayed == direct
    assert set(await sessions(proxy)) == before

"""Law 7: a stream whose tool calls the proxy may answer holds up no other request, however fast it comes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence

import pytest

from proxy.app import build_engine
from proxy.cache import CacheMemory
from proxy.config import Settings
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Tool
from proxy.engine.flow import Incoming
from proxy.engine.intake.naming import Envelope, Naming
from proxy.ports import ChangedResponse, Header, UpstreamResponse
from tests.support.conversations import assistant, calling, result, user
from tests.support.upstreams import COUNTER, DONE, Message, events, said, sse
from tests.support.upstreams import calling as calls
from tests.support.world import NoUpstream, outside

POLICY = Policy(tools=(Tool(match="look", cache_exchanges=2, serve=True, pure=True),))
BEFORE = [user("How high?"), calling("a"), result("a", "7 m"), assistant("Seven."), user("Tell me more.")]
TURNS = 50
"""What other requests get of the event loop at least: one turn for 8 KB, of about half a megabyte."""


class AtOnce(NoUpstream):
    """An upstream whose answer is all here when its head is."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[Header],
        body: bytes | AsyncIterator[bytes] | None,
        *,
        at_root: bool = False,
    ) -> UpstreamResponse:
        async def arrived() -> AsyncIterator[bytes]:
            yield self._answer

        async def aclose() -> None:
            """Nothing is open."""

        chunks = arrived()
        return ChangedResponse(200, [(b"content-type", b"text/event-stream")], lambda: chunks, aclose)


@pytest.mark.parametrize(
    "answer",
    [said("The view is good. " * 1_500), calls(("c1", "write", json.dumps("The view is good. " * 1_000)))],
    ids=["text", "a client's call"],
)
async def test_others_have_their_turn_while_thousands_of_events_are_edited(answer: Message) -> None:
    stream = b"".join(map(sse, events(answer))) + DONE
    upstream = AtOnce(stream)
    pipeline = build_engine(Settings(upstream="http://127.0.0.1:9/v1"), outside(COUNTER, upstream)).pipeline
    envelope = Envelope.read(Naming("secret", CacheMemory()), "/chat/completions", {}, [])
    body = json.dumps({"model": "gpt-4o", "messages": BEFORE, "stream": True}).encode()
    exchange = await pipeline.prepare(Incoming(envelope, body, POLICY, 0.0))
    sent = await pipeline.answer(exchange)
    turns, passed = 0, b""

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    another = asyncio.create_task(other())
    async for chunk in sent.chunks():
        passed += chunk
    another.cancel()
    assert exchange.rounds is not None
    assert passed == stream
    assert turns >= TURNS

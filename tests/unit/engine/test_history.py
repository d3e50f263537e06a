"""What is read of a request."""

from __future__ import annotations

import asyncio
import json

from proxy.cache import Memory
from proxy.core.conversation.messages import root
from proxy.core.dialects.chat.request import read_body
from proxy.core.dialects.registry import CHAT
from proxy.engine.intake.history import History
from proxy.engine.intake.reader import PIECE, Reader
from tests.support.clients import user
from tests.support.upstreams import COUNTER

PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/1.png"}}


async def counted(model: str) -> History:
    body = {"model": model, "messages": [{"role": "user", "content": [PICTURE]}]}
    reader = Reader(CHAT, COUNTER, Memory())
    history = await reader.read(read_body(json.dumps(body).encode(), 10), root())
    await reader.count(history)
    return history


async def test_the_name_of_a_model_is_as_long_as_its_client_writes_it() -> None:
    history = await counted("m" * 1_000)
    assert history.model == "m" * 1_000
    assert history.chain().tokens.total > 0


async def test_while_many_messages_are_read_others_have_their_turn() -> None:
    turns: list[int] = []

    async def others() -> None:
        while True:
            turns.append(1)
            await asyncio.sleep(0)

    many = [user(f"hi {number}") for number in range(10 * PIECE)]
    body = read_body(json.dumps({"messages": many}).encode(), len(many))
    waiting = asyncio.create_task(others())
    history = await Reader(CHAT, COUNTER, Memory()).read(body, root())
    waiting.cancel()
    assert len(turns) >= 10
    assert len(history.hashes) == len(many)

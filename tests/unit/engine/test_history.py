"""What is read of a request."""

from __future__ import annotations

import json

from proxy.core.body import read_body
from proxy.core.identity import root
from proxy.engine.history import History, Reader
from proxy.lru import Memory
from tests.upstreams import COUNTER

PICTURE = {"type": "image_url", "image_url": {"url": "https://example.org/1.png"}}


async def counted(model: str) -> History:
    body = {"model": model, "messages": [{"role": "user", "content": [PICTURE]}]}
    reader = Reader(COUNTER, Memory())
    history = reader.read(read_body(json.dumps(body).encode(), 10), root())
    await reader.count(history)
    return history


async def test_the_name_of_a_model_is_as_long_as_its_client_writes_it() -> None:
    history = await counted("m" * 1_000)
    assert history.model == "m" * 1_000
    assert history.chain().tokens.total > 0

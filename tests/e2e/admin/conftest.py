from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.operating import LOOSE, talk
from tests.upstreams import (
    Chat,
    Model,
    proxying,
    write_policy,
)

Chats = Callable[..., Chat]


@pytest.fixture
async def url(model: Model, tmp_path: Path) -> AsyncIterator[str]:
    policy = write_policy(tmp_path, "loose", LOOSE)
    async with proxying(model.url, policy=str(policy)) as served:
        yield served


@pytest.fixture
async def chat(url: str, chats: Chats) -> Chat:
    """A session of six turns, of which nothing is cut."""
    chat = chats(url, X_Unabridged_Session="chat")
    chat.messages.append({"role": "system", "content": "Be brief."})
    await talk(chat)
    return chat

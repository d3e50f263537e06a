from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.clients import Chat, Chats, proxying, write_policy
from tests.support.operator import LOOSE, talk
from tests.support.upstreams import Model


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

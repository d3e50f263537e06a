from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.clients import Chat, Chats, proxying
from tests.support.operator import talk
from tests.support.upstreams import Model


@pytest.fixture
async def url(model: Model) -> AsyncIterator[str]:
    async with proxying(model.url) as served:
        yield served


@pytest.fixture
async def chat(url: str, chats: Chats) -> Chat:
    """A session of six turns, of which nothing is cut."""
    chat = chats(url, X_Unabridged_Session="chat")
    chat.messages.append({"role": "system", "content": "Be brief."})
    await talk(chat)
    return chat

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.append_client import Appender, Appenders
from tests.support.clients import Chats, Small, making_chats, proxying, write_policy
from tests.support.servers import PATIENCE
from tests.support.upstreams import Model, running

NAME = "small"
SMALL = """
extends = "balanced"
[budget]
tokens = {tokens}
[summary]
wait = "{wait}"
enabled = {enabled}
"""


@pytest.fixture
async def model() -> AsyncGenerator[Model]:
    """A scripted model that takes requests of any length."""
    async with running(Model()) as served:
        yield served


@pytest.fixture
async def url(model: Model) -> AsyncIterator[str]:
    """The proxy before it, with the default policy and a store in memory."""
    async with proxying(model.url) as served:
        yield served


@pytest.fixture
async def client(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    headers = {"Authorization": "Bearer sk-test"}
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, headers=headers) as opened:
        yield opened


@pytest.fixture
async def small(model: Model, tmp_path: Path) -> AsyncIterator[Small]:
    """Starts a proxy whose budget is small: `await small(tokens=800, wait="200ms", summaries=True)`."""
    async with AsyncExitStack() as servers:

        async def start(
            tokens: int = 800,
            *,
            wait: str = "2s",
            summaries: bool = True,
            extra: str = "",
            **settings: Any,
        ) -> str:
            text = SMALL.format(tokens=tokens, wait=wait, enabled=str(summaries).lower()) + extra
            path = write_policy(tmp_path, NAME, text)
            return await servers.enter_async_context(proxying(model.url, policy=str(path), **settings))

        yield start


@pytest.fixture
async def chats() -> AsyncIterator[Chats]:
    """Makes clients, which are closed at the end."""
    async with making_chats() as chats:
        yield chats


@pytest.fixture
async def appenders() -> AsyncIterator[Appenders]:
    """Makes clients, which are closed at the end."""
    made: list[Appender] = []

    def appender(url: str, session: str = "s") -> Appender:
        made.append(Appender(url, session))
        return made[-1]

    yield appender
    for each in made:
        await each.client.aclose()


@pytest.fixture
def appender(appenders: Appenders, url: str) -> Appender:
    return appenders(url)

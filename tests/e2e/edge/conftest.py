"""One proxy for a whole file: nothing that it is sent here may harm it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import httpx2
import pytest
import pytest_asyncio

from tests.support.clients import CHAT, HELLO, KEY, proxying
from tests.support.servers import PATIENCE, RawClient, connect, eventually
from tests.support.upstreams import Model, running

LOOKUPS = 4
"""Requests by which the proxy looks for a window that nobody knows."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(request: pytest.FixtureRequest) -> AsyncIterator[tuple[str, Model]]:
    """The proxy's URL and the model behind it; a file may have `SETTINGS` for it.

    The proxy has already asked for the window of the tests' model: it would come in between else.
    """
    settings: dict[str, Any] = getattr(cast("Any", request).module, "SETTINGS", {})
    async with running(Model()) as model, proxying(model.url, **settings) as url:
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            await client.post(CHAT, content=HELLO, headers={"Authorization": KEY})
        await eventually(lambda: len(model.others) == LOOKUPS)
        yield url, model


@pytest.fixture
def url(served: tuple[str, Model]) -> str:
    return served[0]


@pytest.fixture
def model(served: tuple[str, Model]) -> Model:
    """The model, which has heard nothing yet."""
    served[1].chats.clear()
    served[1].others.clear()
    served[1].replies.clear()
    return served[1]


@pytest_asyncio.fixture(loop_scope="module")
async def client(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def raw(url: str) -> AsyncIterator[RawClient]:
    async with connect(url) as opened:
        yield opened

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from tests.support.relay import Stage, relay_to
from tests.support.servers import (
    PATIENCE,
    FakeUpstream,
    RawClient,
    connect,
)


@pytest.fixture
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    read_timeout = getattr(request, "param", PATIENCE)
    async with FakeUpstream().serve() as upstream:
        with relay_to(upstream.url + "/base", read_timeout) as url:
            async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
                yield Stage(url, upstream, client)


@pytest.fixture
async def raw(stage: Stage) -> AsyncIterator[RawClient]:
    async with connect(stage.url) as client:
        yield client

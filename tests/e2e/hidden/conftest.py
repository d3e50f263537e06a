from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from pathlib import Path

import openai
import pytest

from tests.support.clients import proxying, write_policy
from tests.support.repeated_calls import POLICY
from tests.support.stores import embedded_valkey
from tests.support.upstreams import Model, running


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    """A model that refuses what the real API would refuse."""
    async with running(Model(window=100_000)) as served:
        yield served


@pytest.fixture
def policy(tmp_path: Path) -> str:
    return str(write_policy(tmp_path, "tools", POLICY))


@pytest.fixture
async def url(model: Model, policy: str) -> AsyncIterator[str]:
    async with proxying(model.url, policy=policy) as served:
        yield served


@pytest.fixture(scope="module")
def valkey() -> Generator[str]:
    with embedded_valkey() as served:
        yield served


@pytest.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0) as opened:
        yield opened

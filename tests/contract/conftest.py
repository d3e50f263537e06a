from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack

import pytest

from proxy.adapters.stores import open_store
from proxy.ports import SessionStore
from tests.stores import (
    HandClock,
    admin,
    embedded_valkey,
    keys_without_ttl,
    redis_server_command,
    serving,
)


@pytest.fixture(scope="session")
def valkey_url() -> Generator[str]:
    with embedded_valkey() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url() -> Generator[str]:
    command = redis_server_command()
    if command is None:
        pytest.skip("no redis-server is installed: the suite runs on memory and Valkey")
    with ExitStack() as stack:
        yield stack.enter_context(serving(command)).url


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(params=["valkey", "redis"])
def server_url(request: pytest.FixtureRequest) -> Generator[str]:
    """A server without keys, which must leave none without a time to live."""
    url: str = request.getfixturevalue(f"{request.param}_url")
    with admin(url) as client:
        client.flushall()
    yield url
    assert keys_without_ttl(url) == []


@pytest.fixture(params=["memory", "valkey", "redis"])
async def store(request: pytest.FixtureRequest, clock: HandClock) -> AsyncGenerator[SessionStore]:
    """Each of the stores, empty."""
    url = "memory://" if request.param == "memory" else request.getfixturevalue(f"{request.param}_url")
    if request.param != "memory":
        with admin(url) as client:
            client.flushall()
    opened = open_store(url, clock, timeout=2.0, rest=1.0)
    yield opened
    await opened.aclose()
    if request.param != "memory":
        assert keys_without_ttl(url) == []

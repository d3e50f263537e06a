from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator

import pytest

from proxy.adapters.stores.redis import RedisStore
from tests.support.calls import HASTE
from tests.support.network import Shim, relaying
from tests.support.servers import PATIENCE
from tests.support.stores import HandClock, Server, serving, valkey_command
from tests.support.upstreams import Model, running


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def valkey() -> Generator[Server]:
    """A Valkey of the test's own, to be harmed."""
    with serving(valkey_command(), "--enable-debug-command", "yes") as server:
        yield server


@pytest.fixture
def durable() -> Generator[Server]:
    """A Valkey that keeps what it was told when it is killed."""
    with serving(valkey_command(), "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
async def shim(valkey: Server) -> AsyncIterator[Shim]:
    """The way to that Valkey, to be disturbed."""
    async with relaying(valkey.socket) as between:
        yield between


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    async with running(Model()) as served:
        yield served


@pytest.fixture
async def store(valkey: Server, clock: HandClock) -> AsyncGenerator[RedisStore]:
    """A store on that server; what must succeed has time on a busy machine too."""
    opened = RedisStore(valkey.url, clock, timeout=PATIENCE, rest=1.0)
    yield opened
    await opened.aclose()


@pytest.fixture
async def hasty(valkey: Server, clock: HandClock) -> AsyncGenerator[RedisStore]:
    """A store on that server that soon gives up."""
    opened = RedisStore(valkey.url, clock, timeout=HASTE, rest=1.0)
    yield opened
    await opened.aclose()

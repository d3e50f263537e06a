from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import pytest

from proxy.adapters.redis import RedisStore
from tests.stores import HandClock, Server, serving, valkey_command

TIMEOUT = 0.3


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def valkey() -> Generator[Server]:
    """A Valkey of the test's own, to be harmed."""
    with serving(valkey_command(), "--enable-debug-command", "yes") as server:
        yield server


@pytest.fixture
async def store(valkey: Server, clock: HandClock) -> AsyncGenerator[RedisStore]:
    """A store on that server, with little patience."""
    opened = RedisStore(valkey.url, clock, timeout=TIMEOUT, rest=1.0)
    yield opened
    await opened.aclose()

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.wire import Connect, Connection


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    made: list[Connection] = []

    def new() -> Connection:
        made.append(Connection())
        return made[-1]

    yield new
    for each in made:
        await each.leave()

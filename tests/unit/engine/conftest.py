"""A scripted model that remembers one thing, before which memories are written."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from tests.support.remembering import RememberingModel, note
from tests.support.upstreams import running


@pytest.fixture
async def model() -> AsyncGenerator[RememberingModel]:
    async with running(RememberingModel(notes={"live in Oslo": note("Ana lives in Oslo.")})) as served:
        assert isinstance(served, RememberingModel)
        yield served

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.browser import Browser, browsing


@pytest.fixture
async def browser(url: str) -> AsyncIterator[Browser]:
    async with browsing(url) as opened:
        yield opened

"""No file descriptor is left: the fault is ours, and passes."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from proxy.adapters.upstream import HttptoolsUpstream
from proxy.errors import Overloaded
from tests.support.descriptors import file_limit
from tests.support.servers import FakeUpstream


@contextmanager
def no_file_left() -> Generator[None]:
    free = os.dup(0)
    os.close(free)
    with file_limit(free):
        yield


async def test_a_request_is_told_to_come_again_and_the_next_one_is_answered() -> None:
    async with FakeUpstream().serve() as served:
        upstream = HttptoolsUpstream(served.url)
        with no_file_left(), pytest.raises(Overloaded) as refusal:
            await upstream.send("GET", "/models", [], None)
        assert refusal.value.retry_after
        response = await upstream.send("GET", "/models", [], None)
        assert response.status == 200
        await response.aclose()
        await upstream.aclose()

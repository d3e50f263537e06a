"""What the upstream answers to questions of our own is read up to a bound, and no further."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from proxy.adapters.upstream import HttptoolsUpstream
from proxy.cache import Memory
from proxy.engine.models.asking import fetch
from proxy.engine.models.stated_windows import StatedWindows
from proxy.ports import Upstream
from tests.support.servers import Exchange, FakeUpstream, eventually
from tests.support.stores import HandClock


@pytest.fixture
async def server() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream().serve() as serving:
        yield serving


@pytest.fixture
async def upstream(server: FakeUpstream) -> AsyncIterator[Upstream]:
    async with aclosing(HttptoolsUpstream(server.url)) as made:
        yield made


async def endless(exchange: Exchange) -> None:
    await exchange.body()
    await exchange.start(200, [(b"Content-Type", b"application/json")])
    while True:
        await exchange.chunk(b" " * 65_536)


@pytest.mark.parametrize("body", [None, b"{}"])
async def test_an_answer_up_to_the_bound_is_read_and_its_connection_kept(
    server: FakeUpstream, upstream: Upstream, body: bytes | None
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(201, body=b"a" * 1_000)

    server.script = answer
    for _ in range(2):
        asked = "POST", "/ask", [(b"a", b"b")], body
        assert await fetch(upstream, *asked, 1_000) == (201, b"a" * 1_000)
    assert server.connections == 1
    request = server.requests[0]
    assert (request.value("a"), bytes(request.body)) == (b"b", body or b"")
    assert request.value("content-type") == (b"application/json" if body else None)


async def test_a_larger_one_is_left(server: FakeUpstream, upstream: Upstream) -> None:
    server.script = endless
    assert await fetch(upstream, "GET", "/ask", [], None, 1_000) == (200, None)
    await eventually(lambda: server.open_connections == 0)


async def test_an_endless_list_of_models_states_no_window(server: FakeUpstream, upstream: Upstream) -> None:
    server.script = endless
    stated = StatedWindows(upstream, HandClock(), Memory())
    model = stated.of("gpt-test")
    await stated.ask(model, [])
    assert model.window is None
    assert not stated.may_tell(model, [])
    await eventually(lambda: server.open_connections == 0)

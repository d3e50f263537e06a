"""A failing network between us and the upstream: the client has the whole answer, or a true word about it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from tests.support.clients import CHAT, STREAMED, proxying
from tests.support.network import Shim, relaying_to_port
from tests.support.servers import PATIENCE
from tests.support.upstreams import DONE, JSON, Model, events, plainly, said, sse

SILENCE = 0.5
"""Seconds that the proxies here wait for the next byte of the upstream."""
ANSWER = "Hello there, whoever you are, and wherever you may be"
WHOLE = b"".join(map(sse, events(said(ANSWER)))) + DONE


@dataclass
class Place:
    """A proxy, the network behind it, and the model behind that."""

    client: httpx2.AsyncClient
    network: Shim
    model: Model

    async def ask(self, path: str = CHAT) -> httpx2.Response:
        self.model.replies.append(said(ANSWER))
        return await self.client.post(path, content=STREAMED)


@pytest.fixture(params=["httptools", "httpx"])
async def place(request: pytest.FixtureRequest, model: Model) -> AsyncIterator[Place]:
    port = int(model.url.removesuffix("/v1").rpartition(":")[2])
    async with (
        relaying_to_port(port) as network,
        proxying(f"{network.url}/v1", upstream_read_timeout=SILENCE, http_client=request.param) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        yield Place(client, network, model)


BEFORE: dict[str, tuple[dict[str, Any], int, str]] = {
    "the connection ends": ({"lose_replies": True}, 502, "upstream_invalid_response"),
    "silence": ({"swallow": True}, 504, "upstream_timeout"),
    "the connection ends within the head": ({"cut": 12}, 502, "upstream_invalid_response"),
    "a reset within the head": ({"cut": 12, "resets": True}, 502, "upstream_unreachable"),
    "garbage": ({"garbage": b"\x16\x03\x01 no HTTP\r\n"}, 502, "upstream_invalid_response"),
}


@pytest.mark.parametrize("path", [CHAT, "/v1/responses"], ids=["managed", "relayed"])
@pytest.mark.parametrize("what", BEFORE)
async def test_what_happens_before_the_answer_is_an_error_that_tells_nothing_of_the_inside(
    place: Place, what: str, path: str
) -> None:
    fault, status, code = BEFORE[what]
    for name, value in fault.items():
        setattr(place.network, name, value)
    refused = await place.ask(path)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)
    assert "127.0.0.1" not in refused.text
    usual = Shim(place.network.connect)
    for name in fault:
        setattr(place.network, name, getattr(usual, name))
    place.model.replies.clear()
    assert (await place.ask(path)).status_code == 200, "the next request is answered"


@pytest.mark.parametrize("resets", [False, True], ids=["an end", "a reset"])
async def test_what_ends_a_stream_too_early_is_told_in_an_event(place: Place, *, resets: bool) -> None:
    place.network.cut, place.network.resets = 400, resets
    answer = await place.ask()
    assert answer.status_code == 200
    seen, _, last = answer.content.partition(b'data: {"error"')
    assert WHOLE.startswith(seen.rstrip(b"\n"))
    assert b"upstream_truncated" in last


async def test_bytes_that_come_one_by_one_are_the_same_bytes(place: Place) -> None:
    place.network.drip = 0.0
    assert (await place.ask()).content == WHOLE


async def test_a_slow_network_is_waited_for(place: Place) -> None:
    place.network.lag = SILENCE / 2
    place.model.replies.append(plainly(200, [JSON], b'{"choices": []}'))
    assert (await place.client.post(CHAT, content=STREAMED)).content == b'{"choices": []}'


async def test_an_upstream_that_closes_its_side_after_an_answer_fails_no_request(place: Place) -> None:
    for _ in range(3):
        place.network.half_close = True
        place.model.replies.append(plainly(200, [JSON], b'{"choices": []}'))
        answer = await place.client.post(CHAT, content=STREAMED)
        assert (answer.status_code, answer.content) == (200, b'{"choices": []}')


async def test_what_comes_after_an_answer_is_no_answer_to_the_next_request(place: Place) -> None:
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
    for _ in range(3):
        place.network.stray = forged
        place.model.replies.append(plainly(200, [JSON], b'{"choices": []}'))
        assert (await place.client.post(CHAT, content=STREAMED)).content == b'{"choices": []}'
    place.network.stray = b""
    assert (await place.ask()).content == WHOLE

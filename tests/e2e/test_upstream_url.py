"""An upstream's URL that lacks its `/v1`: the log names the one that was meant."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from tests.support.clients import CHAT, HELLO, KEY, proxying
from tests.support.servers import PATIENCE, Exchange, FakeUpstream, eventually

HEADERS = {"Authorization": KEY, "Content-Type": "application/json"}


class Paths:
    """An upstream that knows some paths, each with its status; any other is not found."""

    def __init__(self, **known: int) -> None:
        self.known = {f"/{path.replace('_', '/')}": status for path, status in known.items()}
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.body()
        target = exchange.request.target
        if target == "/v1/models":
            await self.may_answer.wait()
        await exchange.answer_json({"asked": target}, self.known.get(target, 404))


async def ask(url: str, times: int = 3) -> list[int]:
    async with httpx2.AsyncClient(base_url=url, headers=HEADERS, timeout=PATIENCE) as client:
        managed = [(await client.post(CHAT, content=HELLO)).status_code for _ in range(times)]
        return [*managed, (await client.get("/v1/files")).status_code]


def asked(upstream: FakeUpstream) -> list[str]:
    """What was asked about the URL: with the operator's key."""
    return [each.target for each in upstream.requests if each.value("authorization") == b"Bearer operator"]


def warned(capfd: pytest.CaptureFixture[str]) -> list[str]:
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    return [line["use"] for line in lines if "lack its /v1" in line["message"]]


@pytest.mark.parametrize("status", [200, 401])
async def test_the_one_that_was_meant_is_named_once(status: int, capfd: pytest.CaptureFixture[str]) -> None:
    async with (
        FakeUpstream(Paths(v1_models=status)).serve() as upstream,
        proxying(f"{upstream.url}/", upstream_key="operator") as url,
    ):
        assert await ask(url) == [404] * 4
        await eventually(lambda: len(asked(upstream)) == 2)
        assert await ask(url) == [404] * 4
    assert asked(upstream) == ["/models", "/v1/models"]
    assert warned(capfd) == [f"--upstream {upstream.url}/v1"]


@pytest.mark.parametrize(
    "known",
    [{}, {"models": 200, "v1_models": 200}, {"models": 401, "v1_models": 200}, {"v1_models": 500}],
    ids=["neither is there", "both are there", "who asks may not know", "it fails"],
)
async def test_nothing_is_said_where_that_is_not_plain(
    known: dict[str, int], capfd: pytest.CaptureFixture[str]
) -> None:
    async with (
        FakeUpstream(Paths(**known)).serve() as upstream,
        proxying(upstream.url, upstream_key="operator") as url,
    ):
        assert await ask(url) == [404] * 4
        await eventually(lambda: asked(upstream) != [])
    assert warned(capfd) == []


async def test_nobody_waits_for_it(capfd: pytest.CaptureFixture[str]) -> None:
    paths = Paths(v1_models=200)
    paths.may_answer.clear()
    async with FakeUpstream(paths).serve() as upstream:
        async with proxying(upstream.url, upstream_key="operator") as url:
            assert await ask(url) == [404] * 4
            await eventually(lambda: asked(upstream) == ["/models", "/v1/models"])
            assert await ask(url) == [404] * 4
        assert warned(capfd) == []
        paths.may_answer.set()

"""Pages in a real Chromium, with openai from npm: some may ask, and one can neither read nor spend."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.chromium import CHROMIUM, PATIENCE
from tests.support.chromium import running as browser
from tests.support.processes import serving
from tests.support.servers import Exchange, FakeUpstream
from tests.support.upstreams import Model, running, said

HERE = Path(__file__).parent
OPENAI = HERE.parent / "clients" / "node" / "node_modules" / "openai"
PAGE = b'<!doctype html><body><script type="module" src="/page.mjs"></script>'
ANSWER = "Words that come one after the other, and are read as they come."

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
    pytest.mark.skipif(not OPENAI.is_dir(), reason="openai from npm is not here: `make browser` installs it"),
]


class Site:
    """A site with one page and OpenAI's SDK; it hears from the page what that could do."""

    def __init__(self) -> None:
        self.told: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def serve_one(self, exchange: Exchange) -> None:
        path = exchange.request.target.partition("?")[0]
        if path == "/told":
            self.told.set_result(json.loads(await exchange.body()))
            await exchange.answer()
            return
        file = OPENAI / path.removeprefix("/openai/") if path.startswith("/openai/") else HERE / path[1:]
        body = PAGE if path == "/" else file.read_bytes() if file.is_file() else b""
        kind = b"text/html" if path == "/" else b"text/javascript"
        await exchange.answer(200 if body else 404, [(b"Content-Type", kind)], body)


@pytest.fixture
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("d")


@dataclass
class Visit:
    """What came of a page of `origin`: what it could do, and what the upstream saw."""

    told: dict[str, Any]
    model: Model


async def visit(host: str, data: Path, profile: Path, *flags: str) -> Visit:
    """Show a page of that host; in the flags of `serve`, {origin} is the page's."""
    site = Site()
    async with (
        running(Model()) as model,
        FakeUpstream(site.serve_one).serve() as served,
    ):
        origin = f"http://{host}:{served.port}"
        named = [flag.format(origin=origin) for flag in flags]
        model.replies.append(said(ANSWER))
        async with (
            serving(data, "--upstream", model.url, *named) as proxy,
            browser(profile, f"{origin}/?proxy={proxy.url}"),
            asyncio.timeout(PATIENCE),
        ):
            return Visit(await site.told, model)


@pytest.mark.parametrize(
    ("host", "flags"), [("localhost", ()), ("chat.example", ("--cors-origin", "{origin}"))]
)
async def test_a_page_that_may_ask_streams_an_answer_and_reads_its_headers(
    host: str, flags: tuple[str, ...], data: Path, tmp_path: Path
) -> None:
    visited = await visit(host, data, tmp_path, *flags)
    streamed = visited.told["sdk"]
    assert (streamed["text"], streamed["chunks"] > 5) == (ANSWER, True)
    assert streamed["session"].startswith("ub-")
    assert visited.told["error"] == "invalid_policy"
    assert json.loads(visited.told["models"])["object"] == "list"
    assert "POST" in {each.method for each in visited.model.others}


async def test_a_page_of_another_origin_can_neither_read_nor_spend(data: Path, tmp_path: Path) -> None:
    visited = await visit("evil.example", data, tmp_path)
    assert not visited.model.chats + visited.model.others
    assert {way: got for way, got in visited.told.items() if got} == {}

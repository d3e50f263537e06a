from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from proxy.cli import main
from proxy.engine import foreground
from tests.support.clients import Chats
from tests.support.command_line import Run
from tests.support.remembering import RememberingModel, ana_speaks, noting_ana, remembering
from tests.support.upstreams import running


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What memory asks a model follows no request that must be sent first."""
    monkeypatch.setattr(foreground, "_AFTER", 0.0)


@pytest.fixture
async def model() -> AsyncGenerator[RememberingModel]:
    """A model that notes what Ana says of herself."""
    model = noting_ana()
    async with running(model):
        yield model


@pytest.fixture
async def url(model: RememberingModel, tmp_path: Path) -> AsyncIterator[str]:
    """The proxy before it, with a policy that remembers and a store in memory."""
    async with remembering(model, tmp_path) as served:
        yield served


@pytest.fixture
async def remembered(model: RememberingModel, url: str, chats: Chats) -> str:
    """The same once two items, and the texts, of the person ana are written."""
    await ana_speaks(model, url, chats)
    return url


@pytest.fixture
def cli(remembered: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")

    async def run(*words: str) -> tuple[int, str, str]:
        code = await asyncio.to_thread(main, ["memory", *words, "--server", remembered])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run

"""The bill on the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from proxy.cli import main
from tests.support.bills import talker
from tests.support.clients import Chats, admin, bill_of, proxying
from tests.support.upstreams import Model


@pytest.fixture
async def url(model: Model) -> AsyncIterator[str]:
    async with proxying(model.url) as served:
        yield served


async def test_the_command_names_each_model_whole(
    url: str, chats: Chats, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")
    for name in ("claude-sonnet-4-20250514", "T5-small"):
        await talker(chats, url, name, name).ask("What is it?")
        await bill_of(url, name)
    assert await asyncio.to_thread(main, ["stats", "--server", url, "--by", "model"]) == 0
    told = capsys.readouterr().out
    assert "claude-sonnet-4-20250514" in told
    assert "T5-small" in told


async def test_the_command_tells_what_its_sums_are_of_above_them(
    url: str, chats: Chats, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")
    await talker(chats, url).ask("What is it?")
    await bill_of(url)
    assert await asyncio.to_thread(main, ["stats", "--server", url, "--by", "session"]) == 0
    told = capsys.readouterr().out
    assert told.index("the sums below") < told.index("spent on answers")


class TestTheCommand:
    async def test_it_shows_what_was_spent_and_saved_and_what_is_unknown(
        self, url: str, chats: Chats, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")
        for session, name in (("a", "gpt-4o"), ("b", "a-model-of-mine")):
            await talker(chats, url, name, session).ask("What is it?")
            await bill_of(url, session)
        paid = (await admin(url, "stats"))["total"]["dollars"]["spent"]
        assert await asyncio.to_thread(main, ["stats", "--by", "model", "--server", url]) == 0
        lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
        known = next(line for line in lines if line[0] == "gpt-4o")
        unknown = next(line for line in lines if line[0] == "a-model-of-mine")
        assert f"{paid:.4f}" in known
        assert unknown.count("unknown") == 3

    async def test_it_says_the_same_as_json(
        self, url: str, chats: Chats, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")
        await talker(chats, url).ask("What is it?")
        await bill_of(url)
        words = ["stats", "--since", "24h", "--json", "--server", url]
        assert await asyncio.to_thread(main, words) == 0
        assert json.loads(capsys.readouterr().out) == await admin(url, "stats", since="24h")

    async def test_it_says_how_long_bills_are_kept_where_more_is_asked_for(
        self, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")
        assert await asyncio.to_thread(main, ["stats", "--since", "91d", "--server", url]) != 0
        assert "`since` is at most 90d" in capsys.readouterr().err
        assert await asyncio.to_thread(main, ["stats", "--since", "90d", "--server", url]) == 0


async def test_a_session_is_shown_with_its_bill(
    url: str, chats: Chats, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")
    await talker(chats, url).ask("What is it?")
    paid = (await bill_of(url))["dollars"]["spent"]
    assert await asyncio.to_thread(main, ["sessions", "show", "s", "--server", url]) == 0
    shown = dict(line.rsplit(None, 1) for line in capsys.readouterr().out.splitlines() if " $ " in line)
    assert shown["spent $"] == f"{paid:.4f}"

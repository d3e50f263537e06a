"""`unabridged watch`: what a running proxy does, in a terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from rich.console import Console

from proxy.cli import main
from proxy.cli.client import Json
from proxy.cli.watch import picture
from tests.support.browser import browsing
from tests.support.clients import Chat, Chats, admin, proxying, write_policy
from tests.support.servers import PATIENCE
from tests.support.stores import serving, valkey_command
from tests.support.upstreams import Model

SMALL = 'extends = "balanced"\n[budget]\ntokens = 600\n[summary]\nenabled = false\n'


@pytest.fixture
async def served(model: Model, tmp_path: Path) -> AsyncIterator[str]:
    """A proxy with a small budget."""
    async with proxying(model.url, policy=str(write_policy(tmp_path, "small", SMALL))) as url:
        yield url


@pytest.fixture
async def chat(served: str, chats: Chats, monkeypatch: pytest.MonkeyPatch) -> Chat:
    """A talk that has been pruned."""
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")
    chat = chats(served, X_Unabridged_Session="trip")
    chat.members = {"model": "gpt-4o"}
    for place in range(8):
        await chat.ask(f"Question {place}: where do we go from here, and why would we? " * 2)
    return chat


async def test_without_a_terminal_it_shows_what_is_there_once(
    served: str, chat: Chat, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await asyncio.to_thread(main, ["watch", "--server", served]) == 0
    said = capsys.readouterr().out
    for each in ("8 requests", "saved $", "Question 0: where do we go", "gpt-4o", "newest epochs"):
        assert each in said


async def test_it_says_the_same_as_json(served: str, chat: Chat, capsys: pytest.CaptureFixture[str]) -> None:
    assert await asyncio.to_thread(main, ["watch", "--json", "--server", served]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert seen["stats"]["total"]["requests"] == 8
    assert [each["name"] for each in seen["sessions"]] == ["trip"]


async def test_what_is_degraded_is_told_with_what_to_do_as_the_page_does(
    model: Model, chats: Chats, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")
    async with proxying(model.url) as url, browsing(url) as browser:
        assert (await admin(url, "notices"))["notices"] == []
        await chats(url).ask("hello")
        (notice,) = (await admin(url, "notices"))["notices"]
        page = await browser.text()
        assert await asyncio.to_thread(main, ["watch", "--server", url]) == 0
    said = " ".join(capsys.readouterr().out.split())
    for each in (notice["what"], notice["advice"]):
        assert each in page
        assert each in said
    assert notice["what"] == "Unknown context window: gpt-test."


async def test_a_store_that_takes_no_writes_is_told_though_all_can_be_read(model: Model) -> None:
    with serving(valkey_command()) as store:
        async with proxying(model.url, store=store.url) as url, browsing(url) as browser:
            store.run("CONFIG", "SET", "maxmemory", 1)
            (notice,) = (await admin(url, "notices"))["notices"]
            assert notice["what"] == "The store refuses: its memory is full (OOM)."
            assert notice["what"] in await browser.text()


async def test_a_request_that_names_no_model_is_told_of_as_such(url: str, chats: Chats) -> None:
    chat = chats(url)
    chat.members = {}
    await chat.ask("hello")
    (notice,) = (await admin(url, "notices"))["notices"]
    assert notice["what"] == "Unknown context window: requests without a model."


async def until(screen: int, words: str) -> None:
    """Look at a terminal until these words have come."""
    shown = ""
    async with asyncio.timeout(PATIENCE):
        while words not in shown:
            shown += (await asyncio.to_thread(os.read, screen, 65_536)).decode(errors="replace")


async def until_left(screen: int) -> None:
    """Look at a terminal until nobody writes to it any more: a full one holds up who does."""
    async with asyncio.timeout(PATIENCE):
        with suppress(OSError):  # Linux says so by an error
            while await asyncio.to_thread(os.read, screen, 65_536):
                pass


async def test_in_a_terminal_it_follows_what_happens_as_it_is_told_until_it_is_ended(
    served: str, chat: Chat
) -> None:
    screen, inside = pty.openpty()
    command = ("-m", "proxy", "watch", "--every", "600", "--server", served)
    watching = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
    )
    os.close(inside)
    await until(screen, "8 requests")
    await chat.ask("And then?")
    await until(screen, "9 requests")
    watching.send_signal(signal.SIGINT)
    await until_left(screen)
    async with asyncio.timeout(PATIENCE):
        assert await watching.wait() == 0
    os.close(screen)


async def test_a_terminal_that_cannot_be_updated_is_shown_what_is_there_once(served: str, chat: Chat) -> None:
    screen, inside = pty.openpty()
    command = ("-m", "proxy", "watch", "--server", served)
    watching = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env={**os.environ, "TERM": "dumb"},
    )
    os.close(inside)
    await until(screen, "8 requests")
    await until_left(screen)
    async with asyncio.timeout(PATIENCE):
        assert await watching.wait() == 0
    os.close(screen)


@pytest.mark.parametrize(
    ("saved", "told"), [(-0.18, "saved -$0.1800"), (1.5, "saved $1.5000"), (-0.00001, "saved $0.0000")]
)
def test_what_was_lost_is_told_as_a_negative_amount(saved: float, told: str) -> None:
    bill = {
        "requests": 1,
        "tokens": {"received": 2, "sent": 1},
        "dollars": {"saved": saved, "spent": 1.0},
        "would_have_failed": 0,
        "summaries_failed": {},
    }
    seen: Json = {"stats": {"total": bill}, "notices": [], "sessions": []}
    console = Console(width=200)
    with console.capture() as captured:
        console.print(picture(seen))
    assert told in captured.get()

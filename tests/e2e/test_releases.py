"""A newer release and this one: going back to this one, or running both for a while, loses nothing."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.append_client import Appenders, contents, error_code, kept, transcript
from tests.support.clients import ADMIN, Chats, admin, proxying, told, write_policy
from tests.support.releases import NEWER, install_newer
from tests.support.stores import Server, dump, serving, valkey_command
from tests.support.upstreams import Model, said

Start = Callable[..., Awaitable[str]]


@pytest.fixture
async def valkey() -> AsyncGenerator[Server]:
    with serving(valkey_command()) as server:
        yield server


@pytest.fixture(params=["", "[store]\nencrypt = true\n"], ids=["plain", "encrypted"])
async def start(
    request: pytest.FixtureRequest, model: Model, valkey: Server, tmp_path: Path
) -> AsyncGenerator[Start]:
    """Starts this release, or a newer one, on one store."""
    policy = write_policy(tmp_path, "p", f'extends = "default"\n{request.param}')
    settings: dict[str, Any] = {"store": valkey.url, "policy": str(policy)}
    async with AsyncExitStack() as servers:

        async def begin(*, newer: bool = False) -> str:
            with pytest.MonkeyPatch.context() as patch:
                if newer:
                    install_newer(patch)
                return await servers.enter_async_context(proxying(model.url, **settings))

        yield begin


def newer_records(valkey: Server) -> set[bytes]:
    return {text for text in dump(valkey.url) if text.startswith(NEWER) and len(text) > 40}


async def refusal(url: str, path: str) -> tuple[int, str]:
    async with httpx2.AsyncClient(base_url=f"{url}/unabridged/v1", headers=ADMIN) as client:
        response = await client.get(path)
    return response.status_code, response.json()["error"]["message"]


async def test_after_going_back_an_appended_turn_is_told_to_wait_and_going_on_again_brings_all_back(
    model: Model, valkey: Server, appenders: Appenders, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = appenders(await start(newer=True))
    for number in range(5):
        assert (await newer.ask(f"Turn {number}.")).status_code == 200
    before, (session,) = newer_records(valkey), (await admin(newer.url, "sessions"))["sessions"]
    assert len(before) == 11

    older = appenders(await start())
    for _ in range(3):
        response = await older.ask("And now?")
        assert (response.status_code, error_code(response)) == (503, "history_unavailable")
        assert response.headers["retry-after"]
    assert (await refusal(older.url, f"sessions/{session['id']}/transcript"))[0] == 503
    told = (404, "There is no such session among those that can be read; 1 cannot.")
    assert await refusal(older.url, f"sessions/{session['id'][:20]}/transcript") == told
    listing = await admin(older.url, "sessions")
    assert (listing["sessions"], listing["left_out"]["newer_release"]) == ([], 1)
    assert len(model.chats) == 5
    assert newer_records(valkey) == before
    assert capsys.readouterr().err.count("records of a newer release") == 1

    again = appenders(await start(newer=True))
    assert (await again.ask("And now?")).status_code == 200
    assert contents(model.views()[-1])[::2] == [*(f"Turn {number}." for number in range(5)), "And now?"]
    assert len(await transcript(again.url)) == 12


async def test_after_going_back_a_chat_goes_on_and_what_is_said_is_there_when_going_on_again(
    model: Model, valkey: Server, chats: Chats, start: Start
) -> None:
    model.replies.extend(said(f"Answer {number}.") for number in range(5))
    url = await start(newer=True)
    chat = chats(url, X_Unabridged_Session="s")
    for number in range(2):
        await chat.ask(f"Turn {number}.")
        await kept(url, 2 * number + 2)
    before = newer_records(valkey)

    older = chats(await start(), X_Unabridged_Session="s")
    older.messages = chat.messages
    for number in (2, 3):
        response = await older.ask(f"Turn {number}.")
        assert (response.status_code, told(response, "degraded").split(",")[0]) == (200, "store")
    again = chats(await start(newer=True), X_Unabridged_Session="s")
    again.messages = chat.messages
    assert "x-unabridged-degraded" not in (await again.ask("Turn 4.")).headers
    said_so_far = await kept(again.url, 10)
    assert said_so_far == [text for number in range(5) for text in (f"Turn {number}.", f"Answer {number}.")]
    replaced = before - newer_records(valkey)
    assert len(replaced) == 1, "the session's own record, by the newer release's turn"


async def test_while_both_run_no_turn_is_lost_or_there_twice(
    model: Model, appenders: Appenders, start: Start
) -> None:
    urls = [await start(), await start(newer=True)]
    answered: list[str] = []
    for number in range(8):
        client = appenders(urls[number % 2])
        response = await client.ask(f"Turn {number}.")
        if response.status_code == 200:
            answered.append(f"Turn {number}.")
        else:
            assert (number % 2, error_code(response)) == (0, "history_unavailable")
    assert answered == ["Turn 0.", "Turn 1.", "Turn 3.", "Turn 5.", "Turn 7."]
    assert contents(model.views()[-1])[::2] == answered
    assert (await transcript(urls[1]))[::2] == answered

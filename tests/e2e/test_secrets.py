"""Secrets: nothing lies open in an encrypted store, a rotated secret loses nothing, and `forget` forgets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.append_client import Appenders
from tests.support.canaries import CANARY, KEY
from tests.support.clients import (
    ADMIN,
    SECRET,
    Chat,
    Chats,
    admin,
    only_session,
    proxying,
    question,
    recorded,
    told,
    user,
    write_policy,
)
from tests.support.servers import PATIENCE
from tests.support.stores import Server, dump, serving, texts_in, valkey_command
from tests.support.upstreams import Model, said

Start = Callable[..., Awaitable[str]]

OLD, NEW = "the-secret-until-now", "the-secret-from-now-on"

SEALED = """
extends = "balanced"
[budget]
tokens = 800
[stages]
target = 0.3
[store]
encrypt = true
"""


@pytest.fixture
async def valkey() -> AsyncGenerator[Server]:
    with serving(valkey_command()) as server:
        yield server


@pytest.fixture
async def start(model: Model, valkey: Server, tmp_path: Path) -> AsyncGenerator[Start]:
    """Starts a proxy on that store; without encryption the plans are the same."""
    sealed = str(write_policy(tmp_path, "sealed", SEALED))
    plain = str(write_policy(tmp_path, "plain", SEALED.replace("true", "false")))
    async with AsyncExitStack() as servers:

        async def begin(secret: str = SECRET, *, encrypted: bool = True) -> str:
            policy = sealed if encrypted else plain
            settings: dict[str, Any] = {"store": valkey.url, "secret": secret, "policy": policy}
            return await servers.enter_async_context(proxying(model.url, **settings))

        yield begin


async def converse(model: Model, chat: Chat) -> None:
    """A session with everything that can be stored: epochs, summaries, pins, what is handed in."""
    model.summary = said(f"They spoke of {CANARY} and of the plan; all went well.")
    chat.messages.append({"role": "system", "content": f"You serve {CANARY}."})
    handed = {"name": "look", "arguments": {"at": CANARY}, "result": CANARY}
    epochs = 0
    for number in range(12):
        chat.members["unabridged"] = {"pin": [1], "inject": {"text": f"I am {CANARY}.", "tools": [handed]}}
        response = await chat.ask(f"{CANARY}: {question(number)}")
        assert response.status_code == 200
        epochs = int(told(response, "epoch"))
    assert epochs >= 1


@pytest.mark.parametrize("named", [True, False], ids=["by a header", "by its chain"])
async def test_no_plaintext_of_messages_names_or_notes_is_in_an_encrypted_store(
    model: Model, chats: Chats, start: Start, valkey: Server, named: bool
) -> None:
    url = await start()
    headers = {"X_Unabridged_Session": CANARY} if named else {}
    await converse(model, chats(url, Authorization=KEY, **headers))
    kept = dump(valkey.url)
    assert len(kept) > 40
    assert [text for text in kept if CANARY.encode() in text or b'"role"' in text] == []
    session = await only_session(url)
    assert CANARY in str(await admin(url, f"sessions/{session['id']}/transcript"))


async def test_a_plain_store_is_read_on_once_it_is_encrypted_and_the_other_way_round(
    model: Model, appenders: Appenders, start: Start
) -> None:
    for encrypted in (False, True, False):
        client = appenders(await start(encrypted=encrypted))
        assert (await client.ask(f"Encrypted: {encrypted}.")).status_code == 200
    assert [message["content"] for message in model.views()[-1] if message["role"] == "user"] == [
        "Encrypted: False.",
        "Encrypted: True.",
        "Encrypted: False.",
    ]


class TestRotation:
    @pytest.mark.parametrize("encrypted", [True, False], ids=["encrypted", "plain"])
    async def test_an_appending_client_never_notices_it(
        self, model: Model, appenders: Appenders, start: Start, encrypted: bool
    ) -> None:
        asked: list[str] = []
        for secret in (OLD, f"{NEW},{OLD}", NEW):
            client = appenders(await start(secret, encrypted=encrypted))
            asked.append(f"With {secret}.")
            assert (await client.ask(asked[-1])).status_code == 200
            assert [each["content"] for each in model.views()[-1] if each["role"] == "user"] == asked
        assert (await only_session(client.url))["turns"] == 3

    @pytest.mark.parametrize("named", [True, False], ids=["by a header", "by its chain"])
    async def test_a_session_keeps_its_plan(
        self, model: Model, chats: Chats, start: Start, named: bool
    ) -> None:
        headers = {"X_Unabridged_Session": "chat"} if named else {}
        first = chats(await start(OLD), Authorization=KEY, **headers)
        await converse(model, first)
        await recorded(first.url, 12)
        before = model.views()[-1]
        for number, secret in enumerate((f"{NEW},{OLD}", NEW)):
            chat = chats(await start(secret), Authorization=KEY, **headers)
            chat.members, chat.messages = first.members, first.messages
            response = await chat.say(user(f"Go on, {number}."))
            assert "degraded" not in str(response.headers)
            assert model.views()[-1][: len(before)] == before
            await recorded(chat.url, 13 + number)

    async def test_servers_in_the_midst_of_it_agree_on_each_session(
        self, model: Model, appenders: Appenders, start: Start
    ) -> None:
        urls = [await start(f"{OLD},{NEW}"), await start(f"{NEW},{OLD}")]
        for number in range(6):
            client = appenders(urls[number % 2])
            assert (await client.ask(f"Turn {number}.")).status_code == 200
        assert sum(message["role"] == "user" for message in model.views()[-1]) == 6

    async def test_a_deleted_session_does_not_come_back_where_its_move_was_interrupted(
        self, appenders: Appenders, start: Start, valkey: Server
    ) -> None:
        await appenders(await start(OLD, encrypted=False)).ask(CANARY)
        left = [key.decode() for key in valkey.run("KEYS", "*:named*")]
        for key in left:
            valkey.run("COPY", key, f"left:{key}")
        client = appenders(await start(f"{NEW},{OLD}", encrypted=False))
        await client.ask("Go on.")
        for key in left:
            valkey.run("RENAME", f"left:{key}", key)
        await forget(client.url, but="")
        assert [text for text in dump(valkey.url) if CANARY.encode() in text] == []
        assert (await client.ask("Hello?")).status_code == 410

    @pytest.mark.parametrize(
        ("secrets", "says"), [((OLD, NEW), True), ((OLD, OLD), False), ((OLD, f"{NEW},{OLD}", NEW), False)]
    )
    async def test_a_server_with_another_secret_says_that_it_will_find_nothing(
        self, start: Start, capsys: pytest.CaptureFixture[str], secrets: tuple[str, ...], says: bool
    ) -> None:
        for secret in secrets:
            await admin(await start(secret), "sessions")  # answered once it has started
        assert ("written with another UNABRIDGED_SECRET" in capsys.readouterr().err) is says

    async def test_the_listing_shows_what_is_found_with_another_secret_and_counts_what_is_not(
        self, model: Model, chats: Chats, start: Start, valkey: Server
    ) -> None:
        before = await start(OLD)
        for name in ("one", "two", "three"):
            await converse(model, chats(before, X_Unabridged_Session=name))
        await recorded(before, 36)
        after = await start(NEW)
        await chats(after, X_Unabridged_Session="four").ask("Hello")
        await recorded(after, 1)
        listing = await admin(after, "sessions")
        assert [session["name"] for session in listing["sessions"]] == ["four"]
        assert listing["left_out"] == {"unknown_secret": 3, "newer_release": 0, "damaged": 0}
        assert (await admin(before, "sessions"))["left_out"]["unknown_secret"] == 1
        valkey.run("LSET", valkey.run("KEYS", "*:epochs:*")[0], 0, "junk")
        assert (await admin(before, "sessions"))["left_out"]["damaged"] == 1

    async def test_another_callers_session_of_that_name_is_not_moved(
        self, model: Model, appenders: Appenders, start: Start
    ) -> None:
        await appenders(await start(OLD)).ask("Mine.")
        thief = appenders(await start(f"{NEW},{OLD}"))
        thief.headers["Authorization"] = "Bearer sk-thief"
        await thief.ask("And?")
        assert [message["content"] for message in model.views()[-1]] == ["And?"]


@pytest.mark.parametrize("named", [True, False], ids=["by a header", "by its chain"])
async def test_a_session_that_is_deleted_leaves_no_trace_in_the_store(
    model: Model, chats: Chats, start: Start, valkey: Server, named: bool
) -> None:
    url = await start(encrypted=False)
    other = chats(url, X_Unabridged_Session="other")
    await other.ask("Stay.")
    await recorded(url, 1)
    await billed(valkey, 1)
    left = set(dump(valkey.url))
    headers = {"X_Unabridged_Session": CANARY} if named else {}
    await converse(model, chats(url, Authorization=KEY, **headers))
    await recorded(url, 13)
    await billed(valkey, 2)
    assert any(CANARY.encode() in text for text in dump(valkey.url))
    await forget(url, "other")
    kept = dump(valkey.url)
    assert [text for text in kept if CANARY.encode() in text] == []
    hours = [*valkey.run("KEYS", "u1:{bills}:*"), *valkey.run("KEYS", "u1:{proof}:*")]
    sums = {*hours, *(text for hour in hours for text in texts_in(valkey.url, hour))}  # of all sessions
    traces = {text for text in set(kept) - left - sums if not text.endswith(b":was")}
    (ended,) = [valkey.run("GET", key) for key in valkey.run("KEYS", "*:was") if key not in left]
    assert traces == {ended}, "there was one, and when it was deleted"
    assert ended.isdigit()


async def billed(valkey: Server, sessions: int) -> None:
    """Return once so many sessions have a bill in the store: it is written within a second."""
    async with asyncio.timeout(PATIENCE):
        while len(valkey.run("KEYS", "*:bill")) < sessions:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def forget(url: str, but: str) -> None:
    async with httpx2.AsyncClient(base_url=f"{url}/unabridged/v1", headers=ADMIN) as client:
        for session in (await admin(url, "sessions"))["sessions"]:
            if session["name"] != but:
                assert (await client.delete(f"sessions/{session['id']}")).status_code == 200

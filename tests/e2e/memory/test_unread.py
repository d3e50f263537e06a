"""A memory that a server cannot read closes no other: these are shown, forgotten and maintained."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.cli import main
from tests.support.browser import browsing
from tests.support.clients import Chats, admin
from tests.support.operator import ask, code
from tests.support.remembering import OSLO, RememberingModel, person, remembering
from tests.support.servers import until
from tests.support.stores import Server, serving, valkey_command

OLD, NEW = "the-secret-until-now", "the-secret-from-now-on"
SEALED = "channel_every = 1\n[store]\nencrypt = true\n"

Cli = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
async def valkey() -> AsyncGenerator[Server]:
    with serving(valkey_command()) as server:
        yield server


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.setenv("UNABRIDGED_ADMIN_TOKEN", "admin")

    async def run(url: str, *words: str) -> tuple[int, str, str]:
        result = await asyncio.to_thread(main, ["memory", *words, "--server", url])
        said = capsys.readouterr()
        return result, said.out, said.err

    return run


@pytest.fixture
async def rotated(
    model: RememberingModel, tmp_path: Path, chats: Chats, valkey: Server
) -> AsyncGenerator[str]:
    """A server with a new secret alone; Ana has come back since, and Zed has not."""

    @asynccontextmanager
    async def server(secret: str) -> AsyncGenerator[str]:
        async with remembering(model, tmp_path, SEALED, store=valkey.url, secret=secret) as url:
            yield url

    async with server(OLD) as url:
        await person(chats, url, "zed", X_Unabridged_Session="one").ask("Hello!")
        await until((1, 0), lambda: counts(url))
    async with server(NEW) as url:
        await person(chats, url, "ana", X_Unabridged_Session="two").ask(OSLO)
        await until((1, 2), lambda: counts(url))
        yield url


async def counts(url: str) -> tuple[int, int]:
    """How many memories are shown, and how many items."""
    memory = await admin(url, "memory")
    return len(memory["scopes"]), len(memory["items"])


async def left_out(url: str) -> list[dict[str, Any]]:
    return (await admin(url, "memory"))["left_out"]


async def test_who_never_came_back_after_a_rotation_is_listed_and_can_be_forgotten(
    rotated: str, cli: Cli
) -> None:
    [zed] = await left_out(rotated)
    assert (zed["kind"], zed["reason"]) == ("person", "unknown_secret")
    unknown = (await ask(rotated, "DELETE", "memory?session=solo")).json()["error"]["message"]
    assert unknown.endswith(" 1 of the memories cannot be read.")
    for words in (("list",), ("search", "Oslo")):
        result, out, _ = await cli(rotated, *words)
        assert (result, "Ana lives in Oslo." in out, zed["id"] in out) == (0, True, True)
        assert "1 memory is not shown: it was written under an UNABRIDGED_SECRET" in out
    result, out, err = await cli(rotated, "export")
    assert (result, len(out.splitlines()), zed["id"] in err) == (0, 1, True)
    assert (await cli(rotated, "forget", "--scope", zed["id"], "--yes"))[0] == 0
    assert await left_out(rotated) == []
    assert code(await ask(rotated, "DELETE", f"memory?scope={zed['id']}")) == (404, "not_found")


async def test_a_memory_whose_own_record_is_damaged_is_listed_and_can_be_forgotten(
    model: RememberingModel, tmp_path: Path, chats: Chats, valkey: Server
) -> None:
    async with remembering(model, tmp_path, "channel_every = 1\n", store=valkey.url) as url:
        await person(chats, url, "zed", X_Unabridged_Session="one").ask("Hello!")
        await until((1, 0), lambda: counts(url))
    [scope] = [name for name in valkey.run("KEYS", "*:memory") if b"about" in valkey.run("HKEYS", name)]
    valkey.run("HSET", scope, "about", b"\x01garbage")
    async with remembering(model, tmp_path, "channel_every = 1\n", store=valkey.url) as url:
        [zed] = await left_out(url)
        assert zed["reason"] == "damaged"
        assert (await ask(url, "DELETE", f"memory?scope={zed['id']}")).json()["forgotten"]
        assert await left_out(url) == []


@pytest.mark.parametrize("whom", [("--person", "ana"), ("--session", "two")], ids=["a person", "a session"])
async def test_others_are_forgotten_and_it_is_said_how_many_could_not_be_read(
    rotated: str, cli: Cli, whom: tuple[str, str]
) -> None:
    result, out, _ = await cli(rotated, "forget", *whom, "--yes")
    assert (result, "forgotten: 2 items" in out, "cannot be read: 1" in out) == (1, True, True)
    assert (await admin(rotated, "memory"))["items"] == []


async def test_the_others_are_maintained_and_the_command_says_that_one_failed(rotated: str, cli: Cli) -> None:
    result, out, err = await cli(rotated, "maintain")
    assert (result, err) == (1, "")
    told = dict(line.split() for line in out.splitlines())
    assert (told["scopes"], told["of"], told["failed"]) == ("2", "2", "1")


async def test_the_page_of_memories_shows_the_others(rotated: str) -> None:
    [zed] = await left_out(rotated)
    async with browsing(rotated) as browser:
        shown = await browser.text("memory")
    assert ("Ana lives in Oslo." in shown, zed["id"] in shown) == (True, True)


async def test_maintenance_of_a_store_that_is_away_says_so(rotated: str, cli: Cli, valkey: Server) -> None:
    valkey.kill()
    result, out, err = await cli(rotated, "maintain")
    assert (result, out, "answers 503: The store cannot be used" in err) == (1, "", True)

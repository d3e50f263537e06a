"""What is forgotten is in no key of the store; what fades is put away, and deleted in the end."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Generator
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace

from proxy.adapters.stores import open_store
from proxy.app import SystemClock
from proxy.core.memory.records import Scope
from proxy.ports import Changes, MemoryStore
from tests.support.clients import KEY, Chats, admin, proxying
from tests.support.command_line import Run, told
from tests.support.operator import ask
from tests.support.remembering import (
    ALLERGIC,
    COMPRESSING,
    LIVES,
    OSLO,
    RememberingModel,
    memory_gauges,
    note,
    person,
    read,
    remembering,
)
from tests.support.servers import eventually, until
from tests.support.stores import DAY, Server, dump, serving, texts_in, valkey_command
from tests.support.upstreams import said

BOAT = (
    "I keep my boat at the north pier, and I paint it green every spring with two friends from the harbour "
    "who bring the brushes; in June, when the water is warm, we sail it to the islands with our children."
)
KEEPS, IN_SHORT = (
    "Ana keeps her boat at the north pier.",
    "Ana paints her boat at the north pier every spring.",
)


@pytest.fixture
def server() -> Generator[Server]:
    with serving(valkey_command()) as served:
        yield served


@pytest.fixture
async def url(model: RememberingModel, server: Server, tmp_path: Path) -> AsyncIterator[str]:
    """A proxy whose store may be looked into, with a key of the operator's."""
    model.notes["my boat"] = note(KEEPS)
    model.answers[COMPRESSING] = said(IN_SHORT)
    async with remembering(model, tmp_path, store=server.url, upstream_key="operator") as served:
        yield served


# --- what is forgotten ---


@pytest.mark.parametrize("whom", ["item", "session", "person", "scope", "me"])
async def test_what_is_forgotten_is_in_no_key_of_the_store(
    cli: Run, remembered: str, server: Server, whom: str
) -> None:
    (session,) = (await admin(remembered, "sessions"))["sessions"]
    held = await told(cli, "list")
    assert any(b"Oslo" in text for text in memory_of(server))
    if whom == "me":
        async with httpx2.AsyncClient(base_url=remembered, headers={"Authorization": KEY}) as client:
            await client.delete("/unabridged/v1/me/memory", params={"user": "ana"})
    else:
        of = {"session": session["id"], "person": "ana", "scope": held["scopes"][0]["id"]}
        for named in (
            [[each["id"]] for each in held["items"]] if whom == "item" else [[f"--{whom}", of[whom]]]
        ):
            assert (await cli("forget", *named))[0] == 0
    left = await told(cli, "list")
    assert left["items"] == []
    assert not any(b"Oslo" in text or b"nuts" in text for text in memory_of(server))
    if whom not in ("item", "session"):  # of these the log is left, and that there was a session
        assert (left["scopes"], memory_of(server)) == ([], [])
    await ask(remembered, "DELETE", f"sessions/{session['id']}")
    assert not any(b"Oslo" in text for text in dump(server.url))


def memory_of(server: Server) -> list[bytes]:
    """Everything that a server holds, but for what is of sessions."""
    names = [name for name in server.run("KEYS", "*") if b":memory" in name or b"{memories}" in name]
    return [text for name in names for text in (name, *texts_in(server.url, name))]


# --- a session's own ---


async def test_what_is_remembered_for_a_session_alone_lives_as_long_as_it_does(
    url: str, server: Server, chats: Chats
) -> None:
    def days(part: str) -> list[float]:
        lives = [server.run("PTTL", name) for name in server.run("KEYS", f"u1:*:{part}")]
        return [round(life / 1000 / DAY, 1) for life in lives]

    chat = chats(url)
    for question, life in ((OSLO, 1.0), ("We paint the boat green.", 30.0)):
        await chat.ask(question)
        await eventually(lambda life=life: days("memory:items") == [life])
        assert days("memory") == days("nodes") == [life]


# --- what fades ---


async def pass_days(server: Server, days: int) -> None:
    """Let everything that is remembered be so many days older."""
    store = open_store(server.url, SystemClock(), 5.0, 0.2)
    for scope in await store.memories.scopes(9):
        await until(True, lambda scope=scope: is_older(store.memories, scope, days * DAY))
    await store.aclose()


async def is_older(memories: MemoryStore, scope: Scope, by: float) -> bool:
    """Whether it is now, and nobody has written anything meanwhile."""
    kept, archive = await memories.remembered(scope), await memories.archive(scope)
    times = ("created_at", "last_accessed_at", "decay_applied_at")
    items = {
        name: replace(item, **{each: getattr(item, each) - by for each in times})
        for name, item in kept.items.items()
        if item is not None
    }
    put_away = {
        name: replace(each, retention_until=(each.retention_until or 0.0) - by)
        for name, each in archive.items()
    }
    return bool(await memories.change(scope, Changes(items=items, archive=put_away), kept.version))


@pytest.fixture
async def faded(model: RememberingModel, remembered: str, server: Server, cli: Run, chats: Chats) -> str:
    """A proxy that was maintained after a hundred days."""
    await person(chats, remembered, X_Unabridged_Session="two").ask(BOAT)
    await read(model, 2)
    await pass_days(server, 100)
    code, out, err = await cli("maintain")
    assert (code, err) == (0, "")
    assert ["archived", "1"] in [line.split() for line in out.splitlines()]
    return remembered


async def test_what_has_faded_is_put_away_in_a_sentence_and_what_stays_true_is_not(
    faded: str, cli: Run
) -> None:
    items = {each["text"]: each for each in (await told(cli, "list"))["items"]}
    assert {text: each["state"] for text, each in items.items()} == {
        LIVES: "remembered",
        ALLERGIC: "remembered",
        IN_SHORT: "archived",
    }
    assert (items[LIVES]["importance_score"], items[ALLERGIC]["importance_score"]) == (0.3, 0.3)
    boat = items[IN_SHORT]["id"]
    _, out, _ = await cli("show", boat)
    assert "low_importance" in out
    log = (await told(cli, "log", boat))["events"]
    assert [each["event"] for each in log] == ["create", "score_update", "compress", "archive"]
    assert [each["before"] for each in log][1:] == [0.5, *[log[1]["after"]] * 2]


async def test_what_was_put_away_can_be_taken_back_and_is_exported(faded: str, cli: Run) -> None:
    (_, out, _) = await cli("export")
    (scope,) = [json.loads(line) for line in out.splitlines()]
    kept = {each["text"]: each for each in scope["items"]}
    boat = kept[IN_SHORT]
    assert BOAT in boat["archived"]["original_content"]
    assert (await cli("restore", boat["id"]))[0] == 0
    again = await told(cli, "show", boat["id"])
    assert (again["text"], again["state"]) == (KEEPS, "remembered")
    assert (again["importance_score"], again["access_count"], again["archived"]) == (0.5, 0, None)


async def test_what_was_put_away_is_deleted_once_its_time_is_over(
    faded: str, server: Server, cli: Run
) -> None:
    boat = next(each["id"] for each in (await told(cli, "list"))["items"] if each["state"] == "archived")
    for days, left in ((89, 3), (2, 2)):
        await pass_days(server, days)
        assert (await told(cli, "maintain"))["failed"] == 0
        assert len((await told(cli, "list"))["items"]) == left
    assert (await cli("show", boat))[0] == 1
    assert (await told(cli, "log", boat))["events"][-1]["details"] == "retention is over"
    assert not any(IN_SHORT.encode() in text for text in memory_of(server))


# --- how much there is ---


def counts(remembered: int = 0, superseded: int = 0, archived: int = 0) -> dict[str, float]:
    states = {"remembered": remembered, "superseded": superseded, "archived": archived}
    return {
        **{f'items{{state="{state}"}}': count for state, count in states.items()},
        "archive_count": archived,
    }


async def test_the_metrics_say_how_much_is_remembered_and_put_away_and_nothing_of_whose(
    model: RememberingModel, faded: str, chats: Chats
) -> None:
    await person(chats, faded, X_Unabridged_Session="three").ask("I have moved to Bergen.")
    await read(model, 3)
    before, after = (len(text.encode()) for text in (f"{KEEPS}\n{BOAT}", IN_SHORT))
    rate = {"compression_rate": (before - after) / before}  # of what a model has compressed
    assert await memory_gauges(faded) == counts(remembered=2, superseded=1, archived=1) | rate


async def test_where_nothing_is_remembered_the_metrics_are_zero(
    model: RememberingModel, chats: Chats
) -> None:
    async with proxying(model.url) as plain:
        await person(chats, plain).ask(OSLO)
        assert await memory_gauges(plain) == counts() | {"compression_rate": 0.0}

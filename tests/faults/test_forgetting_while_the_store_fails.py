"""What is deleted while the store fails can be asked for again: nothing is left that no name leads to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.clients import Chats, admin, making_chats
from tests.support.network import Shim, relaying
from tests.support.operator import ask
from tests.support.remembering import RememberingModel, note, person, remembering
from tests.support.servers import until
from tests.support.stores import Server
from tests.support.upstreams import running

GUILD = "The guild was founded in 1902."


@pytest.fixture
async def model() -> AsyncIterator[RememberingModel]:
    model = RememberingModel(notes={GUILD: note(GUILD)}, writes=lambda _, __: [GUILD])
    async with running(model):
        yield model


@pytest.fixture
async def chats() -> AsyncIterator[Chats]:
    async with making_chats() as making:
        yield making


async def failing_at(step: int, relay: Shim, url: str, path: str) -> None:
    """Delete it while the reply of this trip to the store, and all after it, are lost."""
    relay.lose_from = relay.trips + step
    await ask(url, "DELETE", path)
    relay.lose_from = None

    async def is_back() -> int:
        return (await ask(url, "GET", "sessions")).status_code

    await until(200, is_back)


async def test_no_session_is_gone_while_its_own_memory_is_left(
    model: RememberingModel, tmp_path: Path, chats: Chats, valkey: Server
) -> None:
    async with (
        relaying(valkey.socket) as relay,
        remembering(model, tmp_path, store=relay.url, store_breaker=0.01) as url,
    ):
        await chats(url, X_Unabridged_Session="s").ask(GUILD)

        async def left() -> tuple[int, int]:
            return len((await admin(url, "sessions"))["sessions"]), len((await admin(url, "memory"))["items"])

        await until((1, 1), left)
        for step in range(1, 20):
            await failing_at(step, relay, url, "sessions/s")
            assert await left() != (0, 1), f"step {step}"
        assert await left() == (0, 0)


async def test_no_item_is_gone_while_its_workspace_tells_of_it(
    model: RememberingModel, tmp_path: Path, chats: Chats, valkey: Server
) -> None:
    async with (
        relaying(valkey.socket) as relay,
        remembering(model, tmp_path, upstream_key="operator", store=relay.url, store_breaker=0.01) as url,
    ):
        where = {"X_Unabridged_Channel": "harbour", "X_Unabridged_Workspace": "fleet"}
        await person(chats, url, **where).ask(GUILD)

        async def left() -> tuple[int, bool]:
            memory = await admin(url, "memory")
            told = [each["long"] + each["short"] for each in memory["scopes"] if each["kind"] == "workspace"]
            return len(memory["items"]), GUILD in "".join(told)

        async def maintained() -> tuple[int, bool]:
            await ask(url, "POST", "memory/maintain")
            return await left()

        await until((1, True), maintained)
        (item,) = (await admin(url, "memory"))["items"]
        for step in range(1, 40):
            await failing_at(step, relay, url, f"memory/{item['id']}")
            assert await left() != (0, True), f"step {step}"
        assert await left() == (0, False)

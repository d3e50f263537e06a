"""What was said is remembered of who said it, and in the memory in which it was said, whoever comes later."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from proxy.core.recall.tool import NAME
from tests.support.clients import Chats
from tests.support.remembering import RememberingModel, note, opening, person, remembering
from tests.support.servers import eventually
from tests.support.upstreams import calling, running, said

OSLO, CAT = "I live in Oslo.", "My cat is called Mia."
GENERAL = {"X_Unabridged_Channel": "general"}


@pytest.fixture
async def model() -> AsyncGenerator[RememberingModel]:
    notes = {"live in Oslo": note("Ana lives in Oslo."), "cat is called": note("The cat is called Mia.")}
    async with running(RememberingModel(notes=notes)) as model:
        assert isinstance(model, RememberingModel)
        yield model


async def test_a_session_that_somebody_else_goes_on_with_is_remembered_of_each_for_their_own_words(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    chat = person(chats, url, "ana", X_Unabridged_Session="shared")
    await chat.ask(OSLO)
    chat.members["user"] = "ben"
    await chat.ask(CAT)
    await eventually(lambda: len(model.asked_for_texts) >= 8)  # four for each
    prompts = model.prompts([*model.asked_for_items, *model.asked_for_texts])
    assert not any("Oslo" in each and "Mia" in each for each in prompts)
    assert not any("ben: I live" in each or "ana: My cat" in each for each in prompts)
    found = {name: await opening(model, person(chats, url, name), name) for name in ("ana", "ben")}
    assert ("Oslo" in found["ana"], "Mia" in found["ana"]) == (True, False)
    assert ("Oslo" in found["ben"], "Mia" in found["ben"]) == (False, True)


async def test_a_session_that_moves_to_another_channel_takes_nothing_with_it(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    chat = person(chats, url, X_Unabridged_Session="moving", X_Unabridged_Channel="board")
    await chat.ask(OSLO)
    chat.headers["X-Unabridged-Channel"] = "general"
    await chat.ask(CAT)
    await eventually(lambda: len(model.asked_for_texts) >= 8)
    found = await opening(model, person(chats, url, **GENERAL), "later")
    assert ("Oslo" in found, "Mia" in found) == (False, True)


async def test_what_was_said_while_memory_was_off_is_never_read(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    chat = person(chats, url, X_Unabridged_Session="one", X_Unabridged_Policy="default")
    await chat.ask(OSLO)
    del chat.headers["X-Unabridged-Policy"]
    await chat.ask(CAT)
    await eventually(lambda: len(model.asked_for_texts) >= 4)
    prompts = model.prompts([*model.asked_for_items, *model.asked_for_texts])
    assert any("Mia" in each for each in prompts)
    assert not any("Oslo" in each for each in prompts)


async def test_in_a_channel_each_line_is_said_by_who_said_it(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    rules = "every = 100\nchannel_every = 1\ninject_tokens = 0\n[recall]\nenabled = true"
    async with remembering(model, tmp_path, rules) as url:
        chat = person(chats, url, "ana", X_Unabridged_Session="shared", **GENERAL)
        await chat.ask(OSLO)
        chat.members["user"] = "ben"
        await chat.ask(CAT)
        await eventually(lambda: len(model.asked_for_texts) >= 4)
        of_channel = model.prompts(model.asked_for_texts)[-2]
        assert "short-term memory of a channel" in of_channel
        assert f"] ana: {OSLO}" in of_channel
        assert f"] ben: {CAT}" in of_channel
        # So a search tells it, whoever asks.
        calls = json.dumps({"query": "Who lives in Oslo, and who has a cat called Mia?"})
        model.replies += [calling(("r1", NAME, calls)), said("Ana and Ben.")]
        await person(chats, url, "cleo", X_Unabridged_Session="asking", **GENERAL).ask("Who has a cat?")
        result = model.views()[-1][-1]["content"]
        assert f"ana: {OSLO}" in result
        assert f"ben: {CAT}" in result

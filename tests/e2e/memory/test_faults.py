"""Whatever becomes of a call for a memory, or of the store: no answer is harmed, and what is known stays."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from proxy.core.recall.tool import NAME
from tests.support.canaries import logged
from tests.support.clients import ADMIN, Chat, Chats, admin
from tests.support.remembering import (
    ALLERGIC,
    ITEMS,
    LIVES,
    OSLO,
    REST,
    TEXTS,
    Held,
    RememberingModel,
    ana_speaks,
    item_texts,
    note,
    opening,
    person,
    prelude,
    remembering,
)
from tests.support.servers import Exchange, eventually, until
from tests.support.stores import Server, serving, valkey_command
from tests.support.upstreams import JSON, Behaviour, Message, calling, completion, plainly, said

BERGEN = "Ana lives in Bergen."
LONG_TEXT = f"{TEXTS}: here the long-term memory of what one person talked about"
HUGE = json.dumps(completion(said("- Ana lives in Bergen. " * 450_000))).encode()


async def hang(exchange: Exchange) -> None:
    await exchange.gone()


@asynccontextmanager
async def warned(why: str) -> AsyncGenerator[None]:
    """The log says this of what begins here."""
    with logged() as lines:
        yield
        await eventually(lambda: any('"warning"' in line and why in line for line in lines))


async def texts(url: str) -> tuple[str, str]:
    """The long and the short text of what Ana talked about."""
    (scope,) = (await admin(url, "memory"))["scopes"]
    return scope["long"], scope["short"]


async def items(url: str) -> set[str]:
    found = (await admin(url, "memory"))["items"]
    return {each["text"] for each in found if each["state"] == "remembered"}


@pytest.mark.parametrize(
    "fault",
    [
        plainly(500, [JSON], b"{}"),
        plainly(200, [JSON], b'{"choices": ['),
        plainly(200, [JSON], HUGE),
        hang,
        said(""),
        said("I would rather speak of the weather."),
        calling(("c1", "remember", "{}")),
    ],
    ids=["refused", "no JSON", "ten megabytes", "hanging", "empty", "no answer to this", "a tool call"],
)
async def test_a_call_that_fails_costs_what_it_was_for_and_what_was_known_stays(
    model: RememberingModel, tmp_path: Path, chats: Chats, fault: Message | Behaviour
) -> None:
    rules = 'channel_every = 1\n[summary]\ntimeout = "1s"'
    async with remembering(model, tmp_path, rules) as url:
        await ana_speaks(model, url, chats)
        before, (long, _) = await items(url), await texts(url)
        chat = person(chats, url, X_Unabridged_Session="two")
        async with warned("a thread was not read to be remembered"):
            model.answers[ITEMS] = fault
            await answered(chat, "I have moved to Bergen.")
        assert (await items(url), (await texts(url))[0]) == (before, long)
        async with warned("a text of a memory was not written"):
            model.answers = {LONG_TEXT: fault}
            await answered(chat, "So it is.")  # it was still to be read

        async def short() -> bool:
            return "Bergen" in (await texts(url))[1]

        await until(True, short)
        assert BERGEN in await items(url)
        assert (await texts(url))[0] == long
        model.answers = {}  # what was to be merged still is, with what came later
        await answered(chat, "I like it there.")

        async def merged() -> bool:
            return "Bergen" in (await texts(url))[0]

        await until(True, merged)


async def test_what_a_model_thought_before_it_answered_is_not_remembered(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    draft = json.dumps({**note("Ana likes nuts."), "from": [1]})
    thought = f"<think>\n{OSLO}\n{draft}\n</think>\n\n"
    model.answers = {
        ITEMS: said(thought + json.dumps({"items": [note(LIVES)]})),
        TEXTS: said(f"{thought}- {LIVES}"),
    }
    async with remembering(model, tmp_path) as url:
        await ana_speaks(model, url, chats)
        assert await items(url) == {LIVES}
        assert await texts(url) == (f"- {LIVES}", f"- {LIVES}")


async def answered(chat: Chat, text: str) -> None:
    response = await chat.ask(text)
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"].startswith("Answer ")


# --- a store that is away ---


@asynccontextmanager
async def away(store: Server) -> AsyncGenerator[None]:
    """The store does not answer."""
    assert store.process is not None
    store.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        store.process.send_signal(signal.SIGCONT)


async def is_degraded(url: str) -> bool:
    async with httpx2.AsyncClient() as client:
        return "degraded" in (await client.get(f"{url}/readyz")).text


async def test_a_session_that_begins_while_the_store_is_away_begins_without_and_stays_so(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    with serving(valkey_command()) as store:
        async with remembering(model, tmp_path, store=store.url, store_timeout=0.3) as url:
            await ana_speaks(model, url, chats)
            chat = person(chats, url, X_Unabridged_Session="two")
            async with warned("what is remembered could not be told"), away(store):
                await answered(chat, "Where do I live?")
            assert prelude(model.views()[-1]) == ""
            await answered(chat, "And now?")
            assert prelude(model.views()[-1]) == ""


async def test_a_search_of_memory_while_the_store_is_away_finds_nothing_and_is_no_fault_of_ours(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    rules = "channel_every = 1\n[recall]\nenabled = true"
    with serving(valkey_command()) as store:
        async with remembering(model, tmp_path, rules, store=store.url, store_timeout=0.3) as url:
            await ana_speaks(model, url, chats)

            async def recall_without_store(exchange: Exchange) -> None:
                store.kill()
                await exchange.answer_json(
                    completion(calling(("r1", NAME, '{"query": "Where does Ana live?"}')))
                )

            with logged() as lines:
                model.replies += [recall_without_store, said("I cannot know.")]
                answer = await person(chats, url, X_Unabridged_Session="two").ask("Where do I live?")
                assert answer.json()["choices"][0]["message"]["content"] == "I cannot know."
            told = [line for line in lines if "what is remembered could not be searched" in line]
            assert ['"warning"' in line for line in told] == [True]
            assert not any('"error"' in line for line in lines)


async def test_a_turn_on_a_server_that_rests_while_another_reads_the_session_is_read_after_that(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    with serving(valkey_command()) as store:
        async with (
            remembering(model, tmp_path, store=store.url) as url,
            remembering(model, tmp_path, store=store.url, memory_rest=3 * REST) as other_url,
        ):
            held = model.meanwhile = Held()
            chat = person(chats, url, X_Unabridged_Session="one")
            await answered(chat, "I live in Oslo.")
            await held.is_writing.wait()
            chat.url = other_url
            await answered(chat, "I am allergic to nuts.")
            await asyncio.sleep(6 * REST)
            model.meanwhile = None
            held.let_go.set()
            await eventually(lambda: len(model.asked_for_items) == 2)
            assert "allergic to nuts" in model.prompts(model.asked_for_items)[1]


async def test_a_session_that_was_being_read_while_something_was_forgotten_is_read_after_that(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    await ana_speaks(model, url, chats)
    oslo = next(item["id"] for item in (await admin(url, "memory"))["items"] if item["text"] == LIVES)

    async def forget() -> None:
        model.meanwhile = None
        async with httpx2.AsyncClient(base_url=url, headers=ADMIN) as client:
            assert (await client.delete(f"/unabridged/v1/memory/{oslo}")).status_code == 200

    model.meanwhile = forget
    await person(chats, url, X_Unabridged_Session="two").ask("We paint the boat.")

    await until({ALLERGIC, "The boat is painted green."}, lambda: item_texts(url))


@pytest.mark.parametrize("fails", [plainly(503, [JSON], b"{}"), said("I have no JSON.")])
async def test_a_session_that_a_model_did_not_read_is_read_after_a_longer_rest(
    model: RememberingModel, url: str, chats: Chats, fails: Message | Behaviour
) -> None:
    model.answers = {ITEMS: fails}
    await person(chats, url, X_Unabridged_Session="one").ask(OSLO)
    await eventually(lambda: bool(model.asked_for_items))
    model.answers.clear()

    await until({ALLERGIC, LIVES}, lambda: item_texts(url))


async def test_a_session_that_a_model_cannot_read_is_not_tried_for_ever(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    model.answers = {ITEMS: said("I have no JSON.")}
    await person(chats, url, X_Unabridged_Session="one").ask(OSLO)
    await eventually(lambda: len(model.asked_for_items) == 4)
    await asyncio.sleep(20 * REST)
    assert len(model.asked_for_items) == 4


async def test_what_the_store_does_not_take_of_a_reading_is_read_again(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    with serving(valkey_command()) as store:
        async with remembering(model, tmp_path, store=store.url, store_timeout=0.3) as url:
            held = model.meanwhile = Held()
            chat = person(chats, url, X_Unabridged_Session="one")
            await answered(chat, "I live in Oslo.")
            await held.is_writing.wait()
            async with warned("a thread was not read to be remembered"), away(store):
                held.let_go.set()
                await answered(chat, "It is cold there.")
            await until(False, lambda: is_degraded(url))
            assert await items(url) == set()
            for claims in store.run("KEYS", "*:memory:claims"):
                store.run("DEL", claims)  # a lease that was left runs out
            await answered(chat, "So it is.")
            await until({LIVES}, lambda: items(url))
            assert LIVES in await opening(model, person(chats, url), "later")

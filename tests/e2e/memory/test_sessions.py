"""A session begins with what the last ones have settled, and is told the same for as long as it lives."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from proxy.core.recall.tool import NAME
from tests.support.append_client import Appenders
from tests.support.clients import ADMIN, Chats, admin, user
from tests.support.operator import ask
from tests.support.remembering import (
    ALLERGIC,
    LIVES,
    OSLO,
    RememberingModel,
    ana_speaks,
    item_texts,
    opening,
    person,
    prelude,
    read,
    remembering,
)
from tests.support.servers import eventually, until
from tests.support.stores import serving, valkey_command
from tests.support.upstreams import Message, calling, events, in_pieces, said, sse

# --- a session's start ---


async def test_a_second_session_of_the_same_person_is_told_what_the_first_settled(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0) as client:

        async def ask(session: str, *messages: Any) -> None:
            headers = {"X-Unabridged-Session": session}
            await client.chat.completions.create(
                model="m", messages=[*messages], user="ana", extra_headers=headers
            )

        await ask("one", user(OSLO))
        assert prelude(model.views()[-1]) == ""
        await read(model)
        first = [{"role": "system", "content": "Be kind."}, user("Where do I live?")]
        await ask("two", *first)
        head, begins, question = model.views()[-1]
        assert [head, question] == first
        assert begins["role"] == "user"
        assert LIVES in begins["content"]
        assert ALLERGIC in begins["content"]
        # The same bytes in each later request, whatever is remembered by then.
        await ask("two", *first, said("Oslo."), user("I have moved to Bergen."))
        await read(model, 2)
        assert "Bergen" in await opening(model, person(chats, url), "three")
        await ask("two", *first, said("Oslo."), user("I have moved to Bergen."), said("Oh."), user("Yes."))
        assert model.views()[-1][1] == begins


async def test_what_is_said_to_a_client_that_sends_its_newest_messages_alone_is_remembered(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    chat, whole = person(chats, url), list[Any]()
    for text in (*[f"Question {number}" for number in range(6)], OSLO):
        whole.append(user(text))
        chat.messages = whole[-5:]
        await chat.say()
        whole.append(chat.messages[-1])
        await until(len(whole) // 2, lambda: turns(url))
    await eventually(lambda: any(OSLO in text for text in model.prompts(model.asked_for_items)))
    await until(True, lambda: lives_in_oslo(url))
    assert LIVES in await opening(model, person(chats, url), "another")


async def turns(url: str) -> int:
    (session,) = (await admin(url, "sessions"))["sessions"]
    return session["turns"]


async def lives_in_oslo(url: str) -> bool:
    return any("Oslo" in scope["long"] for scope in (await admin(url, "memory"))["scopes"])


async def test_a_session_that_was_told_nothing_is_told_nothing_later(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    early = person(chats, url, X_Unabridged_Session="early")
    await early.ask("Hello")
    await read(model)
    await person(chats, url, X_Unabridged_Session="other").ask(OSLO)
    await read(model, 2)
    assert "Oslo" in await opening(model, person(chats, url), "later")
    await early.ask("Where do I live?")
    assert model.views()[-1] == early.messages[:-1]


async def test_what_is_no_longer_so_is_not_told(model: RememberingModel, url: str, chats: Chats) -> None:
    await ana_speaks(model, url, chats)
    await person(chats, url, X_Unabridged_Session="two").ask("I have moved to Bergen.")
    await read(model, 2)
    found = await opening(model, person(chats, url), "later")
    assert ("Ana lives in Bergen." in found, LIVES in found) == (True, False)


async def test_what_the_caller_hands_in_stands_behind_it(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    await ana_speaks(model, url, chats)
    chat = person(chats, url, X_Unabridged_Session="two")
    chat.members["unabridged"] = {"inject": {"text": "The customer is called Ada."}}
    answer = await chat.ask("Where do I live?")
    begins, handed, _ = model.views()[-1]
    assert ("Oslo" in begins["content"], "Ada" in handed["content"]) == (True, True)
    assert "x-unabridged-degraded" not in answer.headers
    (session,) = [each for each in (await admin(url, "sessions"))["sessions"] if each["name"] == "two"]
    exported = await admin(url, f"sessions/{session['id']}/export")
    assert exported["injected"] == {"text": "The customer is called Ada.", "tools": []}
    assert LIVES in exported["remembered"]


async def test_without_a_policy_that_remembers_nothing_is_asked_or_told(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    for session in ("one", "two"):
        chat = person(chats, url, X_Unabridged_Session=session, X_Unabridged_Policy="default")
        chat.headers |= {"X-Unabridged-Channel": "general"}
        await chat.ask(OSLO)
        assert model.views()[-1] == [user(OSLO)]
    remembered = person(chats, url, X_Unabridged_Session="three")
    await remembered.ask("Hello")
    await eventually(lambda: bool(model.asked_for_items))
    assert not any("Oslo" in prompt for prompt in model.prompts(model.asked_for_items))


async def test_who_sends_only_what_is_new_is_told_as_well(
    model: RememberingModel, url: str, chats: Chats, appenders: Appenders
) -> None:
    where = {"X-Unabridged-Channel": "general"}
    first = appenders(url, "one")
    first.headers |= where
    first.members["user"] = "ana"
    await first.say(user(OSLO))
    await read(model)
    second = appenders(url, "two")
    second.headers |= where
    for question in ("Where do I live?", "And now?"):
        await second.say(user(question))
        assert LIVES in prelude(model.views()[-1])


# --- what it is written from ---


async def test_a_request_for_a_title_that_names_no_session_is_not_read_as_one(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    await person(chats, url, X_Unabridged_Session="one").ask(OSLO)
    await person(chats, url).ask(f"Write a title for this. The user said: {OSLO} The model said: Oh.")
    await read(model)
    alone = person(chats, url)  # which says something of its own
    await alone.ask("My boat is called Rex.")
    await eventually(lambda: any("boat" in each for each in model.prompts(model.asked_for_items)))
    assert not any("Write a title" in each for each in model.prompts(model.asked_for_items))


@pytest.mark.parametrize("place", [0, 1], ids=["the first turn", "a later one"])
async def test_what_was_said_in_a_turn_whose_answer_broke_off_is_read_without_a_turn_after_it(
    model: RememberingModel, url: str, chats: Chats, place: int
) -> None:
    chat = person(chats, url, X_Unabridged_Session="one")
    for _ in range(place):
        await chat.ask("Hello")
    chat.members["stream"] = True
    model.replies.append(in_pieces(*map(sse, events(said("Half an answer"))[:2])))
    await chat.ask(OSLO)
    await eventually(lambda: any(OSLO in each for each in model.prompts(model.asked_for_items)))
    await eventually(lambda: len(model.asked_for_texts) >= 4)
    assert not any("Half" in each for each in model.prompts([*model.asked_for_items, *model.asked_for_texts]))


async def test_a_conversation_is_read_once_it_rests_with_times_and_names(
    model: RememberingModel, url: str, chats: Chats
) -> None:
    chat = person(chats, url, X_Unabridged_Session="one")
    await chat.ask(OSLO)
    await read(model)
    (items,) = model.prompts(model.asked_for_items)
    assert f"] ana: {OSLO}" in items
    *_, short, long = model.prompts(model.asked_for_texts)
    assert "short-term memory of what one person talked about" in short
    assert "long-term memory of what one person talked about" in long
    await chat.ask("I do not live in Oslo any more: I have moved to Bergen.")
    await eventually(lambda: len(model.asked_for_items) == 2)
    again = model.prompts(model.asked_for_items)[1]
    assert "moved to Bergen" in again
    assert f"] ana: {OSLO}" not in again  # only what is new is read for items
    assert LIVES in again  # and what is known stands beside it


async def test_a_long_conversation_is_read_every_so_many_exchanges(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    async with remembering(model, tmp_path, "every = 2\nchannel_every = 100", memory_rest=60.0) as url:
        chat = person(chats, url, X_Unabridged_Session="one")
        for number, exchange in enumerate((("Hello", OSLO), ("Well", "Go on")), 1):
            for text in exchange:
                await chat.ask(text)
            await eventually(lambda number=number: len(model.asked_for_texts) == 2 * number)
        first, second = model.prompts(model.asked_for_items)
        assert ("Oslo" in first, "Well" in second, f"ana: {OSLO}" in second) == (True, True, False)


async def test_what_was_said_while_a_conversation_was_read_is_read_when_that_has_ended(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    said = asyncio.Event()
    model.meanwhile = said.wait
    async with remembering(model, tmp_path, "every = 2\nchannel_every = 100", memory_rest=60.0) as url:
        chat = person(chats, url, X_Unabridged_Session="one")
        await chat.ask("Hello")
        await chat.ask(OSLO)
        await eventually(lambda: model.asked_for_texts)
        await chat.ask("Well")
        await chat.ask("Go on")
        said.set()
        await eventually(lambda: len(model.asked_for_items) == 2)
        assert "Well" in model.prompts(model.asked_for_items)[1]


# --- restarts, forks, workers, and secrets ---

OLD, NEW = "the old secret of the tests", "the new secret of the tests"
RECALL = "[recall]\nenabled = true"
HERON = "The code word of the harbour is heron."


async def test_a_session_keeps_what_it_was_told_after_a_restart_on_every_worker_and_in_a_fork(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    with serving(valkey_command()) as store:
        settings = {"store": store.url}
        async with (
            remembering(model, tmp_path, **settings) as one,
            remembering(model, tmp_path, **settings) as two,
        ):
            await ana_speaks(model, one, chats, X_Unabridged_Session="first")
            chat = person(chats, one, X_Unabridged_Session="second")
            await chat.ask("Where do I live?")
            begins = prelude(model.views()[-1])
            assert LIVES in begins
            chat.url = two
            await chat.ask("And now?")
            assert prelude(model.views()[-1]) == begins
            async with httpx2.AsyncClient(base_url=two, headers=ADMIN) as client:

                async def fork() -> int:
                    answer = await client.post("/unabridged/v1/sessions/second/fork", json={"name": "fork"})
                    return answer.status_code

                await until(200, fork)  # once the last turn is written
        async with remembering(model, tmp_path, **settings) as again:
            for session in ("second", "fork"):
                chat.url, chat.headers["X-Unabridged-Session"] = again, session
                await chat.ask("And after all?")
                assert prelude(model.views()[-1]) == begins


async def test_what_a_fork_has_from_its_session_is_merged_once(
    model: RememberingModel, remembered: str, chats: Chats
) -> None:
    assert (await ask(remembered, "POST", "sessions/one/fork", {"name": "fork"})).status_code == 200
    chat = person(chats, remembered, X_Unabridged_Session="fork")
    chat.messages = [user(OSLO), said("Noted.")]
    await chat.ask("We paint the boat.")
    await read(model, 2)
    asked = [each for each in model.prompts(model.asked_for_texts) if "short-term memory of what one" in each]
    assert [(OSLO in each, "We paint the boat." in each) for each in asked] == [(True, False), (False, True)]


async def _turns(url: str) -> int:
    sessions = (await admin(url, "sessions"))["sessions"]
    return next((each["exchanges"] for each in sessions if each["name"] == "first"), 0)


async def test_memory_moves_to_the_new_secret(model: RememberingModel, tmp_path: Path, chats: Chats) -> None:
    where = {"X_Unabridged_Channel": "general", "X_Unabridged_Workspace": "acme"}
    with serving(valkey_command()) as store:
        async with remembering(model, tmp_path, store=store.url, secret=OLD) as url:
            await ana_speaks(model, url, chats, X_Unabridged_Session="first", **where)
        for number, secret in enumerate((f"{NEW},{OLD}", NEW)):
            async with remembering(model, tmp_path, store=store.url, secret=secret) as url:
                # A session that goes on is told nothing; its turn must not begin a memory of its own.
                goes_on = person(chats, url, X_Unabridged_Session="first", **where)
                goes_on.messages = [user(OSLO), said("Noted.")]
                await goes_on.ask("So it is.")
                await until(2, lambda url=url: _turns(url))
                found = await opening(model, person(chats, url, **where), f"later {number}")
                assert LIVES in found


async def test_what_was_said_under_an_old_secret_is_recalled_also_when_that_is_gone(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    with serving(valkey_command()) as store:
        messages: list[Message] = []
        for secret in (OLD, f"{NEW},{OLD}", NEW):
            async with remembering(model, tmp_path, RECALL, store=store.url, secret=secret) as url:
                first = person(chats, url, X_Unabridged_Session="first")
                first.messages = messages
                await first.ask("So it is." if messages else HERON)
                if secret != NEW:
                    await eventually(lambda: bool(model.asked_for_items))
                    continue
                model.replies += [
                    calling(("r1", NAME, '{"query": "code word of the harbour"}')),
                    said("Yes."),
                ]
                await person(chats, url, X_Unabridged_Session="later").ask("What is the code word?")
                assert HERON in str(model.views()[-1])


async def test_what_was_said_to_a_server_that_had_the_old_secret_longer_than_others_is_recalled(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    with serving(valkey_command()) as store:
        async with (
            remembering(model, tmp_path, RECALL, store=store.url, secret=OLD) as old_url,
            remembering(model, tmp_path, RECALL, store=store.url, secret=f"{NEW},{OLD}") as url,
        ):
            await person(chats, url, X_Unabridged_Session="begun").ask("Good morning.")
            await eventually(lambda: len(model.asked_for_items) == 1)
            first = person(chats, old_url, X_Unabridged_Session="first")
            await first.ask(HERON)
            await eventually(lambda: len(model.asked_for_items) == 2)
            first.url = url
            await first.ask("So it is.")
            await eventually(lambda: len(model.asked_for_items) == 3)
            model.replies += [calling(("r1", NAME, '{"query": "code word of the harbour"}')), said("Yes.")]
            await person(chats, url, X_Unabridged_Session="later").ask("What is the code word?")
            assert HERON in str(model.views()[-1])


@pytest.mark.parametrize("headers", [{"X_Unabridged_Session": "one"}, {}], ids=["named", "by its chain"])
async def test_a_sessions_own_memory_moves_to_the_new_secret_and_is_deleted_with_it(
    model: RememberingModel, tmp_path: Path, chats: Chats, headers: dict[str, str]
) -> None:

    async def scopes(url: str) -> list[tuple[str, int]]:
        found = (await admin(url, "memory"))["scopes"]
        return [(each["kind"], each["items"]) for each in found]

    with serving(valkey_command()) as store:
        async with remembering(model, tmp_path, store=store.url, secret=OLD) as url:
            chat = chats(url, **headers)
            await chat.ask("We paint the boat green.")
            await until([("thread", 1)], lambda: scopes(url))
        for number, secret in enumerate((f"{NEW},{OLD}", NEW), 2):
            async with remembering(model, tmp_path, store=store.url, secret=secret) as url:
                chat.url = url
                await chat.ask(f"It is painted for the time number {number}.")
                await eventually(lambda number=number: len(model.asked_for_texts) == 2 * number)
                await until([("thread", 1)], lambda url=url: scopes(url))
        async with (
            remembering(model, tmp_path, store=store.url, secret=NEW) as url,
            httpx2.AsyncClient(base_url=url, headers=ADMIN) as client,
        ):
            (session,) = (await admin(url, "sessions"))["sessions"]
            assert (await client.delete(f"/unabridged/v1/sessions/{session['id']}")).status_code == 200
            assert await scopes(url) == []


async def test_what_was_learned_from_a_session_is_forgotten_also_after_the_secret_was_rotated(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    where = {"X_Unabridged_Session": "first", "X_Unabridged_Channel": "general"}
    with serving(valkey_command()) as store:
        async with remembering(model, tmp_path, store=store.url, secret=OLD) as url:
            await ana_speaks(model, url, chats, **where)
        async with (
            remembering(model, tmp_path, store=store.url, secret=f"{NEW},{OLD}") as url,
            httpx2.AsyncClient(base_url=f"{url}/unabridged/v1/", headers=ADMIN) as client,
        ):
            goes_on = person(chats, url, **where)
            goes_on.messages = [user(OSLO), said("Noted.")]
            await goes_on.ask("We paint the boat green.")

            await until({LIVES, ALLERGIC, "The boat is painted green."}, lambda: item_texts(url))
            await read(model, 2)
            await client.post("sessions/first/fork", json={"name": "fork"})
            assert (await client.delete("memory?session=fork")).json()["items"] == 0
            assert (await client.delete("memory?session=first")).json()["items"] == 3
            (scope,) = (await admin(url, "memory"))["scopes"]
            assert (await item_texts(url), "Oslo" in scope["long"] + scope["short"]) == (set(), False)


# --- recall ---


async def test_the_model_searches_memory_and_other_sessions_from_the_first_request_on(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    rules = "channel_every = 1\ninject_tokens = 0\n[recall]\nenabled = true"
    async with remembering(model, tmp_path, rules) as url:
        await person(chats, url, X_Unabridged_Session="one").ask(f"{OSLO} The bridge was paid in cash.")
        await read(model)
        chat = person(chats, url, X_Unabridged_Session="two")
        calls = json.dumps({"query": "How was the bridge paid, and where does Ana live?"})
        model.replies += [calling(("r1", NAME, calls)), said("In cash.")]
        answer = await chat.ask("How was the bridge paid?")
        assert answer.json()["choices"][0]["message"]["content"] == "In cash."
        assert [tool["function"]["name"] for tool in model.bodies()[-2]["tools"]] == [NAME]
        result = model.views()[-1][-1]["content"]
        assert result.startswith("<note ")
        assert LIVES in result
        assert f"\n- ana: {OSLO} The bridge was paid in cash." in result
        # Nothing of another person's.
        model.replies += [calling(("r1", NAME, calls)), said("Nobody knows.")]
        await person(chats, url, "ben", X_Unabridged_Session="three").ask("How was the bridge paid?")
        result = model.views()[-1][-1]["content"]
        assert ("Oslo" in result, "cash" in result) == (False, False)


async def test_nothing_is_found_any_more_of_a_session_that_was_deleted(
    model: RememberingModel, tmp_path: Path, chats: Chats
) -> None:
    async with remembering(model, tmp_path, "channel_every = 1") as url:
        await person(chats, url, X_Unabridged_Session="one").ask("Was the bridge paid in cash?")
        await read(model)
        found = "memory?query=How was the bridge paid?"
        assert "in cash" in str((await ask(url, "GET", found)).json()["said"])
        assert (await ask(url, "DELETE", "sessions/one")).status_code == 200
        assert (await ask(url, "GET", found)).json()["said"] == []


async def test_without_recall_no_tool_is_offered(model: RememberingModel, url: str, chats: Chats) -> None:
    await person(chats, url, X_Unabridged_Session="one").ask(OSLO)
    assert "tools" not in model.bodies()[-1]

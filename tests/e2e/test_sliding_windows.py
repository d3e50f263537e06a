"""Clients that send only their newest messages: each request goes on in the session that holds the others."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from proxy.ports import SUFFIXES
from tests.support.clients import (
    Chat,
    Chats,
    admin,
    only_session,
    proxying,
    user,
    write_policy,
)
from tests.support.network import relaying
from tests.support.servers import until
from tests.support.stores import embedded_valkey
from tests.support.upstreams import Model, calling, said

TURNS = 10
QUESTIONS = [f"Question {number}" for number in range(TURNS)]
SYSTEM = {"role": "system", "content": "Be kind."}


@pytest.fixture(params=["one machine", "two machines"])
async def urls(request: pytest.FixtureRequest, model: Model) -> AsyncIterator[list[str]]:
    """One machine with a store in memory, or two on one Valkey."""
    async with AsyncExitStack() as stack:
        stores = ["memory://"]
        if request.param == "two machines":
            stores = [stack.enter_context(embedded_valkey())] * 2
        yield [await stack.enter_async_context(proxying(model.url, store=store)) for store in stores]


async def turns_of_each(url: str) -> list[int]:
    return sorted(each["turns"] for each in (await admin(url, "sessions"))["sessions"])


async def turns_at(url: str) -> int:
    """All turns that are written."""
    return sum(await turns_of_each(url))


async def talk(chat: Chat, urls: list[str], keep: int, questions: Sequence[str] = QUESTIONS) -> list[Any]:
    """Hold a conversation of which each request has the newest ``keep`` messages; return all of it.

    The client takes its time: it goes on when the turn before is written.
    """
    whole: list[Any] = []
    for number, (question, url) in enumerate(zip(questions, itertools.cycle(urls), strict=False), 1):
        whole.append(user(question))
        chat.url, chat.messages = url, [SYSTEM, *whole[-keep:]]
        await chat.say()
        whole.append(chat.messages[-1])
        await until(number, partial(turns_at, url))
    return whole


async def hold(chat: Chat, model: Model, *exchanges: tuple[str, str]) -> None:
    """Go on with these questions and their answers; each turn is written when this returns."""
    for question, answer in exchanges:
        model.replies.append(said(answer))
        before = await turns_at(chat.url)
        await chat.ask(question)
        await until(before + 1, partial(turns_at, chat.url))


async def transcript(url: str) -> tuple[Any, list[str]]:
    session = await only_session(url)
    told = await admin(url, f"sessions/{session['id']}/transcript")
    return session, [each["message"]["content"] for each in told["messages"][1:]]


@pytest.mark.parametrize("headers", [{}, {"X_Unabridged_Session": "s"}], ids=["without a header", "named"])
@pytest.mark.parametrize("keep", [4, 6, 11])
async def test_a_conversation_of_which_each_request_has_the_newest_messages_is_one_whole_session(
    urls: list[str], chats: Chats, headers: dict[str, str], keep: int
) -> None:
    whole = await talk(chats(urls[0], **headers), urls, keep)
    session, texts = await transcript(urls[0])
    assert texts == [each["content"] for each in whole]
    assert session["exchanges"] == TURNS


async def test_where_the_same_words_return_a_request_goes_on_where_all_of_it_stands(
    urls: list[str], chats: Chats, model: Model
) -> None:
    model.replies += [said("Yes" if number % 3 else f"This is {number}") for number in range(TURNS)]
    questions = ["Next" if number % 3 else f"And {number}?" for number in range(TURNS)]
    whole = await talk(chats(urls[0]), urls, 11, questions)
    _, texts = await transcript(urls[0])
    assert texts == [each["content"] for each in whole]


async def test_a_conversation_that_only_repeats_itself_goes_on_at_its_end(
    urls: list[str], chats: Chats, model: Model
) -> None:
    model.replies += [said("Running")] * 2 * TURNS
    whole = await talk(chats(urls[0]), urls, 7, ["Build it", *["Status?"] * (2 * TURNS - 1)])
    _, texts = await transcript(urls[0])
    assert texts == [each["content"] for each in whole]


@pytest.mark.parametrize("headers", [{}, {"X_Unabridged_Session": "s"}], ids=["without a header", "named"])
async def test_a_greeting_that_returns_does_not_go_back_to_the_beginning(
    urls: list[str], chats: Chats, model: Model, headers: dict[str, str]
) -> None:
    days = [["Good morning", *[f"Day {day}, question {each}" for each in range(7)]] for day in range(3)]
    model.replies += [
        said("Good morning! How can I help?" if question == "Good morning" else f"To {question}")
        for question in itertools.chain(*days)
    ]
    whole = await talk(chats(urls[0], **headers), urls, 9, [*itertools.chain(*days)])
    session, texts = await transcript(urls[0])
    assert texts == [each["content"] for each in whole]
    assert session["exchanges"] == len(whole) // 2


async def test_messages_that_begin_as_another_session_did_stay_in_their_own(
    chats: Chats, model: Model
) -> None:
    greeting = ("Hi", "Hello! How can I help?")
    async with proxying(model.url, store="memory://") as url:
        other, mine, whole = chats(url), chats(url), list[Any]()
        other.members["unabridged"] = {"inject": {"text": "The code of Ann is 4711."}}
        await hold(other, model, greeting, ("Hours?", "9 to 5"))
        assert "4711" in str(model.views()[-1])
        begun = ("I am Bob", "Hello Bob"), ("Next", "OK"), greeting
        for question, answer in (*begun, ("What is open?", "All"), ("Good", "Yes"), ("And?", "So")):
            mine.messages = whole[-4:]
            await hold(mine, model, (question, answer))
            whole += mine.messages[-2:]
            assert model.views()[-1] == mine.messages[:-1]
        assert await turns_of_each(url) == [2, 6]


async def test_what_is_sent_is_what_the_client_sent(urls: list[str], chats: Chats, model: Model) -> None:
    chat = chats(urls[0])
    await talk(chat, urls, 11)
    assert model.views()[-1] == chat.messages[:-1]


async def test_an_agent_that_works_on_within_its_window_stays_in_its_session(
    urls: list[str], chats: Chats, model: Model
) -> None:
    chat, whole = chats(urls[0]), await talk(chats(urls[0]), urls, 11)
    chat.messages = [SYSTEM, *whole[-10:], user("Look it up")]
    for number in range(3):
        model.replies.append(calling((f"c{number}", "look", "{}")))
        await chat.say()
        await chat.say({"role": "tool", "tool_call_id": f"c{number}", "content": f"Found {number}"})
    await until(TURNS + 6, partial(turns_at, urls[0]))
    session, texts = await transcript(urls[0])
    assert texts[: len(whole)] == [each["content"] for each in whole]
    assert texts[len(whole) :: 4][:1] == ["Look it up"]
    assert session["turns"] == TURNS + 6


async def test_a_regenerated_answer_in_a_window_replaces_the_newest(
    urls: list[str], chats: Chats, model: Model
) -> None:
    chat = chats(urls[0])
    whole = await talk(chat, urls, 11)
    chat.messages.pop()
    model.replies.append(said("Another answer"))
    await chat.say()
    await until(TURNS + 1, partial(turns_at, urls[0]))
    session, texts = await transcript(urls[0])
    assert texts == [*(each["content"] for each in whole[:-1]), "Another answer"]
    assert session["exchanges"] == TURNS


async def test_the_same_newest_messages_of_two_sessions_join_neither(
    urls: list[str], chats: Chats, model: Model
) -> None:
    windows = list[list[Any]]()
    for name in "AB":
        chat = chats(urls[0])
        chat.messages = [SYSTEM]
        for text in (f"I am {name}", "Well?", "And?", "So?"):
            model.replies.append(said("Yes"))
            await chat.ask(text)
        windows.append(chat.messages[3:])
    assert windows[0] == windows[1]
    await until(8, partial(turns_at, urls[0]))
    asking = chats(urls[0])
    asking.messages = [SYSTEM, *windows[0]]
    await asking.ask("Who am I?")
    await until([1, 4, 4], partial(turns_of_each, urls[0]))


async def test_another_key_with_the_same_newest_messages_joins_no_session(
    urls: list[str], chats: Chats
) -> None:
    whole = await talk(chats(urls[0]), urls, 11)
    other = chats(urls[0], Authorization="Bearer sk-other")
    other.messages = [SYSTEM, *whole[-10:]]
    await other.ask("And now?")
    await until([1, TURNS], partial(turns_of_each, urls[0]))


async def test_messages_that_no_answer_of_ours_is_among_join_no_session(
    urls: list[str], chats: Chats
) -> None:
    examples = [user("A?"), said("1"), user("B?"), said("2"), user("C?"), said("3")]
    for number in range(2):
        chat = chats(urls[0])
        chat.messages = [SYSTEM, *examples[2 * number :]]
        await chat.ask(f"Question {number}")
        await until([1] * (number + 1), partial(turns_of_each, urls[0]))


HOURS = ("Hours?", "9 to 5")
SUNDAY = ("And on Sunday?", "Closed")


async def test_where_several_sessions_began_alike_a_request_joins_none_that_has_their_words_later(
    urls: list[str], chats: Chats, model: Model
) -> None:
    await hold(chats(urls[0]), model, ("I am Alice", "Hello"), HOURS, ("Thanks", "Welcome"))
    await hold(chats(urls[0]), model, HOURS)
    chat = chats(urls[0])
    await hold(chat, model, HOURS, SUNDAY)
    assert await turns_of_each(urls[0]) == [1, 1, 1, 3]


async def test_a_conversation_of_one_answer_joins_no_session_that_has_its_words_later(
    urls: list[str], chats: Chats, model: Model
) -> None:
    await hold(chats(urls[0]), model, ("I am Alice", "Hello"), HOURS, ("Thanks", "Welcome"))
    chat = chats(urls[0])
    chat.messages = [user(HOURS[0]), said(HOURS[1])]  # its session has ended
    await hold(chat, model, SUNDAY)
    assert await turns_of_each(urls[0]) == [1, 3]


async def test_messages_that_only_begin_like_those_of_a_session_do_not_join_it(
    urls: list[str], chats: Chats, model: Model
) -> None:
    same = [("Yes", "OK"), ("Thanks", "Welcome")]
    await hold(chats(urls[0]), model, ("I am Alice", "Hello"), *same)
    chat = chats(urls[0])
    await hold(chat, model, *((f"Question {number}", f"Answer {number}") for number in range(8)), *same)
    await hold(chat, model, ("And?", "So"))
    del chat.messages[:16]  # more than are noted
    await hold(chat, model, SUNDAY)
    assert await turns_of_each(urls[0]) == [1, 3, 11]


async def test_where_more_sessions_have_the_words_than_are_noted_a_request_joins_none(
    urls: list[str], chats: Chats, model: Model
) -> None:
    first, *others = (chats(urls[0]) for _ in range(SUFFIXES + 1))
    await hold(first, model, ("I am 0", "Hello"), ("Yes", "Your name?"), ("Ann", "Hello Ann"))
    for number, chat in enumerate(others, 1):
        name = "Ann" if number == 1 else f"Ann {number}"
        exchanges = [(f"I am {number}", "Hello"), ("Yes", "Your name?"), (name, f"Hello {name}")]
        await hold(chat, model, *exchanges)
    del first.messages[:2]
    await hold(first, model, SUNDAY)
    assert await turns_of_each(urls[0]) == [1, *[3] * (SUFFIXES + 1)]


async def test_the_places_where_the_same_words_stand_are_read_in_one_trip(chats: Chats, model: Model) -> None:
    with embedded_valkey() as store:
        async with (
            relaying(Path(store.removeprefix("unix://"))) as relay,
            proxying(model.url, store=relay.url) as url,
        ):
            chat, trips, whole = chats(url), list[int](), list[Any]()
            for number in range(20):
                model.replies.append(said("Yes"))
                whole.append(user("Next" if number else "I am Alice"))
                before, chat.messages = relay.trips, whole[-11:]
                await chat.say()
                trips.append(relay.trips - before)
                whole.append(chat.messages[-1])
                await until(number + 1, partial(turns_at, url))
            assert max(trips[-5:]) < SUFFIXES  # its chain, the notes, all places at once, and the turn


async def test_a_client_that_drops_messages_by_itself_has_no_more_epochs_by_count(
    chats: Chats, model: Model, tmp_path: Path
) -> None:
    text = "stages.max_units = 6\nkeep.recent = 0.0\nsummary.enabled = false\n"
    policy = str(write_policy(tmp_path, "counted", text))
    async with proxying(model.url, policy=policy) as url:
        chat = chats(url, X_Unabridged_Session="s")
        questions = [f"Question {number}: " + "how is the bridge coming along? " * 9 for number in range(16)]
        await talk(chat, [url] * 16, 11, questions)
        assert model.views()[-1] == chat.messages[:-1], "what the client sent"
        epochs = (await only_session(url))["epochs"]
    # Before it dropped any, its fourth request was cut, and the count began anew.
    assert [epoch["original_count"] for epoch in epochs] == [8]

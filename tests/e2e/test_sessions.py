"""Which session a request belongs to, and what a session's tree of chains holds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.clients import Chat, Chats, admin, only_session, proxying, told, user
from tests.support.network import relaying
from tests.support.stores import serving, valkey_command
from tests.support.upstreams import Model, calling, said

FOREIGN = [
    "X-Session-Id",
    "x-litellm-session-id",
    "X-OpenWebUI-Chat-Id",
    "Helicone-Session-Id",
    "x-acme-session-id",
]


async def session_named(url: str, name: str) -> Any:
    sessions = (await admin(url, "sessions"))["sessions"]
    return next(session for session in sessions if session["name"] == name)


async def texts(url: str, session: Any, verb: str = "transcript", **query: str) -> list[str]:
    told = await admin(url, f"sessions/{session['id']}/{verb}", **query)
    messages = [entry["message"] if verb == "transcript" else entry for entry in told["messages"]]
    return [message["content"] for message in messages]


# --- names ---


@pytest.mark.parametrize("header", ["X-Unabridged-Session", *FOREIGN])
async def test_a_header_names_the_session(url: str, chats: Chats, header: str) -> None:
    for text in ("One question", "Another, of another chain"):
        response = await chats(url, **{header: "chat-1"}).ask(text)
        assert told(response, "session") == "chat-1"
    assert (await only_session(url))["name"] == "chat-1"


async def test_our_own_header_wins_over_all_others(url: str, chats: Chats) -> None:
    response = await chats(url, X_Session_Id="theirs", X_Unabridged_Session="ours").ask("Hello")
    assert told(response, "session") == "ours"


async def test_another_credential_with_the_same_session_id_sees_nothing(url: str, chats: Chats) -> None:
    mine = chats(url, X_Unabridged_Session="s")
    theirs = chats(url, X_Unabridged_Session="s", Authorization="Bearer sk-other")
    for text in ("a secret", "more of it"):
        await mine.ask(text)
    theirs.messages = list(mine.messages)
    await theirs.ask("what was it?")
    sessions = (await admin(url, "sessions"))["sessions"]
    assert len({session["id"] for session in sessions}) == 2
    assert sorted(session["turns"] for session in sessions) == [1, 2]


async def test_the_same_conversation_of_two_credentials_is_two_sessions(url: str, chats: Chats) -> None:
    names: set[str] = set()
    for key in ("one", "two"):
        names.add(told(await chats(url, Authorization=f"Bearer {key}").ask("Hello"), "session"))
    assert len(names) == 2


async def test_an_issued_id_sent_back_names_the_same_session(url: str, chats: Chats) -> None:
    first = chats(url)
    name = told(await first.ask("Hello"), "session")
    second = chats(url, X_Unabridged_Session=name)
    second.messages = list(first.messages)
    assert told(await second.ask("And then?"), "session") == name
    session = await only_session(url)
    assert (session["turns"], len(await texts(url, session))) == (2, 4)


async def test_an_issued_id_is_the_same_session_for_a_client_that_names_its_user(
    url: str, chats: Chats
) -> None:
    first = chats(url)
    first.members["user"] = "jo"
    name = told(await first.ask("Hello"), "session")
    first.headers["X-Unabridged-Session"] = name
    await first.ask("And then?")
    session = await only_session(url)
    assert (session["turns"], len(await texts(url, session))) == (2, 4)
    assert len((await admin(url, f"sessions/{session['id']}/explain"))["units"]) == 4


async def test_an_id_issued_to_somebody_else_opens_nothing(url: str, chats: Chats) -> None:
    name = told(await chats(url).ask("Hello"), "session")
    thief = chats(url, X_Unabridged_Session=name, Authorization="Bearer sk-thief")
    await thief.ask("Hello")
    assert len((await admin(url, "sessions"))["sessions"]) == 2


async def test_the_user_in_the_body_is_no_session(url: str, chats: Chats) -> None:
    names: set[str] = set()
    for text in ("One thing", "Another thing"):
        chat = chats(url)
        chat.members["user"] = "jo"
        names.add(told(await chat.ask(text), "session"))
    assert len(names) == 2


# --- chains ---


async def test_a_conversation_without_a_header_is_recognised_by_its_chain(url: str, chats: Chats) -> None:
    chat = chats(url)
    names = {told(await chat.ask(f"Question {number}"), "session") for number in range(5)}
    assert len(names) == 1
    assert (await only_session(url))["turns"] == 5


async def test_the_same_greeting_twice_is_two_sessions(url: str, chats: Chats) -> None:
    names = {told(await chats(url).ask("Hello"), "session") for _ in range(2)}
    assert len(names) == 2


async def test_a_history_with_answers_that_we_never_gave_joins_no_session(url: str, chats: Chats) -> None:
    mine, forged = chats(url), chats(url)
    name = told(await mine.ask("Hello"), "session")
    forged.messages = [user("Hello"), {"role": "assistant", "content": "Made up"}]
    assert told(await forged.ask("And?"), "session") != name


async def test_a_clock_in_the_system_prompt_makes_no_new_session(
    url: str, chats: Chats, model: Model
) -> None:
    chat = chats(url)
    names: set[str] = set()
    for minute in range(4):
        chat.messages = [each for each in chat.messages if each["role"] != "system"]
        chat.messages.insert(0, {"role": "system", "content": f"It is 12:0{minute}."})
        names.add(told(await chat.ask(f"Question {minute}"), "session"))
    assert len(names) == 1
    session = await only_session(url)
    assert (await texts(url, session))[0] == "It is 12:03."
    assert len(await texts(url, session)) == 9


async def test_a_turn_that_brings_a_hundred_tool_results_stays_in_its_session(
    url: str, chats: Chats, model: Model
) -> None:
    chat = chats(url)
    calls = [(f"c{number}", "read", "{}") for number in range(100)]
    model.replies.append(calling(*calls))
    name = told(await chat.ask("Read them all"), "session")
    results = [{"role": "tool", "tool_call_id": call_id, "content": call_id} for call_id, _, _ in calls]
    assert told(await chat.say(*results), "session") == name


async def test_an_answer_sent_back_at_once_is_recognised_however_slow_the_store(
    model: Model, chats: Chats
) -> None:
    with serving(valkey_command()) as server:
        async with relaying(server.socket) as slow, proxying(model.url, store=slow.url) as url:
            slow.lag = 0.05
            chat = chats(url)
            names = {told(await chat.ask(f"Question {number}"), "session") for number in range(5)}
    assert len(names) == 1


# --- branches ---


@pytest.fixture
async def talk(url: str, chats: Chats) -> Chat:
    """Three turns under a header."""
    chat = chats(url, X_Unabridged_Session="chat")
    for number in range(3):
        await chat.ask(f"Question {number}")
    return chat


async def test_the_transcript_is_what_was_said(url: str, talk: Chat) -> None:
    session = await session_named(url, "chat")
    transcript = await admin(url, f"sessions/{session['id']}/transcript")
    assert [(each["message"]["role"], each["message"]["content"]) for each in transcript["messages"]] == [
        (message["role"], message["content"]) for message in talk.messages
    ]
    assert [each["answer"] for each in transcript["messages"]] == [False, True] * 3


async def test_an_edited_message_is_a_branch_that_becomes_the_tip(url: str, talk: Chat) -> None:
    session = await session_named(url, "chat")
    before = await admin(url, f"sessions/{session['id']}/transcript")
    talk.messages = talk.messages[:2]
    await talk.ask("Question 1, edited")
    after = await texts(url, session)
    assert after[2] == "Question 1, edited"
    assert len(after) == 4
    assert await texts(url, session, tip=before["tip"]) == [
        each["message"]["content"] for each in before["messages"]
    ]


async def test_a_regenerated_answer_replaces_the_tip(url: str, talk: Chat, model: Model) -> None:
    session = await session_named(url, "chat")
    talk.messages.pop()
    model.replies.append(said("Another answer"))
    await talk.say()
    assert (await texts(url, session))[4:] == ["Question 2", "Another answer"]


async def test_the_same_turn_twice_is_one_turn(url: str, talk: Chat, model: Model) -> None:
    talk.messages.append(user("Twice"))
    for _ in range(2):
        model.replies.append(said("Once"))
        await talk.send()
    session = await session_named(url, "chat")
    assert (await texts(url, session))[-2:] == ["Twice", "Once"]
    assert session["turns"] == 4


async def test_two_requests_at_once_are_both_answered_and_no_pair_is_interleaved(
    url: str, talk: Chat, chats: Chats
) -> None:
    fork = chats(url, X_Unabridged_Session="chat")
    fork.messages = list(talk.messages)
    answers = await asyncio.gather(talk.ask("Left"), fork.ask("Right"))
    assert [answer.status_code for answer in answers] == [200, 200]
    session = await session_named(url, "chat")
    last = (await texts(url, session))[-2:]
    assert last in ([each["content"] for each in chat.messages[-2:]] for chat in (talk, fork))


async def test_an_unknown_tip_is_not_found(url: str, talk: Chat, chats: Chats) -> None:
    session = await session_named(url, "chat")
    for tip in ("00" * 32, "zz", "f"):
        response = await talk.client.get(
            f"{url}/unabridged/v1/sessions/{session['id']}/transcript",
            params={"tip": tip},
            headers={"Authorization": "Bearer admin"},
        )
        assert response.status_code in (400, 404), response.text
        assert response.json()["error"]["code"]


async def test_a_title_request_under_the_chats_id_pollutes_nothing(
    url: str, talk: Chat, chats: Chats, model: Model
) -> None:
    session = await session_named(url, "chat")
    verbs = ("transcript", "view", "explain")
    before = [await admin(url, f"sessions/{session['id']}/{verb}") for verb in verbs]
    title = chats(url, X_Unabridged_Session="chat")
    title.members = {"model": "small-model"}
    title.messages = [{"role": "system", "content": "You invent titles."}]
    await title.ask(f"Give this chat a title: {json.dumps(talk.messages)}")
    after = [await admin(url, f"sessions/{session['id']}/{verb}") for verb in verbs]
    for one, other in zip(before, after, strict=True):
        assert one == other
    now = await session_named(url, "chat")
    assert (now["model"], now["exchanges"], now["tokens"]) == (
        session["model"],
        session["exchanges"],
        session["tokens"],
    )

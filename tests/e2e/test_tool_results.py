"""Tool results that are fresh: told to operators, counted, put into the note, and seen by nobody else."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.clients import Chat, Chats, admin, answer_in, metrics, proxying, user, write_policy
from tests.support.upstreams import Message, Model, calling, said

RULES = """
extends = "default"
budget.tokens = 2000
[[tools]]
match = "get_*"
cache_exchanges = 3
serve = false
invalidated_by = ["set_*"]
[[tools]]
match = "list_*"
cache_exchanges = 20
"""
MIA = '{"name": "Mia", "id": "U4711"}'


@pytest.fixture
async def url(model: Model, tmp_path: Path) -> AsyncIterator[str]:
    policy = write_policy(tmp_path, "keeping", RULES)
    async with proxying(model.url, policy=str(policy)) as served:
        yield served


async def look(chat: Chat, model: Model, tool: str = "get_user", text: str = MIA, call: str = "c1") -> None:
    """One exchange in which the model calls a tool."""
    model.replies += [calling((call, tool, '{"id": 5}')), said("It is so.")]
    await chat.ask("Who is number 5?")
    await chat.say({"role": "tool", "tool_call_id": call, "content": text})


async def tools(url: str, **query: str) -> list[Message]:
    return (await admin(url, "sessions/chat/tools", **query))["tools"]


async def test_operators_see_what_is_fresh(url: str, chats: Chats, model: Model) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    await look(chat, model)
    (kept,) = await tools(url)
    assert kept.pop("cached_at").endswith("Z")
    assert kept == {
        "tool_name": "get_user",
        "parameters": {"id": 5},
        "result": MIA,
        "result_bytes": len(MIA),
        "remaining_duration": 2,
        "original_duration": 3,
        "call_id": "c1",
        "hits": 0,
    }


async def test_errors_and_what_was_changed_since_are_not_fresh(url: str, chats: Chats, model: Model) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    await look(chat, model, text='{"error": "no such user"}')
    assert await tools(url) == []
    await look(chat, model, call="c2")
    assert len(await tools(url)) == 1
    await look(chat, model, tool="set_user", text="ok", call="c3")
    assert await tools(url) == []


async def test_a_regenerated_answer_takes_no_exchange(url: str, chats: Chats, model: Model) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    await look(chat, model)
    for _ in range(3):
        chat.messages.pop()
        chat.messages.append(answer_in(await chat.send()))
    assert [each["remaining_duration"] for each in await tools(url)] == [2]


async def test_of_another_branch_nothing_is_fresh(url: str, chats: Chats, model: Model) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    await chat.ask("Good morning.")
    tip = (await admin(url, "sessions/chat/transcript"))["tip"]
    await look(chat, model)
    assert len(await tools(url)) == 1
    assert await tools(url, tip=tip) == []
    del chat.messages[2:]
    await chat.ask("Something else.")
    assert await tools(url) == []


async def test_another_key_with_the_same_session_id_has_a_cache_of_its_own(
    url: str, chats: Chats, model: Model
) -> None:
    await look(chats(url, X_Unabridged_Session="chat"), model)
    other = chats(url, X_Unabridged_Session="chat", Authorization="Bearer sk-another")
    await look(other, model, text='{"name": "Mio"}')
    sessions = (await admin(url, "sessions"))["sessions"]
    kept = [(await admin(url, f"sessions/{each['id']}/tools"))["tools"] for each in sessions]
    assert sorted(each["result"] for (each,) in kept) == [MIA, '{"name": "Mio"}']


async def test_a_fresh_result_that_is_cut_goes_into_the_note_and_stays(
    url: str, chats: Chats, model: Model
) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    await chat.ask("word " * 300)
    await look(chat, model, tool="list_users")
    response = await chat.ask("word " * 700)
    while response.headers["x-unabridged-epoch"] == "0":
        response = await chat.ask("and " * 100)
    line = '> list_users({"id":5}): ' + json.dumps(json.loads(MIA), separators=(",", ":"))
    notes = [each["content"] for each in model.views()[-1] if str(each["content"]).startswith("<note ")]
    assert [line in note.split("\n") for note in notes][-1:] == [True]
    begun = response.headers["x-unabridged-epoch"]
    response = await chat.ask("Go on.")
    assert response.headers["x-unabridged-epoch"] == begun
    assert notes[-1] in [each["content"] for each in model.views()[-1]]


async def test_what_became_of_results_is_counted(url: str, chats: Chats, model: Model) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    await look(chat, model)
    await look(chat, model, text="Error: gone", call="c2")
    counted = await metrics(url, 'unabridged_tool_cache_total{result="', '"}')
    assert (counted["stored"], counted["error"]) == (1, 1)


async def test_a_request_with_fresh_results_goes_out_as_the_client_wrote_it(
    url: str, chats: Chats, model: Model
) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    await look(chat, model)
    await chat.say(user("And?"))
    assert model.views()[-1] == chat.messages[:-1]

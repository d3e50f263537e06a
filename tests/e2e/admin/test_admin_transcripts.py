"""The admin API's transcripts of sessions with several branches, and with turns that were cut off."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.clients import Chat, Chats, admin, told, user
from tests.support.upstreams import Message, Model, in_pieces, sse

HALF = in_pieces(sse({"choices": [{"index": 0, "delta": {"content": "Half"}}]}), end=False)
CUT = {"role": "assistant", "content": "Half"}


async def stop(chat: Chat, model: Model, *messages: Message) -> None:
    """Send a turn whose answer is cut off."""
    model.replies.append(HALF)
    chat.members["stream"] = True
    chat.messages += messages
    await chat.send()
    chat.members["stream"] = False


async def listed(url: str, tip: str = "") -> list[tuple[int | None, Any]]:
    entries = (await admin(url, "sessions/chat/transcript", tip=tip))["messages"]
    return [(entry["number"], entry["message"]["content"]) for entry in entries]


@pytest.fixture
async def edited(url: str, chats: Chats, model: Model) -> list[Message]:
    """The old branch of a session: its fourth answer was cut off, and its second turn then edited."""
    chat = chats(url, X_Unabridged_Session="chat")
    for number in range(3):
        await chat.ask(f"Question {number}")
    await stop(chat, model, user("Question 3"))
    old = [*chat.messages, CUT]
    del chat.messages[2:]
    await chat.ask("Question 1, edited")
    assert told(await chat.ask("And on?"), "epoch") == "0"
    return old


async def test_a_turn_that_was_cut_off_on_another_branch_is_not_of_this_one(
    url: str, edited: list[Message]
) -> None:
    entries = await listed(url)
    assert [number for number, _ in entries] == [*range(6)]
    assert [text for _, text in entries][::2] == ["Question 0", "Question 1, edited", "And on?"]


async def test_it_is_in_the_export_and_in_its_own_branchs_transcript(url: str, edited: list[Message]) -> None:
    tree = (await admin(url, "sessions/chat/export"))["tree"]
    (cut,) = [node for node in tree if not node["complete"]]
    old = [message["content"] for message in edited]
    assert await listed(url, tip=cut["hash"]) == [*enumerate(old)]
    answers = {node["hash"]: node for node in tree if node["answer"]}
    before = next(node["parent"] for node in tree if node["hash"] == cut["parent"])
    assert before in answers
    assert await listed(url, tip=before) == [*enumerate(old[:6]), (None, "Question 3"), (None, "Half")]


async def test_a_turn_that_was_cut_off_here_follows_the_message_that_it_was_sent_after(
    url: str, chats: Chats, model: Model
) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    await chat.ask("Question 0")
    await stop(chat, model, user("Question 1"))
    chat.messages[-1] = user("Question 1, in other words")
    await chat.ask("Please.")
    texts = [text for _, text in await listed(url)]
    assert [number for number, _ in await listed(url)] == [0, 1, None, None, 2, 3, 4]
    assert texts[2:6] == ["Question 1", "Half", "Question 1, in other words", "Please."]

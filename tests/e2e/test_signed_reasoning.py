"""Law 9: reasoning goes out only behind what it was made behind, before a model that refuses all else."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path

import pytest

from proxy.core.recall.tool import NAME
from tests.support.clients import Chat, Chats, proxying, question, told, user, write_policy
from tests.support.operator import do
from tests.support.servers import Exchange, eventually
from tests.support.signing import SigningModel, behind
from tests.support.upstreams import Message, calling, running, said

POLICY = """
extends = "balanced"
budget.tokens = 1400
recall.enabled = true
"""


@pytest.fixture
async def signing() -> AsyncGenerator[SigningModel]:
    model = SigningModel(thinks=1.0)
    async with running(model):
        yield model


@pytest.fixture
async def url(signing: SigningModel, tmp_path: Path) -> AsyncIterator[str]:
    policy = write_policy(tmp_path, "small", POLICY)
    async with proxying(signing.url, policy=str(policy)) as served:
        yield served


async def until_cut(chat: Chat, most: int = 20) -> int:
    """Talk until something is cut; the number of the turn."""
    for number in range(most):
        response = await chat.ask(question(number))
        assert response.status_code == 200
        if told(response, "cut") != "0":
            return number
    raise AssertionError("nothing was cut")


def reasoned(messages: list[Message]) -> list[int]:
    return [
        place
        for place, each in enumerate(messages)
        if "thinking_blocks" in each or "reasoning_details" in each
    ]


# --- an epoch ---


async def test_what_was_thought_before_an_epoch_is_left_out_and_what_is_thought_after_it_comes_back(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url)
    await until_cut(chat)
    assert reasoned(signing.views()[-1]) == []
    assert reasoned(signing.views()[-2])
    await chat.ask("Why?")
    assert len(reasoned(signing.views()[-1])) == 1
    assert signing.refusals == []


async def test_all_else_of_a_message_that_loses_its_reasoning_keeps_its_bytes(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url)
    await until_cut(chat)
    kept = [each for each in signing.views()[-1] if each["role"] == "assistant"]
    names = {"thinking_blocks", "reasoning_content", "reasoning", "reasoning_details"}
    sent = [{name: value for name, value in each.items() if name not in names} for each in chat.messages]
    assert kept
    assert all(each in sent for each in kept)


async def test_what_was_thought_within_rounds_that_no_client_sees_is_left_out_with_the_rest(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    """The client sends none of it back, but what goes out in place of its answers has it."""
    chat, epochs = chats(url), set[str]()
    first = await until_cut(chat)
    for number in range(first + 1, first + 9):
        recall = calling((f"r{number}", NAME, '{"query": "item"}'))
        signing.replies += [recall, said(f"It is item {number}. " * 9)]
        response = await chat.ask(question(number))
        assert response.status_code == 200
        epochs.add(told(response, "epoch"))
        chat.messages[-1] = said(chat.messages[-1]["content"])
    assert len(epochs) > 2
    assert any(reasoned(view) for view in signing.views()[-5:])
    assert signing.refusals == []


async def test_what_was_thought_behind_our_tool_keeps_it_in_the_last_of_such_rounds(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url)
    await until_cut(chat)
    recall = [calling((f"r{number}", NAME, '{"query": "item"}')) for number in range(4)]
    signing.replies += [*recall, said("There it is.")]
    response = await chat.ask("Where is it?")
    assert response.status_code == 200
    assert chat.messages[-1]["content"] == "There it is."
    before, refused, taken = signing.bodies()[-3:]
    assert taken == {**refused, "tools": before["tools"]}
    rounds = taken["messages"][-2 * len(recall) :]  # each a call and its result
    assert len(reasoned(rounds)) == len(recall)
    await chat.ask("And now?")
    assert len(signing.refusals) == 1


async def test_no_summariser_reads_reasoning(signing: SigningModel, url: str, chats: Chats) -> None:
    chat = chats(url)
    for number in range(30):
        await chat.ask(question(number))
    await eventually(lambda: signing.summaries)  # they are asked for beside the chat
    thoughts = [b"Thought number", b"signature", b"reasoning_details"]
    assert not any(word in call.body for word in thoughts for call in signing.summaries)


async def test_while_nothing_is_cut_bodies_go_out_byte_for_byte(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url)
    for text in ("One?", "Two?", "Three?"):
        await chat.ask(text)
    expected = json.dumps({**chat.members, "messages": chat.messages[:-1]}).encode()
    assert bytes(signing.chats[-1].body) == expected
    assert len(reasoned(signing.views()[-1])) == 2


async def test_amid_calls_that_were_thought_about_nothing_is_cut_before_it_must(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url)
    await chat.ask("Look around, please.")
    cuts: list[tuple[str, str]] = []
    signing.replies += [calling((f"c{number}", "look", "{}")) for number in range(25)]
    response = await chat.ask("Look again.")
    for number in range(24):
        result = {"role": "tool", "tool_call_id": f"c{number}", "content": "there is a tree " * 10}
        response = await chat.say(result)
        assert response.status_code == 200
        cuts.append((told(response, "stage"), told(response, "cut")))
    whole = [stage for stage, cut in cuts if cut == "0"]
    assert "trim" in whole
    assert cuts[len(whole)][0] == "compact"
    assert signing.refusals == []


async def test_an_answer_that_is_asked_for_anew_after_all_was_restored_goes_without_what_came_before(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url, X_Unabridged_Session="chat")
    await until_cut(chat)
    await do(url, "restore")
    del chat.messages[-1]
    response = await chat.say()
    assert (response.status_code, told(response, "cut")) == (200, "0")
    await chat.ask("Why?")
    assert reasoned(signing.views()[-2]) == []
    assert signing.refusals == []


# --- a refusal ---


def foreign(chat: Chat, exchanges: int = 2) -> None:
    """A history that was made elsewhere, under another system message."""
    for number in range(exchanges):
        block = {"type": "thinking", "thinking": "so", "signature": f"of another prefix {number}"}
        answer = {"role": "assistant", "content": "So it is.", "thinking_blocks": [block]}
        chat.messages += [user(f"Before {number}?"), answer]


@pytest.mark.parametrize("stream", [False, True])
async def test_a_history_that_was_made_elsewhere_is_sent_once_more_without_its_reasoning(
    signing: SigningModel, url: str, chats: Chats, stream: bool
) -> None:
    chat = chats(url)
    chat.members["stream"] = stream
    foreign(chat)
    response = await chat.ask("And now?")
    assert response.status_code == 200
    assert len(signing.refusals) == 1
    refused, taken = signing.views()
    assert (reasoned(refused), reasoned(taken)) == ([1, 3], [])
    assert [each["content"] for each in refused] == [each["content"] for each in taken]


async def test_what_was_refused_once_is_left_out_from_then_on_and_what_is_new_comes_back(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    chat = chats(url)
    foreign(chat)
    for text in ("And now?", "And then?", "And after that?"):
        response = await chat.ask(text)
        assert response.status_code == 200
        assert told(response, "cut") == "0"
    assert len(signing.refusals) == 1
    assert reasoned(signing.views()[-1]) == [5, 7]


async def test_a_refusal_in_the_first_event_of_a_stream_is_mended_too(
    signing: SigningModel, url: str, chats: Chats
) -> None:
    fault = {"error": {"message": "Invalid `signature` in `thinking` block", "code": 400}}
    signing.thinks = 0
    chat = chats(url)
    block = {"type": "reasoning.encrypted", "data": behind(b'{"messages":[]}')}
    chat.messages.append({"role": "assistant", "content": "Hello.", "reasoning_details": [block]})

    async def late(exchange: Exchange) -> None:
        await exchange.stream_events([fault])

    signing.replies.append(late)
    chat.members["stream"] = True
    response = await chat.ask("And now?")
    assert response.status_code == 200
    assert "Invalid" not in response.text
    assert [reasoned(view) for view in signing.views()] == [[0], []]


async def test_a_refusal_that_stays_one_is_passed_on(signing: SigningModel, url: str, chats: Chats) -> None:
    async def refuses(exchange: Exchange) -> None:
        fault = {"error": {"message": "Invalid `signature` in `thinking` block"}}
        await exchange.answer_json(fault, 400)

    signing.replies += [refuses, refuses]
    chat = chats(url)
    response = await chat.ask("Without any reasoning.")
    assert response.status_code == 400
    assert len(signing.chats) == 1

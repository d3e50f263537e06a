"""What happens at the same time to clients that send their whole history."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.support.clients import (
    Chat,
    Chats,
    Small,
    admin,
    only_session,
    proxying,
    question,
    told,
    user,
    write_policy,
)
from tests.support.operator import ask, do
from tests.support.servers import Exchange, awaited, eventually
from tests.support.stores import embedded_valkey, serving, valkey_command
from tests.support.summaries import until_counted
from tests.support.upstreams import (
    JSON,
    Message,
    Model,
    calling,
    completion,
    count_tokens,
    fault_in,
    plainly,
    said,
)

BUDGET = 800


def notes(view: list[Message]) -> list[str]:
    texts = [str(message["content"]) for message in view]
    return [text for text in texts if text.startswith("<note")]


async def messages(url: str, session: Any, **query: str) -> list[Message]:
    return (await admin(url, f"sessions/{session['id']}/transcript", **query))["messages"]


async def recorded(url: str, turns: int) -> Any:
    """The only session, once that many turns are written."""
    return await awaited(lambda: only_session(url), lambda session: session["turns"] >= turns)


def held(model: Model, together: int) -> None:
    """The next answers come when that many requests are there, the last to ask first."""
    waiting: list[asyncio.Event] = []

    async def behave(exchange: Exchange) -> None:
        mine = asyncio.Event()
        waiting.append(mine)
        if len(waiting) == together:
            mine.set()
        await mine.wait()
        question = json.loads(exchange.request.body)["messages"][-1]["content"]
        await exchange.answer_json(completion(said(f"To {question!r} I say yes."), None))
        waiting.pop(waiting.index(mine))
        if waiting:
            waiting[-1].set()

    model.replies.extend([behave] * together)


# --- one session, several requests ---


async def test_six_requests_on_one_session_are_all_answered_and_each_branch_is_whole(
    model: Model, url: str, chats: Chats
) -> None:
    trunk = chats(url, X_Unabridged_Session="s")
    await trunk.ask("Question")
    held(model, 6)
    branches = [chats(url, X_Unabridged_Session="s") for _ in range(6)]
    for branch in branches:
        branch.messages = list(trunk.messages)
    answers = await asyncio.gather(*(branch.ask(f"Branch {n}") for n, branch in enumerate(branches)))
    assert {answer.status_code for answer in answers} == {200}
    session = await recorded(url, 7)
    tip = [each["message"]["content"] for each in await messages(url, session)]
    assert tip in [[message["content"] for message in branch.messages] for branch in branches]
    for branch in branches:
        await branch.ask("And then?")
        assert model.views()[-1] == branch.messages[:-1], "a branch goes on with its own answer"


@pytest.mark.parametrize("header", [True, False])
async def test_the_same_turn_twice_at_once_is_one_turn(
    model: Model, url: str, chats: Chats, *, header: bool
) -> None:
    named = {"X_Unabridged_Session": "s"} if header else {}
    chat, again = chats(url, **named), chats(url, **named)
    await chat.ask("Question")
    again.messages = list(chat.messages)
    held(model, 2)
    first, second = await asyncio.gather(chat.ask("And then?"), again.ask("And then?"))
    assert first.json() == second.json()
    assert told(first, "session") == told(second, "session")
    await chat.ask("Go on")
    session = await recorded(url, 3)
    assert session["turns"] == 3
    contents = [each["message"]["content"] for each in await messages(url, session)]
    assert contents == [message["content"] for message in chat.messages]


async def test_tool_rounds_of_two_branches_at_once_keep_calls_and_results_together(
    model: Model, chats: Chats, small: Small
) -> None:
    async def works(exchange: Exchange) -> None:
        body = json.loads(exchange.request.body)
        last = body["messages"][-1]
        call = calling((f"call {last['content'][:12]}", "read", "{}"))
        answer = call if last["role"] == "user" else said("So it is. " * 12)
        await exchange.answer_json(completion(answer, count_tokens(body)))

    model.replies.extend([works] * 100)
    url = await small(BUDGET)

    async def work(name: str) -> None:
        chat = chats(url, X_Unabridged_Session="s")
        for number in range(8):
            await chat.ask(f"{number} {name}? " + "Tell me all of it. " * 12)
            call_id = chat.messages[-1]["tool_calls"][0]["id"]
            await chat.say({"role": "tool", "tool_call_id": call_id, "content": f"{name} " * 60})

    await asyncio.gather(work("left"), work("right"))
    assert any(notes(view) for view in model.views())
    for body in model.bodies():
        text = json.dumps(body)
        assert fault_in(body["messages"]) is None
        assert count_tokens(body) <= BUDGET
        assert ("left" in text) is not ("right" in text)


# --- compaction on request ---


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_request_that_meets_a_compaction_waits_for_it_and_goes_out_compacted(
    model: Model, chats: Chats, tmp_path: Path, workers: int
) -> None:
    policy = write_policy(tmp_path, "patient", 'extends = "default"\nsummary.wait = "10s"\n')
    released, history = asyncio.Event(), list[ChatCompletionMessageParam]()

    async def slowly(exchange: Exchange) -> None:
        await released.wait()
        await exchange.answer_json(completion(said("They spoke of many items.")))

    model.summary = slowly
    with embedded_valkey() as store:
        async with AsyncExitStack() as opened:
            settings = {"policy": str(policy), "store": store, "upstream_key": "sk-operator"}
            urls = [
                await opened.enter_async_context(proxying(model.url, owns_store=workers == 1, **settings))
                for _ in range(workers)
            ]
            sdk = await opened.enter_async_context(
                openai.AsyncOpenAI(
                    base_url=f"{urls[-1]}/v1",
                    api_key="sk-test",
                    max_retries=0,
                    default_headers={"X-Unabridged-Session": "chat"},
                )
            )

            async def ask(text: str) -> str:
                history.append({"role": "user", "content": text})
                raw = await sdk.chat.completions.with_raw_response.create(model="m", messages=history)
                answer = raw.parse().choices[0].message.content
                history.append({"role": "assistant", "content": answer})
                return raw.headers["x-unabridged-epoch"]

            for number in range(3):
                assert await ask(question(number)) == "0"
            compacting = asyncio.create_task(do(urls[0], "compact"))
            await eventually(lambda: bool(model.summaries))
            asking = asyncio.create_task(ask("And now?"))
            assert (await chats(urls[-1], X_Unabridged_Session="other").ask("Who waits?")).is_success
            await asyncio.sleep(0.1)
            assert len(model.chats) == 4, "nobody else waits, and this one does"
            released.set()
            assert await asking == str((await compacting)["number"]) == "1"
            assert "They spoke of many items." in json.dumps(model.views()[-1])
            assert await ask("And then?") == "1"


# --- regenerate, edit, compaction by the client ---


async def pruned(chat: Chat) -> list[httpx2.Response]:
    """Talk until an epoch is in force, and a little on."""
    responses: list[httpx2.Response] = []
    while not responses or told(responses[-1], "epoch") == "0":
        responses.append(await chat.ask(question(len(responses))))
    responses.append(await chat.ask(question(len(responses))))
    return responses


async def test_a_regenerated_answer_is_asked_for_in_the_same_bytes_and_replaces_the_tip(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    await pruned(chat)
    sent = bytes(model.chats[-1].body)
    old = chat.messages.pop()
    model.replies.append(said("Another answer"))
    response = await chat.say()
    assert bytes(model.chats[-1].body) == sent
    assert response.json()["choices"][0]["message"]["content"] == "Another answer"
    session = await recorded(chat.url, len(model.chats))
    contents = [each["message"]["content"] for each in await messages(chat.url, session)]
    assert contents[-1] == "Another answer"
    assert old["content"] not in contents


async def test_an_edit_before_a_summary_does_without_it_and_an_edit_after_it_keeps_it(
    model: Model, chats: Chats, small: Small
) -> None:
    model.summary = said("Items 37 and 74 were delivered to the canary.")
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    responses = await pruned(chat)
    assert "canary" in "".join(notes(model.views()[-1]))
    whole = list(chat.messages)
    chat.messages = [*whole[:-2], user("Question, edited at the end")]
    assert told(await chat.send(), "epoch") == told(responses[-1], "epoch")
    assert "canary" in "".join(notes(model.views()[-1]))
    for place in range(0, len(whole) - 4, 2):
        chat.messages = [*whole[:place], user("Question, edited")]
        response = await chat.send()
        if told(response, "epoch") == "0":
            assert model.views()[-1] == chat.messages
            assert "canary" not in json.dumps(model.views()[-1])
    chat.messages = [user("Question, edited from the start"), *whole[1:-1]]
    await chat.send()
    assert "Question 0" not in json.dumps(model.views()[-1]), "notes quote only what is this branch's past"


async def test_a_client_that_compacts_by_itself_goes_on_from_there(
    model: Model, chats: Chats, small: Small
) -> None:
    model.summary = said("Items 37 and 74 were delivered to the canary.")
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    await pruned(chat)
    chat.messages = [user("What happened so far: all items were sent."), *chat.messages[-3:-1]]
    for number in range(3):
        response = await chat.ask(f"Then {number}?")
        assert (told(response, "cut"), told(response, "epoch")) == ("0", "0")
        assert model.views()[-1] == chat.messages[:-1]


async def test_a_title_request_in_mid_epoch_neither_begins_one_nor_ends_one(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    responses = await pruned(chat)
    session = await recorded(chat.url, len(responses))
    title = chats(chat.url, X_Unabridged_Session="s")
    title.members = {"model": "small-model"}
    held(model, 2)
    title.messages = [user(f"Give this chat a title: {chat.messages[0]['content']}")]
    _, response = await asyncio.gather(title.send(), chat.ask("Question, while a title is made"))
    assert told(response, "epoch") == told(responses[-1], "epoch")
    now = await only_session(chat.url)
    assert [each["at"] for each in now["epochs"]] == [each["at"] for each in session["epochs"]]


# --- summaries that are late ---


@pytest.mark.parametrize("ratio_moves", [False, True])
async def test_a_summary_that_is_ready_too_late_is_used_at_the_next_epoch(
    model: Model, chats: Chats, small: Small, *, ratio_moves: bool
) -> None:
    late = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await late.wait()
        await exchange.answer_json(completion(said("Items 37 and 74 were delivered to the canary.")))

    model.summary, model.tells_usage = slow, ratio_moves
    chat = chats(await small(1_100, wait="50ms"), X_Unabridged_Session="s")
    first = await pruned(chat)
    late.set()
    await until_counted(chat.url, "written")
    model.summary = plainly(500, [JSON], b"{}")  # no later summary can say it
    seen: list[str] = []
    for number in range(len(first), len(first) + 12):
        response = await chat.ask(question(number))
        if "canary" in "".join(notes(model.views()[-1])):
            seen.append(told(response, "epoch"))
    assert seen, "the work is not thrown away"
    assert min(map(int, seen)) > int(told(first[-1], "epoch")), "and never put into a plan that is in force"


# --- two workers ---


@pytest.mark.parametrize("by", [0, 1], ids=["this worker", "another worker"])
async def test_an_epoch_whose_session_is_deleted_while_it_waits_for_its_summary_is_not_in_the_next_session(
    model: Model, chats: Chats, small: Small, by: int
) -> None:
    with serving(valkey_command()) as server:
        urls = [await small(1_500, store=server.url) for _ in range(2)]
        chat = chats(urls[0], X_Unabridged_Session="chat")
        before = await pruned(chat)
        await recorded(urls[by], len(before))
        deleted: list[int] = []

        async def overtaken(exchange: Exchange) -> None:
            deleted.append((await ask(urls[by], "DELETE", "sessions/chat")).status_code)
            await exchange.answer_json(completion(said("They spoke of many items.")))

        model.summary = overtaken
        response = await chat.ask(question(len(before)) * 4)
        assert deleted[0] == 200
        assert int(told(response, "epoch")) > int(told(before[-1], "epoch")), "its own answer has it"
        assert told(response, "degraded") == "epoch-not-saved"
        assert server.run("KEYS", "*:epochs:*") == []
        model.summary = plainly(500, [JSON], b"{}")
        assert told(await chat.ask("And now?"), "epoch") == "1", "nothing that was decided before is in force"


async def test_a_request_that_comes_before_the_answer_under_such_an_epoch_begins_anew_too(
    model: Model, chats: Chats, small: Small
) -> None:
    url = await small(1_500)
    chat = chats(url, X_Unabridged_Session="chat")
    before = await pruned(chat)
    other = chats(url, X_Unabridged_Session="chat")
    deleted: list[int] = []
    epochs: list[str] = []

    async def overtaken(exchange: Exchange) -> None:
        deleted.append((await ask(url, "DELETE", "sessions/chat")).status_code)
        await exchange.answer_json(completion(said("They spoke of many items.")))

    async def answer_after_another(exchange: Exchange) -> None:
        model.summary = plainly(500, [JSON], b"{}")
        other.messages = [*chat.messages]
        epochs.append(told(await other.send(), "epoch"))
        await exchange.answer_json(completion(said("Yes.")))

    model.summary = overtaken
    model.replies += [answer_after_another]
    response = await chat.ask(question(len(before)) * 4)
    assert int(told(response, "epoch")) > 1
    assert deleted[0] == 200
    assert epochs == ["1"], "nothing that was decided before is in force"


async def test_two_workers_that_reach_an_epoch_together_send_one_plan_whatever_their_summaries_say(
    model: Model, chats: Chats, small: Small
) -> None:
    """Each worker asks for a summary of its own and gets another; the plan that is written first counts."""

    async def another_each_time(exchange: Exchange) -> None:
        number = len(model.summaries)
        await asyncio.sleep(0.02)
        await exchange.answer_json(completion(said(f"They spoke of the plan for the {number}th time.")))

    model.summary = another_each_time
    with serving(valkey_command()) as server:
        urls = [await small(BUDGET, store=server.url) for _ in range(2)]
        chat = chats(urls[0], X_Unabridged_Session="s")
        for number in range(14):
            chat.messages.append(user(question(number)))
            pair = [chats(url, X_Unabridged_Session="s") for url in urls]
            for each in pair:
                each.messages = chat.messages
            model.replies.extend([said(f"It is done, {number}. " * 8)] * 2)
            answers = await asyncio.gather(*(each.send() for each in pair))
            assert len({bytes(each.body) for each in model.chats[-2:]}) == 1
            assert len({told(answer, "epoch") for answer in answers}) == 1
            chat.messages.append(answers[0].json()["choices"][0]["message"])
        session = await only_session(urls[0])
    assert session["prune_count"] >= 2
    assert notes(model.views()[-1])

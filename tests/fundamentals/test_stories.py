"""What the proxy is for, in ten stories. Read these first; every other test is a detail of one of them.

In each a client talks to the proxy, and the proxy to a scripted model that counts tokens and refuses what a
real API would refuse. `model.views()` is what the model was sent, `chat.messages` what the client holds.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol

import openai
import pytest

from tests.support.append_client import Appender
from tests.support.clients import (
    CHAT,
    Chat,
    Chats,
    admin,
    making_chats,
    proxying,
    question,
    tokens_of,
    told,
    user,
    write_policy,
)
from tests.support.servers import until
from tests.support.stores import Server, serving, valkey_command
from tests.support.upstreams import JSON, Message, Model, calling, count_tokens, plainly, running, said

WINDOW = 1_000
SMALL_BUDGET = 'extends = "balanced"\n[budget]\ntokens = 800\n'
CACHING = (
    'extends = "default"\n[[tools]]\nmatch = "get_weather"\ncache_exchanges = 3\npure = true\nserve = true\n'
)


async def test_a_calm_request_and_its_answer_pass_byte_for_byte(
    model: Model, start: StartProxy, chats: Chats
) -> None:
    chat = chats(await start())
    request = b'{ "messages":[{"role":"user","content":"Hello \\u00e9"}],\n "model":"m", "x_unknown": 1.0 }'
    answer = b'{ "choices":[{"index":0,"message":{"role":"assistant","content":"\\u00e9"}}], "y": 1e9 }\n'
    model.replies.append(plainly(200, [JSON], answer))

    response = await chat.client.post(chat.url + CHAT, content=request, headers=[JSON])

    assert bytes(model.chats[0].body) == request
    assert response.content == answer
    assert told(response, "stage") == "calm"


async def test_a_conversation_that_outgrows_its_budget_is_cut_and_a_note_stands_in_the_gap(
    model: Model, start: StartProxy, chats: Chats
) -> None:
    chat = chats(await start(SMALL_BUDGET))

    while told(response := await chat.ask(question(len(chat.messages))), "epoch") == "0":
        pass

    sent = model.views()[-1]
    assert count_tokens({"messages": sent}) < tokens_of(response)["full"] <= 800
    assert sent[-1] == chat.messages[-2], "what the user asked is there"
    (note,) = [message for message in sent if message not in chat.messages]
    assert "They spoke of the plan; all went well." in note["content"], "the model's own summary"
    await chat.ask("And then?")
    assert model.views()[-1][: len(sent)] == sent, "what was decided stays, so that the cache holds"


async def test_a_tool_call_and_its_result_are_kept_or_cut_together(
    model: Model, start: StartProxy, chats: Chats
) -> None:
    chat = chats(await start(SMALL_BUDGET))
    for number in range(12):
        call = calling((f"call-{number}", "read_file", f'{{"path": "{number}.txt"}}'))
        result = {"role": "tool", "tool_call_id": f"call-{number}", "content": f"line {number} " * 20}
        chat.messages += [user(f"Read file {number}"), call, result, said(f"It has {number} lines.")]

    await chat.ask("Which of them was the longest?")

    (sent,) = model.views()
    calls = [call["id"] for message in sent for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert calls == results
    assert 0 < len(calls) < 12


async def test_a_question_that_is_asked_otherwise_is_a_branch_of_the_same_session(
    model: Model, start: StartProxy, chats: Chats
) -> None:
    chat = chats(await start())
    first = await chat.ask("What is the capital of France?")
    await chat.ask("How large is it?")

    chat.messages = [*chat.messages[:2], user("How old is it?")]
    branch = await chat.send()

    assert told(branch, "session") == told(first, "session"), "without any header it is recognised"
    assert model.views()[-1] == chat.messages, "and nothing of the other branch is in it"
    await until([3], lambda: turns(chat.url))


async def test_while_the_store_is_lost_chats_go_on_and_afterwards_the_transcript_is_whole(
    start: StartProxy, chats: Chats, store: Server
) -> None:
    chat = chats(await start())
    await chat.ask("one")

    store.kill()
    during = await chat.ask("two")
    store.start()
    await until(True, lambda: is_ready(chat))
    await chat.ask("three")

    assert during.status_code == 200
    assert "store" in told(during, "degraded")
    await until(chat.messages, lambda: transcript(chat))


async def test_a_call_whose_result_is_fresh_is_answered_by_the_proxy_and_never_seen(
    model: Model, start: StartProxy
) -> None:
    url = await start(CACHING)
    once = calling(("c1", "get_weather", '{"city": "Rome"}'))
    again = calling(("c2", "get_weather", '{"city": "Rome"}'))
    model.replies += [again, said("Still 18 degrees.")]

    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test") as sdk:
        answer = await sdk.chat.completions.create(
            model="gpt-test",
            messages=[
                {"role": "user", "content": "How is the weather in Rome?"},
                {"role": "assistant", "tool_calls": once["tool_calls"]},
                {"role": "tool", "tool_call_id": "c1", "content": "18 degrees"},
                {"role": "assistant", "content": "It is 18 degrees."},
                {"role": "user", "content": "And now?"},
            ],
        )

    assert answer.choices[0].message.content == "Still 18 degrees."
    assert answer.choices[0].message.tool_calls is None
    assert model.views()[1][-1] == {"role": "tool", "tool_call_id": "c2", "content": "18 degrees"}


async def test_a_client_may_send_only_what_is_new(model: Model, start: StartProxy) -> None:
    model.replies += [said("Hello Ann."), said("Ann.")]
    client = Appender(await start(), session="my-chat")

    async with client.client:
        await client.ask("My name is Ann.")
        await client.ask("What is my name?")

    assert [message["content"] for message in model.views()[1]] == [
        "My name is Ann.",
        "Hello Ann.",
        "What is my name?",
    ]


async def test_a_refusal_for_length_teaches_the_window_and_the_client_never_sees_it(
    model: Model, start: StartProxy, chats: Chats
) -> None:
    chat = chats(await start())  # nobody has said how large the model's window is

    responses = [await chat.ask(question(number)) for number in range(20)]

    assert {response.status_code for response in responses} == {200}
    assert tokens_of(responses[-1])["full"] > WINDOW
    assert tokens_of(responses[-1])["window"] == WINDOW
    assert model.refused == 1, "it is learned once"


async def test_two_keys_never_share_a_session_whatever_its_name(
    model: Model, start: StartProxy, chats: Chats
) -> None:
    url = await start()
    ann = chats(url, X_Unabridged_Session="diary", Authorization="Bearer sk-ann")
    bob = Appender(url, session="diary", headers={"Authorization": "Bearer sk-bob"})

    await ann.ask("My secret is 1234.")
    async with bob.client:
        await bob.ask("What is my secret?")

    assert model.views()[-1] == [user("What is my secret?")]
    await until([1, 1], lambda: turns(url))


async def test_after_a_restart_the_same_session_goes_on_with_the_same_bytes(
    model: Model, start: StartProxy, chats: Chats
) -> None:
    before = chats(await start(SMALL_BUDGET))
    *_, last = [await before.ask(question(number)) for number in range(9)]
    sent = model.views()[-1]

    after = chats(await start(SMALL_BUDGET))
    after.messages = before.messages
    again = await after.ask("And then?")

    assert told(again, "session") == told(last, "session")
    assert told(again, "epoch") == told(last, "epoch") != "0"
    assert model.views()[-1][: len(sent)] == sent


# --- the stage ---


class StartProxy(Protocol):
    """Starts a proxy between model and store, under a preset or the text of a policy; ends the one before."""

    async def __call__(self, policy: str = "default") -> str: ...


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    """A scripted model that refuses what the real API would refuse."""
    async with running(Model(window=WINDOW)) as served:
        yield served


@pytest.fixture
def store() -> Iterator[Server]:
    """The Valkey that comes with the package; it keeps what it was told when it is killed."""
    with serving(valkey_command(), "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


@pytest.fixture
async def start(model: Model, store: Server, tmp_path: Path) -> AsyncIterator[StartProxy]:
    async with AsyncExitStack() as stack:

        async def start(policy: str = "default") -> str:
            await stack.aclose()
            named = str(write_policy(tmp_path, "ours", policy)) if "\n" in policy else policy
            return await stack.enter_async_context(proxying(model.url, store=store.url, policy=named))

        yield start


@pytest.fixture
async def chats() -> AsyncIterator[Chats]:
    """Makes clients that keep their whole history and send it each time."""
    async with making_chats() as chats:
        yield chats


async def is_ready(chat: Chat) -> bool:
    return (await chat.client.get(f"{chat.url}/readyz")).json() == {"status": "ready"}


async def turns(url: str) -> list[int]:
    """Of each session; a turn is written after its answer."""
    return [session["turns"] for session in (await admin(url, "sessions"))["sessions"]]


async def transcript(chat: Chat) -> list[Message]:
    for session in (await admin(chat.url, "sessions"))["sessions"]:
        kept = await admin(chat.url, f"sessions/{session['id']}/transcript")
        return [entry["message"] for entry in kept["messages"]]
    return []

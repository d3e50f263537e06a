"""A client that pastes documents into its last message, and drops them from it in the next request."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.support.clients import Chats, admin, only_session, proxying, question, recorded
from tests.support.servers import until
from tests.support.stores import Server, run, serving, valkey_command
from tests.support.upstreams import Model, said

TURNS = 60
DOCUMENTS = "\n\n".join(f"[{number}] {question(number, 'document')}" for number in range(40))


class Retriever:
    """Asks with documents around its question; its history holds the questions alone."""

    def __init__(self, urls: Sequence[str], key: str = "sk-test") -> None:
        self.clients = [openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) for url in urls]
        self.messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": "Be brief."}]
        self.sessions: list[str] = []

    async def ask(self, text: str, *, in_parts: bool = False) -> None:
        told: Any = f"Documents:\n{DOCUMENTS}\n\nQuestion: {text}\n\nCite the documents."
        if in_parts:
            told = [{"type": "text", "text": each} for each in (DOCUMENTS, text)]
        client = self.clients[len(self.sessions) % len(self.clients)]
        answer = await client.chat.completions.with_raw_response.create(
            model="gpt-test", messages=[*self.messages, {"role": "user", "content": told}]
        )
        self.sessions.append(answer.headers["x-unabridged-session"])
        content = answer.parse().choices[0].message.content
        self.remember(text, content or "")

    def remember(self, text: str, answer: str) -> None:
        self.messages.append({"role": "user", "content": text})
        self.messages.append({"role": "assistant", "content": answer})

    async def aclose(self) -> None:
        for client in self.clients:
            await client.close()


@pytest.fixture
async def valkey() -> AsyncGenerator[Server]:
    with serving(valkey_command()) as server:
        yield server


@pytest.fixture
async def stack() -> AsyncGenerator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def retriever(stack: AsyncExitStack, *urls: str) -> Retriever:
    made = Retriever(urls)
    stack.push_async_callback(made.aclose)
    return made


async def test_sixty_turns_with_documents_are_one_session(url: str, stack: AsyncExitStack) -> None:
    client = await retriever(stack, url)
    for number in range(TURNS):
        await client.ask(f"What of item {number}?", in_parts=number % 3 == 1)
    assert len(set(client.sessions)) == 1
    await recorded(url, TURNS)
    session = await only_session(url)
    told = await admin(url, f"sessions/{session['id']}/transcript")
    contents = [entry["message"]["content"] for entry in told["messages"]]
    assert contents[1:-2] == [message.get("content") for message in client.messages[1:-2]]
    assert DOCUMENTS in contents[-2]


async def test_the_bytes_stored_grow_with_what_is_new(
    model: Model, valkey: Server, stack: AsyncExitStack
) -> None:
    url = await stack.enter_async_context(proxying(model.url, store=valkey.url))
    client = await retriever(stack, url)
    stored = [0]
    for number in range(20):
        await client.ask(f"What of item {number}?")
        await recorded(url, number + 1)
        (name,) = run(valkey.url, "KEYS", "*:nodes")
        stored.append(run(valkey.url, "MEMORY", "USAGE", name, "SAMPLES", 0))
    assert (stored[20] - stored[10]) / 10 < 1.3 * (len(DOCUMENTS) + 2_000)


async def test_machines_that_take_turns_know_the_session_of_each_other(
    model: Model, valkey: Server, stack: AsyncExitStack
) -> None:
    urls = [await stack.enter_async_context(proxying(model.url, store=valkey.url)) for _ in range(3)]
    client = await retriever(stack, *urls)
    for number in range(12):
        await client.ask(f"What of item {number}?")
        await recorded(urls[0], number + 1)
    assert len(set(client.sessions)) == 1
    assert (await only_session(urls[1]))["turns"] == 12


async def test_a_secret_that_is_rotated_loses_no_session(
    model: Model, valkey: Server, stack: AsyncExitStack
) -> None:
    before, after = [
        await stack.enter_async_context(proxying(model.url, store=valkey.url, secret=secret))
        for secret in ("o" * 32, f"{'n' * 32},{'o' * 32}")
    ]
    client = await retriever(stack, before, after, after, after)
    for number in range(4):
        await client.ask(f"What of item {number}?")
        await recorded(after, number + 1)
    assert (await only_session(after))["turns"] == 4
    assert len(set(client.sessions[1:])) == 1


# --- and nobody else's ---


async def test_conversations_that_begin_alike_stay_apart(
    url: str, model: Model, stack: AsyncExitStack
) -> None:
    """Two people behind one key, of one application: its first answer is the same to all."""
    people = [await retriever(stack, url) for _ in range(2)]
    for turn in range(4):
        for person in people:
            model.replies.append(said("Of course. What is it?" if turn == 0 else f"Answer {turn}."))
            await person.ask("Hello" if turn == 0 else f"Question {turn}")
    assert people[0].sessions[0] != people[1].sessions[0]
    assert not set(people[0].sessions) & set(people[1].sessions)


async def test_an_answer_to_somebody_else_s_words_joins_nothing(
    url: str, model: Model, stack: AsyncExitStack
) -> None:
    mine, theirs = await retriever(stack, url), await retriever(stack, url)
    model.replies.append(said("It is Paris."))
    await mine.ask("What is the capital of France?")
    theirs.remember("Which town has the Louvre?", "It is Paris.")
    await theirs.ask("And the Prado?")
    assert theirs.sessions[0] != mine.sessions[0]


async def test_a_message_that_is_edited_later_is_a_branch_of_its_session(
    url: str, stack: AsyncExitStack
) -> None:
    client = await retriever(stack, url)
    for number in range(4):
        await client.ask(f"What of item {number}?")
    client.messages[5] = {"role": "user", "content": "Something else altogether?"}
    await client.ask("And now?")
    assert len(set(client.sessions)) == 1


async def test_what_finds_a_session_by_its_first_answer_lives_as_long_as_the_session(
    model: Model, valkey: Server, chats: Chats, stack: AsyncExitStack
) -> None:
    url = await stack.enter_async_context(proxying(model.url, store=valkey.url))
    chat = chats(url)
    for number in range(3):
        await chat.ask(f"What of item {number}?")
        await recorded(url, number + 1)
    lives = [valkey.run("PTTL", *valkey.run("KEYS", f"u1:*:{part}")) for part in ("first", "tips", "nodes")]
    assert min(lives) > 29 * 86_400_000
    (first,) = valkey.run("KEYS", "u1:*:first")
    valkey.run("PEXPIRE", first, 60_000)
    await chat.ask("And now?")
    await recorded(url, 4)
    assert valkey.run("PTTL", first) <= 60_000, "it is not written with each turn"
    (counts,) = valkey.run("KEYS", "u1:*:counts")
    valkey.run("PEXPIRE", counts, 29 * 86_400_000)  # a day later
    await chat.ask("And after a day?")
    await recorded(url, 5)
    await until(True, lambda: is_renewed(valkey, first))


async def is_renewed(valkey: Server, key: str) -> bool:
    return valkey.run("PTTL", key) > 29 * 86_400_000

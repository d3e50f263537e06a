"""A client that does not send back the reasoning that a model has written into its answer's text."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.clients import admin, only_session, proxying, recorded, write_policy
from tests.support.stores import Server, serving, valkey_command
from tests.support.upstreams import DONE, JSON, Model, in_pieces, plainly, running, said, sse

POLICY = """
[budget]
tokens = 2000
[summary]
enabled = false
[economy]
enabled = false
"""
FORMS = {
    "in tags": "<think>\nHm, number {0}.\n</think>\n\nIt is {0}.",
    "with the closing tag alone": "Hm, number {0}.\n</think>\n\nIt is {0}.",
    "in other tags": "<reasoning>Hm, number {0}.</reasoning>It is {0}.",
}


@pytest.mark.parametrize("is_stream", [False, True], ids=["in one piece", "streamed"])
@pytest.mark.parametrize("keeps_texts", [False, True], ids=["text", "texts in parts"])
async def test_it_is_one_session_where_the_reasoning_came_in_parts(
    url: str, model: Model, is_stream: bool, keeps_texts: bool
) -> None:
    """As Mistral's reasoning models answer."""
    messages: list[Any] = []
    sessions: set[str] = set()
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0) as client:
        for number in range(4):
            thought = {"type": "thinking", "thinking": [{"type": "text", "text": f"Hm, {number}."}]}
            texts = [{"type": "text", "text": text} for text in ("It is ", f"{number}.")]
            told = [{"content": [thought]}, *({"content": text["text"]} for text in texts)]
            choices: list[Any] = [{"index": 0, "delta": each, "finish_reason": None} for each in told]
            choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
            whole = {"role": "assistant", "content": [thought, *texts]}
            model.replies.append(
                in_pieces(*(sse({"id": "c", "choices": [each]}) for each in choices), DONE)
                if is_stream
                else plainly(200, [JSON], json.dumps({"choices": [{"index": 0, "message": whole}]}).encode())
            )
            messages.append({"role": "user", "content": f"What is item {number}?"})
            answer: Any = await client.chat.completions.with_raw_response.create(
                model="gpt-test", messages=messages, stream=is_stream
            )
            if is_stream:
                async for _ in answer.parse():
                    pass
            sessions.add(answer.headers["x-unabridged-session"])
            kept = texts if keeps_texts else f"It is {number}."
            messages.append({"role": "assistant", "content": kept})
    assert len(sessions) == 1


@pytest.fixture
async def valkey() -> AsyncGenerator[Server]:
    with serving(valkey_command()) as server:
        yield server


class Reasoned:
    """A conversation with a model that thinks aloud; the client keeps only what it says after that."""

    def __init__(self, model: Model, form: str) -> None:
        self.model = model
        self.form = form
        self.messages: list[Any] = []
        self.sessions: list[str] = []
        self.epochs: list[str] = []

    async def turn(self, url: str, *, stream: bool = False) -> None:
        number = len(self.sessions)
        self.messages.append({"role": "user", "content": f"What is item {number}? " + "Tell me all. " * 20})
        self.model.replies.append(said(self.form.format(number)))
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0) as client:
            answer: Any = await client.chat.completions.with_raw_response.create(
                model="gpt-test", messages=self.messages, stream=stream
            )
            parsed = answer.parse()
            if stream:
                texts = [chunk.choices[0].delta.content or "" async for chunk in parsed if chunk.choices]
                text = "".join(texts)
            else:
                text = parsed.choices[0].message.content
        assert text == self.form.format(number)
        self.messages.append({"role": "assistant", "content": f"It is {number}."})
        self.sessions.append(answer.headers["x-unabridged-session"])
        self.epochs.append(answer.headers["x-unabridged-epoch"])


@pytest.mark.parametrize("stream", [False, True], ids=["in one piece", "streamed"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
async def test_it_is_one_session_all_the_same(url: str, model: Model, form: str, stream: bool) -> None:
    talk = Reasoned(model, form)
    for _ in range(5):
        await talk.turn(url, stream=stream)
    assert len(set(talk.sessions)) == 1
    await recorded(url, 5)
    session = await only_session(url)
    told = await admin(url, f"sessions/{session['id']}/transcript")
    contents = [each["message"]["content"] for each in told["messages"]]
    assert contents == [*(each["content"] for each in talk.messages[:-1]), form.format(4)]


async def test_machines_that_take_turns_know_it_and_its_cuts_stay(valkey: Server, tmp_path: Path) -> None:
    policy = str(write_policy(tmp_path, "small", POLICY))
    async with running(Model(window=100_000)) as model, AsyncExitStack() as stack:
        urls = [
            await stack.enter_async_context(proxying(model.url, policy=policy, store=valkey.url))
            for _ in range(2)
        ]
        talk = Reasoned(model, FORMS["in tags"])
        for number in range(40):
            await talk.turn(urls[number % 2])
            await recorded(urls[0], number + 1)
        assert model.invalid == []
    assert len(set(talk.sessions)) == 1
    assert talk.epochs == sorted(talk.epochs, key=int)
    assert 1 < int(talk.epochs[-1]) < 10

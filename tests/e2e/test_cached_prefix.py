"""A summary is asked for behind the conversation as it was sent last, where its provider has kept that."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.clients import Small, proxying, question, result_counts, write_policy
from tests.support.servers import Exchange, Received
from tests.support.upstreams import (
    BEHIND,
    JSON,
    Behaviour,
    Message,
    Model,
    calling,
    completion,
    plainly,
    said,
)

BUDGET = 4_000
DEEP = """max_tokens = 500
[stages]
target = 0.3
[ledger]
share = 0.0
least = 0
[budget.windows]
gpt-test = 16000
"""
"""Much is cut at once, for a long summary, so that it pays to have the model read all of the view for it."""
LOOK: Message = {"name": "look", "parameters": {"type": "object", "properties": {}}}
MEMBERS: Message = {
    "model": "gpt-test",
    "tools": [{"type": "function", "function": LOOK}],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "prompt_cache_key": "mine",
}
PRIVATE: Message = {
    "user": "jo",
    "safety_identifier": "jo-1",
    "metadata": {"a": "b"},
    "store": True,
    "n": 1,
    "seed": 7,
    "max_completion_tokens": 900,
    "stop": ["END"],
}


def told_of(number: int) -> str:
    """A sentence of some fifty tokens that no other repeats, so that a summary has much to read."""
    return (
        f"Question {number}: what became of item {37 * number}, which stood in hall {number} beside crate "
        f"{41 * number} until lorry {43 * number} came for all of it on day {number} of the move?"
    )


@dataclass
class Talk:
    """The SDK as its users have it, which keeps its history."""

    client: openai.AsyncOpenAI
    members: Message = field(default_factory=lambda: dict(MEMBERS))
    messages: list[Message] = field(default_factory=lambda: [{"role": "system", "content": "Be brief."}])
    asked: int = 0
    cut: int = 0

    async def ask(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})
        create: Any = self.client.chat.completions.with_raw_response.create
        response = await create(messages=self.messages, **self.members)
        self.cut = int(response.headers["x-unabridged-cut"])
        self.messages.append(response.parse().choices[0].message.model_dump(exclude_none=True))

    async def go_on(self, model: Model, summaries: int) -> None:
        """Talk until so many summaries were asked for, and a view is cut."""
        while not self.cut or len(model.summaries) < summaries:
            assert self.asked < 60, f"{len(model.summaries)} summaries were asked for"
            await self.ask(" ".join(map(told_of, range(10 * self.asked, 10 * self.asked + 10))))
            self.asked += 1
            await asyncio.sleep(0.15)  # whoever writes begins after the request


@asynccontextmanager
async def talking(url: str, key: str = "sk-test") -> AsyncGenerator[Talk]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client:
        yield Talk(client)


def body_of(received: Received) -> Message:
    return json.loads(received.body)


def behind(model: Model) -> list[bool]:
    """Of each summary, whether it was asked for behind a conversation."""
    asked = (body_of(each)["messages"][-1]["content"] for each in model.summaries)
    return [text.startswith(BEHIND) for text in asked]


async def test_a_summary_is_requested_after_the_messages_that_were_sent_last(
    model: Model, small: Small
) -> None:
    model.caches = True
    async with talking(await small(BUDGET, extra=DEEP)) as talk:
        talk.members |= PRIVATE
        await talk.go_on(model, summaries=1)
    raw, asked = bytes(model.summaries[0].body), body_of(model.summaries[0])
    *before, last = asked["messages"]
    (sent,) = [chat for chat in model.chats if body_of(chat)["messages"] == before]
    start, end = raw.index(b'"messages":[') + 12, raw.rindex(b',{"role":"user"')
    assert raw[start:end] in bytes(sent.body)  # byte for byte
    assert last["role"] == "user"
    assert '[assistant] "Answer 1 to ' in last["content"]  # where the cut begins
    assert {name: asked[name] for name in MEMBERS} == MEMBERS
    assert set(asked) == {*MEMBERS, "messages", "max_tokens", "temperature"}


async def test_what_was_asked_for_so_stands_in_a_note_and_the_next_one_goes_on_from_it(
    model: Model, small: Small
) -> None:
    model.caches, model.summary = True, said("They spoke of what became of many an item.")
    async with talking(url := await small(BUDGET, extra=DEEP)) as talk:
        await talk.go_on(model, summaries=2)
        assert behind(model)[:2] == [True, True]
        while "They spoke of what became of many an item." not in str(model.views()[-1]):
            await talk.go_on(model, summaries=len(model.summaries) + 1)  # it may come after its epoch
        await talk.go_on(model, summaries=len(model.summaries) + 1)
        assert "They spoke of what" in body_of(model.summaries[-1])["messages"][-1]["content"]
        assert (await result_counts(url))["reused"] >= 1


async def test_a_model_whose_answers_show_no_cached_tokens_is_never_asked_so(
    model: Model, small: Small
) -> None:
    async with talking(await small(BUDGET, extra=DEEP)) as talk:
        await talk.go_on(model, summaries=3)
    assert behind(model)[:3] == [False, False, False]


async def test_a_model_that_shows_none_for_the_summary_is_not_asked_so_again(
    model: Model, small: Small
) -> None:
    model.caches = True
    model.summary = plainly(200, [JSON], json.dumps(completion(said("They spoke of items."))).encode())
    async with talking(await small(BUDGET, extra=DEEP)) as talk:
        await talk.go_on(model, summaries=3)
    assert behind(model)[:3] == [True, False, False]


async def test_what_one_tenant_was_refused_says_nothing_of_another(model: Model, small: Small) -> None:
    model.caches, model.summary = True, going_on(calling(("c1", "look", "{}")))
    url = await small(BUDGET, extra=DEEP)
    async with talking(url) as talk:
        await talk.go_on(model, summaries=3)
    model.summary = said("They spoke of items.")
    async with talking(url, "sk-another") as talk:
        await talk.go_on(model, summaries=5)
    assert behind(model)[:5] == [True, False, False, True, True]


def going_on(answer: Message | Behaviour) -> Behaviour:
    """A model that answers so to what is asked behind a conversation, and else with a summary."""

    async def summarise(exchange: Exchange) -> None:
        is_behind = behind_a_conversation(exchange)
        if not is_behind:
            await exchange.answer_json(completion(said("They spoke of items.")))
        elif callable(answer):
            await answer(exchange)
        else:
            usage = {"prompt_tokens": 4_000, "prompt_tokens_details": {"cached_tokens": 4_000}}
            await exchange.answer_json({**completion(answer), "usage": usage})

    return summarise


def behind_a_conversation(exchange: Exchange) -> bool:
    return body_of(exchange.request)["messages"][-1]["content"].startswith(BEHIND)


@pytest.mark.parametrize(
    ("answer", "is_asked_again"),
    [
        (calling(("c1", "look", "{}")), False),
        (plainly(404, [JSON], b'{"error":{"message":"no"}}'), False),
        (said("They spoke of the desk 4711-ZQ."), True),
    ],
    ids=["a call", "a refusal", "what another part says"],
)
async def test_what_will_not_do_is_read_afresh(
    model: Model, small: Small, answer: Message | Behaviour, is_asked_again: bool
) -> None:
    model.caches, model.summary = True, going_on(answer)
    async with talking(await small(BUDGET, extra=DEEP)) as talk:
        talk.messages[0]["content"] = "You sit at the desk 4711-ZQ."
        await talk.go_on(model, summaries=3)
        await talk.go_on(model, summaries=4)
    assert behind(model)[:3] == [True, False, is_asked_again]
    notes = [each for each in model.views()[-1] if str(each["content"]).startswith("<note")]
    assert "They spoke of items." in str(notes)
    assert "4711" not in str(notes)


async def test_a_refusal_of_it_says_nothing_of_the_parameters_that_a_model_takes(
    model: Model, small: Small
) -> None:
    model.caches, model.summary = True, going_on(plainly(400, [JSON], b'{"error":{"message":"no"}}'))
    async with talking(await small(BUDGET, extra=DEEP)) as talk:
        await talk.go_on(model, summaries=3)
    assert behind(model)[:3] == [True, True, False]
    assert ["temperature" in body_of(each) for each in model.summaries[:3]] == [True, False, True]


async def test_the_model_sees_all_of_what_it_summarises(model: Model, small: Small) -> None:
    model.caches, model.summary = True, said("The order is 88-ZX-19.")
    async with talking(await small(BUDGET, extra=DEEP)) as talk:
        model.replies.append(said("word " * 300 + "The order is 88-ZX-19. " + "word " * 300))
        await talk.go_on(model, summaries=1)
        await talk.go_on(model, summaries=2)
        assert behind(model)[0]
        assert "The order is 88-ZX-19." in str(model.views()[-1])


OTHERWISE: dict[str, tuple[str, Message, Message]] = {
    "reasoning": ("", {}, {"reasoning_content": "I wonder."}),
    "a format for the answer": ("", {"response_format": {"type": "json_object"}}, {}),
    "another model": ('model = "gpt-small"\n', {}, {}),
    "ephemeral text": ('[[retention]]\nmatch = {content = "Answer 1 "}\nclass = "ephemeral"\n', {}, {}),
}


@pytest.mark.parametrize("why", OTHERWISE)
async def test_a_summary_is_read_afresh_where_there_is(model: Model, tmp_path: Path, why: str) -> None:
    rules, members, of_answer = OTHERWISE[why]
    model.caches = True
    text = f'extends = "balanced"\n[budget]\ntokens = {BUDGET}\n[summary]\n'
    text += rules + DEEP if why == "another model" else DEEP + rules
    path = write_policy(tmp_path, "small", text)
    async with proxying(model.url, policy=str(path)) as url, talking(url) as talk:
        talk.members |= members
        await talk.ask(question(0))
        talk.messages[-1] |= of_answer
        await talk.go_on(model, summaries=1)
    assert not any(behind(model))

"""The real `openai` SDK, changed in nothing but its base URL."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam

from tests.support.servers import Exchange
from tests.support.upstreams import DONE, EVENTS, Model, calling, events, said, sse

TEXT = "An answer, with “quotes”, 🐘 and\nlines."
ASKED: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]


def sync_client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0)


def async_client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0)


async def test_the_synchronous_sdk_gets_the_answer(model: Model, url: str) -> None:
    model.replies.append(said(TEXT))

    def ask() -> str | None:
        with sync_client(url) as client:
            return client.chat.completions.create(model="m", messages=ASKED).choices[0].message.content

    assert await asyncio.to_thread(ask) == TEXT


async def test_the_synchronous_sdk_gets_the_stream(model: Model, url: str) -> None:
    model.replies.append(said(TEXT))

    def ask() -> str:
        with sync_client(url) as client:
            stream = client.chat.completions.create(model="m", messages=ASKED, stream=True)
            return "".join(chunk.choices[0].delta.content or "" for chunk in stream)

    assert await asyncio.to_thread(ask) == TEXT


async def test_the_asynchronous_sdk_gets_the_answer(model: Model, url: str) -> None:
    model.replies.append(said(TEXT))
    async with async_client(url) as client:
        answer = await client.chat.completions.create(model="m", messages=ASKED)
    assert answer.choices[0].message.content == TEXT
    assert answer.usage is not None


async def test_the_asynchronous_sdk_gets_the_stream_with_usage(model: Model, url: str) -> None:
    model.replies.append(said(TEXT))
    text, usage = "", None
    async with async_client(url) as client:
        stream = await client.chat.completions.create(
            model="m",
            messages=ASKED,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in stream:
            text += "".join(choice.delta.content or "" for choice in chunk.choices)
            usage = chunk.usage or usage
    assert text == TEXT
    assert usage is not None


async def test_the_sdk_sees_the_first_chunk_before_the_upstream_sends_the_second(
    model: Model, url: str
) -> None:
    seen = asyncio.Event()
    first, *others = events(said(TEXT))

    async def wait_between(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        await exchange.chunk(sse(first))
        await asyncio.wait_for(seen.wait(), 5)
        for event in others:
            await exchange.chunk(sse(event))
        await exchange.chunk(DONE)
        await exchange.end()

    model.replies.append(wait_between)
    async with async_client(url) as client:
        stream = await client.chat.completions.create(model="m", messages=ASKED, stream=True)
        text = ""
        async for chunk in stream:
            seen.set()
            text += chunk.choices[0].delta.content or ""
    assert text == TEXT


async def test_tool_calls_arrive_whole(model: Model, url: str) -> None:
    model.replies.append(calling(("c1", "add", '{"a": 1, "b": 2}'), ("c2", "add", "{}")))
    async with (
        async_client(url) as client,
        client.chat.completions.stream(model="m", messages=ASKED) as stream,
    ):
        async for _ in stream:
            pass
        message = (await stream.get_final_completion()).choices[0].message
    assert [call.function.arguments for call in message.tool_calls or ()] == ['{"a": 1, "b": 2}', "{}"]


async def test_an_upstream_error_is_the_sdks_own_exception(model: Model, url: str) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.answer_json({"error": {"message": "no such model", "code": "model_not_found"}}, 404)

    model.replies.append(refuse)
    async with async_client(url) as client:
        with pytest.raises(openai.NotFoundError, match="no such model"):
            await client.chat.completions.create(model="m", messages=ASKED)


def back(message: ChatCompletionMessage, how: str) -> Any:
    """An answer as a program sends it back."""
    if how == "object":
        return message
    if how == "dump":
        return message.model_dump()
    if how == "dump without null":
        return message.model_dump(exclude_none=True)
    dumped = message.model_dump(exclude_none=True)
    for call in dumped.get("tool_calls", ()):
        arguments = json.loads(call["function"]["arguments"])
        call["function"]["arguments"] = json.dumps(dict(reversed(arguments.items())), indent=1)
    return dict(reversed(dumped.items()))


WAYS = ["object", "dump", "dump without null", "re-serialised"]


@pytest.mark.parametrize("how", WAYS)
async def test_a_conversation_without_a_header_is_one_session_however_answers_are_sent_back(
    model: Model, url: str, how: str
) -> None:
    arguments = '{"path":"a.txt","lines":[1,2]}'
    model.replies += [calling(("c1", "read", arguments)), said("It says so."), said("  Indeed. \n")]
    names: list[str] = []
    messages: list[Any] = [{"role": "user", "content": f"Read a.txt ({how})"}]
    async with async_client(url) as client:
        for follow_up in (
            {"role": "tool", "tool_call_id": "c1", "content": "text"},
            {"role": "user", "content": "Sure?"},
            None,
        ):
            raw = await client.chat.completions.with_raw_response.create(model="m", messages=messages)
            names.append(raw.headers["x-unabridged-session"])
            messages += [back(raw.parse().choices[0].message, how), follow_up]
    assert len(set(names)) == 1

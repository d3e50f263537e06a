"""Calls that the proxy answers itself, over real sockets and with the real SDK: streamed and not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from tests.servers import Exchange, eventually
from tests.stores import embedded_valkey
from tests.upstreams import (
    DONE,
    EVENTS,
    Message,
    Model,
    admin,
    calling,
    completion,
    events,
    plainly,
    proxying,
    running,
    said,
    sse,
    user,
    write_policy,
)

POLICY = """
[[tools]]
match = "get_*"
cache_exchanges = 3
serve = true
invalidated_by = ["set_*"]
[[tools]]
match = "other"
"""
ROME = '{"city": "Rome"}'
WEATHER = ("c2", "get_weather", ROME)
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("get_weather", "set_weather", "other")
]


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    """A model that refuses what the real API would refuse."""
    async with running(Model(window=100_000)) as served:
        yield served


@pytest.fixture
def policy(tmp_path: Path) -> str:
    return str(write_policy(tmp_path, "tools", POLICY))


@pytest.fixture
async def url(model: Model, policy: str) -> AsyncIterator[str]:
    async with proxying(model.url, policy=policy) as served:
        yield served


@pytest.fixture(scope="module")
def valkey() -> Generator[str]:
    with embedded_valkey() as served:
        yield served


@pytest.fixture
async def client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0) as opened:
        yield opened


def result(call_id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def known(city: str = ROME) -> list[Message]:
    """A conversation in which the weather has been asked for."""
    return [
        user("How is the weather?"),
        calling(("c1", "get_weather", city)),
        result("c1", "18 degrees"),
        {"role": "assistant", "content": "It is 18 degrees."},
        user("And now?"),
    ]


def talking(text: str, *calls: tuple[str, str, str]) -> Message:
    return {**calling(*calls), "content": text}


async def ask(client: openai.AsyncOpenAI, messages: list[Message], *, stream: bool, **members: Any) -> Any:
    """The completion, put together by the SDK where it is streamed."""
    asked: Any = messages
    arguments: Any = {"model": "gpt-test", "messages": asked, "tools": TOOLS, **members}
    if not stream:
        return await client.chat.completions.create(**arguments)
    async with client.chat.completions.stream(**arguments, stream_options={"include_usage": True}) as told:
        return await told.get_final_completion()


def sent_back(answer: Any) -> Message:
    """The answer's message as the SDK sends it back."""
    message = answer.choices[0].message.model_dump(exclude_none=True)
    for call in message.get("tool_calls", ()):
        call["function"].pop("parsed_arguments", None)
        call.pop("index", None)
    message.pop("parsed", None)
    return message


both = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])


@both
async def test_a_call_whose_result_is_fresh_never_reaches_the_client(
    model: Model, client: openai.AsyncOpenAI, stream: bool
) -> None:
    model.replies += [talking("Let me see. ", WEATHER), said("Still 18.")]
    answer = await ask(client, known(), stream=stream)
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("Let me see. Still 18.", "stop")
    assert not choice.message.tool_calls
    first, second = model.views()
    assert second[: len(first)] == first
    assert [message["role"] for message in second[len(first) :]] == ["assistant", "tool"]
    assert second[-1] == result("c2", "18 degrees")
    assert model.invalid == []
    assert answer.usage.completion_tokens == 10


@both
async def test_later_views_hold_the_call_at_its_place_and_begin_with_the_same_bytes(
    model: Model, client: openai.AsyncOpenAI, stream: bool
) -> None:
    model.replies += [talking("Let me see. ", WEATHER), said("Still 18."), said("You are welcome.")]
    messages = known()
    messages.append(sent_back(await ask(client, messages, stream=stream)))
    await ask(client, [*messages, user("Thank you")], stream=stream)
    _, second, third = (bytes(chat.body) for chat in model.chats)
    assert _array(third).startswith(_array(second)[:-1])
    assert model.views()[2][-4:] == [
        model.views()[1][-2],
        result("c2", "18 degrees"),
        model.views()[2][-2],
        user("Thank you"),
    ]
    assert model.views()[2][-2]["content"] == "Still 18."


def _array(body: bytes) -> bytes:
    """The messages of a body, without white space between them."""
    return json.dumps(json.loads(body)["messages"]).encode()


@both
async def test_an_answer_that_was_edited_stands_as_the_client_wrote_it(
    model: Model, client: openai.AsyncOpenAI, stream: bool
) -> None:
    model.replies += [calling(WEATHER), said("Still 18."), said("Fine.")]
    messages = known()
    await ask(client, messages, stream=stream)
    edited = [*messages, {"role": "assistant", "content": "Still 19."}, user("Thank you")]
    await ask(client, edited, stream=stream)
    assert model.views()[2] == edited


@both
async def test_hidden_and_other_calls_in_one_message(
    model: Model, client: openai.AsyncOpenAI, stream: bool
) -> None:
    both_calls = calling(WEATHER, ("c3", "other", "{}"))
    model.replies += [both_calls, said("Done.")]
    messages = known()
    answer = await ask(client, messages, stream=stream)
    seen = answer.choices[0].message.tool_calls
    assert [call.id for call in seen] == ["c3"]
    assert answer.choices[0].finish_reason == "tool_calls"
    await ask(client, [*messages, sent_back(answer), result("c3", "so be it")], stream=stream)
    *_, asked, hidden, given = model.views()[1]
    assert [call["id"] for call in asked["tool_calls"]] == ["c2", "c3"]
    assert (hidden, given) == (result("c2", "18 degrees"), result("c3", "so be it"))
    assert model.invalid == []


@both
async def test_parallel_calls_are_answered_together(
    model: Model, client: openai.AsyncOpenAI, stream: bool
) -> None:
    model.replies += [calling(WEATHER, ("c3", "get_weather", '{ "city":"Rome" }')), said("Twice 18.")]
    answer = await ask(client, known(), stream=stream)
    assert answer.choices[0].message.content == "Twice 18."
    assert model.views()[1][-2:] == [result("c2", "18 degrees"), result("c3", "18 degrees")]


@both
@pytest.mark.parametrize(
    ("call", "members"),
    [
        (("c2", "get_weather", '{"city": "Oslo"}'), {}),
        (("c2", "set_weather", ROME), {}),
        (WEATHER, {"tool_choice": {"type": "function", "function": {"name": "get_weather"}}}),
    ],
    ids=["other arguments", "another tool", "the client names the tool"],
)
async def test_other_calls_are_the_clients(
    model: Model, client: openai.AsyncOpenAI, stream: bool, call: tuple[str, str, str], members: Message
) -> None:
    model.replies.append(calling(call))
    answer = await ask(client, known(), stream=stream, **members)
    (seen,) = answer.choices[0].message.tool_calls
    assert (seen.id, seen.function.name, seen.function.arguments) == call
    assert answer.choices[0].finish_reason == "tool_calls"
    assert len(model.chats) == 1


@both
async def test_after_the_last_round_calls_are_the_clients(
    model: Model, client: openai.AsyncOpenAI, stream: bool
) -> None:
    model.replies += [calling((f"c{number}", "get_weather", ROME)) for number in range(2, 9)]
    answer = await ask(client, known(), stream=stream)
    assert [call.id for call in answer.choices[0].message.tool_calls] == ["c6"]
    assert len(model.chats) == 5


async def test_more_than_one_choice_is_left_alone(model: Model, client: openai.AsyncOpenAI) -> None:
    model.replies.append(calling(WEATHER))
    answer = await ask(client, known(), stream=False, n=2)
    assert answer.choices[0].message.tool_calls[0].id == "c2"


# --- what the client is told, and when ---


async def test_text_arrives_before_the_hidden_call_is_done(model: Model, client: openai.AsyncOpenAI) -> None:
    seen = asyncio.Event()
    told = events(talking("Let me see. ", WEATHER))

    async def wait_after_text(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        for event in told[:3]:
            await exchange.chunk(sse(event))
        await seen.wait()
        for event in told[3:]:
            await exchange.chunk(sse(event))
        await exchange.chunk(DONE)
        await exchange.end()

    model.replies += [wait_after_text, said("Still 18.")]
    text, ids = "", set[str]()
    asked: Any = {"model": "gpt-test", "messages": known(), "tools": TOOLS, "stream": True}
    stream: Any = await client.chat.completions.create(**asked)
    async for chunk in stream:
        ids.add(chunk.id)
        text += chunk.choices[0].delta.content or ""
        if "Let me" in text:
            seen.set()
    assert text == "Let me see. Still 18."
    assert ids == {"chatcmpl-1"}


async def test_hits_are_told_in_a_header_or_in_a_comment_and_counted(model: Model, url: str) -> None:
    body = {"model": "gpt-test", "messages": known()}
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": "Bearer sk"}) as client:
        model.replies += [calling(WEATHER), said("Still 18."), calling(WEATHER), said("Still 18.")]
        whole = await client.post("/v1/chat/completions", json=body)
        stream = await client.post("/v1/chat/completions", json={**body, "stream": True})
        metrics = (await client.get("/metrics")).text
    assert whole.headers["x-unabridged-tool-cache"] == "hits=1"
    assert stream.text.endswith(": unabridged tool-cache hits=1\n\ndata: [DONE]\n\n")
    assert 'unabridged_tool_cache_total{result="hit"} 2.0' in metrics


# --- what goes wrong ---


async def test_an_upstream_that_does_not_go_on_ends_the_stream_with_its_error(model: Model, url: str) -> None:
    refusal = {"error": {"message": "slow down", "type": "rate_limit", "param": None, "code": "429"}}
    refused = plainly(429, [(b"Content-Type", b"application/json")], json.dumps(refusal, indent=1).encode())
    body = {"model": "gpt-test", "messages": known(), "stream": True}
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": "Bearer sk"}) as client:
        model.replies += [talking("Let me see. ", WEATHER), refused]
        stream = await client.post("/v1/chat/completions", json=body)
        model.replies += [calling(WEATHER), refused]
        whole = await client.post("/v1/chat/completions", json={**body, "stream": False})
    *_, last, end = stream.text.split("\n\n")
    assert json.loads(last.removeprefix("data: ")) == refusal
    assert not end
    assert "get_weather" not in stream.text
    assert (whole.status_code, whole.json()) == (429, refusal)
    (session,) = (await admin(url, "sessions"))["sessions"]
    told = (await admin(url, f"sessions/{session['id']}/transcript"))["messages"]
    assert [each["complete"] for each in told if each["message"].get("content") == "Let me see. "] == [False]


async def test_a_client_that_leaves_while_the_upstream_goes_on_takes_its_connection_with_it(
    model: Model, client: openai.AsyncOpenAI
) -> None:
    left = asyncio.Event()

    async def hang(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        await exchange.chunk(sse(events(said("Still 18."))[1]))
        await exchange.gone()
        left.set()

    model.replies += [calling(WEATHER), hang]
    asked: Any = {"model": "gpt-test", "messages": known(), "tools": TOOLS, "stream": True}
    stream: Any = await client.chat.completions.create(**asked)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    await eventually(left.is_set)


# --- other workers, other clients ---


@both
async def test_a_second_worker_sends_the_same(model: Model, policy: str, valkey: str, stream: bool) -> None:
    model.replies += [talking("Let me see. ", WEATHER), said("Still 18."), said("Fine."), said("Fine.")]
    messages, named = known(), {"X-Unabridged-Session": f"streamed {stream}"}
    async with (
        proxying(model.url, policy=policy, store=valkey) as first,
        proxying(model.url, policy=policy, store=valkey) as second,
        openai.AsyncOpenAI(base_url=f"{first}/v1", api_key="sk-test", default_headers=named) as one,
        openai.AsyncOpenAI(base_url=f"{second}/v1", api_key="sk-test", default_headers=named) as other,
    ):
        messages.append(sent_back(await ask(one, messages, stream=stream)))
        messages.append(user("Thank you"))
        await ask(one, messages, stream=stream)
        await ask(other, messages, stream=stream)
    assert bytes(model.chats[2].body) == bytes(model.chats[3].body)
    assert len(model.views()[3]) == len(messages) + 2


async def test_an_appending_client_has_its_hidden_calls_in_later_views(model: Model, url: str) -> None:
    headers = {"Authorization": "Bearer sk", "X-Unabridged-Mode": "append", "X-Unabridged-Session": "s"}
    model.replies += [calling(("c1", "get_weather", ROME)), said("18."), talking("Wait. ", WEATHER)]
    model.replies += [said("Still 18."), said("Fine.")]
    async with httpx2.AsyncClient(base_url=url, headers=headers) as client:
        for message in (user("How?"), result("c1", "18 degrees"), user("And now?"), user("Thank you")):
            body = {"model": "gpt-test", "messages": [message], "stream": True}
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
    roles = [message["role"] for message in model.views()[-1]]
    assert roles == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
    ]
    assert model.invalid == []


async def test_a_title_request_is_not_touched(model: Model, client: openai.AsyncOpenAI) -> None:
    model.replies += [calling(WEATHER), said("Still 18."), said("A title"), said("Fine.")]
    messages = known()
    messages.append(sent_back(await ask(client, messages, stream=False)))
    title = [user("Title for: " + str(messages))]
    await ask(client, title, stream=False)
    assert model.views()[-1] == title
    await ask(client, [*messages, user("Thank you")], stream=False)
    assert len(model.views()[-1]) == len(messages) + 3


def test_the_scripted_answers_are_what_they_seem() -> None:
    assert completion(talking("x", WEATHER))["choices"][0]["finish_reason"] == "tool_calls"

"""An appended turn that is sent again under its Idempotency-Key: one turn, with the answer that it had."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion

from tests.support.append_client import Appender, Appenders, contents, error_code, hold, transcript
from tests.support.clients import KEY, answer_in, proxying
from tests.support.servers import Exchange
from tests.support.stores import embedded_valkey
from tests.support.upstreams import Model, calling, completion, said

ASKED: Any = [{"role": "user", "content": "first"}]


async def test_a_turn_is_one_with_other_turns_between(appender: Appender, model: Model) -> None:
    model.replies.extend([said("One."), said("Two."), said("Three.")])
    first = await appender.ask("first", Idempotency_Key="k-1")
    assert "idempotent-replayed" not in first.headers
    await appender.ask("second", Idempotency_Key="k-2")
    again = await appender.ask("first", Idempotency_Key="k-1")
    assert (again.status_code, again.headers["idempotent-replayed"]) == (200, "true")
    assert again.headers["x-unabridged-session"] == "s"
    assert answer_in(again) == answer_in(first)
    assert {**again.json(), "created": 0} == {
        **first.json(),
        "created": 0,
        "choices": [{"index": 0, "message": said("One."), "finish_reason": "stop"}],
    }
    await appender.ask("third", Idempotency_Key="k-3")
    assert [contents(view) for view in model.views()] == [
        ["first"],
        ["first", "One.", "second"],
        ["first", "One.", "second", "Two.", "third"],
    ]
    assert await transcript(appender.url) == ["first", "One.", "second", "Two.", "third", "Three."]


async def test_ten_turns_sent_twice_to_two_workers_are_ten(model: Model, appenders: Appenders) -> None:
    with embedded_valkey() as store:
        async with proxying(model.url, store=store) as one, proxying(model.url, store=store) as two:
            clients, answers = [appenders(one), appenders(two)], list[Any]()
            for number in range(10):
                response = await clients[number % 2].ask(f"turn {number}", Idempotency_Key=f"k-{number}")
                answers.append(answer_in(response))
            for number in Random(7).sample(range(10), 10):
                response = await clients[(number + 1) % 2].ask(
                    f"turn {number}", Idempotency_Key=f"k-{number}"
                )
                assert answer_in(response) == answers[number]
            assert len(model.chats) == 10
            assert len(await transcript(one)) == 20
        async with proxying(model.url, store=store) as restarted:
            again = await appenders(restarted).ask("turn 0", Idempotency_Key="k-0")
            assert (answer_in(again), len(model.chats)) == (answers[0], 10)


@pytest.mark.parametrize("stream", [False, True], ids=["here", "at another worker"])
async def test_while_it_is_being_answered_it_waits_and_gets_that_answer(
    model: Model, appenders: Appenders, stream: bool
) -> None:
    release, begun = asyncio.Event(), asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await exchange.body()
        begun.set()
        await release.wait()
        await exchange.answer_json(completion(said("One.")))

    model.replies.append(held)
    with embedded_valkey() as store:
        async with proxying(model.url, store=store) as one, proxying(model.url, store=store) as two:
            first = asyncio.create_task(appenders(one).ask("first", Idempotency_Key="k"))
            await begun.wait()
            other = appenders(two if stream else one)
            other.members["stream"] = stream
            again = asyncio.create_task(other.ask("first", Idempotency_Key="k"))
            await asyncio.sleep(0.1)
            assert not again.done()
            release.set()
            assert [answer_in(await each)["content"] for each in (first, again)] == ["One.", "One."]
            assert len(model.chats) == 1
            assert await transcript(one) == ["first", "One."]


@pytest.mark.parametrize("before", [False, True], ids=["asked for whole", "asked for as a stream"])
async def test_it_comes_as_a_stream_where_one_is_asked_for_and_whole_where_not(
    appender: Appender, model: Model, before: bool
) -> None:
    model.replies.append(said("An answer, “quoted”, 🐘."))
    appender.members |= {"stream": before} | ({"stream_options": {"include_usage": True}} if before else {})
    await appender.ask("first", Idempotency_Key="k")
    appender.members = {"model": "gpt-test"}
    whole = await appender.ask("first", Idempotency_Key="k")
    assert whole.json()["choices"][0]["message"]["content"] == "An answer, “quoted”, 🐘."
    assert whole.json()["usage"]["completion_tokens"] == 5
    appender.members["stream"] = True
    stream = await appender.ask("first", Idempotency_Key="k")
    assert stream.headers["content-type"] == "text/event-stream"
    assert answer_in(stream)["content"] == "An answer, “quoted”, 🐘."
    assert ('"usage"' in stream.text, stream.text.endswith("data: [DONE]\n\n")) == (False, True)
    appender.members["stream_options"] = {"include_usage": True}
    with_usage = await appender.ask("first", Idempotency_Key="k")
    assert '"choices":[],"usage":{"prompt_tokens":8,"completion_tokens":5' in with_usage.text
    assert len(model.chats) == 1


async def test_the_sdk_reads_an_answer_with_calls_that_is_told_again(model: Model, url: str) -> None:
    model.replies.append(calling(("c1", "look", "{}"), ("c2", "look", '{"at": 2}')))
    headers = {"X-Unabridged-Mode": "append", "X-Unabridged-Session": "s", "Idempotency-Key": "k"}

    async with openai.AsyncOpenAI(
        base_url=f"{url}/v1", api_key="sk-test", max_retries=0, default_headers=headers
    ) as client:
        first: ChatCompletion = await client.chat.completions.create(model="m", messages=ASKED)
        again: ChatCompletion = await client.chat.completions.create(model="m", messages=ASKED)
        async with client.chat.completions.stream(model="m", messages=ASKED) as stream:
            streamed = await stream.get_final_completion()
        with pytest.raises(openai.UnprocessableEntityError, match="needs a new key"):
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "other"}])
    assert [call.id for call in first.choices[0].message.tool_calls or ()] == ["c1", "c2"]
    assert (again.id, again.choices[0].message) == (first.id, first.choices[0].message)
    calls = streamed.choices[0].message.tool_calls or []
    assert [(call.id, call.function.arguments) for call in calls] == [("c1", "{}"), ("c2", '{"at": 2}')]
    assert [each.choices[0].finish_reason for each in (again, streamed)] == ["tool_calls", "tool_calls"]
    assert len(model.chats) == 1


async def test_its_key_with_other_messages_is_an_error(appender: Appender, model: Model) -> None:
    await appender.ask("first", Idempotency_Key="k")
    for messages in ("second", "first, edited"):
        response = await appender.ask(messages, Idempotency_Key="k")
        assert (response.status_code, error_code(response)) == (422, "idempotency_key_reused")
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert len(model.chats) == 1
    assert len(await transcript(appender.url)) == 2
    assert (await appender.ask("second", Idempotency_Key="k-2")).status_code == 200


async def test_a_turn_that_was_not_answered_is_answered_under_its_key_and_then_known(
    appender: Appender, model: Model
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.answer_json({"error": {"message": "overloaded"}}, 503)

    model.replies.extend([refuse, lambda exchange: hold(exchange, "half an "), said("Two."), said("One.")])
    assert (await appender.ask("first", Idempotency_Key="k-1")).status_code == 503
    await appender.leave_during("first")
    await appender.ask("second", Idempotency_Key="k-2")
    for _ in range(2):
        assert answer_in(await appender.ask("first", Idempotency_Key="k-1"))["content"] == "One."
    assert len(model.chats) == 4
    assert await transcript(appender.url) == ["first", "second", "Two.", "first", "One."]


async def test_a_key_says_nothing_in_another_session_or_of_another_caller(
    appender: Appender, model: Model, appenders: Appenders
) -> None:
    await appender.ask("first", Idempotency_Key="k")
    for other in (appenders(appender.url, session="other"), appenders(appender.url)):
        other.headers["Authorization"] = KEY if other.session == "other" else "Bearer sk-other"
        response = await other.ask("first", Idempotency_Key="k")
        assert "idempotent-replayed" not in response.headers
    assert len(model.chats) == 3


async def test_without_a_key_the_newest_turn_alone_is_known(appender: Appender, model: Model) -> None:
    model.replies.extend([said("One."), said("Two."), said("Two again."), said("Three.")])
    await appender.ask("first")
    await appender.ask("second")
    await appender.ask("second", x_stainless_retry_count="1")
    await appender.ask("first", x_stainless_retry_count="1")
    assert await transcript(appender.url) == ["first", "One.", "second", "Two again.", "first", "Three."]

"""Calls that the proxy answers itself, with the real SDK: streamed and not."""

from __future__ import annotations

import gzip
import json

import openai
import pytest

from tests.support.clients import user
from tests.support.repeated_calls import (
    ROME,
    WEATHER,
    ask,
    both,
    known,
    result,
    sent_back,
    talking,
)
from tests.support.upstreams import (
    DONE,
    EVENTS,
    JSON,
    Behaviour,
    Message,
    Model,
    calling,
    completion,
    events,
    plainly,
    said,
    sse,
)


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


async def test_a_client_that_demands_a_call_gets_it(model: Model, client: openai.AsyncOpenAI) -> None:
    """Answered here, it would be demanded again in each round."""
    model.replies += [calling(WEATHER)]
    answer = await ask(client, known(), stream=False, tool_choice="required")
    assert [call.id for call in answer.choices[0].message.tool_calls] == ["c2"]
    assert len(model.chats) == 1


@both
async def test_an_answer_that_comes_compressed_is_read_all_the_same(
    model: Model, client: openai.AsyncOpenAI, stream: bool
) -> None:
    def packed(message: Message) -> Behaviour:
        told = (
            b"".join(map(sse, events(message))) + DONE if stream else json.dumps(completion(message)).encode()
        )
        kind = EVENTS if stream else JSON
        return plainly(200, [kind, (b"Content-Encoding", b"gzip")], gzip.compress(told))

    model.replies += [packed(talking("Let me see. ", WEATHER)), packed(said("Still 18."))]
    answer = await ask(client, known(), stream=stream)
    assert answer.choices[0].message.content == "Let me see. Still 18."
    assert not answer.choices[0].message.tool_calls


@both
async def test_a_result_that_was_handed_in_is_served(
    model: Model, client: openai.AsyncOpenAI, stream: bool
) -> None:
    given = [{"name": "get_weather", "arguments": {"city": "Oslo"}, "result": "3 degrees"}]
    model.replies += [calling(("c2", "get_weather", '{"city":"Oslo"}')), said("It is 3 degrees.")]
    extension = {"unabridged": {"inject": {"tools": given}}}
    answer = await ask(client, [user("And in Oslo?")], stream=stream, extra_body=extension)
    assert answer.choices[0].message.content == "It is 3 degrees."
    assert model.views()[1][-1] == result("c2", "3 degrees")
    assert model.invalid == []

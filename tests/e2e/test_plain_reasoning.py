"""Reasoning that is not signed: some upstreams refuse in requests what they write in answers."""

from __future__ import annotations

import json

import pytest

from tests.support.append_client import Appender
from tests.support.clients import Chats, user
from tests.support.servers import Exchange
from tests.support.upstreams import Behaviour, Message, Model, completion, events, said

LOC = ["body", "messages", 1, "assistant", "reasoning_content"]
FORBIDDEN = {"type": "extra_forbidden", "loc": LOC, "msg": "Extra inputs are not permitted", "input": "hm"}
MISTRAL = {"object": "error", "message": {"detail": [FORBIDDEN]}, "type": "invalid_request_error"}
UNSUPPORTED: dict[str, tuple[int, Message]] = {
    "Mistral": (422, MISTRAL),
    "Mistral, behind LiteLLM": (
        400,
        {"error": {"message": f"litellm.BadRequestError: MistralException - {json.dumps(MISTRAL)}"}},
    ),
    "Groq": (
        400,
        {
            "error": {
                "message": "'messages.1' : for 'role:assistant' the following must be "
                "satisfied[('messages.1' : property 'reasoning_content' is unsupported)]",
                "type": "invalid_request_error",
            }
        },
    ),
    "Cerebras": (
        400,
        {
            "message": "messages.1.assistant.reasoning_content: property "
            "'messages.1.assistant.reasoning_content' is unsupported",
            "code": "wrong_api_format",
        },
    ),
}


def strict(status: int, refusal: Message) -> Behaviour:
    """Reasons, and refuses messages with reasoning."""

    async def answer(exchange: Exchange) -> None:
        body = json.loads(exchange.request.body)
        if reasoned(body):
            await exchange.answer_json(refusal, status)
            return
        message = {**said(f"Answer {len(body['messages'])}."), "reasoning_content": "hm"}
        if body.get("stream"):
            chunks = events(message)
            chunks[0]["choices"][0]["delta"]["reasoning_content"] = "hm"
            await exchange.stream_events(chunks)
        else:
            await exchange.answer_json(completion(message))

    return answer


def reasoned(body: Message) -> list[Message]:
    return [each for each in body["messages"] if "reasoning_content" in each]


@pytest.mark.parametrize("upstream", UNSUPPORTED)
@pytest.mark.parametrize("streams", [False, True])
async def test_reasoning_that_the_upstream_refuses_is_left_out_of_what_an_appending_client_continues(
    appender: Appender, model: Model, upstream: str, *, streams: bool
) -> None:
    model.replies.extend([strict(*UNSUPPORTED[upstream])] * 5)
    appender.members["stream"] = streams
    for text in ("first", "second", "third"):
        response = await appender.ask(text)
        assert (response.status_code, b"reasoning_content" in response.content) == (200, True)
    assert [len(reasoned(body)) for body in model.bodies()] == [0, 1, 0, 0], "it is refused once"
    assert [len(body["messages"]) for body in model.bodies()] == [1, 3, 3, 5]


async def test_reasoning_that_the_upstream_refuses_is_left_out_of_what_a_client_sends_back(
    model: Model, chats: Chats, url: str
) -> None:
    model.replies.extend([strict(*UNSUPPORTED["Groq"])] * 5)
    chat = chats(url)
    for text in ("first", "second", "third"):
        assert (await chat.ask(text)).status_code == 200
    refused, taken = model.bodies()[1:3]
    assert reasoned(refused) == [chat.messages[1]]
    for each in refused["messages"]:
        each.pop("reasoning_content", None)
    assert taken == refused


@pytest.mark.parametrize(
    "words",
    [
        "Missing `reasoning_content` field in the assistant message at message index 1.",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "property 'reasoning' is unsupported",
        "Invalid input in messages: content must not be empty. See the guide to reasoning_content.",
    ],
)
async def test_reasoning_that_the_upstream_wants_back_stays(
    model: Model, chats: Chats, url: str, words: str
) -> None:
    model.replies.extend([strict(400, {"error": {"message": words}})] * 3)
    chat = chats(url)
    await chat.ask("first")
    chat.messages.append(user("second"))
    assert ((await chat.send()).status_code, len(model.chats)) == (400, 2)
    await chat.send()
    assert len(reasoned(model.bodies()[-1])) == 1


async def test_nothing_is_learned_where_a_request_without_it_is_refused_too(
    model: Model, chats: Chats, url: str
) -> None:
    one, other = chats(url), chats(url)
    reasons = strict(400, {"error": {"message": "The `reasoning_content` must be passed back to the API."}})

    async def refuses(exchange: Exchange) -> None:
        status, refusal = UNSUPPORTED["Groq"]
        await exchange.answer_json(refusal, status)

    model.replies.extend([reasons, reasons, refuses, refuses])
    await one.ask("first")
    await other.ask("first, otherwise")
    assert (await one.ask("second")).status_code == 400
    model.replies.append(said("So be it."))
    await other.ask("second")
    assert [len(reasoned(body)) for body in model.bodies()] == [0, 0, 1, 0, 1]

"""Recall, over real sockets and with the real SDK: the model reads what was cut, unseen by the client."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from proxy.core.recall.tool import DESCRIPTION, NAME, PARAMETERS
from tests.support.clients import Chats, admin, bill_of, proxying, tokens_of, told, user, write_policy
from tests.support.servers import Exchange
from tests.support.tool_loop import collected, read
from tests.support.upstreams import (
    DONE,
    JSON,
    OPENAI,
    SLOW_DOWN,
    Behaviour,
    Message,
    Model,
    calling,
    completion,
    count_tokens,
    events,
    in_pieces,
    plainly,
    refusal,
    running,
    said,
    slow_down,
    sse,
)

SECRET = 'The bridge INV-2023-001 was paid in "cash",\n  by my physician.'
POLICY = """
[budget]
tokens = 4000
[summary]
enabled = false
[ledger]
share = 0
[economy]
enabled = false
[recall]
enabled = true
"""
TOOL: Message = {
    "type": "function",
    "function": {"name": NAME, "description": DESCRIPTION, "parameters": PARAMETERS},
}


def client_tool(name: str) -> Message:
    return {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {}}},
    }


LOOK = client_tool("look")
CHOICES: list[Message] = [
    {"tools": [LOOK], "tool_choice": "none"},
    {"tools": [LOOK], "tool_choice": {"type": "function", "function": {"name": "look"}}},
    {"n": 2},
    {"functions": [{"name": "look", "parameters": {}}]},
    {"tools": [client_tool(NAME)]},
]
TOOLLESS: list[Message] = [
    {"n": 2},
    {"tool_choice": "none"},
    {"functions": [{"name": "look", "parameters": {}}]},
]


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    """A model that refuses what the real API would refuse."""
    async with running(Model(window=100_000)) as served:
        yield served


Start = Callable[..., str]


@pytest.fixture
def policy(tmp_path: Path) -> Start:
    def written(extra: str = "", text: str = POLICY) -> str:
        return str(write_policy(tmp_path, "recalling", text + extra))

    return written


@pytest.fixture
async def url(model: Model, policy: Start) -> AsyncIterator[str]:
    async with proxying(model.url, policy=policy()) as served:
        yield served


def long_talk() -> list[Message]:
    """Far more than the budget, what matters at its beginning."""
    talk = [user("Hello"), said("Hello."), user(SECRET), said("Noted.")]
    for number in range(25):
        talk += [user(f"What of item {number}? " + "Tell me all. " * 12), said("So it is. " * 25)]
    return [*talk, user("How was the bridge paid?")]


def recalls(call_id: str = "r1", **arguments: object) -> Message:
    return calling((call_id, NAME, json.dumps(arguments)))


async def ask(url: str, messages: list[Message], *, stream: bool = False, **members: Any) -> Any:
    """The completion, put together by the SDK where it is streamed."""
    asked: Any = messages
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0) as client:
        completions: Any = client.chat.completions
        if not stream:
            return await completions.create(model="gpt-test", messages=asked, **members)
        async with completions.stream(model="gpt-test", messages=asked, **members) as answer:
            return await answer.get_final_completion()


async def send(url: str, messages: list[Message], **members: Any) -> httpx2.Response:
    async with httpx2.AsyncClient(headers={"Authorization": "Bearer sk-test"}) as client:
        body = {"model": "gpt-test", "messages": messages, **members}
        return await client.post(f"{url}/v1/chat/completions", json=body)


def tells(message: Message, text: str) -> bool:
    content: object = message.get("content")
    return isinstance(content, str) and text in content


both = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])


@both
async def test_the_model_reads_again_what_was_cut_and_the_client_sees_nothing_of_it(
    model: Model, url: str, stream: bool
) -> None:
    model.replies += [recalls(query="How was the bridge paid?"), said("In cash.")]
    answer = await ask(url, long_talk(), stream=stream)
    choice = answer.choices[0]
    assert (choice.message.content, choice.finish_reason) == ("In cash.", "stop")
    assert not choice.message.tool_calls
    first, second = model.views()
    assert not any(tells(message, SECRET) for message in first)
    assert [message["role"] for message in second[len(first) :]] == ["assistant", "tool"]
    assert SECRET in second[-1]["content"]
    assert "message 3, user]" in second[-1]["content"]
    assert model.invalid == []


@both
async def test_the_client_is_never_shown_a_tool_that_it_does_not_know(
    model: Model, url: str, stream: bool
) -> None:
    both_calls = calling(("r1", NAME, '{"query": "bridge"}'), ("c1", "look", "{}"))
    model.replies += [both_calls]
    answer = await ask(url, long_talk(), stream=stream, tools=[LOOK])
    assert [call.function.name for call in answer.choices[0].message.tool_calls] == ["look"]


async def test_it_is_offered_too_where_nothing_is_cut_but_the_history_has_calls_of_it(
    model: Model, policy: Start
) -> None:
    text = POLICY.replace("4000", "50000")
    headers = {"X-Unabridged-Session": "one"}
    async with proxying(model.url, policy=policy(text=text)) as url:
        model.replies += [recalls(query="bridge"), said("By a physician.")]
        await ask(url, long_talk(), extra_headers={**headers, "X-Unabridged-Budget": "4000"})
        model.replies += [recalls("r2", query="bridge"), said("Nothing more.")]
        talk = [*long_talk(), said("By a physician."), user("What else?")]
        answer = await ask(url, talk, extra_headers=headers)
    assert answer.choices[0].message.content == "Nothing more."
    assert answer.choices[0].message.tool_calls is None
    assert model.bodies()[-1]["tools"] == model.bodies()[-2]["tools"] == [TOOL]
    assert model.views()[-1][-1]["content"].startswith("Nothing was found.")


async def test_what_was_recalled_stands_at_its_place_in_later_requests(model: Model, url: str) -> None:
    talk = long_talk()
    model.replies += [recalls(query="How was the bridge paid?"), said("In cash.")]
    await ask(url, talk)
    await ask(url, [*talk, said("In cash."), user("Thanks")])
    *_, second, third = model.views()
    assert third[: len(second)] == second
    assert model.bodies()[-1]["tools"] == [TOOL]


def has_calls(view: list[Message]) -> bool:
    return any(message["role"] == "tool" or message.get("tool_calls") for message in view)


@pytest.mark.parametrize("members", TOOLLESS, ids=["several answers", "none", "functions"])
async def test_a_request_that_goes_without_any_tool_goes_without_what_was_recalled(
    model: Model, url: str, members: dict[str, Any]
) -> None:
    """Upstreams refuse calls in the messages of a request without tools."""
    model.tells_usage = False
    model.replies += [recalls(query="How was the bridge paid?"), said("In cash.")]
    await send(url, long_talk(), model="gpt-4o")
    talk = [*long_talk(), said("In cash."), user("Thanks")]
    before = await send(url, talk, model="gpt-4o")
    without = await send(url, talk, model="gpt-4o", **members)
    after = await send(url, talk, model="gpt-4o")
    assert [each.status_code for each in (before, without, after)] == [200, 200, 200]
    *_, with_it, plain, again = model.bodies()
    assert has_calls(with_it["messages"])
    assert not has_calls(plain["messages"])
    assert plain["messages"][-3:] == talk[-3:]
    assert tokens_of(without)["sent"] == pytest.approx(count_tokens(plain), abs=50)
    assert "tools" not in plain
    assert again == with_it


async def test_a_model_that_takes_no_tools_gets_nothing_of_what_was_recalled(model: Model, url: str) -> None:
    async def plain(exchange: Exchange) -> None:
        body = model.bodies()[-1]
        if "tools" in body:
            await exchange.answer_json({"error": {"message": "gemma does not support tools"}}, status=400)
        elif has_calls(body["messages"]):
            await exchange.answer_json({"error": {"message": "Roles must be user or model."}}, status=400)
        else:
            await exchange.answer_json(completion(said("You are welcome."), None))

    model.replies += [recalls(query="How was the bridge paid?"), said("In cash.")]
    await send(url, long_talk(), model="gpt-4o")
    talk = [*long_talk(), said("In cash."), user("Thanks")]
    model.replies += [plain] * 3
    first, second = [await send(url, talk, model="gpt-4o-gemma") for _ in range(2)]
    assert (first.status_code, second.status_code) == (200, 200)
    assert len(model.chats) == 5
    assert tokens_of(first)["sent"] == tokens_of(second)["sent"]
    assert model.bodies()[-1] == model.bodies()[-2]


async def test_beside_the_clients_tools_what_was_recalled_stays_though_none_may_be_called(
    model: Model, url: str
) -> None:
    model.replies += [recalls(query="How was the bridge paid?"), said("In cash.")]
    await send(url, long_talk(), tools=[LOOK])
    talk = [*long_talk(), said("In cash."), user("Thanks")]
    await send(url, talk, tools=[LOOK], tool_choice="none")
    assert model.bodies()[-1]["tools"] == [LOOK]
    assert model.views()[-1][: len(model.views()[1])] == model.views()[1]


async def test_messages_can_be_read_by_number_round_after_round(model: Model, url: str) -> None:
    model.replies += [recalls(), recalls("r2", **{"from": 3, "to": 4}), said("In cash.")]
    answer = await ask(url, long_talk())
    assert answer.choices[0].message.content == "In cash."
    view = model.views()[-1]
    assert view[-3]["content"].startswith("Left out: messages 2-")
    assert SECRET in view[-1]["content"]


async def test_the_tool_is_added_with_the_first_epoch_and_not_before(model: Model, url: str) -> None:
    short = [user("Hello")]
    await ask(url, short)
    await ask(url, short, tools=[LOOK])
    await ask(url, long_talk(), tools=[LOOK])
    bodies = model.bodies()
    assert "tools" not in bodies[0]
    assert bodies[1]["tools"] == [LOOK]
    assert bodies[2]["tools"] == [LOOK, TOOL]


async def test_its_room_is_kept_from_the_first_request_on_and_its_tokens_count_where_it_is_sent(
    model: Model, policy: Start
) -> None:
    enough = count_tokens({"messages": long_talk()}) + 100  # with the tool it would be too little
    sent: list[dict[str, int]] = []
    for recall in ("true", "false"):
        text = POLICY.replace("4000", str(enough)) + "[stages]\ntrim = 0.99\ncompact = 0.995\n"
        text = text.replace("[recall]\nenabled = true", f"[recall]\nenabled = {recall}")
        async with proxying(model.url, policy=policy(text=text)) as url:
            hello = tokens_of(await send(url, [user("Hello")], model="gpt-4o"))
            assert hello["sent"] == hello["full"] == count_tokens(model.bodies()[-1])
            (session,) = (await admin(url, "sessions"))["sessions"]
            explained = await admin(url, f"sessions/{session['id']}/explain")
            answer = {"messages": [said("So it is. " * 25)]}
            assert abs(explained["tokens"] - hello["sent"] - count_tokens(answer)) < 100, "no tool is sent"
            sent.append(tokens_of(await send(url, long_talk(), model="gpt-4o")))
            assert sent[-1]["sent"] == pytest.approx(count_tokens(model.bodies()[-1]), abs=50)
    assert sent[0]["sent"] < sent[0]["full"] == sent[1]["full"] == sent[1]["sent"]


@pytest.mark.parametrize(
    "members", CHOICES, ids=["none", "named", "several answers", "functions", "one of the client's"]
)
async def test_where_the_client_decides_nothing_is_added(
    model: Model, url: str, members: dict[str, Any]
) -> None:
    response = await send(url, long_talk(), **members)
    assert int(told(response, "cut")) > 0
    body = model.bodies()[-1]
    assert {name: body.get(name) for name in members} == members
    assert body.get("tools") == members.get("tools")


def without_tools(model: Model, status: int, told: str) -> Callable[[Exchange], Awaitable[None]]:
    """A model behind a server that takes no tools but the client's."""

    async def behave(exchange: Exchange) -> None:
        if TOOL in model.bodies()[-1].get("tools", []):
            await exchange.answer_json({"error": {"message": told, "type": "api_error"}}, status=status)
        else:
            await exchange.answer_json(completion(said("I cannot say.")))

    return behave


REFUSALS = [
    (400, "registry.ollama.ai/library/gemma:2b does not support tools"),
    (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    (400, "Unsupported parameter: 'tools' is not supported with this model."),
    (400, "Unrecognized request argument supplied: tools"),
    (400, "some-reasoner does not support Function Calling"),
    (422, "Tool calling is not supported with this model"),
    (500, "tools param requires --jinja flag"),
]


@pytest.mark.parametrize(("status", "message"), REFUSALS)
async def test_an_upstream_that_refuses_tools_gets_the_request_without_it_and_is_not_asked_again(
    model: Model, url: str, status: int, message: str
) -> None:
    model.replies += [without_tools(model, status, message)] * 3
    first, second = await send(url, long_talk()), await send(url, long_talk())
    assert (first.status_code, second.status_code) == (200, 200)
    refused, *taken = model.bodies()
    assert refused.pop("tools") == [TOOL]
    assert taken[0] == refused
    assert [body.get("tools") for body in taken] == [None, None]


async def test_all_that_a_first_cut_adds_may_be_refused_one_after_another(
    model: Model, policy: Start
) -> None:
    """The client would hear of parameters that it never sent."""

    async def picky(exchange: Exchange) -> None:
        body = model.bodies()[-1]
        wrong = next((name for name in ("prompt_cache_key", "tools") if name in body), None)
        if wrong is None:
            await exchange.answer_json(completion(said("I cannot say.")))
        else:
            error: Message = {"message": f"Unsupported parameter: '{wrong}' is not supported."}
            await exchange.answer_json({"error": error}, status=400)

    too_long = plainly(400, [JSON], json.dumps(refusal(OPENAI, 16_000, 4_000)).encode())
    model.replies += [too_long, *[picky] * 5]
    text = POLICY.replace("tokens = 4000", "").replace(
        "enabled = false\n[recall]", "enabled = true\n[recall]"
    )
    async with proxying(model.url, policy=policy(text=text)) as url:
        assert (await send(url, long_talk())).status_code == 200
        assert (await send(url, long_talk())).status_code == 200
    added = [set(body) - {"model", "messages"} for body in model.bodies()]
    assert added == [set(), {"prompt_cache_key", "tools"}, {"tools"}, set(), set()]


async def test_tools_that_the_client_has_too_teach_nothing_of_the_model(model: Model, url: str) -> None:
    """It may have as many as the upstream takes."""
    model.replies += [without_tools(model, 400, "Invalid 'tools': array too long. Expected 1.")] * 2
    assert (await send(url, long_talk(), tools=[LOOK])).status_code == 200
    assert [body["tools"] for body in model.bodies()] == [[LOOK, TOOL], [LOOK]]
    await send(url, long_talk())
    assert model.bodies()[-1]["tools"] == [TOOL]


async def test_what_is_wrong_with_the_clients_messages_is_not_taken_for_a_refusal_of_tools(
    model: Model, url: str
) -> None:
    message = "An assistant message with 'tool_calls' must be followed by tool messages responding to each."
    model.replies += [plainly(400, [JSON], json.dumps({"error": {"message": message}}).encode())] * 2
    assert (await send(url, long_talk())).status_code == 400
    assert len(model.chats) == 2
    await send(url, long_talk())
    assert model.bodies()[-1]["tools"] == [TOOL]


async def test_where_the_clients_tools_may_be_refused_the_request_is_not_sent_again(
    model: Model, url: str
) -> None:
    model.replies.append(without_tools(model, 400, "Request contains an invalid argument."))
    assert (await send(url, long_talk(), tools=[LOOK])).status_code == 400
    assert len(model.chats) == 1


JSON_ONLY: Message = {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize(
    "words",
    [
        "Function calling with a response mime type: 'application/json' is unsupported",
        "json mode cannot be combined with tool/function calling",
        "You cannot specify response format and function call at the same time",
        "response_format is not supported with tools",
    ],
    ids=["Gemini", "Groq", "Fireworks", "another"],
)
async def test_where_tools_are_refused_beside_a_response_format_only_such_requests_go_without(
    model: Model, policy: Start, words: str
) -> None:
    error: Message = {"error": {"message": words, "type": "invalid_request_error", "param": None}}

    async def picky(exchange: Exchange) -> None:
        body = model.bodies()[-1]
        if "tools" in body and body.items() >= JSON_ONLY.items():
            await exchange.answer_json(error, status=400)
        else:
            await exchange.answer_json(completion(said("{}")))

    model.replies += [picky] * 5
    text = POLICY.replace("[economy]\nenabled = false\n", "")
    async with proxying(model.url, policy=policy(text=text)) as url:
        for members in (JSON_ONLY, JSON_ONLY, {}, {"response_format": {"type": "text"}}):
            assert (await send(url, long_talk(), **members)).status_code == 200
    assert [body.get("tools") for body in model.bodies()] == [[TOOL], None, None, [TOOL], [TOOL]]
    assert ["prompt_cache_key" in body for body in model.bodies()] == [True, False, True, True, True]


async def test_a_tool_that_is_refused_in_words_that_say_nothing_of_it_is_left_out_each_time(
    model: Model, url: str
) -> None:
    model.replies += [without_tools(model, 400, "Request contains an invalid argument.")] * 4
    for members in ({}, JSON_ONLY):
        assert (await send(url, long_talk(), **members)).status_code == 200
    assert [body.get("tools") for body in model.bodies()] == [[TOOL], None, [TOOL], None]


async def test_while_it_is_off_every_byte_is_as_without_it(model: Model, policy: Start) -> None:
    bodies: list[bytes] = []
    for text in (POLICY.replace("enabled = true", "enabled = false"), POLICY.partition("[recall]")[0]):
        async with proxying(model.url, policy=policy(text=text)) as url:
            await send(url, long_talk(), tools=[LOOK])
            bodies.append(bytes(model.chats[-1].body))
    assert bodies[0] == bodies[1]
    assert NAME.encode() not in bodies[0]


async def test_a_branch_cannot_read_its_siblings(model: Model, url: str) -> None:
    talk = long_talk()
    await ask(url, talk)
    other = [*talk[:2], user("Something else altogether."), *talk[3:]]
    model.replies += [recalls(query="bridge paid in cash by my physician"), said("I do not know.")]
    await ask(url, other)
    assert model.views()[-1][-1]["role"] == "tool"
    assert not any(tells(message, "INV-2023") for message in model.views()[-1])


async def test_a_policy_that_names_embeddings_is_searched_by_words(model: Model, policy: Start) -> None:
    async with proxying(model.url, policy=policy('embeddings = "small"')) as url:
        model.replies += [recalls(query="Who paid the bridge?"), said("A doctor.")]
        answer = await ask(url, long_talk())
    assert answer.choices[0].message.content == "A doctor."
    assert SECRET in model.views()[-1][-1]["content"]


async def test_a_call_that_makes_no_sense_is_answered_and_the_talk_goes_on(model: Model, url: str) -> None:
    model.replies += [calling(("r1", NAME, "{")), said("Never mind.")]
    answer = await ask(url, long_talk())
    assert answer.choices[0].message.content == "Never mind."
    assert model.views()[-1][-1]["content"].startswith("The arguments are not JSON.")


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])
async def test_where_there_is_no_room_to_recall_the_model_answers_without_it(
    model: Model, url: str, stream: bool
) -> None:
    talk = [*long_talk()[:-1], user("How was the bridge paid? " + "Tell me all. " * 1200)]
    model.replies += [recalls(query="bridge"), said("I cannot say.")]
    answer = await ask(url, talk, stream=stream)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("I cannot say.", "stop")
    first, second = model.bodies()
    assert first["tools"] == [TOOL]
    assert {**first, "tools": None} == {**second, "tools": None}
    assert "tools" not in second


TOO_LONG = refusal(OPENAI, 4100, 4000)
FILTERED = {"error": {"message": "The response was filtered.", "type": None, "code": "content_filter"}}


@both
@pytest.mark.parametrize(
    "refused",
    [
        plainly(400, [JSON], json.dumps(TOO_LONG).encode()),
        in_pieces(sse(TOO_LONG)),
        plainly(400, [JSON], json.dumps(FILTERED).encode()),
    ],
    ids=["for its length", "for its length, in a stream", "for its content"],
)
async def test_where_what_was_recalled_is_refused_the_model_answers_without_it(
    model: Model, url: str, stream: bool, refused: Behaviour
) -> None:
    model.replies += [recalls(), recalls("r2", query="bridge"), refused, said("I cannot say.")]
    answer = await ask(url, long_talk(), stream=stream)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("I cannot say.", "stop")
    _, second, third, fourth = model.bodies()
    assert len(third["messages"]) == len(second["messages"]) + 2
    assert fourth["messages"] == second["messages"]
    assert "tools" not in fourth
    assert model.invalid == []


async def test_reasoning_beside_a_call_of_ours_is_left_out_where_the_upstream_refuses_it(
    model: Model, url: str
) -> None:
    words = "messages.2.assistant.reasoning_content: property 'reasoning_content' is unsupported"
    refused = plainly(400, [JSON], json.dumps({"message": words}).encode())
    model.replies += [{**recalls(), "reasoning_content": "hm"}, refused, said("In cash.")]
    answer = await ask(url, long_talk())
    assert answer.choices[0].message.content == "In cash."
    _, second, third = model.bodies()
    assert second["messages"][-2].pop("reasoning_content") == "hm"
    assert third == second


@pytest.mark.parametrize(
    "refused",
    [
        slow_down,
        plainly(429, [JSON, (b"Content-Encoding", b"gzip")], gzip.compress(json.dumps(SLOW_DOWN).encode())),
        plainly(200, [JSON], json.dumps(SLOW_DOWN).encode()),
    ],
    ids=["in pieces", "compressed", "with status 200"],
)
async def test_an_upstream_that_does_not_go_on_after_a_recall_ends_the_stream_with_its_error(
    model: Model, url: str, refused: Behaviour
) -> None:
    model.replies += [{**recalls(query="bridge"), "content": "Let me see. "}, refused]
    stream = await send(url, long_talk(), stream=True)
    *_, last, end = stream.text.split("\n\n")
    assert json.loads(last.removeprefix("data: ")) == SLOW_DOWN
    assert not end
    assert NAME not in stream.text
    (session,) = (await admin(url, "sessions"))["sessions"]
    told = (await admin(url, f"sessions/{session['id']}/transcript"))["messages"]
    assert [each["complete"] for each in told if each["message"].get("content") == "Let me see. "] == [False]
    model.replies += [recalls(query="bridge"), refused]
    assert (await send(url, long_talk())).json() == SLOW_DOWN


@both
@pytest.mark.parametrize(
    "words",
    [
        "Bedrock doesn't support tool calling without `tools=` param specified.",
        "Requests which include `tool_use` or `tool_result` blocks must define tools",
        "The toolConfig field must be defined when using toolUse and toolResult content blocks.",
    ],
    ids=["LiteLLM", "Anthropic", "Bedrock"],
)
async def test_an_upstream_that_wants_the_tools_of_all_calls_gets_the_last_request_with_them(
    model: Model, url: str, stream: bool, words: str
) -> None:
    refused = plainly(400, [JSON], json.dumps({"error": {"message": words}}).encode())
    model.replies += [*(recalls(f"r{number}") for number in range(4)), refused, said("In cash.")]
    answer = await ask(url, long_talk(), stream=stream)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("In cash.", "stop")
    *offered, last, taken = model.bodies()
    assert "tools" not in last
    assert taken == {**last, "tools": [TOOL]}
    assert all(body["tools"] == [TOOL] for body in offered)
    assert len(offered) == 4


def in_parts(message: Message, *, stream: bool) -> Behaviour:
    """An answer with a content of parts, as Mistral's reasoning models give it."""
    thought: Message = {"type": "thinking", "thinking": [{"type": "text", "text": "I should look."}]}
    parts = [thought, {"type": "text", "text": message["content"]}] if message["content"] else [thought]
    if not stream:
        return plainly(200, [JSON], json.dumps(completion({**message, "content": parts})).encode())
    calls = [{"index": at, **call} for at, call in enumerate(message.get("tool_calls", ()))]
    deltas = [{"content": [thought]}, {"content": message["content"] or ""}, {"tool_calls": calls}]
    choices: list[Message] = [{"index": 0, "delta": each, "finish_reason": None} for each in deltas]
    choices[-1]["finish_reason"] = "tool_calls" if calls else "stop"
    return in_pieces(*(sse({"id": "c", "choices": [each]}) for each in choices), DONE)


@both
async def test_a_model_that_answers_in_parts_recalls_like_any_other(
    model: Model, url: str, stream: bool
) -> None:
    model.replies += [in_parts(each, stream=stream) for each in (recalls(query="bridge"), said("In cash."))]
    response = await send(url, long_talk(), stream=stream)
    assert response.status_code == 200
    answer = collected(response.content) if stream else read(response.content)
    told = json.loads(answer.message or b"")
    assert [part["type"] for part in told["content"]] == ["thinking", "text"]
    assert told["content"][1]["text"] == "In cash."
    assert (answer.complete, answer.finish_reason, answer.tool_calls) == (True, "stop", False)
    await send(url, [*long_talk(), told, user("Thank you")])
    assert any(tells(message, SECRET) for message in model.views()[-1])


async def test_what_is_recalled_in_a_stream_of_another_content_type_is_hidden_too(
    model: Model, url: str
) -> None:
    plain = [(b"Content-Type", b"text/plain")]
    for each in (recalls(query="bridge"), said("In cash.")):
        model.replies.append(in_pieces(*map(sse, events(each)), DONE, headers=plain))
    answer = collected((await send(url, long_talk(), stream=True)).content)
    assert json.loads(answer.message or b"") == {"role": "assistant", "content": "In cash."}
    assert answer.complete


async def test_doing_nothing_would_have_recalled_nothing(model: Model, policy: Start, chats: Chats) -> None:
    model.caches = True
    async with proxying(model.url, policy=policy()) as url:
        warm = chats(url)
        warm.members["model"] = "gpt-4o"
        for _ in range(14):
            await warm.ask("Hello " * 100)  # until it is known how the model counts
        full, bills = list[int](), list[Any]()
        for name, replies in (("plain", []), ("recalling", [recalls(query="How was the bridge paid?")])):
            chat = chats(url, X_Unabridged_Session=name)
            chat.messages, chat.members["model"] = long_talk()[:-1], "gpt-4o"
            chat.messages[0] = user(f"Hello {name}")  # so that the provider has none of it in its cache
            model.replies += [*replies, said("In cash.")]
            await chat.ask("How was the bridge paid?")
            full.append(tokens_of(await chat.ask("Thanks"))["full"])
            bills.append(await bill_of(url, name, requests=2))
    plain, recalling = bills
    assert recalling["tool_calls_answered"] == 1
    assert recalling["tokens"]["sent"] > plain["tokens"]["sent"] + 600
    assert full[0] == full[1]
    assert recalling["tokens"]["received"] == pytest.approx(plain["tokens"]["received"], rel=0.01)
    assert recalling["dollars"]["without"] == pytest.approx(plain["dollars"]["without"], rel=0.01)

"""Windows and ratios learned from what upstreams say, unseen by the client."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable

import httpx2
import pytest

from proxy.engine.answers import sending
from tests.support.append_client import Appenders
from tests.support.clients import Chat, Chats, proxying, question, tokens_of, user, window_from
from tests.support.servers import Exchange
from tests.support.upstreams import (
    DONE,
    EVENTS,
    JSON,
    Behaviour,
    Message,
    Model,
    completion,
    count_tokens,
    events,
    in_pieces,
    plainly,
    said,
    sse,
)

Refusal = tuple[int, object]
"""Status and body."""

WINDOW = 900


def openai(message: str, **members: object) -> Message:
    error = {"message": message, "type": "invalid_request_error", "param": "messages", **members}
    return {"error": {"code": "context_length_exceeded", **error}}


def vllm(message: str, **members: object) -> Message:
    return {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400, **members}}


LENGTH = f"This model's maximum context length is {WINDOW} tokens. However, "
LLAMA = {
    "code": 400,
    "message": f"request (1900 tokens) exceeds the available context size ({WINDOW} tokens), try increasing",
    "type": "exceed_context_size_error",
    "n_prompt_tokens": 1900,
    "n_ctx": WINDOW,
}
PROMPT_TOO_LONG = f"prompt is too long: 1900 tokens > {WINDOW} maximum"
GEMINI = {
    "code": 400,
    "message": f"The input token count (1900) exceeds the maximum number of tokens allowed ({WINDOW}).",
    "status": "INVALID_ARGUMENT",
}
REFUSALS: dict[str, Refusal] = {
    "OpenAI": (400, openai(LENGTH + "your messages resulted in 1900 tokens. Please reduce the length.")),
    "OpenAI, with an answer": (
        400,
        openai(LENGTH + "you requested 2900 tokens (1900 in the messages, 1000 in the completion)."),
    ),
    "Azure OpenAI": (
        400,
        openai(
            LENGTH
            + "your messages resulted in 1900 tokens (1800 in the messages, 100 in the functions). Please "
            "reduce the length of the messages or functions."
        ),
    ),
    "vLLM of 2024": (
        400,
        {
            "object": "error",
            "message": LENGTH + "you requested 2900 tokens (1900 in the messages, 1000 in the completion). "
            "Please reduce the length of the messages or completion.",
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "vLLM of 2025": (400, vllm(LENGTH + "your request has 1900 input tokens. Please reduce the length.")),
    "vLLM of 2026": (
        400,
        vllm(
            f"You passed {WINDOW + 1} input tokens and requested 0 output tokens. However, the model's "
            f"context length is only {WINDOW} tokens, resulting in a maximum input length of {WINDOW} "
            f"tokens. Please reduce the length of the input prompt. (parameter=input_tokens, value=901)",
            param="input_tokens",
        ),
    ),
    "llama.cpp": (400, {"error": LLAMA}),
    "llama.cpp of 2025": (500, {"error": {**LLAMA, "code": 500, "message": "the request exceeds it"}}),
    "LM Studio": (
        400,
        {
            "error": {
                "message": "Input does not fit in context length. The input has 1900 tokens, but the context "
                f"length only supports {WINDOW} tokens."
            },
        },
    ),
    "Ollama": (400, {"error": "prompt too long; exceeded max context length by 1000 tokens (ref: 1-2)"}),
    "Ollama, local": (
        400,
        {
            "error": {
                "message": "the input length exceeds the context length",
                "type": "invalid_request_error",
                "param": None,
                "code": None,
            }
        },
    ),
    "Anthropic": (
        400,
        {"type": "error", "error": {"type": "invalid_request_error", "message": PROMPT_TOO_LONG}},
    ),
    "Gemini": (400, [{"error": GEMINI}]),
    "a gateway that quotes": (
        400,
        {"error": {"message": f"litellm.ContextWindowExceededError: {PROMPT_TOO_LONG}", "code": "400"}},
    ),
    "a gateway to which it is a failure": (502, {"error": {"message": PROMPT_TOO_LONG, "code": 502}}),
    "a gateway with no other model": (503, {"error": {"message": PROMPT_TOO_LONG, "code": 503}}),
}
STATES_NOTHING = ("Ollama", "Ollama, local")


def long_chat(chats: Chats, url: str, *, stream: bool, **headers: str) -> Chat:
    """About 1,600 tokens."""
    chat = chats(url, **headers)
    chat.members["stream"] = stream
    for number in range(30):
        chat.messages += [user(question(number)), {"role": "assistant", "content": "It is done."}]
    return chat


def as_json(refusal: Refusal) -> Behaviour:
    status, body = refusal
    return plainly(status, [JSON, (b"X-Refused", b"1")], json.dumps(body).encode())


def as_event(refusal: Refusal) -> Behaviour:
    """The same in a stream whose status is 200, as servers write it that begin before they have looked."""
    _, body = refusal
    return in_pieces(sse(body), headers=[EVENTS, (b"X-Refused", b"1")])


# --- refusals ---


@pytest.mark.parametrize("upstream", REFUSALS)
async def test_a_refusal_for_length_teaches_the_window_unseen_by_the_client(
    model: Model, chats: Chats, url: str, upstream: str
) -> None:
    for how in (as_json, as_event):
        model.chats.clear()
        chat = long_chat(chats, url, stream=how is as_event, Authorization=f"Bearer {how.__name__}")
        model.replies += [how(REFUSALS[upstream]), said("Here is all of it.")]
        response = await chat.ask(question(30))
        assert (response.status_code, chat.messages[-1]["content"]) == (200, "Here is all of it.")
        assert "x-refused" not in response.headers
        assert b"error" not in response.content
        assert response.content.count(b"[DONE]") == (how is as_event)
        assert len(model.chats) == 2
        budget = tokens_of(response)["budget"]
        if upstream not in STATES_NOTHING:
            assert budget == WINDOW - WINDOW // 8
        assert max(count_tokens(model.bodies()[1]), tokens_of(response)["sent"]) <= budget
        assert tokens_of(await chat.ask(question(31)))["budget"] == budget
        assert len(model.chats) == 3, "what was learned acts at once"


async def test_what_is_sent_after_a_refusal_has_not_the_idempotency_key_of_the_first_body(
    model: Model, chats: Chats, url: str
) -> None:
    chat = long_chat(chats, url, stream=False, Idempotency_Key="k-1", Content_Digest="sha-256=:abc=:")
    model.replies += [as_json(REFUSALS["OpenAI"]), said("Here is all of it.")]
    assert (await chat.ask(question(30))).status_code == 200
    first, second = model.chats
    assert (first.value("idempotency-key"), first.value("content-digest")) == (b"k-1", b"sha-256=:abc=:")
    assert (second.value("idempotency-key"), second.value("content-digest")) == (None, None)


async def test_a_digest_of_what_the_client_sent_goes_with_no_other_body(
    model: Model, url: str, appenders: Appenders
) -> None:
    appender = appenders(url)
    await appender.ask("first", Content_Digest="sha-256=:abc=:")
    await appender.ask("second", Content_Digest="sha-256=:def=:")
    body = gzip.compress(json.dumps({"model": "m", "messages": [user("packed")]}).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip", "Content-MD5": "abc="}
    async with httpx2.AsyncClient(base_url=url) as client:
        assert (await client.post("/v1/chat/completions", content=body, headers=headers)).status_code == 200
    assert [chat.value("content-digest") or chat.value("content-md5") for chat in model.chats] == [None] * 3


async def test_log_and_metrics_tell_what_was_sent_after_a_refusal_for_length(
    model: Model, chats: Chats, capsys: pytest.CaptureFixture[str]
) -> None:
    async with proxying(model.url) as url:
        chat = long_chat(chats, url, stream=False)
        model.replies += [as_json(REFUSALS["OpenAI"]), said("Here is all of it.")]
        response = await chat.ask(question(30))
        metrics = (await chat.client.get(f"{url}/metrics")).text
    (logged,) = [
        json.loads(line) for line in capsys.readouterr().err.splitlines() if '"route":"chat"' in line
    ]
    tokens = tokens_of(response)
    assert [logged[name] for name in ("sent", "full", "budget")] == [
        tokens[name] for name in ("sent", "full", "budget")
    ]
    assert (logged["stage"], logged["epoch"]) == (response.headers["x-unabridged-stage"], 1)
    assert f'stage="{logged["stage"]}"}} 1.0' in metrics


async def test_a_refusal_that_comes_after_comments_is_unseen_as_well(
    model: Model, chats: Chats, url: str
) -> None:
    """OpenRouter writes comments until the model behind it has said something."""
    _, body = REFUSALS["OpenAI"]
    refused = in_pieces(b": PROCESSING\n\n", b": PROCESSING\n\n", sse(body))
    model.replies += [refused, said("All of it.")]
    chat = long_chat(chats, url, stream=True)
    response = await chat.ask(question(30))
    assert chat.messages[-1]["content"] == "All of it."
    assert b"PROCESSING" not in response.content
    assert tokens_of(response)["budget"] == WINDOW - WINDOW // 8


async def test_comments_are_passed_on_where_nothing_follows_them_soon(
    model: Model, chats: Chats, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_COMMENTS", 0.02)
    seen = asyncio.Event()

    async def slow(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.start(200, [EVENTS])
        await exchange.chunk(b": PROCESSING\n\n")
        await seen.wait()
        for event in events(said("At last.")):
            await exchange.chunk(sse(event))
        await exchange.chunk(DONE)
        await exchange.end()

    model.replies.append(slow)
    chat = chats(url)
    body = {"model": "m", "stream": True, "messages": [user("Hello")]}
    async with chat.client.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
        text = ""
        async for part in response.aiter_text():
            text += part
            if "PROCESSING" in text:
                seen.set()
    assert text.startswith(": PROCESSING\n\ndata: ")
    assert text.endswith("data: [DONE]\n\n")


def at_last(error: Message) -> Behaviour:
    """The error after a comment that has been passed on by then."""

    async def behave(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        await exchange.chunk(b": PROCESSING\n\n")
        await asyncio.sleep(0.1)
        await exchange.chunk(sse(error))
        await exchange.end()

    return behave


ERROR = {"error": {"message": LENGTH + "your messages resulted in 1900 tokens.", "code": 400}}
NOTHING = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": "error"}
TOLD_LATE: dict[str, Behaviour] = {
    "an object": plainly(200, [JSON], json.dumps(ERROR).encode()),
    "an event": at_last(ERROR),
    "an event with an empty choice": at_last({"id": "gen-1", "choices": [NOTHING], **ERROR}),
}


@pytest.mark.parametrize("how", TOLD_LATE)
async def test_a_refusal_that_only_the_end_of_an_answer_tells_prunes_the_next_turn(
    model: Model, chats: Chats, url: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_COMMENTS", 0.0)
    chat = long_chat(chats, url, stream=how != "an object")
    model.replies.append(TOLD_LATE[how])
    chat.messages.append(user(question(30)))
    response = await chat.send()
    assert (response.status_code, len(model.chats)) == (200, 1)
    assert b"1900 tokens" in response.content
    response = await chat.send()
    assert (tokens_of(response)["window"], window_from(response)) == (WINDOW, "refusal")
    assert count_tokens(model.bodies()[1]) <= tokens_of(response)["budget"] == WINDOW - WINDOW // 8


async def test_an_answer_that_runs_out_of_room_teaches_no_window(
    model: Model, chats: Chats, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_COMMENTS", 0.0)
    chat = long_chat(chats, url, stream=True)
    begun = {"choices": [{**NOTHING, "delta": {"content": "Once upon"}, "finish_reason": None}]}
    model.replies.append(at_last({**begun, "error": {"message": "Context size has been exceeded."}}))
    chat.messages.append(user(question(30)))
    assert b"Once upon" in (await chat.send()).content
    assert window_from(await chat.send()) == "unknown"


async def test_a_refusal_that_comes_compressed_is_understood(model: Model, chats: Chats, url: str) -> None:
    status, body = REFUSALS["OpenAI"]
    packed = gzip.compress(json.dumps(body).encode())
    model.replies += [plainly(status, [JSON, (b"Content-Encoding", b"gzip")], packed), said("All of it.")]
    chat = long_chat(chats, url, stream=False)
    assert tokens_of(await chat.ask(question(30)))["budget"] == WINDOW - WINDOW // 8


async def test_the_error_field_of_an_older_llama_cpp_is_heard(model: Model, chats: Chats, url: str) -> None:
    chat = long_chat(chats, url, stream=True)
    field = b"error: " + json.dumps({**LLAMA, "type": "invalid_request_error"}).encode() + b"\n\n"
    model.replies += [in_pieces(field, b"data: [DONE]\n\n"), said("Here is all of it.")]
    await chat.ask(question(30))
    assert chat.messages[-1]["content"] == "Here is all of it."
    assert len(model.chats) == 2


RATE_LIMITS: dict[str, Refusal] = {
    "OpenAI": (
        429,
        openai(
            "Request too large for gpt-test in organization org on tokens per min (TPM): Limit 900, "
            "Requested 1900. The input or output tokens must be reduced in order to run successfully.",
            type="tokens",
            code="rate_limit_exceeded",
        ),
    ),
    "any, with a window": (429, openai(LENGTH + "your messages resulted in 1900 tokens.")),
    "Groq": (
        413,
        openai(
            "Request too large for model `x` on tokens per minute (TPM): Limit 900, Requested 1900, please "
            "reduce the length of the messages",
            type="tokens",
            code="rate_limit_exceeded",
        ),
    ),
    "Anthropic": (
        429,
        {"error": {"type": "rate_limit_error", "message": "over your limit of 900 input tokens per minute"}},
    ),
}


async def test_a_rate_limit_that_speaks_of_tokens_is_passed_on_and_teaches_nothing(
    model: Model, chats: Chats, url: str
) -> None:
    for upstream, (status, body) in RATE_LIMITS.items():
        model.chats.clear()
        chat = long_chat(chats, url, stream=True, Authorization=f"Bearer {upstream}")
        before = tokens_of(await chat.ask(question(30))).get("budget")
        model.replies.append(as_json((status, body)))
        response = await chat.ask(question(31))
        assert (response.status_code, response.json()) == (status, body)
        assert response.headers["x-refused"] == "1"
        assert len(model.chats) == 2
        assert tokens_of(await chat.send()).get("budget") == before


@pytest.mark.parametrize(("how", "stream"), [(as_json, False), (as_json, True), (as_event, True)])
async def test_a_retry_that_is_refused_as_well_is_passed_on(
    model: Model, chats: Chats, url: str, how: Callable[[Refusal], Behaviour], stream: bool
) -> None:
    chat = long_chat(chats, url, stream=stream)
    second = vllm(
        "This model's maximum context length is 500 tokens. However, your request has 700 input tokens."
    )
    model.replies += [how(REFUSALS["OpenAI"]), how((400, second))]
    response = await chat.ask(question(30))
    refusal = json.dumps(second).encode()
    assert refusal in response.content
    assert b"1900" not in response.content
    assert response.status_code == (200 if how is as_event else 400)
    assert len(model.chats) == 2


async def test_a_refusal_for_length_is_acted_on_after_another_refusal_too(
    model: Model, chats: Chats, url: str
) -> None:
    """Upstreams look at a request's parameters before they count its tokens."""
    chat = long_chat(chats, url, stream=True)
    unknown: Refusal = (400, {"error": {"message": "Unknown parameter: stream_options"}})
    model.replies += [as_json(unknown), as_json(REFUSALS["OpenAI"]), said("Here is all of it.")]
    response = await chat.ask(question(30))
    assert (response.status_code, chat.messages[-1]["content"]) == (200, "Here is all of it.")
    assert tokens_of(response)["budget"] == WINDOW - WINDOW // 8
    first, *others = model.bodies()
    assert [set(first) - set(each) for each in others] == [{"stream_options"}] * 2
    assert [set(each) - set(first) for each in others] == [set(), {"prompt_cache_key"}]


@pytest.mark.parametrize("quoted", [PROMPT_TOO_LONG, "prompt is too long: 250000 tokens > 200000 maximum"])
async def test_a_refusal_that_somebody_quotes_teaches_nothing(
    model: Model, chats: Chats, url: str, quoted: str
) -> None:
    """The upstream complains about something else, and says what it could not read."""
    chat = long_chat(chats, url, stream=False)
    before = tokens_of(await chat.ask(question(30))).get("budget")
    text = f"What is “{quoted}”?"
    model.replies.append(as_json((400, vllm(f"[{{'type': 'missing', 'input': {text!r}}}]"))))
    chat.messages.append(user(text))
    response = await chat.send()
    assert (response.status_code, len(model.chats)) == (400, 2)
    assert tokens_of(await chat.send()).get("budget") == before


async def test_an_answer_that_speaks_of_windows_is_no_refusal(model: Model, chats: Chats, url: str) -> None:
    chat = long_chat(chats, url, stream=True)
    before = tokens_of(await chat.ask(question(30))).get("budget")
    model.replies.append(said(LENGTH + "your messages resulted in 1900 tokens."))
    assert tokens_of(await chat.ask(question(31))).get("budget") == before
    assert tokens_of(await chat.ask(question(32))).get("budget") == before
    assert len(model.chats) == 3


async def test_one_callers_refusal_is_nobody_elses(model: Model, chats: Chats, url: str) -> None:
    mine = long_chat(chats, url, stream=False)
    assert "budget" not in tokens_of(await mine.ask(question(30)))
    model.replies.append(as_json(REFUSALS["OpenAI"]))
    assert tokens_of(await mine.ask(question(31)))["budget"] < WINDOW
    theirs = long_chat(chats, url, stream=False, Authorization="Bearer sk-other")
    assert "budget" not in tokens_of(await theirs.ask(question(31)))


# --- ratios ---


async def test_a_model_that_counts_otherwise_is_not_overrun_once_that_is_known(
    model: Model, chats: Chats, url: str
) -> None:
    """It counts 1.8 times as many tokens as we do, and says so in its usage."""
    window, refused = 2_000, 0

    async def counts(exchange: Exchange) -> None:
        nonlocal refused
        prompt = count_tokens(json.loads(exchange.request.body)) * 9 // 5
        if prompt > window:
            refused += 1
            await exchange.answer_json(vllm(LENGTH.replace(str(WINDOW), str(window))), 400)
        else:
            await exchange.answer_json(completion(said("So it is. " * 12), prompt))

    model.listing = {"data": [{"id": "gpt-test", "max_model_len": window}]}
    model.replies.extend([counts] * 60)
    chat = chats(url)
    for number in range(30):
        assert (await chat.ask(question(number))).status_code == 200
    assert refused == 0

"""Answers that did not come whole, to clients that send only what is new: they are in no later view."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.append_client import Appender, contents, hold, transcript
from tests.support.clients import Chats, admin, only_session, user
from tests.support.servers import PATIENCE, Exchange, awaited
from tests.support.upstreams import (
    DONE,
    EVENTS,
    JSON,
    Behaviour,
    Message,
    Model,
    calling,
    events,
    in_pieces,
    plainly,
    said,
    sse,
)


async def test_an_answer_that_was_cut_off_is_in_the_transcript_and_in_no_view(
    appender: Appender, model: Model
) -> None:
    model.replies.extend([said("One."), lambda exchange: hold(exchange, "half an "), said("Three.")])
    await appender.ask("first")
    assert "half" in await appender.leave_during("second")
    await awaited(lambda: transcript(appender.url, complete=False))
    await appender.ask("third")
    assert contents(model.views()[2]) == ["first", "One.", "third"]
    assert await transcript(appender.url, complete=False) == ["half an "]
    assert await transcript(appender.url) == ["first", "One.", "second", "third", "Three."]
    assert (await only_session(appender.url))["turns"] == 2


async def test_a_turn_that_was_cut_off_and_sent_again_is_there_once(appender: Appender, model: Model) -> None:
    model.replies.extend([said("One."), lambda exchange: hold(exchange, "half an "), said("Whole.")])
    await appender.ask("first")
    await appender.leave_during("second")
    await appender.ask("second")
    assert contents(model.views()[2]) == ["first", "One.", "second"]
    assert await transcript(appender.url) == ["first", "One.", "second", "Whole."]


async def test_a_stream_that_breaks_off_says_so_and_may_be_sent_again(
    appender: Appender, model: Model
) -> None:
    model.replies.append(in_pieces(*map(sse, events(said("broken"))[:2]), end=False))
    appender.members["stream"] = True
    assert "upstream_truncated" in (await appender.ask("first")).text
    await appender.ask("first")
    assert contents(model.views()[1]) == ["first"]


@pytest.mark.parametrize("is_stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("error", [{"error": {"code": 502, "message": "disconnected"}}, {}])
async def test_an_answer_that_failed_within_its_choice_is_in_no_view(
    appender: Appender, model: Model, is_stream: bool, error: Message
) -> None:
    """As OpenRouter reports what happens after it has begun to answer."""
    said_so_far = {"role": "assistant", "content": "The answer is par"}
    failed = {"index": 0, "finish_reason": "error", **error}
    chunks = [{"index": 0, "delta": said_so_far}, {**failed, "delta": {"content": ""}}]
    whole = json.dumps({"choices": [{**failed, "message": said_so_far}]}).encode()
    model.replies.append(
        in_pieces(*(sse({"choices": [each]}) for each in chunks), DONE)
        if is_stream
        else plainly(200, [JSON], whole)
    )
    appender.members["stream"] = is_stream
    first = await appender.ask("first")
    assert (first.status_code, "The answer is par" in first.text) == (200, True)
    await appender.ask("first")
    assert contents(model.views()[1]) == ["first"]
    assert await transcript(appender.url, complete=False) == ["The answer is par"]


async def test_results_that_an_unanswered_turn_brought_stay_with_their_calls(
    appender: Appender, model: Model
) -> None:
    model.replies.extend([calling(("c1", "look", "{}")), lambda exchange: hold(exchange, "I se")])
    await appender.ask("look")
    appender.members["stream"] = True
    result = {"role": "tool", "tool_call_id": "c1", "content": "a door"}
    response = await appender.client.send(appender.request(result), stream=True)
    await anext(response.aiter_bytes())
    await response.aclose()
    appender.members.pop("stream")
    await appender.ask("never mind")
    assert [message["role"] for message in model.views()[2]] == ["user", "assistant", "tool", "user"]


async def test_words_that_were_refused_are_no_results(appender: Appender, model: Model) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.answer_json({"error": {"message": "later"}}, 429)

    model.replies.extend([calling(("c1", "look", "{}")), refuse])
    await appender.ask("look")
    await appender.ask("refused")
    await appender.ask("never mind")
    assert [message["content"] for message in model.views()[2]] == ["look", None, "never mind"]


async def test_a_client_that_leaves_after_the_last_word_has_its_turn(
    appender: Appender, model: Model
) -> None:
    """Many clients stop reading at the finish reason, without waiting for `[DONE]`."""

    async def without_end(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.start(200, [(b"Content-Type", b"text/event-stream")])
        for event in events(said("All of it.")):
            await exchange.chunk(sse(event))
        await exchange.gone()

    model.replies.append(without_end)
    appender.members["stream"] = True
    response = await appender.client.send(appender.request(user("first")), stream=True)
    seen = ""
    async for text in response.aiter_text():
        seen += text
        if '"stop"' in seen:
            break
    await response.aclose()
    await appender.ask("second")
    assert contents(model.views()[1]) == ["first", "All of it.", "second"]


def odd(delta: Message, finish: str | None = None) -> Message:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize(
    "answer",
    [
        plainly(200, [EVENTS], sse(odd({"content": "a"})) + sse(odd({"content": [1]}, "stop")) + DONE),
        plainly(200, [JSON], b'{"choices":[{"message":{"role":"assistant","content":5}}]}'),
        plainly(200, [JSON, (b"Content-Encoding", b"br")], b"no"),
    ],
    ids=["an odd delta", "an odd message", "compressed by br"],
)
async def test_an_answer_that_cannot_be_kept_is_called_unsaved(
    appender: Appender, model: Model, answer: Behaviour
) -> None:
    await appender.ask("first")
    model.replies.append(answer)
    response = await appender.ask("second")
    assert "history_not_saved" in response.text
    assert "[DONE]" not in response.text
    await appender.ask("third")
    assert contents(model.views()[2])[::2] == ["first", "third"]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (plainly(200, [EVENTS], DONE), 200),
        (plainly(200, [EVENTS], b'data: {"choices":[{"index":0,"delta":{"content":NaN}}]}\n\n' + DONE), 200),
        (plainly(200, [JSON], b'{"choices":[{"message":{"role":"assistant","content":NaN}}]}'), 502),
        (plainly(200, [JSON], b"{}"), 502),
        (plainly(200, [(b"Content-Type", b"text/html")], b"<p>no"), 502),
    ],
    ids=["an empty stream", "a damaged stream", "no JSON", "no choices", "HTML"],
)
async def test_an_answer_without_a_message_is_the_fault_of_the_upstream(
    appender: Appender, model: Model, answer: Behaviour, status: int
) -> None:
    await appender.ask("first")
    model.replies.append(answer)
    response = await appender.ask("second")
    assert response.status_code == status
    assert "upstream_invalid_response" in response.text
    assert "[DONE]" not in response.text
    await appender.ask("third")
    assert contents(model.views()[2])[::2] == ["first", "third"]


async def test_an_answer_that_does_not_end_is_given_up_and_its_turn_may_be_sent_again(
    appender: Appender, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = asyncio.Event()

    async def without_end(exchange: Exchange) -> None:
        await exchange.start(200, [JSON])
        try:
            while True:
                await exchange.chunk(b" " * 10_000)
        finally:
            left.set()

    monkeypatch.setattr("proxy.http.answer.ANSWER_BYTES", 100_000)
    model.replies.append(without_end)
    response = await appender.ask("first")
    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_invalid_response")
    await asyncio.wait_for(left.wait(), PATIENCE)
    await appender.ask("first")
    assert contents(model.views()[1]) == ["first"]


async def test_an_answer_without_a_role_gets_one(appender: Appender, model: Model) -> None:
    model.replies.append({"role": None, "content": "ok", "extra": [1.50]})
    await appender.ask("first")
    await appender.ask("second")
    assert model.views()[1][1] == {"role": "assistant", "content": "ok", "extra": [1.50]}


async def test_a_first_turn_that_was_cut_off_and_edited_is_history_once_it_is_answered(
    appender: Appender, url: str, model: Model, chats: Chats
) -> None:
    model.replies.extend([lambda exchange: hold(exchange, "half an "), said("One.")])
    await appender.leave_during("first")
    chat = chats(url, X_Unabridged_Session="s")
    await chat.ask("first, edited")
    await appender.ask("second")
    assert contents(model.views()[2]) == ["first, edited", "One.", "second"]


@pytest.mark.parametrize("is_stream", [True, False], ids=["streamed", "whole"])
async def test_an_answer_that_only_reasons_is_sent_again_with_an_empty_content(
    appender: Appender, model: Model, is_stream: bool
) -> None:
    thought = {"role": "assistant", "content": None, "reasoning_content": "Let me"}
    if is_stream:
        appender.members["stream"] = True
        model.replies.append(plainly(200, [EVENTS], sse(odd(thought)) + sse(odd({}, "length")) + DONE))
    else:
        answer = {"choices": [{"index": 0, "message": thought, "finish_reason": "length"}]}
        model.replies.append(plainly(200, [JSON], json.dumps(answer).encode()))
    await appender.ask("first")
    await appender.ask("second")
    assert model.views()[1][1] == {**thought, "content": ""}


async def test_a_spoken_answer_goes_back_by_its_id_alone(appender: Appender, model: Model) -> None:
    sound = {"id": "audio_1", "data": "UklGRg" * 1_000, "expires_at": 2_000_000_000, "transcript": "Hello."}
    model.replies.extend([{"role": "assistant", "content": None, "audio": sound}, said("Yes.")])
    response = await appender.ask("Say hello.")
    assert response.json()["choices"][0]["message"]["audio"] == sound
    await appender.ask("Again?")
    assert model.views()[1][1] == {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}
    session = await only_session(appender.url)
    told = (await admin(appender.url, f"sessions/{session['id']}/transcript"))["messages"]
    assert told[1]["message"]["audio"] == sound

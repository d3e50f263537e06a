"""What a client gets of an answer with hidden calls, and when; and what it gets where things go wrong."""

from __future__ import annotations

import asyncio
import gzip
import json

import httpx2
import openai
import pytest

from tests.support.clients import admin, only_session
from tests.support.repeated_calls import (
    ROME,
    WEATHER,
    ask,
    begin,
    both,
    known,
    result,
    sent_back,
    talking,
)
from tests.support.servers import Exchange, eventually
from tests.support.upstreams import (
    DONE,
    EVENTS,
    JSON,
    OPENAI,
    SLOW_DOWN,
    Behaviour,
    Model,
    calling,
    events,
    in_pieces,
    plainly,
    refusal,
    said,
    slow_down,
    sse,
)


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
    stream = await begin(client, known())
    async for chunk in stream:
        ids.add(chunk.id)
        text += chunk.choices[0].delta.content or ""
        if "Let me" in text:
            seen.set()
    assert text == "Let me see. Still 18."
    assert ids == {told[0]["id"]}


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


PACKED = [JSON, (b"Content-Encoding", b"gzip")]


async def breaks_off(exchange: Exchange) -> None:
    exchange.close()


@both
@pytest.mark.parametrize(
    "fails",
    [
        plainly(429, [JSON], json.dumps(SLOW_DOWN, indent=1).encode()),
        slow_down,
        plainly(429, PACKED, gzip.compress(json.dumps(SLOW_DOWN).encode())),
        plainly(500, [JSON], b"{}"),
        breaks_off,
    ],
    ids=["at once", "in pieces", "compressed", "a fault", "no answer"],
)
async def test_an_upstream_that_does_not_go_on_leaves_the_call_to_the_client(
    model: Model, client: openai.AsyncOpenAI, url: str, fails: Behaviour, stream: bool
) -> None:
    model.replies += [talking("Let me see. ", WEATHER), fails]
    answer = await ask(client, known(), stream=stream)
    assert [call.id for call in answer.choices[0].message.tool_calls] == ["c2"]
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (
        "Let me see. ",
        "tool_calls",
    )
    assert len(model.chats) == 2
    one = await only_session(url)
    told = (await admin(url, f"sessions/{one['id']}/transcript"))["messages"]
    assert told[-1]["complete"]
    assert (await admin(url, f"sessions/{one['id']}/export"))["hidden"] == []


@pytest.mark.parametrize(
    "fails",
    [
        plainly(200, [JSON], json.dumps(SLOW_DOWN).encode()),
        plainly(200, [(b"Content-Type", b"text/html")], b"<html>"),
        plainly(200, [EVENTS], b""),
        in_pieces(sse(SLOW_DOWN), DONE),
    ],
    ids=["an error", "HTML", "nothing", "an error in a stream"],
)
async def test_a_stream_that_does_not_go_on_leaves_the_call_to_the_client_whatever_the_status(
    model: Model, client: openai.AsyncOpenAI, fails: Behaviour
) -> None:
    model.replies += [talking("Let me see. ", WEATHER), fails]
    answer = await ask(client, known(), stream=True)
    assert [call.id for call in answer.choices[0].message.tool_calls] == ["c2"]


async def test_an_error_with_status_200_in_one_piece_is_told_in_the_upstreams_words(
    model: Model, url: str
) -> None:
    model.replies += [calling(WEATHER), plainly(200, [JSON], json.dumps(SLOW_DOWN).encode())]
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": "Bearer sk"}) as http:
        whole = await http.post("/v1/chat/completions", json={"model": "gpt-test", "messages": known()})
    assert (whole.status_code, whole.json()) == (200, SLOW_DOWN)


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
    stream = await begin(client, known())
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    await eventually(left.is_set)


async def test_a_client_that_leaves_while_a_call_is_held_leaves_nothing_behind(
    model: Model, client: openai.AsyncOpenAI, url: str
) -> None:
    left = asyncio.Event()
    told = events(talking("Let me see. ", WEATHER))

    async def hang_in_the_call(exchange: Exchange) -> None:
        await exchange.start(200, [EVENTS])
        for event in told[:-2]:
            await exchange.chunk(sse(event))
        await exchange.gone()
        left.set()

    model.replies.append(hang_in_the_call)
    stream = await begin(client, known())
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    await eventually(left.is_set)
    assert len(model.chats) == 1
    (session,) = (await admin(url, "sessions"))["sessions"]
    assert (await admin(url, f"sessions/{session['id']}/export"))["hidden"] == []


async def test_an_upstream_that_breaks_off_while_it_goes_on_is_told_as_one_that_broke_off(
    model: Model, url: str
) -> None:
    cut_off = in_pieces(*map(sse, events(said("Still 18."))[:2]), end=False)
    body = {"model": "gpt-test", "messages": known(), "stream": True}
    model.replies += [talking("Let me see. ", WEATHER), cut_off]
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": "Bearer sk"}) as http:
        stream = await http.post("/v1/chat/completions", json=body)
    assert "upstream_truncated" in stream.text.split("\n\n")[-2]
    assert "get_weather" not in stream.text
    assert 'finish_reason": "' not in stream.text
    one = await only_session(url)
    assert (await admin(url, f"sessions/{one['id']}/export"))["hidden"] == []


@both
@pytest.mark.parametrize("text", ["", "Let me see. "], ids=["silent", "talking"])
async def test_a_result_that_is_refused_for_its_length_is_left_to_the_client_and_teaches_the_window(
    model: Model, url: str, client: openai.AsyncOpenAI, stream: bool, text: str
) -> None:
    model.replies += [talking(text, WEATHER), refused_for_length(stream=stream), said("Fine.")]
    answer = await ask(client, known(), stream=stream)
    assert [call.id for call in answer.choices[0].message.tool_calls] == ["c2"]
    assert (answer.choices[0].message.content or "") == text
    assert answer.choices[0].finish_reason == "tool_calls"
    one = await only_session(url)
    assert (await admin(url, f"sessions/{one['id']}/export"))["hidden"] == []
    body = {"model": "gpt-test", "messages": known(), "tool_choice": "none"}
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": "Bearer sk-test"}) as http:
        after = await http.post("/v1/chat/completions", json=body)
    assert "budget=224" in after.headers["x-unabridged-tokens"]


@both
async def test_what_earlier_rounds_were_told_is_kept_where_a_later_result_is_refused_for_its_length(
    model: Model, client: openai.AsyncOpenAI, stream: bool
) -> None:
    again = ("c3", "get_weather", ROME)
    model.replies += [calling(WEATHER), calling(again), refused_for_length(stream=stream), said("Fine.")]
    messages = known()
    answer = await ask(client, messages, stream=stream)
    assert [call.id for call in answer.choices[0].message.tool_calls] == ["c3"]
    await ask(client, [*messages, sent_back(answer), result("c3", "19 degrees")], stream=stream)
    told = model.views()[-1][len(messages) :]
    assert [each.get("tool_call_id") for each in told] == [None, "c2", None, "c3"]
    assert model.invalid == []


def refused_for_length(*, stream: bool) -> Behaviour:
    """A refusal in place of an answer, and of a streamed answer within its stream."""
    told = refusal(OPENAI, 120, 256)
    return in_pieces(sse(told)) if stream else plainly(400, [JSON], json.dumps(told).encode())


async def test_a_usage_that_only_the_proxy_asked_for_is_not_told(model: Model, url: str) -> None:
    model.replies += [talking("Let me see. ", WEATHER), said("Still 18.")]
    body = {"model": "gpt-test", "messages": known(), "stream": True}
    headers = {"Authorization": "Bearer sk", "X-Unabridged-Budget": "100"}
    async with httpx2.AsyncClient(base_url=url, headers=headers) as http:
        stream = await http.post("/v1/chat/completions", json=body)
    assert [each["stream_options"] for each in model.bodies()] == [{"include_usage": True}] * len(model.chats)
    assert len(model.chats) == 2
    assert '"usage"' not in stream.text
    assert stream.text.endswith("data: [DONE]\n\n")

"""Summaries that cannot be had: a notice in their place, in time, and the reason for whoever asks."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

import pytest

from tests.support.canaries import logged
from tests.support.clients import Chats, Small, admin, only_session, told
from tests.support.servers import Exchange, eventually
from tests.support.summaries import BUDGET, notes, until_counted, until_cut
from tests.support.upstreams import JSON, Model, calling, completion, count_tokens, plainly, said


async def test_a_hanging_summariser_delays_the_answer_by_no_more_than_the_wait(
    model: Model, chats: Chats, small: Small
) -> None:
    model.summary = model.hang
    chat = chats(await small(BUDGET, wait="200ms"))
    async with asyncio.timeout(10):
        response = await until_cut(chat, model)
    assert len(model.summaries) >= 1
    assert told(response, "summary") in ("none", "failed")
    assert "messages omitted]" in notes(model.views()[-1]) or "messages removed]" in notes(model.views()[-1])
    assert count_tokens(model.bodies()[-1]) <= BUDGET


COMPACT = "[stages]\ntrim = 0.85\ncompact = 0.86\ntarget = 0.5\n"
"""Where a request is over *trim* it is over *compact* as well, and so it waits for its summary."""


@pytest.mark.parametrize(("seconds", "wait", "outcome"), [(0.5, "2s", "waited"), (30, "200ms", "failed")])
async def test_a_cut_says_what_became_of_a_summary_that_was_begun_ahead_and_that_it_waited_for(
    model: Model, chats: Chats, small: Small, seconds: float, wait: str, outcome: str
) -> None:
    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)
        await exchange.answer_json(completion(said("All items were sent.")))

    model.summary = slow
    chat = chats(await small(3 * BUDGET, wait=wait, extra=COMPACT))
    response = await until_cut(chat, model)
    assert (chat.stages[-2:], told(response, "summary")) == (["warn", "compact"], outcome)
    assert ("All items were sent." in notes(model.views()[-1])) is (outcome == "waited")


def too_long(exchange: Exchange) -> Awaitable[None]:
    return exchange.answer_json(completion(said("and so on " * 400)))


def cut_short(exchange: Exchange) -> Awaitable[None]:
    return exchange.answer_json(completion(said("They spoke of"), finish="length"))


FAILURES: dict[str, Any] = {
    "empty": said(""),
    "blank": said(" \n"),
    "null": {"role": "assistant", "content": None},
    "a tool call": calling(("c1", "read", "{}")),
    "too long": too_long,
    "cut short": cut_short,
    "an error": plainly(500, [JSON], b'{"error":{"message":"no"}}'),
    "refused": plainly(403, [JSON], b'{"error":{"message":"no"}}'),
    "HTML": plainly(200, [(b"Content-Type", b"text/html")], b"<html>Hello</html>"),
    "no choices": plainly(200, [JSON], b'{"choices":[]}'),
    "garbage": plainly(200, [JSON], b"\xff\x00"),
    "declined": said("I'm sorry, but I can't help with that."),
    "declined in JSON": said('{"summary": "Es tut mir leid, dabei kann ich nicht helfen."}'),
    "empty JSON": said('{"summary": ""}'),
}


@pytest.mark.parametrize("what", FAILURES)
async def test_a_failed_summary_becomes_a_notice_and_never_an_error(
    model: Model, chats: Chats, small: Small, what: str
) -> None:
    model.summary = FAILURES[what]
    response = await until_cut(chats(await small(BUDGET)), model)
    assert told(response, "summary") == "failed"
    assert "messages removed]" in notes(model.views()[-1])
    assert len(model.summaries) <= 4
    assert count_tokens(model.bodies()[-1]) <= BUDGET


async def test_a_failed_summary_is_not_asked_for_again(model: Model, chats: Chats, small: Small) -> None:
    model.summary = plainly(500, [JSON], b'{"error":{"message":"no"}}')
    chat = chats(await small(BUDGET))
    await until_cut(chat, model)
    asked = [bytes(call.body) for call in model.summaries]
    await chat.ask("Question: and now?")
    assert len(asked) == len(set(asked))
    assert [bytes(call.body) for call in model.summaries[: len(asked)]] == asked


async def test_a_connection_that_breaks_is_a_failed_summary(model: Model, chats: Chats, small: Small) -> None:
    async def breaks(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        exchange.reset()

    model.summary = breaks
    response = await until_cut(chats(await small(BUDGET)), model)
    assert told(response, "summary") == "failed"


REASONS: dict[str, Any] = {
    "failed: too long": too_long,
    "failed: cut short": cut_short,
    "failed: refused": plainly(500, [JSON], b'{"error":{"message":"no"}}'),
}


@pytest.mark.parametrize("why", REASONS)
async def test_explain_and_the_log_say_why_a_summary_failed(
    model: Model, chats: Chats, small: Small, why: str
) -> None:
    model.summary = REASONS[why]
    chat = chats(await small(BUDGET))
    with logged() as lines:
        await until_cut(chat, model)
        session = await only_session(chat.url)
        explained = await admin(chat.url, f"sessions/{session['id']}/explain")
    assert {each["why"] for each in explained["missing_summaries"]} == {why}
    reason = why.removeprefix("failed: ").replace(" ", "_")
    failed = [line for line in map(json.loads, lines) if line["message"] == "a summary failed"]
    assert {(line["level"], line["reason"]) for line in failed} == {("error", reason)}
    assert {line["session"] for line in failed} == {session["id"]}
    missing = [line for line in map(json.loads, lines) if line["message"] == "a summary is missing"]
    assert {(line["level"], line["session"], line["why"]) for line in missing} == {
        ("warning", session["id"], why)
    }


async def test_explain_names_the_gaps_whose_summaries_are_still_to_come(
    model: Model, chats: Chats, small: Small
) -> None:
    model.summary = model.hang
    chat = chats(await small(BUDGET, wait="0s"))
    await until_cut(chat, model)
    session = (await only_session(chat.url))["id"]
    explained = await admin(chat.url, f"sessions/{session}/explain")
    assert explained["missing_summaries"] == [{"gap": 0, "why": "not yet"}]
    model.summary = None
    await eventually(lambda: model.hanging > 0)


async def test_a_summary_that_met_the_upstreams_limit_is_asked_for_again(
    model: Model, chats: Chats, small: Small
) -> None:
    model.summary = plainly(429, [JSON, (b"Retry-After", b"1")], b'{"error":{"message":"later"}}')
    chat = chats(await small(BUDGET, wait="0s"))
    await until_cut(chat, model)
    await eventually(lambda: len(model.summaries) == 1)
    model.summary = None
    await until_counted(chat.url, "written")
    refused, *later = [bytes(call.body) for call in model.summaries]
    assert refused in later

"""The bill of rounds that no client sees."""

from __future__ import annotations

import pytest

from proxy.core.recall.tool import NAME
from tests.support.bills import FRESH, OUTPUT, talker, usage, using
from tests.support.clients import Chats, Small, answer_in, bill_of
from tests.support.repeated_calls import POLICY, TOOLS, WEATHER, known
from tests.support.servers import Exchange
from tests.support.upstreams import JSON, Model, calling, events, plainly, said, sse

RECALLING = "[recall]\nenabled = true\n[memory]\nenabled = true\n"
"""With memory its tool is offered before anything is cut."""


@pytest.mark.parametrize("stream", [False, True], ids=["in one piece", "streamed"])
async def test_a_round_that_the_client_does_not_see_is_billed_beside_the_answer(
    small: Small, model: Model, chats: Chats, stream: bool
) -> None:
    url = await small(50_000, extra=POLICY)
    chat = talker(chats, url)
    chat.messages, chat.members["tools"] = known()[:-1], TOOLS
    for message, used in (
        (calling(WEATHER), usage(1_000, 20, cached_tokens=0)),
        (said("It is 18 degrees."), usage(1_200, 30, cached_tokens=0)),
    ):
        model.replies.append(using(used, message, stream=stream))
    if stream:
        chat.members |= {"stream": True, "stream_options": {"include_usage": True}}
    await chat.ask("And now?")
    bill = await bill_of(url)
    assert (bill["requests"], bill["tool_calls_answered"]) == (1, 1)
    assert bill["tokens"]["sent"] == 1_200
    assert bill["dollars"]["hidden"] == pytest.approx(1_000 * FRESH + 20 * OUTPUT, abs=1e-9)
    assert bill["dollars"]["answers"] == pytest.approx(1_200 * FRESH + 30 * OUTPUT, abs=1e-9)


async def test_rounds_of_short_prompts_have_the_price_of_short_prompts(
    small: Small, model: Model, chats: Chats
) -> None:
    chat = talker(chats, await small(50_000, extra=POLICY), "gpt-5.4")
    chat.messages, chat.members["tools"] = known()[:-1], TOOLS
    for message in (calling(WEATHER), calling(WEATHER), said("It is 18 degrees.")):
        model.replies.append(using(usage(200_000, 0, cached_tokens=0), message))
    await chat.ask("And now?")
    dollars = (await bill_of(chat.url))["dollars"]
    assert dollars["hidden"] == pytest.approx(2 * 200_000 * 2.5 / 1e6, abs=1e-9)
    assert dollars["answers"] == pytest.approx(200_000 * 2.5 / 1e6, abs=1e-9)


@pytest.mark.parametrize("stream", [False, True], ids=["in one piece", "streamed"])
@pytest.mark.parametrize("told", [True, False], ids=["of known price", "of unknown price"])
async def test_a_round_after_which_the_next_one_fails_is_billed_too(
    small: Small, model: Model, chats: Chats, told: bool, stream: bool
) -> None:
    chat = talker(chats, await small(50_000, extra=RECALLING))
    chat.messages, model.tells_usage = known(), False
    hidden = calling(("r1", NAME, '{"query": "weather"}'))
    model.replies += [
        using(usage(1_000, 20, cached_tokens=0), hidden, stream=stream) if told else hidden,
        plainly(429, [JSON], b'{"error": {"message": "slower"}}'),
        said("It is 18 degrees."),
    ]
    chat.members["stream"] = stream
    assert "slower" in (await chat.send()).text
    chat.members["stream"] = False
    assert (await chat.send()).status_code == 200
    bill = await bill_of(chat.url)
    assert (bill["requests"], bill["tool_calls_answered"]) == (1, 1)
    assert bill["price_unknown"] == (0 if told else 1)
    assert bill["dollars"]["hidden"] == pytest.approx((1_000 * FRESH + 20 * OUTPUT) * told, abs=1e-9)


async def test_a_refused_round_costs_nothing_where_the_answer_ends_without_it(
    small: Small, model: Model, chats: Chats
) -> None:
    chat = talker(chats, await small(50_000, extra=POLICY))
    chat.messages, chat.members["tools"] = known(), TOOLS
    refused = plainly(400, [JSON], b'{"error": {"message": "no", "type": "invalid_request_error"}}')
    model.replies += [using(usage(1_000, 20, cached_tokens=0), calling(WEATHER)), refused, refused]
    assert answer_in(await chat.send())["tool_calls"]
    bill = await bill_of(chat.url)
    assert (bill["price_unknown"], bill["dollars"]["hidden"]) == (0, 0)
    assert bill["dollars"]["answers"] == pytest.approx(1_000 * FRESH + 20 * OUTPUT, abs=1e-9)


async def test_a_hidden_round_is_billed_though_the_client_leaves_during_the_next_one(
    small: Small, model: Model, chats: Chats
) -> None:
    async def pauses(exchange: Exchange) -> None:
        await exchange.start(200, [(b"Content-Type", b"text/event-stream")])
        await exchange.chunk(b"".join(map(sse, events(said("It is"))[:-1])))
        await exchange.gone()

    chat = talker(chats, await small(50_000, extra=POLICY))
    chat.messages, chat.members["tools"], chat.members["stream"] = known(), TOOLS, True
    model.replies += [using(usage(1_000, 20, cached_tokens=0), calling(WEATHER), stream=True), pauses]
    body, address = {**chat.members, "messages": chat.messages}, f"{chat.url}/v1/chat/completions"
    async with chat.client.stream("POST", address, json=body, headers=chat.headers) as response:
        async for text in response.aiter_text():
            if "It is" in text:
                break
    bill = await bill_of(chat.url)
    assert bill["dollars"]["hidden"] == pytest.approx(1_000 * FRESH + 20 * OUTPUT, abs=1e-9)
    assert bill["price_unknown"] == 0


async def test_hidden_rounds_of_which_nothing_is_told_are_of_unknown_price(
    small: Small, model: Model, chats: Chats
) -> None:
    chat = talker(chats, await small(50_000, extra=POLICY))
    chat.messages, chat.members["tools"], chat.members["stream"] = known()[:-1], TOOLS, True
    model.replies += [calling(WEATHER), said("It is 18 degrees.")]
    await chat.ask("And now?")
    bill = await bill_of(chat.url)
    assert (bill["estimated"], bill["price_unknown"], bill["dollars"]["hidden"]) == (1, 1, 0)

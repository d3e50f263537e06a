"""What the upstream answers to questions of our own is read up to a bound and no further, streamed or not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from proxy.adapters.upstream import HttptoolsUpstream
from proxy.cache import CacheMemory
from proxy.core.dialects.answers import Ask
from proxy.engine.models.asking import CallOptions, Unanswered, fetch
from proxy.engine.models.stated_windows import StatedWindows
from proxy.ports import Upstream
from tests.support.asking import asking
from tests.support.servers import Exchange, FakeUpstream, Header, eventually
from tests.support.stores import HandClock
from tests.support.upstreams import Behaviour, Message, completion, events, said


@pytest.fixture
async def server() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream().serve() as serving:
        yield serving


@pytest.fixture
async def upstream(server: FakeUpstream) -> AsyncIterator[Upstream]:
    async with aclosing(HttptoolsUpstream(server.url)) as made:
        yield made


async def endless(exchange: Exchange) -> None:
    await exchange.body()
    await exchange.start(200, [(b"Content-Type", b"application/json")])
    while True:
        await exchange.chunk(b" " * 65_536)


@pytest.mark.parametrize("body", [None, b"{}"])
async def test_an_answer_up_to_the_bound_is_read_and_its_connection_kept(
    server: FakeUpstream, upstream: Upstream, body: bytes | None
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(201, body=b"a" * 1_000)

    server.script = answer
    for _ in range(2):
        asked = "POST", "/ask", [(b"a", b"b")], body
        assert await fetch(upstream, *asked, 1_000) == (201, b"a" * 1_000, None, False)
    assert server.connections == 1
    request = server.requests[0]
    assert (request.value("a"), bytes(request.body)) == (b"b", body or b"")
    assert request.value("content-type") == (b"application/json" if body else None)


async def test_a_larger_one_is_left(server: FakeUpstream, upstream: Upstream) -> None:
    server.script = endless
    assert await fetch(upstream, "GET", "/ask", [], None, 1_000) == (200, None, None, False)
    await eventually(lambda: server.open_connections == 0)


async def test_an_endless_list_of_models_states_no_window(server: FakeUpstream, upstream: Upstream) -> None:
    server.script = endless
    stated = StatedWindows(upstream, HandClock(), CacheMemory())
    model = stated.of("", "gpt-test")
    await stated.ask(model, [])
    assert model.window is None
    assert not stated.may_tell(model, [])
    await eventually(lambda: server.open_connections == 0)


async def test_what_is_not_there_is_asked_for_later_and_later_until_it_is(
    server: FakeUpstream, upstream: Upstream
) -> None:
    """Ollama, before and after its model is pulled."""
    asked, pulled, clock = list[str](), dict[str, object](), HandClock()

    async def ollama(exchange: Exchange) -> None:
        await exchange.body()
        asked.append(exchange.request.target)
        known = exchange.request.target == "/api/ps"
        await exchange.answer_json(
            {"models": [pulled] if pulled else []} if known else {}, 200 if known else 404
        )

    server.script = ollama
    stated = StatedWindows(upstream, clock, CacheMemory())
    model, times = stated.of("", "qwen3"), list[int]()
    for minute in range(8 * 60):
        if stated.may_tell(model, []):
            times.append(minute)
            await stated.ask(model, [])
        clock.time += 60.0
    assert times == [0, 1, 3, 7, 15, 31, 63, 123, 183, 243, 303, 363, 423]
    assert asked.count("/api/ps") == asked.count("/props") == len(times)
    pulled |= {"name": "qwen3", "context_length": 4_096}
    await stated.ask(model, [])
    assert model.window is None, "not before the hour is over"
    clock.time += 3_600.0
    await stated.ask(model, [])
    assert model.window == 4_096


DATE = (b"Date", b"Sun, 06 Nov 1994 08:49:37 GMT")


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (200, [(b"Retry-After", b"5")], None),
        (500, [(b"Retry-After", b"5")], None),
        (503, [], None),
        (503, [(b"Retry-After", b"5")], 5),
        (429, [], 0),
        (429, [(b"retry-after", b"120")], 120),
        (429, [(b"Retry-After", b"999999999")], 3_600),
        (429, [DATE, (b"Retry-After", b"Sun, 06 Nov 1994 08:50:07 GMT")], 30),
        (429, [DATE, (b"Retry-After", b"Sun, 06 Nov 1994 08:00:00 GMT")], 0),
        (429, [(b"Retry-After", b"Sun, 06 Nov 1994 08:50:07 GMT")], 0),
        (429, [DATE, (b"Retry-After", b"soon")], 0),
    ],
)
async def test_an_upstream_that_wants_to_be_left_alone_says_for_how_long(
    server: FakeUpstream, upstream: Upstream, status: int, headers: list[Header], seconds: float | None
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer(status, headers, b"{}")

    server.script = answer
    assert (await fetch(upstream, "GET", "/ask", [], None, 1_000)).limit == seconds


# --- models that answer in streams alone ---

WORDS = [
    "This model only support stream mode, please enable the stream parameter to access the model. ",
    "parameter.enable_thinking must be set to false for non-streaming calls",
    "Stream must be set to true",
]
CALLER = CallOptions("qwq", [], 5.0)
REQUEST = b'{"model":"qwq","messages":[],"user":"ann","temperature":0.3}'


async def streaming(exchange: Exchange) -> None:
    await exchange.stream_events(events(said("It is so."), prompt=7))


def saying(content: Message, status: int = 200) -> Behaviour:
    async def say(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.answer_json(content, status)

    return say


@pytest.mark.parametrize("words", WORDS)
async def test_a_model_that_only_streams_is_asked_for_a_stream_and_from_then_on(
    server: FakeUpstream, upstream: Upstream, words: str
) -> None:
    async def only_streams(exchange: Exchange) -> None:
        if json.loads(await exchange.body()).get("stream") is True:
            await streaming(exchange)
        else:
            await exchange.answer_json({"error": {"message": words, "code": "invalid_parameter_error"}}, 400)

    server.script = only_streams
    ours = asking(upstream)
    for _ in range(2):
        answer = await ours.again(CALLER, REQUEST)
        assert json.loads(answer.message or b"")["content"] == "It is so."
        assert answer.complete
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == 7
    first, *later = [json.loads(bytes(each.body)) for each in server.requests]
    plain: Message = {"model": "qwq", "messages": [], "temperature": 0.3}
    assert first == plain
    assert later == [{**plain, "stream": True, "stream_options": {"include_usage": True}}] * 2


async def test_an_answer_that_comes_as_a_stream_unasked_is_read_as_one(
    server: FakeUpstream, upstream: Upstream
) -> None:
    server.script = streaming
    answer = await asking(upstream).again(CALLER, REQUEST)
    assert json.loads(answer.message or b"")["content"] == "It is so."
    assert answer.complete
    assert len(server.requests) == 1


@pytest.mark.parametrize("words", ["The upstream refuses this.", *WORDS])
async def test_a_stream_is_asked_for_where_a_refusal_speaks_of_one_and_once(
    server: FakeUpstream, upstream: Upstream, words: str
) -> None:
    server.script = saying({"error": {"message": words}}, 400)
    ours = asking(upstream)
    with pytest.raises(Unanswered):
        await ours.again(CALLER, REQUEST)
    assert len(server.requests) == 1 + (words in WORDS)
    server.script = saying(completion(said("It is so.")))
    await ours.again(CALLER, REQUEST)
    assert b"stream" not in server.requests[-1].body


# --- models whose thoughts count towards the limit of the answer ---


async def test_a_longer_limit_that_is_refused_is_given_up_for_the_one_that_was_asked_for(
    server: FakeUpstream, upstream: Upstream
) -> None:
    limits = list[int]()

    async def thinks(exchange: Exchange) -> None:
        body = json.loads(await exchange.body())
        most = body["max_tokens"] if "max_tokens" in body else body["max_completion_tokens"]
        limits.append(most)
        if most > 8_500:
            await exchange.answer_json({"error": {"message": "max_tokens is too large"}}, 400)
        elif most < 1_000:
            await exchange.answer_json(completion(said(""), finish="length"))
        else:
            await exchange.answer_json(completion(said("It is so.")))

    server.script = thinks
    ours = asking(upstream)
    for most in (160, 1_060, 1_060):
        answer = await ours.answer(CALLER, Ask("Sum up.", "All.", most, 0.0))
        assert answer.finish_reason == "stop"
    assert (limits[:2], limits[-1]) == ([160, 8_160], 1_060)

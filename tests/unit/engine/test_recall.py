"""A call of the recall tool, answered: by words, by meaning, and whatever fails."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager

import pytest

from proxy.adapters.httpx import HttpxUpstream
from proxy.adapters.sqlite_search import SqliteSearch
from proxy.core.budget import Budget
from proxy.core.plan import Gap, Plan
from proxy.core.policy import Policy
from proxy.core.policy_sections import Recall as RecallSection
from proxy.core.recall.tool import NAME
from proxy.engine.case import Case
from proxy.engine.embeddings import Embeddings
from proxy.engine.recall import Recall, Recaller
from proxy.lru import Memory
from proxy.ports import SessionKey
from proxy.telemetry import Metrics
from tests.embedding import embed
from tests.property.conversations import Sent, assistant, chain_from, user
from tests.servers import Exchange, FakeUpstream
from tests.upstreams import COUNTER

AUTH = (b"authorization", b"Bearer sk-test")
ROOM = 3000
FILLER = [user("And the weather?"), assistant("Sunny, with some wind.")] * 6
CHAT: list[Sent] = [
    user("My car is a green Volvo from 1998."),
    assistant("A solid car."),
    *FILLER,
    user("The bridge INV-2023-001 was paid."),
    assistant("Noted."),
    *FILLER,
    user("What was it?"),
]


@asynccontextmanager
async def recalling(
    script: Callable[[Exchange], Awaitable[None]] = embed, seconds: float = 8.0
) -> AsyncGenerator[tuple[Recall, FakeUpstream]]:
    async with (
        FakeUpstream(script).serve() as server,
        aclosing(HttpxUpstream(server.url + "/v1")) as upstream,
        aclosing(SqliteSearch()) as search,
    ):
        yield Recall(search, COUNTER, Embeddings(upstream, Memory()), Metrics(), Memory(), seconds), server


def answerer(recall: Recall, embeddings: str = "", messages: list[Sent] = CHAT) -> Recaller:
    chain = chain_from(messages)
    case = Case(
        tenant="tenant",
        key=SessionKey("tag", "sid"),
        lane="lane",
        model="gpt-test",
        chain=chain,
        head_count=0,
        policy=Policy(recall=RecallSection(enabled=True, embeddings=embeddings)),
        budget=Budget(20_000, 1.0, 0),
        epochs=(),
        saved=0,
        credentials=[AUTH],
        deadline=0.0,
    )
    return recall.of(case, Plan(gaps=(Gap(0, len(chain) - 1),)))


async def ask(recaller: Recaller, **arguments: object) -> str:
    text = await recaller.answer(NAME, json.dumps(arguments), ROOM)
    assert text is not None
    return text


def counted(recall: Recall, by: str) -> float:
    return recall.metrics.registry.get_sample_value("unabridged_recalls_total", {"by": by}) or 0.0


async def test_what_was_cut_is_found_by_words():
    async with recalling() as (recall, server):
        text = await ask(answerer(recall), query="Which bridge was paid?")
        assert "The bridge INV-2023-001 was paid." in text
        assert "message 15, user" in text
        assert server.requests == []
        assert counted(recall, "words") == 1


async def test_messages_are_read_by_number():
    async with recalling() as (recall, _):
        text = await ask(answerer(recall), **{"from": 1, "to": 2})
        assert "My car is a green Volvo from 1998." in text
        assert "weather" not in text
        assert counted(recall, "range") == 1


async def test_a_search_can_be_kept_to_a_range():
    async with recalling() as (recall, _):
        recaller = answerer(recall)
        assert "The bridge INV" in await ask(recaller, query="paid", **{"from": 10})
        assert "Nothing was found." in await ask(recaller, query="paid", to=4)


async def test_a_call_that_asks_for_nothing_is_told_what_there_is():
    async with recalling() as (recall, _):
        assert (await ask(answerer(recall))).startswith("Left out: messages 1-28.")


async def test_a_call_that_cannot_be_understood_is_answered_not_refused():
    async with recalling() as (recall, _):
        text = await answerer(recall).answer(NAME, "{", ROOM)
        assert text is not None
        assert text.startswith("The arguments are not JSON.")
        assert counted(recall, "unclear") == 1


async def test_other_tools_are_not_ours():
    async with recalling() as (recall, _):
        recaller = answerer(recall)
        assert not recaller.holds("look")
        assert await recaller.answer("look", "{}", ROOM) is None
        assert recaller.holds(NAME)


async def test_what_has_no_word_in_common_is_found_by_meaning():
    async with recalling() as (recall, server):
        question = "Describe my automobile"
        assert "Volvo" not in await ask(answerer(recall), query=question)
        assert "Volvo" in await ask(answerer(recall, "small"), query=question)
        assert counted(recall, "meaning") == 1
        asked = json.loads(server.requests[0].body)
        assert (asked["model"], asked["input"][0]) == ("small", question)


async def test_embeddings_are_asked_for_in_the_callers_name_alone():
    async with recalling() as (recall, server):
        await ask(answerer(recall, "small"), query="car")
        assert {request.target for request in server.requests} == {"/v1/embeddings"}
        assert {request.value("authorization") for request in server.requests} == {AUTH[1]}


async def test_a_second_search_asks_for_the_question_alone():
    async with recalling() as (recall, server):
        await ask(answerer(recall, "small"), query="car")
        before = len(server.requests)
        await ask(answerer(recall, "small"), query="bridge")
        assert [json.loads(request.body)["input"] for request in server.requests[before:]] == [["bridge"]]


async def test_what_came_since_is_all_that_is_embedded_anew():
    async with recalling() as (recall, server):
        await ask(answerer(recall, "small"), query="car")
        first = sum(len(json.loads(request.body)["input"]) for request in server.requests)
        before = len(server.requests)
        await ask(answerer(recall, "small", [*CHAT, assistant("It was paid."), user("And?")]), query="car")
        new = sum(len(json.loads(request.body)["input"]) for request in server.requests[before:])
        assert 0 < new <= 2 < first


async def refuse(exchange: Exchange) -> None:
    await exchange.answer_json({"error": {"message": "no such model"}}, 404)


async def talk(exchange: Exchange) -> None:
    await exchange.answer_json({"data": "none"})


async def break_off(exchange: Exchange) -> None:
    await exchange.body()
    exchange.close()


async def hang(exchange: Exchange) -> None:
    await exchange.gone()


@pytest.mark.parametrize("script", [refuse, talk, break_off, hang])
async def test_without_embeddings_the_search_goes_on_by_words(
    script: Callable[[Exchange], Awaitable[None]],
):
    async with recalling(script, seconds=0.2) as (recall, _):
        assert "The bridge INV-2023-001 was paid." in await ask(answerer(recall, "small"), query="bridge")
        assert counted(recall, "words") == 1


async def test_without_an_index_the_model_is_told_to_read_by_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("proxy.adapters.sqlite_search._SCHEMA", "CREATE VIRTUAL TABLE x USING fts0(y)")
    async with recalling() as (recall, _):
        assert "cannot be searched now, but read by number" in await ask(answerer(recall), query="bridge")
        assert counted(recall, "failed") == 1


async def test_two_calls_at_once_are_both_answered():
    async with recalling() as (recall, _):
        recaller = answerer(recall)
        texts = [await ask(recaller, query=query) for query in ("Volvo", "paid")]
        assert "Volvo" in texts[0]
        assert "INV-2023-001" in texts[1]

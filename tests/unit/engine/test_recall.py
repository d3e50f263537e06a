"""A call of the recall tool, answered: by words, by a plug-in's search, and whatever fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest

from proxy.adapters.search import SqliteSearch
from proxy.cache import CacheMemory
from proxy.core.budget.budget import Budget
from proxy.core.planning.plan import Gap, Plan
from proxy.core.policy import values
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Recall as RecallSection
from proxy.core.recall.tool import NAME
from proxy.engine.answers.recall import Recall, Recaller
from proxy.ports import Passage
from proxy.telemetry import Metrics
from tests.support.conversations import Sent, assistant, chain_from, user
from tests.support.requests import a_request
from tests.support.upstreams import COUNTER

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
async def recalling(seconds: float = 8.0) -> AsyncGenerator[Recall]:
    async with aclosing(SqliteSearch()) as search:
        yield Recall(search, COUNTER, Metrics(), CacheMemory(), seconds)


def answerer(recall: Recall, search: str = "words") -> Recaller:
    chain, policy = chain_from(CHAT), Policy(recall=RecallSection(enabled=True, search=search))
    request = a_request(chain, Budget(20_000, 1.0, 0), policy=policy)
    return recall.of(request, Plan(gaps=(Gap(0, len(chain) - 1),)))


async def ask(recaller: Recaller, **arguments: object) -> str:
    text = await recaller.answer(NAME, json.dumps(arguments), ROOM)
    assert text is not None
    return text


def counted(recall: Recall, by: str) -> float:
    return recall.metrics.registry.get_sample_value("unabridged_recalls_total", {"by": by}) or 0.0


async def test_what_was_cut_is_found_by_words():
    async with recalling() as recall:
        text = await ask(answerer(recall), query="Which bridge was paid?")
        assert "The bridge INV-2023-001 was paid." in text
        assert "message 15, user" in text
        assert counted(recall, "words") == 1


async def test_messages_are_read_by_number():
    async with recalling() as recall:
        text = await ask(answerer(recall), **{"from": 1, "to": 2})
        assert "My car is a green Volvo from 1998." in text
        assert "weather" not in text
        assert counted(recall, "range") == 1


async def test_a_search_can_be_kept_to_a_range():
    async with recalling() as recall:
        recaller = answerer(recall)
        assert "The bridge INV" in await ask(recaller, query="paid", **{"from": 10})
        assert "Nothing was found." in await ask(recaller, query="paid", to=4)


async def test_a_call_that_asks_for_nothing_is_told_what_there_is():
    async with recalling() as recall:
        assert (await ask(answerer(recall))).startswith("Left out: messages 1-28.")


async def test_a_call_that_cannot_be_understood_is_answered_not_refused():
    async with recalling() as recall:
        text = await answerer(recall).answer(NAME, "{", ROOM)
        assert text is not None
        assert text.startswith("The arguments are not JSON.")
        assert counted(recall, "unclear") == 1


async def test_other_tools_are_not_ours():
    async with recalling() as recall:
        recaller = answerer(recall)
        assert not recaller.may_answer("look")
        assert await recaller.answer("look", "{}", ROOM) is None
        assert recaller.may_answer(NAME)


class Meaning:
    """A search that a plug-in might bring: it knows that an automobile is a car."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def search(self, shelf: str, passages: Sequence[Passage], query: str, most: int) -> list[int]:
        self.asked.append(query)
        wanted = query.lower().replace("automobile", "car").split()
        texts = [passage.read().lower() for passage in passages]
        return [index for index, text in enumerate(texts) if any(word in text for word in wanted)][:most]


class Raising:
    async def search(self, *_: object) -> list[int]:
        raise RuntimeError("no model")


class Wild:
    async def search(self, *_: object) -> list[int]:
        return [10_000]


class Cancelled:
    """Awaits a task of its own that somebody has cancelled."""

    async def search(self, *_: object) -> list[int]:
        raise asyncio.CancelledError


class Hanging:
    async def search(self, *_: object) -> list[int]:
        await asyncio.Event().wait()
        return []


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], None]:
    """Makes a search known as `plugged`."""
    return lambda search: monkeypatch.setattr(values.SEARCHES, "_added", {"plugged": search})


async def test_a_plug_ins_search_gets_the_question_as_it_is_and_the_exact_texts(
    plugged: Callable[[object], None],
) -> None:
    meaning = Meaning()
    plugged(meaning)
    async with recalling() as recall:
        question = "Describe my automobile"
        assert "Volvo" not in await ask(answerer(recall), query=question)
        assert "Volvo" in await ask(answerer(recall, "plugged"), query=question)
        assert meaning.asked == [question]
        assert counted(recall, "plugged") == 1


@pytest.mark.parametrize(
    "search",
    [Raising(), Wild(), Hanging(), Cancelled()],
    ids=["raises", "no such passage", "hangs", "is cancelled"],
)
async def test_where_a_plug_ins_search_fails_the_search_is_by_words(
    plugged: Callable[[object], None], search: object
) -> None:
    plugged(search)
    async with recalling(seconds=0.2) as recall:
        text = await ask(answerer(recall, "plugged"), query="bridge")
        assert "The bridge INV-2023-001 was paid." in text
        assert counted(recall, "words") == 1


async def test_without_an_index_the_model_is_told_to_read_by_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("proxy.adapters.search._SCHEMA", "CREATE VIRTUAL TABLE x USING fts0(y)")
    async with recalling() as recall:
        assert "cannot be searched now, but read by number" in await ask(answerer(recall), query="bridge")
        assert counted(recall, "failed") == 1


async def test_two_calls_at_once_are_both_answered():
    async with recalling() as recall:
        recaller = answerer(recall)
        texts = [await ask(recaller, query=query) for query in ("Volvo", "paid")]
        assert "Volvo" in texts[0]
        assert "INV-2023-001" in texts[1]

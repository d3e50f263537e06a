"""Law 7: planning holds up no other request, and a turn that plans nothing is not handed to a thread."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import pytest

from proxy.app import build_engine
from proxy.cache import CacheMemory
from proxy.config import Settings
from proxy.core.dialects.chat.dialect import ChatCompletions
from proxy.core.policy.policy import Policy
from proxy.engine.flow import Exchange, Incoming
from proxy.engine.intake.naming import Envelope, Naming
from tests.support.conversations import Sent, assistant, user
from tests.support.upstreams import COUNTER
from tests.support.world import outside

SOME = "The ferry to the island leaves at nine, and it takes bicycles. "


@pytest.fixture
async def handed(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """What was handed to a thread."""
    found, loop = list[Callable[..., Any]](), asyncio.get_running_loop()
    run_in_executor = loop.run_in_executor

    def noted(executor: Executor | None, work: Callable[..., Any], *given: Any) -> Any:
        found.append(work)
        return run_in_executor(executor, work, *given)

    monkeypatch.setattr(loop, "run_in_executor", noted)
    return found


def talk(exchanges: int, words: str) -> list[Sent]:
    said = [each(f"{place}. {words}") for place in range(exchanges) for each in (user, assistant)]
    return [*said, user("and now?")]


async def prepared(turns: list[list[Sent]], policy: Policy, budget: int) -> list[Exchange]:
    """Several turns of one session."""
    headers = {b"x-unabridged-budget": b"%d" % budget, b"x-unabridged-session": b"s"}
    envelope = Envelope.read(Naming("secret", CacheMemory()), "/chat/completions", headers, [])
    pipeline = build_engine(Settings(upstream="http://127.0.0.1:9/v1"), outside(COUNTER)).pipeline
    bodies = [json.dumps({"model": "gpt-4o", "messages": messages}).encode() for messages in turns]
    return [await pipeline.prepare(Incoming(envelope, body, policy, 0.0)) for body in bodies]


@pytest.mark.parametrize(("exchanges", "words"), [(5, SOME * 12), (15, SOME)], ids=["long", "many"])
async def test_a_conversation_of_a_thousand_tokens_or_twenty_messages_is_planned_in_a_thread(
    handed: list[Callable[..., Any]], exchanges: int, words: str
) -> None:
    (exchange,) = await prepared([talk(exchanges, words)], Policy(), 400)
    assert exchange.decision.plan.cut > 0
    assert handed


async def test_a_short_conversation_does_not_wait_for_the_planning_of_long_ones() -> None:
    ended = threading.Event()
    long = [
        asyncio.create_task(asyncio.to_thread(ended.wait, 5)) for _ in range(40)
    ]  # more than there are threads
    await asyncio.sleep(0)
    try:
        (exchange,) = await prepared([talk(15, SOME)], Policy(), 400)
        assert not any(task.done() for task in long)
    finally:
        ended.set()
        await asyncio.gather(*long)
    assert exchange.decision.plan.cut > 0


async def test_a_turn_for_which_nothing_is_planned_is_not(handed: list[Callable[..., Any]]) -> None:
    turns = [talk(exchanges, SOME * 2) for exchanges in (30, 31, 32)]
    exchanges = await prepared(turns, Policy(), 100_000)
    assert not any(exchange.decision.plan.cut for exchange in exchanges)
    assert handed == []


async def test_all_messages_are_looked_through_for_signed_reasoning_in_a_thread_when_an_epoch_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads, holds = list[int](), ChatCompletions.holds_signed_reasoning

    def noted(raw: bytes) -> bool:
        threads.append(threading.get_ident())
        return holds(raw)

    monkeypatch.setattr(ChatCompletions, "holds_signed_reasoning", staticmethod(noted))
    (exchange,) = await prepared([talk(15, SOME)], Policy(), 400)
    assert exchange.decision.epoch is not None
    assert len(threads) >= 31
    assert threading.get_ident() not in threads

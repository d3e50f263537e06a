"""A clock that jumps: order is by sequence, and no session ends before its time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from proxy.app import SystemClock
from tests.support.append_client import Appender, contents
from tests.support.clients import Chat, admin, only_session, proxying, question, write_policy
from tests.support.stores import Server
from tests.support.upstreams import Model

HOUR = 3_600.0
JUMPS = [0.0, HOUR, -HOUR, 2 * HOUR, -2 * HOUR]
"""By how much the clock is wrong at each turn."""


@pytest.fixture
def jump(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How many seconds the machine's clock is ahead: its last element."""
    ahead = [0.0]

    def now(_: SystemClock) -> float:
        return time.time() + ahead[-1]

    monkeypatch.setattr(SystemClock, "now", now)
    return ahead


async def test_a_transcript_is_in_the_order_of_what_was_said(
    model: Model, durable: Server, tmp_path: Path, jump: list[float]
) -> None:
    text = 'extends = "balanced"\n[budget]\ntokens = 800\n[summary]\nenabled = false\n'
    policy = write_policy(tmp_path, "small", text)
    async with proxying(model.url, store=durable.url, policy=str(policy)) as url:
        chat = Chat(url)
        chat.headers["X-Unabridged-Session"] = "s"
        async with chat.client:
            for number in range(15):
                jump.append(JUMPS[number % len(JUMPS)])
                assert (await chat.ask(question(number))).status_code == 200
        session = await only_session(url)
        told = (await admin(url, f"sessions/{session['id']}/transcript"))["messages"]
        assert [each["message"] for each in told] == chat.messages
        assert session["turns"] == 15
        assert session["prune_count"] == len(session["epochs"]) > 1


async def test_a_session_that_is_appended_to_goes_on(
    model: Model, durable: Server, jump: list[float]
) -> None:
    async with proxying(model.url, store=durable.url) as url:
        appender = Appender(url)
        async with appender.client:
            for number, seconds in enumerate(JUMPS):
                jump.append(seconds)
                assert (await appender.ask(f"question {number}")).status_code == 200
        assert contents(model.views()[-1])[::2] == [f"question {number}" for number in range(len(JUMPS))]

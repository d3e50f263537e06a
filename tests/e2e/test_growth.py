"""Law 8, O(new): what a turn costs does not follow from the turns already past, the bytes themselves apart.

CPU time of all threads but the one on which client and upstream live, so that no other load counts; short and
long sessions take turns, and of each the median turn is told, so that no moment counts.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median

import httpx2
import pytest

from tests.support.clients import CHAT, KEY, proxying, user, write_policy
from tests.support.servers import PATIENCE, Exchange, FakeUpstream
from tests.support.stores import embedded_valkey
from tests.support.upstreams import completion, said

FEW, MANY = 200, 1_000
"""Turns past."""
MEASURED = 24
TEXT = "The harbour by the bridge was looked at again, and nobody found it wanting. " * 4
ANSWER = {"role": "assistant", "content": f"So it is. {TEXT}"}
OFF = {"X-Unabridged-Mode": "off"}
APPEND = {"X-Unabridged-Mode": "append"}
PLAIN = "[budget]\ntokens = 100_000_000\n"
PRUNED = "[budget]\ntokens = 4_000\n[summary]\nenabled = false\n"
Send = Callable[[bytes, dict[str, str]], Awaitable[None]]


async def answered(exchange: Exchange) -> None:
    await exchange.body()
    await exchange.answer_json(completion(said(ANSWER["content"]), prompt=None))


@asynccontextmanager
async def proxied(policy: Path, store: str = "memory://") -> AsyncGenerator[Send]:
    """Sends a body to a proxy, and waits until nothing of it is left to be done."""
    async with (
        FakeUpstream(answered).serve() as upstream,
        proxying(f"{upstream.url}/v1", policy=str(policy), store=store) as url,
        httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client,
    ):
        known = {"Authorization": KEY, "Content-Type": "application/json"}

        async def send(body: bytes, headers: dict[str, str]) -> None:
            response = await client.post(CHAT, content=body, headers=known | headers)
            assert response.status_code == 200, response.text
            upstream.requests.clear()
            await asyncio.sleep(0.01)

        yield send


def bodies(past: int) -> list[bytes]:
    """The requests of the turns after so many, each with the whole history."""
    messages = [each for turn in range(past) for each in (user(f"{turn}. {TEXT}"), ANSWER)]
    told: list[bytes] = []
    for turn in range(past, past + MEASURED):
        messages.append(user(f"{turn}. {TEXT}"))
        told.append(json.dumps({"messages": messages, "model": "gpt-test"}).encode())
        messages.append(ANSWER)
    return told


async def cost(send: Send, body: bytes, headers: dict[str, str]) -> int:
    """Nanoseconds of CPU that it took outside of this thread."""
    before = time.process_time_ns() - time.thread_time_ns()
    await send(body, headers)
    return time.process_time_ns() - time.thread_time_ns() - before


async def own_costs(
    send: Send, sessions: dict[str, tuple[list[bytes], list[bytes]]], mode: dict[str, str]
) -> list[float]:
    """Of the median turn of each session, but for moving its bytes.

    A session is its managed requests, and as many of the same size that are only moved. They take turns, so
    that a machine that grows slower does so for all of them.
    """
    own: dict[str, list[int]] = {name: [] for name in sessions}
    for turn in range(MEASURED):
        for name, (managed, moved) in sessions.items():
            whole = await cost(send, managed[turn], mode | {"X-Unabridged-Session": name})
            own[name].append(whole - await cost(send, moved[turn], OFF))
    return [median(each[2:]) for each in own.values()]  # the first ones meet their session cold


def appended(past: int) -> list[bytes]:
    """The turns after so many as a client sends them that appends."""
    new = ([user(f"{turn}. {TEXT}")] for turn in range(past, past + MEASURED))
    return [json.dumps({"messages": messages, "model": "gpt-test"}).encode() for messages in new]


@pytest.mark.parametrize(("rules", "past"), [(PLAIN, 2 * MANY), (PRUNED, MANY)], ids=["whole", "pruned"])
async def test_an_appended_turn_costs_what_it_did_at_first(rules: str, past: int, tmp_path: Path) -> None:
    policy = write_policy(tmp_path, "long", f'extends = "default"\n{rules}')
    sessions = {str(each): (appended(each + 1), bodies(each // 2)) for each in (FEW // 2, past)}
    with embedded_valkey() as store:
        async with proxied(policy, store) as send:
            for name in sessions:
                await send(bodies(int(name))[0], {"X-Unabridged-Session": name})
            few, many = await own_costs(send, sessions, APPEND)
    assert many <= 2 * few


@pytest.mark.parametrize("rules", [PLAIN, PRUNED], ids=["whole", "pruned"])
async def test_a_turn_costs_the_same_after_a_thousand_turns(rules: str, tmp_path: Path) -> None:
    policy = write_policy(tmp_path, "long", f'extends = "default"\n{rules}')
    sessions = {str(past): (bodies(past), bodies(past)) for past in (FEW, MANY)}
    async with proxied(policy) as send:
        few, many = await own_costs(send, sessions, {})
    assert many <= 2 * few

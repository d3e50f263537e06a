"""A store that dies while calls are answered costs nobody an answer: law 7."""

from __future__ import annotations

import time
from pathlib import Path

import httpx2
import pytest

from tests.support.clients import proxying, user, write_policy
from tests.support.network import relaying
from tests.support.repeated_calls import POLICY, WEATHER, known, talking
from tests.support.servers import Exchange, until
from tests.support.stores import Server
from tests.support.upstreams import Message, Model, completion, events, said


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])
async def test_an_answer_whose_calls_cannot_be_stored_is_given_and_remembered(
    model: Model, valkey: Server, tmp_path: Path, stream: bool
) -> None:
    policy = str(write_policy(tmp_path, "tools", POLICY))

    async def die_and_answer(exchange: Exchange) -> None:
        valkey.kill()
        if stream:
            await exchange.stream_events(events(said("Still 18.")))
        else:
            await exchange.answer_json(completion(said("Still 18.")))

    model.replies += [talking("Let me see. ", WEATHER), die_and_answer, said("Fine.")]
    body: Message = {"model": "gpt-test", "messages": known(), "stream": stream}
    headers = {"Authorization": "Bearer sk", "X-Unabridged-Session": "s"}
    async with (
        proxying(model.url, policy=policy, store=valkey.url, store_timeout=0.3) as url,
        httpx2.AsyncClient(base_url=url, headers=headers) as client,
    ):
        began = time.monotonic()
        answer = await client.post("/v1/chat/completions", json=body)
        assert time.monotonic() - began < 4
        if stream:
            assert ": unabridged degraded hidden-calls\n\n" in answer.text
        else:
            assert "hidden-calls" in answer.headers["x-unabridged-degraded"]
        given: Message = {"role": "assistant", "content": "Let me see. Still 18."}
        messages = [*body["messages"], given, user("Thank you")]
        await client.post("/v1/chat/completions", json={**body, "messages": messages})
    assert len(model.views()[-1]) == len(messages) + 2


async def test_what_stands_for_the_first_answer_is_stored_by_a_store_that_was_away_for_its_question(
    model: Model, valkey: Server, tmp_path: Path
) -> None:
    policy = str(write_policy(tmp_path, "tools", POLICY))
    body: Message = {"model": "gpt-test", "messages": known()}
    headers = {"Authorization": "Bearer sk", "X-Unabridged-Session": "s"}
    async with (
        relaying(valkey.socket) as relay,
        proxying(model.url, policy=policy, store=relay.url) as url,
        httpx2.AsyncClient(base_url=url, headers=headers) as client,
    ):
        relay.refuses = True
        await relay.aclose()

        async def answer_later(exchange: Exchange) -> None:
            relay.refuses = False

            async def is_ready() -> bool:
                return (await client.get("/readyz")).json() == {"status": "ready"}

            await until(True, is_ready)
            await exchange.answer_json(completion(said("Still 18.")))

        model.replies += [talking("Let me see. ", WEATHER), answer_later]
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.headers["x-unabridged-degraded"] == "store"
        assert valkey.run("KEYS", "*:hidden")

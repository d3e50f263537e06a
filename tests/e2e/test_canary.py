"""A canary in keys, texts, tool results, headers and names is found in no log line, metric or error of ours.

Chats through every fault of an upstream are in `test_isolation`; here are the other ways in.
"""

from __future__ import annotations

import json
import re

import httpx2
import pytest

from tests.support.append_client import Appenders
from tests.support.canaries import CANARY, KEY, logged
from tests.support.clients import ADMIN, Chats, Small, only_session, question, user
from tests.support.network import relaying
from tests.support.stores import serving, valkey_command
from tests.support.upstreams import JSON, Model, calling, plainly

BUDGET = 800
TOOLS = """
[recall]
enabled = true
[[tools]]
match = "get_*"
cache_exchanges = 5
serve = true
pure = true
"""
ARGUMENTS = json.dumps({"of": CANARY})


def untold(lines: list[str]) -> bool:
    """Whether something was logged, and no line of it has the canary."""
    return bool(lines) and [line for line in lines if CANARY in line] == []


async def metrics(url: str) -> str:
    async with httpx2.AsyncClient(base_url=url) as client:
        return (await client.get("/metrics")).text


@pytest.mark.parametrize("lag", [0.0, 1.0], ids=["while all is well", "while the store is slow"])
async def test_appended_turns_tell_nothing(
    model: Model, appenders: Appenders, small: Small, lag: float
) -> None:
    failing = plainly(500, [JSON], json.dumps({"error": {"message": CANARY}}).encode())
    with serving(valkey_command()) as server:
        async with relaying(server.socket) as store:
            url = await small(BUDGET, store=store.url, store_timeout=0.3)
            client = appenders(url, CANARY)
            client.headers |= {"Authorization": KEY, "X-Vendor": CANARY}
            with logged() as lines:
                await client.ask(f"Before: {CANARY}.", Idempotency_Key=CANARY)
                await client.ask(f"Before: {CANARY}.", Idempotency_Key=CANARY)
                assert CANARY not in (await client.ask("Another.", Idempotency_Key=CANARY)).text
                store.lag = lag
                for streams in (False, True):
                    client.members |= {"stream": streams, "user": CANARY}
                    for reply in (None, failing):
                        if reply:
                            model.replies.append(reply)
                        answer = await client.ask(f"{CANARY} {question(1)}", Idempotency_Key=f"{CANARY} 2")
                        is_ours = answer.headers.get("x-request-id", "").startswith("req-")
                        assert not (is_ours and answer.status_code >= 400 and CANARY in answer.text)
                client.members["n"] = 2
                assert CANARY not in (await client.ask(CANARY)).text
    assert untold(lines)
    assert CANARY not in await metrics(url)


async def test_tool_results_what_is_handed_in_and_hidden_calls_tell_nothing(
    model: Model, chats: Chats, small: Small
) -> None:
    url = await small(BUDGET, extra=TOOLS)
    chat = chats(url, Authorization=KEY, X_Unabridged_Session=CANARY)
    tool = {"type": "function", "function": {"name": "get_it", "parameters": {"type": "object"}}}
    handed = {"name": "get_it", "arguments": {"of": "start"}, "result": CANARY}
    chat.members |= {
        "tools": [tool],
        "unabridged": {"pin": [0], "inject": {"text": CANARY, "tools": [handed]}},
    }
    with logged() as lines:
        for number in range(8):
            model.replies.append(calling((f"c{number}", "get_it", ARGUMENTS)))
            answer = await chat.say(user(f"{CANARY} {question(number)}"))
            assert answer.status_code == 200
            if chat.messages[-1].get("tool_calls"):
                (call,) = chat.messages[-1]["tool_calls"]
                await chat.say({"role": "tool", "tool_call_id": call["id"], "content": CANARY * 20})
            model.replies.clear()
        query = json.dumps({"query": CANARY})
        model.replies.append(calling(("r1", "recall_earlier_messages", query)))
        await chat.ask(f"What was {CANARY}?")
    assert untold(lines)
    told = await metrics(url)
    assert CANARY not in told
    assert re.search(r'unabridged_tool_cache_total\{result="hit"\} [1-9]', told)
    assert re.search(r'unabridged_recalls_total\{by="words"\} [1-9]', told)


MALFORMED = [
    CANARY.encode(),
    json.dumps({"name": f"{CANARY}\n"}).encode(),
    json.dumps({"at": CANARY, "ranges": CANARY}).encode(),
]


async def test_the_admin_api_refuses_without_quoting(chats: Chats, small: Small) -> None:
    url = await small(BUDGET)
    await chats(url, Authorization=KEY, X_Unabridged_Session="chat").ask(f"Hello, {CANARY}.")
    one = f"sessions/{(await only_session(url))['id']}"
    with logged() as lines:
        async with httpx2.AsyncClient(base_url=f"{url}/unabridged/v1") as client:
            strangers: tuple[dict[str, str], ...] = ({}, {"Authorization": KEY}, {"Authorization": CANARY})
            answers = [await client.get("sessions", headers=headers) for headers in strangers]
            client.headers |= {**ADMIN, "Content-Type": "application/json"}
            paths = (f"sessions/{CANARY}", f"{one}/{CANARY}", CANARY, f"{one}/view?tip={CANARY}")
            answers += [await client.get(path) for path in (*paths, f"sessions?limit={CANARY}")]
            for verb in ("fork", "compact", "restore"):
                answers += [await client.post(f"{one}/{verb}", content=body) for body in MALFORMED]
    refused = [answer for answer in answers if answer.status_code >= 400]
    assert len(refused) >= 12
    assert [answer.text for answer in refused if CANARY in answer.text] == []
    assert [line for line in lines if CANARY in line] == []

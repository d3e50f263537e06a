"""A store that dies, hangs or refuses costs nobody an answer: law 7, for clients that send their history."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Protocol

import httpx2
import pytest

from tests.support.canaries import logged
from tests.support.clients import (
    Chat,
    admin,
    is_ready,
    making_chats,
    only_session,
    proxying,
    question,
    told,
    write_policy,
)
from tests.support.network import relaying
from tests.support.operator import ask
from tests.support.servers import eventually, until
from tests.support.stores import Server
from tests.support.upstreams import Model, count_tokens, fault_in, running

BUDGET = 800
PATIENCE = 1.0
"""Seconds after which no call to a hasty store is under way any more."""
HASTE = 0.6
"""The timeout of a store that is to give up; any other has time on a busy machine too."""


class ChatOn(Protocol):
    """Starts a proxy on a store, and a client of it."""

    async def __call__(self, store: str, patience: float = 5.0, /, **headers: str) -> Chat: ...


@pytest.fixture
async def model() -> AsyncIterator[Model]:
    # Without usage nothing is learned of how the model counts, so that only faults move a plan.
    async with running(Model(tells_usage=False)) as served:
        yield served


@pytest.fixture
def policy(tmp_path: Path) -> str:
    text = f'extends = "balanced"\n[budget]\ntokens = {BUDGET}\n[summary]\nwait = "200ms"\n'
    return str(write_policy(tmp_path, "small", text))


@pytest.fixture
async def chat_on(model: Model, policy: str) -> AsyncIterator[ChatOn]:
    async with AsyncExitStack() as stack:

        async def chat(store: str, patience: float = 5.0, /, **headers: str) -> Chat:
            url = await stack.enter_async_context(
                proxying(model.url, policy=policy, store=store, store_timeout=patience)
            )
            made = Chat(url)
            made.headers |= {name.replace("_", "-"): value for name, value in headers.items()}
            await stack.enter_async_context(made.client)
            return made

        yield chat


async def talk(chat: Chat, turns: range) -> list[httpx2.Response]:
    responses = [await chat.ask(question(number)) for number in turns]
    assert [response.status_code for response in responses] == [200] * len(turns)
    return responses


async def status_of(url: str) -> int:
    return (await ask(url, "GET", "sessions")).status_code


def reasons(response: httpx2.Response) -> list[str]:
    return [reason for reason in response.headers.get("x-unabridged-degraded", "").split(", ") if reason]


def check_views(model: Model) -> None:
    for body in model.bodies():
        assert fault_in(body["messages"]) is None
        assert count_tokens(body) <= BUDGET


def check_sticky(model: Model, responses: list[httpx2.Response], first: int = 0) -> None:
    """From turn `first` on a request begins with the one before, but where more was cut."""
    views = [[json.dumps(message) for message in view] for view in model.views()]
    cut = [told(response, "cut") for response in responses]
    for turn in range(first + 1, len(responses)):
        if cut[turn] == cut[turn - 1]:
            assert views[turn][: len(views[turn - 1])] == views[turn - 1], turn


async def check_transcript(chat: Chat) -> None:
    """The transcript is the conversation: nothing lost, nothing twice."""
    session = await only_session(chat.url)
    transcript = await admin(chat.url, f"sessions/{session['id']}/transcript")
    assert [each["message"] for each in transcript["messages"]] == chat.messages
    session = await only_session(chat.url)  # again: the last turn is written by now
    assert session["exchanges"] == len(chat.messages) // 2


NAMES = pytest.mark.parametrize("header", [{"X_Unabridged_Session": "s"}, {}], ids=["named", "by chain"])


@NAMES
async def test_a_long_conversation_without_a_store_stays_within_the_budget_and_stable(
    model: Model, chat_on: ChatOn, tmp_path: Path, header: dict[str, str]
) -> None:
    chat = await chat_on(f"unix://{tmp_path}/none", **header)
    responses = await talk(chat, range(25))
    assert all("store" in reasons(response) for response in responses)
    check_views(model)
    check_sticky(model, responses)
    assert int(told(responses[-1], "epoch")) >= 2


async def test_two_proxies_without_a_store_send_the_same_bytes(
    model: Model, chat_on: ChatOn, tmp_path: Path
) -> None:
    chat, other = [await chat_on(f"unix://{tmp_path}/none") for _ in range(2)]
    for number in range(15):
        await chat.ask(question(number))
        other.messages = chat.messages[:-1]
        await other.send()
        assert bytes(model.chats[-1].body) == bytes(model.chats[-2].body)


@NAMES
async def test_a_store_killed_in_mid_conversation_is_missed_by_nobody(
    model: Model, chat_on: ChatOn, durable: Server, header: dict[str, str]
) -> None:
    chat = await chat_on(durable.url, **header)
    before = await talk(chat, range(12))
    durable.kill()
    during = await talk(chat, range(12, 24))
    durable.start()
    await recovered(chat)
    after = await talk(chat, range(24, 30))
    assert [reason for response in before for reason in reasons(response)] == []
    assert all("store" in reasons(response) for response in during)
    assert "previous-turn" in reasons(after[0])
    assert not reasons(after[-1])
    assert len({told(response, "session") for response in [*before, *after]}) == 1
    check_views(model)
    check_sticky(model, [*before, *during, *after], first=13)
    await check_transcript(chat)


async def recovered(chat: Chat) -> None:
    """Wait until the proxy says that it has its store again."""
    await until(True, lambda: is_ready(chat.url))


async def test_readiness_says_that_the_store_is_missing_and_keeps_serving(
    chat_on: ChatOn, durable: Server
) -> None:
    chat = await chat_on(durable.url)
    durable.kill()
    response = await chat.client.get(f"{chat.url}/readyz")
    # A connection that was open may say it before a new one is refused.
    faults = ("connection refused", "connection reset", "connection closed")
    tellings = [{"status": "degraded", "store": f"The store cannot be used: {fault}."} for fault in faults]
    assert response.status_code == 200
    assert response.json() in tellings
    await chat.ask("Hello")
    assert "unabridged_degraded 1.0" in (await chat.client.get(f"{chat.url}/metrics")).text


async def test_a_store_that_is_down_at_the_start_is_used_once_it_is_there(
    model: Model, chat_on: ChatOn, durable: Server
) -> None:
    durable.kill()
    chat = await chat_on(durable.url, X_Unabridged_Session="s")
    assert "store" in reasons(await chat.ask(question(0)))
    durable.start()
    await recovered(chat)
    responses = await talk(chat, range(1, 4))
    assert reasons(responses[0]) == ["previous-turn"]
    assert not reasons(responses[-1])
    await check_transcript(chat)


async def test_a_paused_store_keeps_nobody_waiting_and_no_turn_is_there_twice(
    model: Model, chat_on: ChatOn, durable: Server
) -> None:
    assert durable.process is not None
    chat = await chat_on(durable.url, HASTE, X_Unabridged_Session="s")
    before = await talk(chat, range(10))
    os.kill(durable.process.pid, signal.SIGSTOP)
    try:
        during = await talk(chat, range(10, 20))
    finally:
        os.kill(durable.process.pid, signal.SIGCONT)
    await recovered(chat)
    after = await talk(chat, range(20, 25))
    assert "store" in reasons(during[-1])
    assert not reasons(after[-1])
    check_views(model)
    check_sticky(model, [*before, *during, *after], first=11)
    await check_transcript(chat)


REFUSING = {
    "read-only": (("REPLICAOF", "127.0.0.1", 1), ("REPLICAOF", "NO", "ONE")),
    "full": (("CONFIG", "SET", "maxmemory", 1), ("CONFIG", "SET", "maxmemory", 0)),
    "without its replicas": (
        ("CONFIG", "SET", "min-replicas-to-write", 1),
        ("CONFIG", "SET", "min-replicas-to-write", 0),
    ),
}


@NAMES
@pytest.mark.parametrize("how", REFUSING)
async def test_a_store_that_takes_no_writes_is_missed_by_nobody(
    model: Model, chat_on: ChatOn, durable: Server, how: str, header: dict[str, str]
) -> None:
    breaks, mends = REFUSING[how]
    chat = await chat_on(durable.url, **header)
    before = await talk(chat, range(8))
    durable.run(*breaks)
    during = await talk(chat, range(8, 22))
    readiness = (await chat.client.get(f"{chat.url}/readyz")).json()
    durable.run(*mends)
    await recovered(chat)
    after = await talk(chat, range(22, 28))
    assert readiness["status"] == "degraded"
    assert readiness["store"].startswith("The store refuses: it")
    assert [reason for response in before for reason in reasons(response)] == []
    assert all(reasons(response) for response in during[1:])
    assert set(reasons(after[0])) <= {"previous-turn"}  # none, where the backlog was quicker
    assert not reasons(after[-1])
    check_views(model)
    check_sticky(model, [*before, *during, *after], first=9)
    await check_transcript(chat)


async def test_an_epoch_that_could_not_be_written_is_written_later(
    model: Model, chat_on: ChatOn, durable: Server
) -> None:
    chat = await chat_on(durable.url, X_Unabridged_Session="s")
    with logged() as lines:
        responses = await talk(chat, range(8))
        durable.run("CONFIG", "SET", "maxmemory", 1)
        responses += await talk(chat, range(8, 18))
        durable.run("CONFIG", "SET", "maxmemory", 0)
        await recovered(chat)
        responses += await talk(chat, range(18, 26))
    pruned = [line["epoch"] for line in map(json.loads, lines) if line["message"].startswith("pruned: ")]
    epochs = [int(told(response, "epoch")) for response in responses]
    assert any("epoch-not-saved" in reasons(response) for response in responses)
    assert epochs == sorted(epochs)
    for turn in range(1, len(epochs)):
        more = told(responses[turn], "cut") != told(responses[turn - 1], "cut")
        assert more == (epochs[turn] > epochs[turn - 1])
    session = await only_session(chat.url)
    assert session["prune_count"] == epochs[-1]
    assert pruned == list(range(1, epochs[-1] + 1)), "each is told of once, where it began"


async def test_a_reply_that_is_lost_after_the_write_makes_no_turn_twice(
    model: Model, chat_on: ChatOn, durable: Server
) -> None:
    async with relaying(durable.socket) as relay:
        chat = await chat_on(relay.url, HASTE, X_Unabridged_Session="s")
        await talk(chat, range(2))
        relay.lose_replies = True
        await talk(chat, range(2, 4))
        relay.lose_replies = False
        await asyncio.sleep(
            PATIENCE
        )  # a write whose reply was lost gives up late, and opens the breaker again
        await recovered(chat)
        await talk(chat, range(4, 6))
        await check_transcript(chat)


async def test_a_fork_that_fails_at_any_step_leaves_no_session_with_less_and_may_be_asked_for_again(
    model: Model, durable: Server
) -> None:
    async with (
        relaying(durable.socket) as relay,
        proxying(model.url, store=relay.url, store_breaker=0.01) as url,
        making_chats() as chats,
    ):
        chat = chats(url, X_Unabridged_Session="s")
        chat.members["unabridged"] = {"pin": [0], "inject": {"text": "The bridge is 12 m long."}}
        await talk(chat, range(3))
        failed, there = 0, False
        while not there:
            relay.lose_from = relay.trips + failed + 1
            there = (await ask(url, "POST", "sessions/s/fork", {"name": f"f{failed}"})).is_success
            relay.lose_from = None
            await until(200, partial(status_of, url))
            for nodes in durable.run("KEYS", "*:nodes"):
                assert b"pins" in durable.run("HKEYS", nodes.removesuffix(b":nodes"))
            for session in durable.run("KEYS", "*:named"):
                fields = {*durable.run("HKEYS", session)}
                assert b"record" in fields or b"injection" not in fields
            failed += 1
        assert failed > 5
        for step in range(failed):
            fork = await ask(url, "POST", "sessions/s/fork", {"name": f"f{step}"})
            assert (fork.status_code, fork.json()["name"]) == (200, f"f{step}")
        for session in durable.run("KEYS", "*:named"):
            assert {b"record", b"pins", b"injection"} <= {*durable.run("HKEYS", session)}
        assert len((await admin(url, "sessions"))["sessions"]) == failed + 1


async def test_a_store_that_lost_its_data_begins_anew(model: Model, chat_on: ChatOn, durable: Server) -> None:
    chat = await chat_on(durable.url, X_Unabridged_Session="s")
    before = await talk(chat, range(15))
    durable.run("FLUSHALL")
    after = await talk(chat, range(15, 25))
    check_views(model)
    check_sticky(model, [*before, *after])
    await check_transcript(chat)


@pytest.mark.parametrize("is_known", [False, True], ids=["a stranger to it", "knowing it"])
async def test_a_store_that_comes_back_empty_after_turns_without_it_changes_no_plan_on_any_worker(
    model: Model, chat_on: ChatOn, valkey: Server, *, is_known: bool
) -> None:
    chat, other = [await chat_on(valkey.url, X_Unabridged_Session="s") for _ in range(2)]
    other.messages = chat.messages
    responses = await talk(chat, range(15))
    responses += await talk(other if is_known else chat, range(15, 16))
    valkey.kill()
    responses += await talk(chat, range(16, 18))
    valkey.start()
    await eventually(lambda: valkey.run("KEYS", "*:nodes"))  # what was said meanwhile is written late
    for each in (chat, other):
        await recovered(each)
    for number in range(18, 26):
        responses += await talk(other if number % 2 else chat, range(number, number + 1))
    epochs = [int(told(response, "epoch")) for response in responses]
    assert epochs == sorted(epochs)
    assert epochs[15] > 0
    check_views(model)
    check_sticky(model, responses)
    await check_transcript(chat)


async def test_a_worker_that_was_ahead_of_who_begins_a_lost_session_anew_follows_it(
    model: Model, chat_on: ChatOn, valkey: Server
) -> None:
    chat, other = [await chat_on(valkey.url, X_Unabridged_Session="s") for _ in range(2)]
    other.messages = chat.messages
    numbers = count()
    for each, least in ((chat, 1), (other, 2)):  # the second begins an epoch that the first one never sees
        while int(told(await each.ask(question(next(numbers))), "epoch")) < least:
            pass

    def is_written() -> bool:
        keys = valkey.run("KEYS", "*:nodes")
        return [valkey.run("HLEN", key) for key in keys] == [len(chat.messages)]

    await eventually(is_written)
    valkey.run("FLUSHALL")
    await chat.ask(question(next(numbers)))
    await eventually(is_written)
    assert [valkey.run("LLEN", key) for key in valkey.run("KEYS", "*:epochs:*")] == [2]
    for _ in range(8):
        chat.messages.append({"role": "user", "content": question(next(numbers))})
        asked = [*chat.messages]
        sent: list[bytes] = []
        for each in (chat, other):
            chat.messages[:] = asked
            response = await each.say()
            sent.append(bytes(model.chats[-1].body))
            epochs = [valkey.run("LLEN", key) for key in valkey.run("KEYS", "*:epochs:*")]
            assert epochs == [int(told(response, "epoch"))], "both go on in one line of epochs"
        assert sent[0] == sent[1]


async def test_a_closed_policy_answers_nobody_without_the_store(model: Model, tmp_path: Path) -> None:
    text = 'extends = "default"\n[store]\non_fault = "closed"\n'
    path = write_policy(tmp_path, "closed", text)
    async with (
        proxying(model.url, policy=str(path), store=f"unix://{tmp_path}/none") as url,
        httpx2.AsyncClient(base_url=url) as client,
    ):
        assert (await client.get("/readyz")).status_code == 503
        body = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
        response = await client.post("/v1/chat/completions", json=body)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "store_unavailable")
    assert response.headers["retry-after"]
    assert not model.chats


async def test_a_closed_policy_answers_nobody_once_the_store_takes_no_turn(
    model: Model, durable: Server, tmp_path: Path
) -> None:
    path = write_policy(tmp_path, "closed", 'extends = "default"\n[store]\non_fault = "closed"\n')
    async with proxying(model.url, policy=str(path), store=durable.url) as url:
        chat, other = Chat(url), Chat(url)
        await chat.ask("first")
        await until(True, lambda: is_written(durable))
        durable.run("CONFIG", "SET", "maxmemory", 1)
        with logged() as lines:
            assert (await chat.ask("second")).status_code == 200, "its turn waits to be written"
            await eventually(lambda: any("a turn could not be written" in line for line in lines))
        asked = len(model.chats)
        for response in (await chat.ask("third"), await other.ask("of another matter")):
            assert (response.status_code, response.json()["error"]["code"]) == (503, "store_unavailable")
        assert len(model.chats) == asked
        durable.run("CONFIG", "SET", "maxmemory", 0)
        chat.messages.pop()
        assert (await chat.ask("third")).status_code == 200
        await until(3, lambda: turns(url))
        for each in (chat, other):
            await each.client.aclose()


async def is_written(server: Server) -> bool:
    return bool(server.run("KEYS", "*:nodes"))


async def turns(url: str) -> int:
    return (await only_session(url))["turns"]


@pytest.mark.parametrize("harm", ["garbage", "another type"])
async def test_a_record_that_cannot_be_read_is_no_failed_chat(
    model: Model, chat_on: ChatOn, durable: Server, harm: str
) -> None:
    chat = await chat_on(durable.url, X_Unabridged_Session="s")
    await talk(chat, range(12))
    for key in durable.run("KEYS", "*"):
        if harm == "another type":
            kind = durable.run("TYPE", key)
            durable.run("DEL", key)
            durable.run("RPUSH", key, "x") if kind != b"list" else durable.run("SET", key, "x")
        elif durable.run("TYPE", key) == b"hash":
            for name in durable.run("HKEYS", key):
                durable.run("HSET", key, name, b"\xff\x00garbage")
        elif durable.run("TYPE", key) == b"list":
            for place in range(durable.run("LLEN", key)):
                durable.run("LSET", key, place, b"\xff\x00garbage")
    responses = await talk(chat, range(12, 20))
    check_views(model)
    assert reasons(responses[0])
    if harm == "garbage":
        assert not reasons(responses[-1])  # what cannot be read is discarded, and written anew
    else:
        assert all(reasons(response) for response in responses)

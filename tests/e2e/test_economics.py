"""Economics from outside: trim waits while the cache is warm; a session with epochs names its cache."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

from proxy import app
from proxy.adapters import prices
from tests.support.clients import (
    Chat,
    Chats,
    Small,
    admin,
    bill_of,
    only_session,
    proxying,
    result_counts,
    told,
    user,
    write_policy,
)
from tests.support.servers import Exchange, awaited
from tests.support.stores import HandClock
from tests.support.upstreams import (
    JSON,
    OPENAI,
    Message,
    Model,
    completion,
    count_tokens,
    plainly,
    refusal,
    said,
)

POLICY = """
extends = "default"
[budget]
tokens = 4000
[summary]
enabled = false
[importance]
low = 1.0
[economy]
cache_ttl = "10m"
cached_price = 0.1
expected_turns = 1
"""
LONG = "Tell me all of it, please. " * 30
ECONOMY = "[economy]\nenabled = true\n"


@dataclass
class Shifted(HandClock):
    """The machine's clock, and what a test lets pass beside it."""

    passed: float = 0.0
    real: app.SystemClock = field(default_factory=app.SystemClock)

    def now(self) -> float:
        return self.real.now() + self.passed

    def monotonic(self) -> float:
        return self.real.monotonic()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Shifted:
    shifted = Shifted()
    monkeypatch.setattr(app, "SystemClock", lambda: shifted)
    return shifted


async def until_trim(chat: Chat) -> httpx2.Response:
    """Talk until a request is at *trim*."""
    for number in range(40):
        response = await chat.ask(f"Question {number}: {LONG}")
        if told(response, "stage") == "trim":
            return response
    raise AssertionError("it never came to trim")


async def until_recorded(url: str, chat: Chat) -> None:
    """Return once the store has the newest answer: until then a shifted clock would date it."""
    given = sum(message["role"] == "assistant" for message in chat.messages)
    await awaited(lambda: only_session(url), lambda session: session["exchanges"] == given)


async def reasons(url: str) -> list[str]:
    (session,) = (await admin(url, "sessions"))["sessions"]
    return [epoch["reason"] for epoch in session["epochs"]]


async def test_at_trim_an_epoch_waits_while_the_cache_is_warm_and_begins_when_it_is_cold(
    model: Model, chats: Chats, tmp_path: Path, clock: Shifted
) -> None:
    path = write_policy(tmp_path, "thrifty", POLICY)
    async with proxying(model.url, policy=str(path)) as url:
        chat = chats(url)
        assert told(await until_trim(chat), "epoch") == "0"
        await until_recorded(url, chat)
        clock.passed += 500
        assert told(await chat.ask("And?"), "epoch") == "0"
        await until_recorded(url, chat)
        assert (await admin(url, f"sessions/{(await only_session(url))['id']}/explain"))["lacking"] > 0
        clock.passed += 601
        cold = await chat.ask("And now?")
        assert (told(cold, "stage"), told(cold, "epoch")) == ("trim", "1")
        (reason,) = await reasons(url)
        assert "cache is cold" in reason
        await until_recorded(url, chat)
        assert (await admin(url, f"sessions/{(await only_session(url))['id']}/explain"))["lacking"] == 0


async def test_at_compact_no_epoch_waits(model: Model, chats: Chats, tmp_path: Path) -> None:
    path = write_policy(tmp_path, "thrifty", POLICY)
    async with proxying(model.url, policy=str(path)) as url:
        chat = chats(url)
        response = await until_trim(chat)
        for number in range(20):
            response = await chat.ask(f"Detail {number}: {LONG}")
            if told(response, "stage") != "trim":
                break
        assert (told(response, "stage"), told(response, "epoch")) == ("compact", "1")


async def test_with_many_calls_to_come_it_pays_at_trim(model: Model, chats: Chats, tmp_path: Path) -> None:
    text = POLICY.replace("expected_turns = 1", "expected_turns = 1000")
    async with proxying(model.url, policy=str(write_policy(tmp_path, "thrifty", text))) as url:
        assert told(await until_trim(chats(url)), "epoch") == "1"
        (reason,) = await reasons(url)
        assert re.search(r"pays: \d+ saved, \d+ spent, in fresh tokens \(1000\.0 requests to come ", reason)


async def test_a_price_that_changes_with_the_hour_is_billed_from_then_on_and_ends_no_epoch(
    model: Model, chats: Chats, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Calendar(datetime):
        hour_now = 20

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls(2026, 11, 27, cls.hour_now, tzinfo=tz)

    async def fresh(exchange: Exchange) -> None:
        used: Message = {"prompt_tokens": 2_000, "completion_tokens": 100}
        used["prompt_tokens_details"] = {"cached_tokens": 0}
        await exchange.answer_json(completion(said("So it is.")) | {"usage": used})

    async def answers() -> float:
        bill = await bill_of(url, (await only_session(url))["id"], len(model.chats))
        return bill["dollars"]["answers"]

    monkeypatch.setattr(prices, "datetime", Calendar)
    text = POLICY.replace("expected_turns = 1", "expected_turns = 1000").replace("cached_price = 0.1", "")
    async with proxying(model.url, policy=str(write_policy(tmp_path, "thrifty", text))) as url:
        chat = chats(url)
        chat.members = {"model": "deepseek-v4-pro"}
        assert told(await until_trim(chat), "epoch") == "1"
        for hour, price, output in ((20, 0.66, 1.98), (7, 1.32, 3.96)):
            before, Calendar.hour_now = await answers(), hour
            model.replies.append(fresh)
            assert told(await chat.ask("And?"), "epoch") == "1"
            paid = (2_000 * price + 100 * output) / 1e6
            assert await answers() - before == pytest.approx(paid, abs=1e-9)
        view = model.bodies()[-2]["messages"]
        assert model.bodies()[-1]["messages"][: len(view)] == view


async def test_without_economics_trim_does_not_wait(model: Model, chats: Chats, tmp_path: Path) -> None:
    text = POLICY.replace("[economy]", "[economy]\nenabled = false")
    async with proxying(model.url, policy=str(write_policy(tmp_path, "spender", text))) as url:
        assert told(await until_trim(chats(url)), "epoch") == "1"


async def test_an_epoch_that_saves_less_than_it_costs_says_so_where_nothing_waits(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    policy = write_policy(tmp_path, "small", POLICY + "enabled = false\n")
    async with proxying(model.url, policy=str(policy)) as url:
        await until_trim(chats(url))
        (reason,) = await reasons(url)
        assert "costs more than it saves: " in reason
        assert "in fresh tokens (1.0 requests to come with " in reason


async def test_where_there_is_nothing_but_a_head_nothing_is_reckoned(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    path = write_policy(tmp_path, "thrifty", POLICY)
    async with proxying(model.url, policy=str(path)) as url:
        chat = chats(url)
        chat.messages.append({"role": "system", "content": LONG * 11})
        response = await chat.send()
        assert told(response, "stage") == "trim"
        assert "x-unabridged-degraded" not in response.headers


async def test_no_message_is_read_for_two_summaries_since_an_epoch_that_paid_waited_after_all(
    model: Model, chats: Chats, small: Small
) -> None:
    """The first summary comes too late for its note; what it took is known all the same."""
    model.summary = said("They went from one number to the next, and found all of them in order.")
    chat = chats(await small(8_000, extra=ECONOMY + "[stages]\ntarget = 0.5\n", wait="0s"))
    chat.members, epoch = {"model": "gpt-5"}, "0"
    for number in range(150):
        model.replies.append(said(f"It is {number}. " + "Nothing else is to be said of it. " * 4))
        response = await chat.ask(f"What of {number}? " + "It was another one, as far as I know. " * 4)
        if epoch != (epoch := told(response, "epoch")):
            await awaited(
                lambda: result_counts(chat.url), lambda now: now.get("written") == len(model.summaries)
            )
    sources = [json.loads(call.body)["messages"][1]["content"] for call in model.summaries]
    read = [number for source in sources for number in re.findall(r"What of (\d+)\?", source)]
    assert (len(sources) > 2, len(read)) == (True, len({*read}))


async def test_another_system_prompt_makes_the_cache_cold(model: Model, chats: Chats, tmp_path: Path) -> None:
    path = write_policy(tmp_path, "thrifty", POLICY)
    async with proxying(model.url, policy=str(path)) as url:
        chat = chats(url, X_Unabridged_Session="clockwork")
        chat.messages.append({"role": "system", "content": "It is nine o'clock."})
        assert told(await until_trim(chat), "epoch") == "0"
        chat.messages[0] = {"role": "system", "content": "It is ten o'clock."}
        assert told(await chat.ask("And?"), "epoch") == "1"


async def test_what_a_client_rewrites_is_cached_nowhere_and_trim_does_not_wait_for_it(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    path = write_policy(tmp_path, "thrifty", POLICY)
    async with proxying(model.url, policy=str(path)) as url:
        chat, response = chats(url, X_Unabridged_Session="rewritten"), None
        chat.messages.append({"role": "user", "content": ""})
        for number in range(40):
            chat.messages[0] = {"role": "user", "content": f"It is {number} past nine."}
            response = await chat.ask(f"Question {number}: {LONG}")
            if told(response, "stage") == "trim":
                break
        assert response is not None
        assert (told(response, "stage"), told(response, "epoch")) == ("trim", "1")


async def test_agents_with_prompts_of_their_own_in_one_session_are_each_cached(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    path = write_policy(tmp_path, "thrifty", POLICY)
    async with proxying(model.url, policy=str(path)) as url:
        agents = [chats(url, X_Session_Id="crew") for _ in range(2)]
        for agent, prompt in zip(agents, ("You plan.", "You write code."), strict=True):
            agent.messages.append({"role": "system", "content": prompt})
        told_of = [await agent.ask(f"Question {n}: {LONG}") for n in range(12) for agent in agents]
        trimming = [answer for answer in told_of if told(answer, "stage") == "trim"]
        assert {told(answer, "epoch") for answer in trimming} == {"0"}
        assert len(trimming) > 1


async def test_doing_nothing_is_billed_with_the_cache_of_each_system_prompt(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    model.caches = True

    async def bill(policy: str) -> Any:
        async with proxying(model.url, policy=str(write_policy(tmp_path, "thrifty", policy))) as url:
            chat = chats(url, X_Session_Id="titled")
            chat.messages.append({"role": "system", "content": "You are a helpful assistant."})
            chat.members = {"model": "gpt-5"}
            for number in range(30):
                await chat.ask(f"Question {number}: {LONG[:400]}")
                before = chat.messages
                chat.messages = [{"role": "system", "content": "You suggest titles."}, *before[1:]]
                await chat.ask("A title?")
                chat.messages = before
            found = await bill_of(url, (await only_session(url))["id"], 60)
            assert bool(found["epochs"]) == (policy is POLICY)
            return found["dollars"]

    nothing, cut = await bill(POLICY.replace("4000", "400000")), await bill(POLICY)
    assert cut["without"] == pytest.approx(nothing["spent"], rel=0.1)


# --- sessions that begin in the middle of a conversation ---


@pytest.fixture(params=[True, False], ids=["by cost", "cost aside"])
async def plain(request: pytest.FixtureRequest, model: Model, tmp_path: Path) -> AsyncIterator[str]:
    """A proxy with a budget of 4,000 tokens, which writes summaries."""
    text = 'extends = "default"\n[budget]\ntokens = 4000\n[importance]\nlow = 1.0\n'
    text += f"[economy]\nenabled = {str(request.param).lower()}\n"
    policy = write_policy(tmp_path, "plain", text)
    async with proxying(model.url, policy=str(policy)) as url:
        yield url


async def test_where_answers_come_back_changed_each_request_is_cut_where_the_last_one_was(
    model: Model, chats: Chats, plain: str
) -> None:
    chat, cuts = chats(plain), list[str]()
    for number in range(45):
        cuts.append(told(await chat.ask(f"Question {number}: {LONG[:400]}"), "cut"))
        chat.messages[-1] = said(f"{chat.messages[-1]['content']} Observation: {number}.")
    views = model.views()
    moved = sum(view[: len(before)] != before for before, view in itertools.pairwise(views))
    assert 0 < moved == len({*cuts}) - 1
    assert len(cuts) - cuts.count("0") > 4 * moved
    assert not model.summaries


async def test_a_history_without_a_name_has_its_summary_once_its_session_goes_on(
    model: Model, chats: Chats, plain: str
) -> None:
    chat = chats(plain)
    chat.messages = [user(LONG[:200]), said(LONG[:200])] * 20
    first = await chat.ask("And now?")
    assert (told(first, "stage"), told(first, "epoch")) == ("trim", "1")
    assert not model.summaries
    second = await chat.ask("And then?")
    await awaited(partial(asyncio.sleep, 0, model), lambda model: model.summaries)
    while told(second, "epoch") == "1":
        second = await chat.ask(f"And? {LONG}")
    assert any("Summary of" in message["content"] for message in model.views()[-1])


async def test_a_history_with_a_name_has_its_summary_at_once(model: Model, chats: Chats, plain: str) -> None:
    chat = chats(plain, X_Session_Id="imported")
    chat.messages = [user(LONG[:200]), said(LONG[:200])] * 22
    first = await chat.ask("And now?")
    assert (told(first, "stage"), told(first, "summary")) == ("compact", "waited")


# --- prompt_cache_key ---


async def talk(chat: Chat, turns: int) -> list[httpx2.Response]:
    responses = [await chat.ask(f"Question {number}: {LONG[:200]}") for number in range(turns)]
    assert {response.status_code for response in responses} == {200}
    return responses


def keys(model: Model) -> list[str | None]:
    return [body.get("prompt_cache_key") for body in model.bodies()]


async def test_a_session_names_its_cache_from_its_first_epoch_on_and_not_before(
    model: Model, chats: Chats, small: Small
) -> None:
    responses = await talk(chats(await small(extra=ECONOMY)), 16)
    sent = keys(model)
    begun = [told(response, "epoch") != "0" for response in responses]
    assert begun[-1]
    assert not begun[0]
    assert [key is not None for key in sent] == begun
    (key,) = {key for key in sent if key}
    assert len(key) == 32


async def test_a_key_is_the_sessions_own_and_tells_nothing_of_it(
    model: Model, chats: Chats, small: Small
) -> None:
    url = await small(extra=ECONOMY)
    for name in ("patient-4711", "patient-4712"):
        await talk(chats(url, X_Session_Id=name), 14)
    found = {key for key in keys(model) if key}
    assert len(found) == 2
    assert not any("4711" in key or "4712" in key for key in found)


async def test_every_other_byte_is_as_without_it(model: Model, chats: Chats, small: Small) -> None:
    await talk(chats(await small(extra=ECONOMY)), 16)
    body = bytes(model.chats[-1].body)
    key = keys(model)[-1]
    spliced = f'"prompt_cache_key":"{key}",'.encode()
    assert body.count(spliced) == 1
    assert body.startswith(b"{" + spliced)
    assert json.loads(body.replace(spliced, b""))["model"] == "gpt-test"


@pytest.mark.parametrize("given", ["mine", None])
async def test_a_key_of_the_clients_own_is_left_alone(
    model: Model, chats: Chats, small: Small, given: str | None
) -> None:
    chat = chats(await small(extra=ECONOMY))
    chat.members["prompt_cache_key"] = given
    assert told((await talk(chat, 16))[-1], "epoch") != "0"
    assert set(keys(model)) == {given}
    assert bytes(model.chats[-1].body).count(b"prompt_cache_key") == 1


async def test_without_economics_there_is_none(model: Model, chats: Chats, small: Small) -> None:
    assert told((await talk(chats(await small()), 16))[-1], "epoch") != "0"
    assert set(keys(model)) == {None}


def picky(model: Model, status: int, message: str) -> Callable[[Exchange], Awaitable[None]]:
    async def behave(exchange: Exchange) -> None:
        if b"prompt_cache_key" in model.chats[-1].body:
            error: Message = {"message": message, "type": "invalid_request_error"}
            await exchange.answer_json({"error": error}, status=status)
        else:
            await exchange.answer_json(completion(said("So it is. " * 12)))

    return behave


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Unrecognized request argument supplied: prompt_cache_key"),
        (400, "Unknown parameter: 'prompt_cache_key'."),
        (422, "Extra inputs are not permitted"),
        (400, "property 'x' is unsupported"),
    ],
)
async def test_an_upstream_that_refuses_it_gets_the_request_without_it_and_is_not_asked_again(
    model: Model, chats: Chats, small: Small, status: int, message: str
) -> None:
    model.replies.extend([picky(model, status, message)] * 60)
    responses = await talk(chats(await small(extra=ECONOMY)), 16)
    assert told(responses[-1], "epoch") != "0"
    sent = keys(model)
    assert sum(key is not None for key in sent) == 1
    refused = next(place for place, key in enumerate(sent) if key)
    with_key, without = (bytes(model.chats[place].body) for place in (refused, refused + 1))
    assert with_key.replace(f'"prompt_cache_key":"{sent[refused]}",'.encode(), b"") == without


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])
async def test_an_epoch_that_begins_after_a_refusal_for_length_names_the_cache_at_once(
    model: Model, chats: Chats, tmp_path: Path, stream: bool
) -> None:
    model.window = 1500
    async with proxying(model.url, policy=str(write_policy(tmp_path, "thrifty", ECONOMY))) as url:
        chat = chats(url)
        chat.members["stream"] = stream
        responses = await talk(chat, 14)
    refused = next(place for place, body in enumerate(model.bodies()) if count_tokens(body) > 1500)
    assert told(responses[refused], "epoch") == "1"
    assert [key is not None for key in keys(model)] == [False] * (refused + 1) + [True] * (14 - refused)


async def test_a_key_that_is_refused_after_a_refusal_for_length_is_left_out_again(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    async with proxying(model.url, policy=str(write_policy(tmp_path, "thrifty", ECONOMY))) as url:
        chat = chats(url)
        await talk(chat, 14)
        too_long = plainly(400, [JSON], json.dumps(refusal(OPENAI, 1600, 1500)).encode())
        model.replies += [too_long, *[picky(model, 400, "Unknown parameter: 'prompt_cache_key'.")] * 3]
        assert told(await chat.ask("And then?"), "epoch") == "1"
        await chat.ask("And in the end?")
    assert [key is not None for key in keys(model)[14:]] == [False, True, False, False]


async def test_a_mistake_of_the_clients_is_not_taken_for_a_refusal_of_the_key(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(extra=ECONOMY))
    await talk(chat, 16)

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer_json({"error": {"message": "Unknown parameter: 'foo'."}}, status=400)

    model.replies.extend([refuse, refuse])
    assert (await chat.ask("Now?")).status_code == 400
    chat.messages.pop()
    await chat.ask("And now?")
    assert keys(model)[-1] is not None


async def test_another_refusal_is_passed_on_as_it_is(model: Model, chats: Chats, small: Small) -> None:
    chat = chats(await small(extra=ECONOMY))
    await talk(chat, 16)
    asked = len(model.chats)

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer_json({"error": {"message": "You are out of luck."}}, status=400)

    model.replies.append(refuse)
    assert (await chat.ask("Now?")).status_code == 400
    assert len(model.chats) == asked + 1


async def test_a_refusal_for_length_is_pruned_and_sent_again_all_the_same(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(extra=ECONOMY))
    await talk(chat, 16)

    async def refuse(exchange: Exchange) -> None:
        await exchange.answer_json(refusal(OPENAI, 700, 500), status=400)

    model.replies.append(refuse)
    assert (await chat.ask("Now?")).status_code == 200

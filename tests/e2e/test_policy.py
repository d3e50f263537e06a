"""The staged policy seen from outside: what is cut, when, and that it stays so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.clients import (
    Chat,
    Chats,
    Small,
    admin,
    proxying,
    question,
    tokens_of,
    told,
    user,
    write_policy,
)
from tests.support.servers import PATIENCE, Exchange, awaited
from tests.support.stores import serving, valkey_command
from tests.support.upstreams import (
    JSON,
    LLAMA,
    OPENAI,
    Message,
    Model,
    calling,
    count_tokens,
    events,
    fault_in,
    plainly,
    refusal,
    running,
    said,
    sse,
)

BUDGET = 800
ORDER = ["calm", "warn", "trim", "compact", "emergency"]


async def talk(chat: Chat, turns: int) -> list[httpx2.Response]:
    responses = [await chat.ask(question(number)) for number in range(turns)]
    assert [response.status_code for response in responses] == [200] * turns
    return responses


def check_views(model: Model, budget: int) -> None:
    """Every forwarded request is valid, within the budget, and ends with what the user asked."""
    for body in model.bodies():
        assert fault_in(body["messages"]) is None
        assert count_tokens(body) <= budget
        assert body["messages"][-1]["role"] in ("user", "tool")
        assert body["messages"][-1]["content"].startswith(("Question", "result", "Do"))


def epochs_of(responses: list[httpx2.Response]) -> list[int]:
    return [int(told(response, "epoch")) for response in responses]


def check_sticky(model: Model, responses: list[httpx2.Response]) -> None:
    """Between epochs each forwarded request begins with the messages of the one before, byte for byte."""
    epochs = epochs_of(responses)
    chats = [bytes(chat.body) for chat in model.chats]
    for before, after, old, new in zip(chats, chats[1:], epochs, epochs[1:], strict=False):
        if old == new:
            prefix = messages_of(before)
            assert messages_of(after)[: len(prefix)] == prefix


def messages_of(body: bytes) -> list[bytes]:
    """The messages as they were written, one by one."""
    text = body.decode()
    at = text.index("[", text.index('"messages"')) + 1
    decoder, found = json.JSONDecoder(), list[bytes]()
    while text[at:].lstrip(" ,")[0] != "]":
        at += len(text[at:]) - len(text[at:].lstrip(" ,"))
        _, end = decoder.raw_decode(text, at)
        found.append(text[at:end].encode())
        at = end
    return found


# --- a conversation longer than the window ---


@pytest.mark.parametrize("words", [OPENAI, LLAMA])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_several_times_longer_than_the_window_goes_on_to_its_end(
    chats: Chats, *, words: str, stream: bool
) -> None:
    async with running(Model(window=1000, words=words)) as model:
        direct = chats(model.url.removesuffix("/v1"))
        refusals = [(await direct.ask(question(number))).status_code for number in range(12)]
        assert refusals[-1] == 400
        model.chats.clear()
        model.refused = 0
        async with proxying(model.url) as url:
            chat = chats(url)
            chat.members |= {"stream": stream}
            responses = await talk(chat, 30)
        assert tokens_of(responses[-1])["full"] > 3000
        assert model.refused == 1, "the window is learned once"
        assert not model.invalid
        assert model.views()[-1][-1] == chat.messages[-2]


async def test_every_request_of_a_long_conversation_is_valid_and_within_the_budget(
    model: Model, chats: Chats, small: Small
) -> None:
    responses = await talk(chats(await small(BUDGET)), 30)
    check_views(model, BUDGET)
    check_sticky(model, responses)
    assert all(tokens_of(response)["sent"] <= BUDGET for response in responses)
    assert epochs_of(responses) == sorted(epochs_of(responses))
    assert epochs_of(responses)[-1] >= 2


@pytest.mark.parametrize("asked", [BUDGET + 1, 10**30])
async def test_a_budget_that_is_asked_for_beyond_the_policys_counts_as_the_policys(
    chats: Chats, small: Small, asked: int
) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="asks", X_Unabridged_Budget=str(asked))
    for response in [await chat.ask(question(number)) for number in range(2)]:
        assert (response.status_code, tokens_of(response)["budget"]) == (200, BUDGET)
        assert "x-unabridged-degraded" not in response.headers


async def test_a_budget_that_is_asked_for_beyond_the_policys_leaves_cuts_as_they_are(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="asks")
    responses = await talk(chat, 20)
    assert epochs_of(responses)[-1] >= 2
    chat.headers["X-Unabridged-Budget"] = str(BUDGET + 1)
    responses += [await chat.ask(question(number)) for number in range(20, 24)]
    check_sticky(model, responses)
    assert epochs_of(responses) == sorted(epochs_of(responses))


async def test_an_agent_with_one_user_message_and_many_tool_rounds_stays_within_the_budget(
    model: Model, chats: Chats, small: Small
) -> None:
    for number in range(40):
        model.replies.append(calling((f"call-{number}", "read", json.dumps({"path": f"f{number}.txt"}))))
    chat = chats(await small(BUDGET))
    chat.members["tools"] = [{"type": "function", "function": {"name": "read", "parameters": {}}}]
    responses = [await chat.ask("Do read all the files.")]
    for number in range(39):
        result = {"role": "tool", "tool_call_id": f"call-{number}", "content": f"result {number} " * 20}
        responses.append(await chat.say(result))
    assert {response.status_code for response in responses} == {200}
    check_views(model, BUDGET)
    check_sticky(model, responses)
    assert any(user("Do read all the files.") in view for view in model.views()[-1:])


# --- the stages ---


async def test_stages_come_in_their_order_and_warn_is_only_said(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(BUDGET))
    responses = await talk(chat, 12)
    first_cut = next(at for at, response in enumerate(responses) if told(response, "cut") != "0")
    until_cut = chat.stages[: first_cut + 1]
    assert until_cut == sorted(until_cut, key=ORDER.index)
    assert until_cut[0] == "calm"
    for at, stage in enumerate(chat.stages[:first_cut]):
        assert stage in ("calm", "warn", "trim")
        sent: Any = json.loads(model.chats[at].body)
        assert sent["messages"] == chat.messages[: 2 * at + 1]


async def test_who_pauses_and_who_never_does_have_the_same_cuts_but_for_what_is_summarised(
    chats: Chats, tmp_path: Path
) -> None:
    rules = 'extends = "balanced"\n[budget]\ntokens = 2000\n'
    policy = str(write_policy(tmp_path, "small", rules))
    cuts: list[list[str]] = []
    for pause in (0.0, 0.05):
        async with running(Model()) as model, proxying(model.url, policy=policy) as url:
            model.summary = said("They spoke of it.") if pause else model.hang
            chat, cut = chats(url, X_Unabridged_Session="s"), list[str]()
            for number in range(40):
                response = await chat.ask(question(number))
                assert told(response, "stage") in ("calm", "warn", "trim"), "nothing waits for a summary"
                cut.append(told(response, "cut"))
                await asyncio.sleep(pause)
            assert ("Summary of" in str(model.views()[-1])) == bool(pause)
            cuts.append(cut)
    assert cuts[0] == cuts[1]
    assert len(set(cuts[0])) >= 4


async def test_cut_tells_how_many_messages_are_absent(model: Model, chats: Chats, small: Small) -> None:
    chat = chats(await small(BUDGET))
    responses = await talk(chat, 15)
    for at, response in enumerate(responses):
        kept = [message for message in model.views()[at] if message in chat.messages[: 2 * at + 1]]
        assert int(told(response, "cut")) == 2 * at + 1 - len(kept)


async def test_a_compacted_view_has_the_summary_in_a_note(model: Model, chats: Chats, small: Small) -> None:
    model.summary = said("Items 37 and 74 were delivered.")
    responses = await talk(chats(await small(BUDGET)), 15)
    assert {told(response, "summary") for response in responses} & {"ready", "waited"}
    notes = [message["content"] for message in model.views()[-1] if "<note" in str(message["content"])]
    assert any("Items 37 and 74 were delivered." in note for note in notes)
    assert any("Summary of " in note and " earlier messages: " in note for note in notes)
    assert all(message["role"] == "user" for message in model.views()[-1] if message["content"] in notes)


async def test_a_head_that_changes_each_turn_is_forwarded_as_it_is_now(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(BUDGET))
    for minute in range(15):
        chat.messages = [each for each in chat.messages if each["role"] != "system"]
        chat.messages.insert(0, {"role": "system", "content": f"It is 12:{minute:02}."})
        assert (await chat.ask(question(minute))).status_code == 200
        assert model.views()[-1][0]["content"] == f"It is 12:{minute:02}."
    assert len((await admin(chat.url, "sessions"))["sessions"]) == 1
    check_views(model, BUDGET)


@pytest.mark.parametrize("turns", [40, 41])
async def test_a_first_request_over_the_budget_is_pruned_and_stable(
    model: Model, chats: Chats, small: Small, turns: int
) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="old")
    for number in range(turns):
        chat.messages += [user(question(number)), {"role": "assistant", "content": f"It is done, {number}."}]
    chat.messages.append(user(question(turns)))
    responses = [await chat.send(), await chat.send(), await chat.say()]
    responses.append(await chat.ask(question(turns + 1)))
    assert told(responses[0], "stage") == "emergency"
    assert {bytes(each.body) for each in model.chats[:3]} == {bytes(model.chats[0].body)}
    check_views(model, BUDGET)
    check_sticky(model, responses)


async def test_a_fork_before_an_epoch_does_not_inherit_it(model: Model, chats: Chats, small: Small) -> None:
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    await talk(chat, 12)
    chat.messages = chat.messages[:2]
    response = await chat.ask("Question again, from the start")
    assert (told(response, "epoch"), told(response, "cut")) == ("0", "0")
    assert model.views()[-1] == chat.messages[:-1]


async def test_a_small_models_title_request_leaves_the_main_lines_plan_alone(
    model: Model, chats: Chats, small: Small
) -> None:
    url = await small(BUDGET)
    chat, title = chats(url, X_Unabridged_Session="s"), chats(url, X_Unabridged_Session="s")
    title.members = {"model": "small-model"}
    responses = await talk(chat, 12)
    before = len(model.chats)
    title.messages = [*chat.messages, user("Question: a title for this?")]
    await title.send()
    responses.append(await chat.ask(question(12)))
    del model.chats[before]
    check_sticky(model, responses)


# --- two proxies, restarts ---


async def test_two_proxies_on_one_store_send_the_same_bytes(model: Model, chats: Chats, small: Small) -> None:
    with serving(valkey_command()) as server:
        urls = [await small(BUDGET, store=server.url) for _ in range(2)]
        chat = chats(urls[0], X_Unabridged_Session="s")
        responses: list[httpx2.Response] = []
        for number in range(20):
            chat.messages.append(user(question(number)))
            for url in (urls[number % 2], urls[1 - number % 2]):
                chat.url = url
                model.replies.append(said(f"It is done, {number}. " * 8))
                responses.append(await chat.send())
            assert bytes(model.chats[-1].body) == bytes(model.chats[-2].body)
            assert epochs_of(responses[-2:-1]) == epochs_of(responses[-1:])
            chat.messages.append(responses[-1].json()["choices"][0]["message"])
    assert epochs_of(responses)[-1] >= 2
    check_views(model, BUDGET)
    check_sticky(model, responses)


async def test_a_restarted_proxy_sends_the_same_bytes(model: Model, chats: Chats, tmp_path: Path) -> None:
    policy = write_policy(tmp_path, "small", f'extends = "balanced"\n[budget]\ntokens = {BUDGET}\n')
    with serving(valkey_command()) as server:
        chat = chats("")
        async with proxying(model.url, policy=str(policy), store=server.url) as chat.url:
            await talk(chat, 14)
            chat.messages.append(user(question(14)))
            first = await chat.send()
        async with proxying(model.url, policy=str(policy), store=server.url) as chat.url:
            second = await chat.send()
    assert int(told(first, "cut")) > 0
    assert bytes(model.chats[-1].body) == bytes(model.chats[-2].body)
    assert told(first, "session") == told(second, "session")


async def test_two_workers_that_reach_an_epoch_at_once_make_one_plan(
    model: Model, chats: Chats, small: Small
) -> None:
    with serving(valkey_command()) as server:
        urls = [await small(BUDGET, store=server.url) for _ in range(2)]
        for attempt in range(5):
            pair = [chats(url, X_Unabridged_Session=f"s{attempt}") for url in urls]
            history = [user(question(0)), {"role": "assistant", "content": "Done."}] * 14
            for chat in pair:
                chat.messages = [*history, user(question(attempt))]
            answers = await asyncio.gather(*(chat.send() for chat in pair))
            assert {told(answer, "epoch") for answer in answers} == {"1"}
            assert bytes(model.chats[-1].body) == bytes(model.chats[-2].body)
        listed = await awaited(lambda: admin(urls[0], "sessions"), lambda told: len(told["sessions"]) == 5)
        assert [session["prune_count"] for session in listed["sessions"]] == [1] * 5


# --- overflow ---


def first_event(words: str) -> Callable[[Exchange], Awaitable[None]]:
    async def behave(exchange: Exchange) -> None:
        await exchange.start(200, [(b"Content-Type", b"text/event-stream")])
        await exchange.chunk(sse(refusal(words, 5000, 900)))
        await exchange.end()

    return behave


@pytest.mark.parametrize("words", [OPENAI, LLAMA])
@pytest.mark.parametrize("how", ["JSON", "event"])
async def test_an_overflow_refusal_teaches_the_window_unseen_by_the_client(
    model: Model, chats: Chats, url: str, words: str, how: str
) -> None:
    chat = chats(url)
    chat.members["stream"] = how == "event"
    for number in range(30):
        chat.messages += [user(question(number)), {"role": "assistant", "content": "It is done."}]
    refused = plainly(400, [JSON], json.dumps(refusal(words, 5000, 900)).encode())
    model.replies.append(first_event(words) if how == "event" else refused)
    response = await chat.ask(question(30))
    assert response.status_code == 200
    assert b"error" not in response.content
    assert len(model.chats) == 2
    assert tokens_of(response)["budget"] == 900 - 900 // 8
    await chat.ask(question(31))
    assert len(model.chats) == 3, "the next request fits at once"


SPLIT: dict[str, Callable[[bytes], list[bytes]]] = {
    "two chunks": lambda data: [data[:20], data[20:]],
    "CRLF": lambda data: [data.replace(b"\n", b"\r\n")],
    "a comment in the same chunk": lambda data: [b": ping\n\n" + data],
    "an event name": lambda data: [b"event: error\n" + data],
    "no space": lambda data: [data.replace(b"data: ", b"data:")],
    "a byte at a time": lambda data: [bytes([byte]) for byte in data],
}


@pytest.mark.parametrize("how", SPLIT)
async def test_an_overflow_event_is_known_however_it_is_written(
    model: Model, chats: Chats, url: str, how: str
) -> None:
    async def behave(exchange: Exchange) -> None:
        await exchange.start(200, [(b"Content-Type", b"text/event-stream")])
        for piece in SPLIT[how](sse(refusal(OPENAI, 5000, 900))):
            await exchange.chunk(piece)
            await asyncio.sleep(0.001)
        await exchange.end()

    chat = chats(url)
    chat.members["stream"] = True
    for number in range(30):
        chat.messages += [user(question(number)), {"role": "assistant", "content": "It is done."}]
    model.replies.append(behave)
    response = await chat.ask(question(30))
    assert b"error" not in response.content
    assert len(model.chats) == 2


async def test_where_nothing_can_be_cut_the_upstreams_own_refusal_is_passed_on(
    model: Model, chats: Chats, url: str
) -> None:
    body = json.dumps(refusal(OPENAI, 5000, 900)).encode() + b" "
    model.replies.append(plainly(400, [JSON, (b"X-Upstream", b"1")], body))
    response = await chats(url).ask(question(0))
    assert (response.status_code, response.content) == (400, body)
    assert response.headers["x-upstream"] == "1"
    assert len(model.chats) == 1


async def test_what_cannot_be_made_to_fit_is_forwarded_for_the_upstream_to_judge(
    model: Model, chats: Chats, small: Small
) -> None:
    chat = chats(await small(100))
    assert (await chat.ask("Question " + "so long " * 300)).status_code == 200
    assert model.views()[-1] == chat.messages[:1]


async def test_with_overflow_error_the_client_hears_what_does_not_fit(
    model: Model, chats: Chats, tmp_path: Path
) -> None:
    text = 'extends = "balanced"\n[budget]\ntokens = 100\noverflow = "error"\n'
    async with proxying(model.url, policy=str(write_policy(tmp_path, "strict", text))) as url:
        response = await chats(url).ask("Question " + "so long " * 300)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
        assert "100" in error["message"]
        assert (await chats(url).ask("Question")).status_code == 200
    assert len(model.chats) == 1


# --- usage that only the proxy asks for (law 1)


def _options(model: Model) -> list[Message | None]:
    return [body.get("stream_options") for body in model.bodies()]


async def _stream(chat: Chat, turns: int) -> list[str]:
    """Streamed answers, as the client reads them."""
    told_to_client: list[str] = []
    chat.members["stream"] = True
    for number in range(turns):
        chat.messages.append(user(question(number)))
        response = await chat.send()
        told_to_client.append(response.text)
        chat.messages.append({"role": "assistant", "content": "So it is. " * 12})
    return told_to_client


async def test_usage_is_asked_for_from_warn_on_until_five_samples_are_known(
    model: Model, chats: Chats, small: Small
) -> None:
    model.listing = {"data": [{"id": "gpt-test", "context_length": 128_000}]}
    url = await small(BUDGET)
    async with asyncio.timeout(PATIENCE):
        while "window" not in tokens_of(
            await chats(url, Authorization="Bearer another", X_Unabridged_Session="first").ask("Hello")
        ):
            pass
    model.chats.clear()
    chat = chats(url, Authorization="Bearer another")
    answers = await _stream(chat, 24)
    asked = [options == {"include_usage": True} for options in _options(model)]
    assert not asked[0]
    assert sum(asked) == 5
    assert not any('"choices": []' in text or '"choices":[]' in text for text in answers)
    assert all(text.rstrip().endswith("data: [DONE]") for text in answers)


async def test_an_upstream_that_refuses_to_be_asked_is_not_asked_again(
    model: Model, chats: Chats, small: Small
) -> None:
    async def picky(exchange: Exchange) -> None:
        if b"stream_options" in model.chats[-1].body:
            await exchange.answer_json(
                {"error": {"message": "Unknown parameter: stream_options"}}, status=400
            )
        else:
            await exchange.stream_events(events(said("So it is. " * 12), None))

    model.replies.extend([picky] * 40)
    answers = await _stream(chats(await small(BUDGET)), 20)
    assert all(text.rstrip().endswith("data: [DONE]") for text in answers)
    assert sum(options is not None for options in _options(model)) == 1

"""Clients that send only what is new: the stored history goes before it, once, in order, or they are told."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path

import pytest

from tests.support.append_client import Appender, Appenders, contents, error_code, transcript
from tests.support.clients import (
    Chats,
    admin,
    answer_in,
    only_session,
    proxying,
    told,
    user,
    write_policy,
)
from tests.support.servers import Exchange
from tests.support.upstreams import (
    DONE,
    EVENTS,
    JSON,
    Message,
    Model,
    calling,
    completion,
    events,
    plainly,
    said,
    sse,
)

SYSTEM = {"role": "system", "content": "Be kind."}
LONG = "tell me more of it, " * 20


# --- the tip ---


async def test_the_history_goes_before_what_is_new(appender: Appender, model: Model) -> None:
    model.replies.extend([said("One."), said("Two."), said("Three.")])
    for text in ("first", "second", "third"):
        assert (await appender.ask(text)).status_code == 200
    assert [contents(view) for view in model.views()] == [
        ["first"],
        ["first", "One.", "second"],
        ["first", "One.", "second", "Two.", "third"],
    ]
    assert await transcript(appender.url) == ["first", "One.", "second", "Two.", "third", "Three."]


async def test_answers_go_back_byte_for_byte_as_the_upstream_gave_them(
    appender: Appender, model: Model
) -> None:
    message = {**said("Deep."), "reasoning_content": "I thought about it", "unknown": [1.50, "x"]}
    model.replies.append(message)
    await appender.ask("think")
    await appender.ask("and?")
    assert model.views()[1][1] == message


async def test_everything_but_the_messages_is_the_clients_own(appender: Appender, model: Model) -> None:
    await appender.ask("first")
    appender.members |= {"temperature": 0.25, "metadata": {"a": [1, 2]}}
    await appender.ask("second")
    body = model.bodies()[1]
    assert {**body, "messages": []} == {**appender.members, "messages": []}


async def test_streamed_turns_are_kept_as_whole_ones_are(appender: Appender, model: Model) -> None:
    model.replies.extend([said("One streamed answer."), said("Two.")])
    appender.members["stream"] = True
    response = await appender.ask("first")
    assert response.text.endswith("data: [DONE]\n\n")
    await appender.ask("second")
    assert contents(model.views()[1]) == ["first", "One streamed answer.", "second"]


async def test_signed_reasoning_that_was_streamed_goes_back_as_if_it_had_been_said_at_once(
    appender: Appender, model: Model
) -> None:
    kind = {"type": "thinking", "signature": ""}
    pieces = [{**kind, "thinking": "I thi"}, {**kind, "thinking": "nk."}, {**kind, "signature": "EqoB"}]

    async def thinking(exchange: Exchange) -> None:
        chunks = events(said("One."))
        deltas = [{"index": 0, "delta": {"thinking_blocks": [piece]}} for piece in pieces]
        thoughts: list[Message] = [{**chunks[0], "choices": [delta]} for delta in deltas]
        await exchange.stream_events([chunks[0], *thoughts, *chunks[1:]])

    model.replies.extend([thinking, said("Two.")])
    appender.members["stream"] = True
    await appender.ask("first")
    await appender.ask("second")
    assert model.views()[1][1] == {
        "role": "assistant",
        "content": "One.",
        "thinking_blocks": [{"type": "thinking", "signature": "EqoB", "thinking": "I think."}],
    }


async def test_what_a_client_appends_may_be_several_messages(appender: Appender, model: Model) -> None:
    model.replies.append(calling(("c1", "look", "{}"), ("c2", "look", '{"at": 2}')))
    await appender.ask("look around")
    results = [{"role": "tool", "tool_call_id": name, "content": f"seen {name}"} for name in ("c1", "c2")]
    await appender.say(*results)
    assert [message["role"] for message in model.views()[1]] == ["user", "assistant", "tool", "tool"]


async def test_a_leading_system_message_replaces_the_head(appender: Appender, model: Model) -> None:
    await appender.say(SYSTEM, user("first"))
    await appender.ask("second")
    await appender.say({**SYSTEM, "content": "Be brief."}, user("third"))
    heads = [view[0]["content"] for view in model.views()]
    assert heads == ["Be kind.", "Be kind.", "Be brief."]
    assert [len(view) for view in model.views()] == [2, 4, 6]


async def test_a_long_session_is_abridged_as_any_other(
    model: Model, tmp_path: Path, appenders: Appenders
) -> None:
    policy = write_policy(tmp_path, "small", 'extends = "balanced"\n[budget]\ntokens = 900\n')
    async with proxying(model.url, policy=str(policy)) as url:
        appender = appenders(url)
        for number in range(11):
            await appender.ask(f"{number} {LONG}")
        response = await appender.ask(f"11 {LONG}")
        assert int(told(response, "epoch")) >= 1
        assert len(await transcript(url)) == 24
        assert len(model.views()[-1]) < 24


async def test_a_client_may_send_its_history_first_and_append_then(
    appender: Appender, url: str, model: Model, chats: Chats
) -> None:
    model.replies.extend([said("One."), said("Two.")])
    chat = chats(url, X_Unabridged_Session="s")
    await chat.ask("first")
    await appender.ask("second")
    assert contents(model.views()[1]) == ["first", "One.", "second"]


async def test_an_id_that_we_issued_names_the_session_to_append_to(
    appender: Appender, url: str, model: Model, chats: Chats
) -> None:
    model.replies.extend([said("One."), said("Two.")])
    chat = chats(url)
    chat.members["user"] = "ann"
    appender.session = told(await chat.ask("first"), "session")
    await appender.ask("second")
    assert contents(model.views()[1]) == ["first", "One.", "second"]
    assert (await only_session(url))["turns"] == 2


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_comes_compressed_is_kept_too(
    appender: Appender, model: Model, *, stream: bool
) -> None:
    message = said("Compressed though nobody asked.")
    plain = b"".join(map(sse, events(message))) + DONE if stream else json.dumps(completion(message)).encode()
    headers = [EVENTS if stream else JSON, (b"Content-Encoding", b"gzip")]
    model.replies.append(plainly(200, headers, gzip.compress(plain)))
    appender.members["stream"] = stream
    assert answer_in(await appender.ask("first"))["content"] == "Compressed though nobody asked."
    appender.members["stream"] = False
    await appender.ask("second")
    assert contents(model.views()[1])[1] == "Compressed though nobody asked."


# --- retries and repetition ---


async def test_the_same_words_twice_are_two_turns(appender: Appender, model: Model) -> None:
    model.replies.extend([said("Sure?"), said("Then I will.")])
    await appender.ask("yes")
    await appender.ask("yes")
    assert contents(model.views()[1]) == ["yes", "Sure?", "yes"]
    assert await transcript(appender.url) == ["yes", "Sure?", "yes", "Then I will."]


async def test_a_retried_turn_is_one(appender: Appender, model: Model) -> None:
    model.replies.extend([said("Lost on the way."), said("Again."), said("Next.")])
    await appender.ask("yes")
    await appender.ask("yes", x_stainless_retry_count="1")
    await appender.ask("next", x_stainless_retry_count="1")
    assert [contents(view) for view in model.views()] == [
        ["yes"],
        ["yes"],
        ["yes", "Again.", "next"],
    ]
    assert await transcript(appender.url) == ["yes", "Again.", "next", "Next."]


async def test_another_idempotency_key_is_another_turn(appender: Appender, model: Model) -> None:
    await appender.ask("yes", Idempotency_Key="k-1")
    await appender.ask("yes", Idempotency_Key="k-2")
    assert len(model.views()[1]) == 3


async def test_another_idempotency_key_is_another_turn_whatever_was_tried_before(
    appender: Appender, model: Model
) -> None:
    await appender.ask("yes", Idempotency_Key="k-1")
    await appender.ask("yes", Idempotency_Key="k-2", x_stainless_retry_count="1")
    assert len(model.views()[1]) == 3


async def test_a_retry_count_of_zero_is_no_retry(appender: Appender, model: Model) -> None:
    await appender.ask("yes", x_stainless_retry_count="0")
    await appender.ask("yes", x_stainless_retry_count="0")
    assert len(model.views()[1]) == 3


async def test_a_retry_is_one_of_the_newest_turn_though_that_was_refused(
    appender: Appender, model: Model
) -> None:
    async def fail(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.answer_json({"error": {"message": "overloaded"}}, 500)

    model.replies.extend([said("One."), fail, said("Two.")])
    await appender.ask("continue")
    assert (await appender.ask("continue", x_stainless_retry_count="0")).status_code == 500
    await appender.ask("continue", x_stainless_retry_count="1")
    assert contents(model.views()[2]) == ["continue", "One.", "continue"]
    assert await transcript(appender.url) == ["continue", "One.", "continue", "Two."]


async def test_results_that_are_sent_again_are_those_of_the_same_turn(
    appender: Appender, model: Model
) -> None:
    result = {"role": "tool", "tool_call_id": "c1", "content": "a door"}
    model.replies.extend([calling(("c1", "look", "{}")), said("A door."), said("It is a door.")])
    await appender.ask("look")
    for _ in range(2):
        assert (await appender.client.send(appender.request(result))).status_code == 200
    assert [message["role"] for message in model.views()[2]] == ["user", "assistant", "tool"]
    assert model.invalid == []


async def test_the_same_result_of_a_call_that_is_made_again_is_a_new_turn(
    appender: Appender, model: Model
) -> None:
    """Some models use the same ids again."""
    result = {"role": "tool", "tool_call_id": "c1", "content": "a door"}
    model.replies.extend([calling(("c1", "look", "{}")), calling(("c1", "look", "{}")), said("A door.")])
    await appender.ask("look")
    for _ in range(2):
        assert (await appender.client.send(appender.request(result))).status_code == 200
    roles = ["user", "assistant", "tool", "assistant", "tool"]
    assert [message["role"] for message in model.views()[2]] == roles


async def test_what_was_appended_is_kept_though_nobody_answered(appender: Appender, model: Model) -> None:
    async def die(exchange: Exchange) -> None:
        exchange.close()

    model.replies.extend([said("One."), die])
    await appender.ask("first")
    assert (await appender.ask("second")).status_code == 502
    session = await only_session(appender.url)
    kept = await admin(appender.url, f"sessions/{session['id']}/export")
    assert [json.loads(entry["original"])["content"] for entry in kept["tree"]] == ["first", "One.", "second"]


async def test_a_turn_that_the_upstream_refused_is_in_no_later_view(appender: Appender, model: Model) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.answer_json({"error": {"message": "no"}}, 400)

    await appender.ask("first")
    model.replies.append(refuse)
    assert (await appender.ask("bad")).status_code == 400
    await appender.ask("good")
    assert contents(model.views()[2])[::2] == ["first", "good"]


# --- what cannot be ---


async def test_a_session_must_be_named(appender: Appender, model: Model) -> None:
    request = appender.request(user("hello"))
    del request.headers["x-unabridged-session"]
    response = await appender.client.send(request)
    assert (response.status_code, error_code(response)) == (400, "session_required")
    assert not model.chats


async def test_a_header_of_another_agent_names_it_too(appender: Appender, model: Model) -> None:
    for text in ("first", "second"):
        request = appender.request(user(text), X_Session_Id="theirs")
        del request.headers["x-unabridged-session"]
        assert (await appender.client.send(request)).status_code == 200
    assert len(model.views()[1]) == 3


async def test_several_choices_are_refused(appender: Appender, model: Model) -> None:
    appender.members["n"] = 2
    response = await appender.ask("first")
    assert (response.status_code, response.json()["error"]["param"]) == (400, "n")
    assert not model.chats


async def test_an_expired_session_is_not_begun_anew(
    model: Model, tmp_path: Path, appenders: Appenders, chats: Chats
) -> None:
    policy = write_policy(tmp_path, "p", '[store]\nttl = "600ms"\n')
    async with proxying(model.url, policy=str(policy)) as url:
        appender = appenders(url)
        await appender.ask("first")
        await asyncio.sleep(0.7)
        response = await appender.ask("second")
        assert (response.status_code, error_code(response)) == (410, "session_expired")
        assert len(model.chats) == 1
        chat = chats(url, X_Unabridged_Session="s")
        await chat.ask("it begins anew with its whole history")
        assert (await appender.ask("and goes on")).status_code == 200


async def test_an_id_that_we_issued_and_no_longer_know_has_expired(
    appender: Appender, url: str, model: Model, chats: Chats
) -> None:
    async with proxying(model.url) as elsewhere:
        chat = chats(elsewhere)
        appender.session = told(await chat.ask("first"), "session")
    response = await appender.ask("second")
    assert (response.status_code, error_code(response)) == (410, "session_expired")


async def test_a_policy_that_cuts_nothing_still_has_the_history(appender: Appender, model: Model) -> None:
    appender.headers["X-Unabridged-Policy"] = "off"
    await appender.ask("first")
    await appender.ask("second")
    assert len(model.views()[1]) == 3


async def test_another_caller_with_the_same_name_has_another_history(
    appender: Appender, model: Model
) -> None:
    await appender.ask("my secret")
    await appender.ask("what is it?", Authorization="Bearer sk-other")
    assert contents(model.views()[1]) == ["what is it?"]


@pytest.mark.parametrize("order", ["abAB", "abBA", "baAB", "baBA"])
@pytest.mark.parametrize("turn", [0, 1], ids=["told first", "told then"])
async def test_of_two_people_with_the_same_beginning_neither_appends_to_the_other(
    appender: Appender, url: str, model: Model, chats: Chats, order: str, turn: int
) -> None:
    """Behind one key, without `user`: their first turns are alike, word for word."""
    people = {"a": chats(url), "b": chats(url)}
    told_to: dict[str, list[str]] = {"a": [], "b": []}
    for who in order:
        person = who.lower()
        model.replies.append(said("Hi! How can I help?" if who == person else f"Noted, {person}."))
        words = "Hello" if who == person else f"My secret is {person}-4711"
        told_to[person].append(told(await people[person].ask(words), "session"))
    for person, other in ("ab", "ba"):
        appender.session = told_to[person][turn]
        await appender.ask("What did I say?")
        assert f"{other}-4711" not in str(model.views()[-1])
        assert (f"{person}-4711" in str(model.views()[-1])) == bool(turn)


async def test_the_answer_of_a_turn_is_what_the_upstream_said(appender: Appender, model: Model) -> None:
    model.replies.append(said("Word for word."))
    response = await appender.ask("first")
    assert answer_in(response) == said("Word for word.")
    assert json.loads(response.content)["usage"]["completion_tokens"] == 5

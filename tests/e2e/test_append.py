"""Clients that send only what is new: the stored history goes before it, once, in order, or they are told."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.adapters.stores import open_store
from proxy.app import SystemClock
from proxy.engine.naming import Naming
from proxy.ports import Standing
from tests.servers import PATIENCE, Exchange, eventually
from tests.stores import embedded_valkey
from tests.upstreams import (
    DONE,
    EVENTS,
    JSON,
    KEY,
    Behaviour,
    Chat,
    Message,
    Model,
    admin,
    answer_in,
    calling,
    completion,
    events,
    in_pieces,
    only_session,
    plainly,
    proxying,
    said,
    sse,
    told,
    user,
    write_policy,
)

SYSTEM = {"role": "system", "content": "Be kind."}
LONG = "tell me more of it, " * 20


@dataclass
class Appender:
    """A client that keeps nothing."""

    url: str
    session: str = "s"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    members: Message = field(default_factory=lambda: {"model": "gpt-test"})
    client: httpx2.AsyncClient = field(default_factory=lambda: httpx2.AsyncClient(timeout=PATIENCE))

    def request(self, *messages: Message, **headers: str) -> httpx2.Request:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        ours = {"X-Unabridged-Mode": "append", "X-Unabridged-Session": self.session}
        return self.client.build_request(
            "POST",
            f"{self.url}/v1/chat/completions",
            json={**self.members, "messages": messages},
            headers={"Authorization": KEY, **ours, **self.headers, **named},
        )

    async def say(self, *messages: Message, **headers: str) -> httpx2.Response:
        return await self.client.send(self.request(*messages, **headers))

    async def ask(self, text: str, **headers: str) -> httpx2.Response:
        return await self.say(user(text), **headers)

    async def leave_during(self, text: str) -> str:
        """Ask for a stream, read its first bytes, and leave."""
        self.members["stream"] = True
        response = await self.client.send(self.request(user(text)), stream=True)
        seen = ""
        async for chunk in response.aiter_text():
            seen += chunk
            if "content" in seen:
                break
        await response.aclose()
        self.members.pop("stream")
        return seen


Appenders = Callable[..., Appender]
Chats = Callable[..., Chat]


@pytest.fixture
async def appenders() -> AsyncIterator[Appenders]:
    """Makes clients, which are closed at the end."""
    made: list[Appender] = []

    def appender(url: str, session: str = "s") -> Appender:
        made.append(Appender(url, session))
        return made[-1]

    yield appender
    for each in made:
        await each.client.aclose()


@pytest.fixture
def appender(appenders: Appenders, url: str) -> Appender:
    return appenders(url)


def contents(view: list[Message]) -> list[str]:
    return [message["content"] for message in view]


def error_code(response: httpx2.Response) -> str:
    return response.json()["error"]["code"]


async def transcript(url: str, *, complete: bool = True) -> list[str]:
    """What was said in full, or what was cut off."""
    session = await only_session(url)
    messages = (await admin(url, f"sessions/{session['id']}/transcript"))["messages"]
    return [entry["message"]["content"] for entry in messages if entry["complete"] == complete]


async def hold(exchange: Exchange, *first: str) -> None:
    """Begin a stream and go on no further, until the caller has left."""
    await exchange.body()
    await exchange.start(200, [(b"Content-Type", b"text/event-stream")])
    for text in first:
        await exchange.chunk(sse(events(said(text))[1]))
    await exchange.gone()


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


@pytest.mark.parametrize(
    "headers",
    [{"x_stainless_retry_count": "1"}, {"Idempotency_Key": "k-1"}],
    ids=["retry count", "idempotency key"],
)
async def test_a_retried_turn_is_one(appender: Appender, model: Model, headers: dict[str, str]) -> None:
    model.replies.extend([said("Lost on the way."), said("Again."), said("Next.")])
    await appender.ask("yes", **{name: value for name, value in headers.items() if "retry" not in name})
    await appender.ask("yes", **headers)
    await appender.ask("next", **headers)
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


# --- incomplete answers ---


async def test_an_answer_that_was_cut_off_is_in_the_transcript_and_in_no_view(
    appender: Appender, model: Model
) -> None:
    model.replies.extend([said("One."), lambda exchange: hold(exchange, "half an "), said("Three.")])
    await appender.ask("first")
    assert "half" in await appender.leave_during("second")
    assert await transcript(appender.url, complete=False) == ["half an "]
    await appender.ask("third")
    assert contents(model.views()[2]) == ["first", "One.", "third"]
    assert await transcript(appender.url, complete=False) == ["half an "]
    assert await transcript(appender.url) == ["first", "One.", "second", "third", "Three."]
    assert (await only_session(appender.url))["turns"] == 2


async def test_a_turn_that_was_cut_off_and_sent_again_is_there_once(appender: Appender, model: Model) -> None:
    model.replies.extend([said("One."), lambda exchange: hold(exchange, "half an "), said("Whole.")])
    await appender.ask("first")
    await appender.leave_during("second")
    await appender.ask("second")
    assert contents(model.views()[2]) == ["first", "One.", "second"]
    assert await transcript(appender.url) == ["first", "One.", "second", "Whole."]


async def test_a_stream_that_breaks_off_says_so_and_may_be_sent_again(
    appender: Appender, model: Model
) -> None:
    model.replies.append(in_pieces(*map(sse, events(said("broken"))[:2]), end=False))
    appender.members["stream"] = True
    assert "upstream_truncated" in (await appender.ask("first")).text
    await appender.ask("first")
    assert contents(model.views()[1]) == ["first"]


async def test_results_that_an_unanswered_turn_brought_stay_with_their_calls(
    appender: Appender, model: Model
) -> None:
    model.replies.extend([calling(("c1", "look", "{}")), lambda exchange: hold(exchange, "I se")])
    await appender.ask("look")
    appender.members["stream"] = True
    result = {"role": "tool", "tool_call_id": "c1", "content": "a door"}
    response = await appender.client.send(appender.request(result), stream=True)
    await anext(response.aiter_bytes())
    await response.aclose()
    appender.members.pop("stream")
    await appender.ask("never mind")
    assert [message["role"] for message in model.views()[2]] == ["user", "assistant", "tool", "user"]


async def test_words_that_were_refused_are_no_results(appender: Appender, model: Model) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.answer_json({"error": {"message": "later"}}, 429)

    model.replies.extend([calling(("c1", "look", "{}")), refuse])
    await appender.ask("look")
    await appender.ask("refused")
    await appender.ask("never mind")
    assert [message["content"] for message in model.views()[2]] == ["look", None, "never mind"]


async def test_a_client_that_leaves_after_the_last_word_has_its_turn(
    appender: Appender, model: Model
) -> None:
    """Many clients stop reading at the finish reason, without waiting for `[DONE]`."""

    async def without_end(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.start(200, [(b"Content-Type", b"text/event-stream")])
        for event in events(said("All of it.")):
            await exchange.chunk(sse(event))
        await exchange.gone()

    model.replies.append(without_end)
    appender.members["stream"] = True
    response = await appender.client.send(appender.request(user("first")), stream=True)
    seen = ""
    async for text in response.aiter_text():
        seen += text
        if '"stop"' in seen:
            break
    await response.aclose()
    await appender.ask("second")
    assert contents(model.views()[1]) == ["first", "All of it.", "second"]


@pytest.mark.parametrize(
    "answer",
    [
        plainly(200, [EVENTS], DONE),
        plainly(200, [EVENTS], b'data: {"choices":[{"index":0,"delta":{"content":NaN}}]}\n\n' + DONE),
        plainly(200, [JSON], b"{}"),
        plainly(200, [JSON], b'{"choices":[{"message":{"role":"assistant","content":NaN}}]}'),
        plainly(200, [(b"Content-Type", b"text/html")], b"<p>no"),
        plainly(200, [JSON, (b"Content-Encoding", b"br")], b"no"),
    ],
    ids=["an empty stream", "a damaged stream", "no choices", "no JSON", "HTML", "compressed by br"],
)
async def test_an_answer_that_cannot_be_kept_is_called_unsaved(
    appender: Appender, model: Model, answer: Behaviour
) -> None:
    await appender.ask("first")
    model.replies.append(answer)
    response = await appender.ask("second")
    assert "history_not_saved" in response.text
    assert "[DONE]" not in response.text
    await appender.ask("third")
    assert contents(model.views()[2])[::2] == ["first", "third"]


async def test_an_answer_without_a_role_gets_one(appender: Appender, model: Model) -> None:
    model.replies.append({"role": None, "content": "ok", "extra": [1.50]})
    await appender.ask("first")
    await appender.ask("second")
    assert model.views()[1][1] == {"role": "assistant", "content": "ok", "extra": [1.50]}


async def test_a_first_turn_that_was_cut_off_and_edited_is_history_once_it_is_answered(
    appender: Appender, url: str, model: Model, chats: Chats
) -> None:
    model.replies.extend([lambda exchange: hold(exchange, "half an "), said("One.")])
    await appender.leave_during("first")
    chat = chats(url, X_Unabridged_Session="s")
    await chat.ask("first, edited")
    await appender.ask("second")
    assert contents(model.views()[2]) == ["first, edited", "One.", "second"]


# --- order ---


async def test_turns_of_one_session_run_one_after_the_other(appender: Appender, model: Model) -> None:
    responses = await asyncio.gather(*(appender.ask(f"turn {number}") for number in range(6)))
    assert [response.status_code for response in responses] == [200] * 6
    views = [contents(view) for view in model.views()]
    assert [len(view) for view in views] == [1, 3, 5, 7, 9, 11]
    assert all(later[: len(view)] == view for view, later in pairwise(views))
    assert sorted(views[-1][::2]) == [f"turn {number}" for number in range(6)]


async def test_turns_run_in_order_across_proxies(model: Model, appenders: Appenders) -> None:
    with embedded_valkey() as store:
        async with proxying(model.url, store=store) as one, proxying(model.url, store=store) as two:
            clients = [appenders(one), appenders(two)]
            asked = (clients[number % 2].ask(f"turn {number}") for number in range(8))
            responses = await asyncio.gather(*asked)
            assert [response.status_code for response in responses] == [200] * 8
            assert [len(view) for view in model.views()] == list(range(1, 17, 2))
            assert len(await transcript(one)) == 16


async def test_no_more_wait_than_the_policy_lets(model: Model, tmp_path: Path, appenders: Appenders) -> None:
    release = asyncio.Event()

    async def held(exchange: Exchange) -> None:
        await exchange.body()
        await release.wait()
        await exchange.answer_json({"choices": [{"index": 0, "message": said("x"), "finish_reason": "stop"}]})

    model.replies.append(held)
    policy = write_policy(tmp_path, "p", '[append]\nwait = "30s"\nqueue = 2\n')
    async with proxying(model.url, policy=str(policy)) as url:
        appender = appenders(url)
        asked = [asyncio.create_task(appender.ask(f"{number}")) for number in range(5)]
        done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        while len(done) < 2:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        refused = [task.result() for task in done]
        assert [(response.status_code, error_code(response)) for response in refused] == [
            (429, "session_busy")
        ] * 2
        assert all("retry-after" in response.headers for response in refused)
        release.set()
        assert [(await task).status_code for task in waiting] == [200] * 3


async def test_nobody_waits_longer_than_the_policy_lets(
    model: Model, tmp_path: Path, appenders: Appenders, chats: Chats
) -> None:
    model.replies.append(model.hang)
    policy = write_policy(tmp_path, "p", '[append]\nwait = "100ms"\n')
    async with proxying(model.url, policy=str(policy)) as url:
        appender, other = appenders(url), appenders(url, session="other")
        hanging = asyncio.create_task(appender.ask("hang"))
        await eventually(lambda: model.hanging == 1)
        assert error_code(await appender.ask("waits")) == "session_busy"
        assert (await other.ask("does not wait")).status_code == 200
        chat = chats(url, X_Unabridged_Session="s")
        assert (await chat.ask("sends its history, and does not wait")).status_code == 200
        hanging.cancel()


async def test_a_place_is_free_again_when_its_worker_has_died(model: Model, appenders: Appenders) -> None:
    """The place is kept by a lease alone: here that of a proxy that never gives it up."""
    with embedded_valkey() as store:
        async with proxying(model.url, store=store, line_lease=0.3) as url:
            appender = appenders(url)
            await appender.ask("first")
            named = {b"authorization": KEY.encode(), b"x-unabridged-session": b"s"}
            key = Naming("secret").caller(named).key
            assert key is not None
            dead = open_store(store, SystemClock(), 1.0, 1.0)
            while await dead.stand(key, "turn-of-a-dead-worker", 8, 0.3) is not Standing.GO:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # the first turn's place is given up after its answer
            assert (await appender.ask("second")).status_code == 200
            assert [len(view) for view in model.views()] == [1, 3]
            await dead.aclose()


# --- pauses ---


async def post(url: str, path: str) -> Any:
    async with httpx2.AsyncClient(base_url=url, headers={"Authorization": "Bearer admin"}) as client:
        response = await client.post(f"/unabridged/v1/{path}")
        assert response.status_code == 200, response.text
        return response.json()


async def test_a_paused_session_lets_appended_turns_wait_and_no_others(
    appender: Appender, url: str, model: Model, appenders: Appenders, chats: Chats
) -> None:
    await appender.ask("first")
    session = await only_session(url)
    assert session["blocked"] is None
    assert (await post(url, f"sessions/{session['id']}/pause"))["blocked"] == "paused"
    waiting = asyncio.create_task(appender.ask("second"))
    chat = chats(url, X_Unabridged_Session="s")
    assert (await chat.ask("not me")).status_code == 200
    assert (await appenders(url, session="other").ask("nor me")).status_code == 200
    assert not waiting.done()
    assert (await post(url, f"sessions/{session['id']}/resume"))["blocked"] is None
    assert (await waiting).status_code == 200
    assert contents(model.views()[-1])[0] == "first"


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


async def test_workers_that_share_no_store_have_no_history(model: Model, appenders: Appenders) -> None:
    async with proxying(model.url, store="memory://", workers=2) as url:
        response = await appenders(url).ask("first")
        assert (response.status_code, error_code(response)) == (503, "history_unavailable")
        assert not model.chats


async def test_several_choices_are_refused(appender: Appender, model: Model) -> None:
    appender.members["n"] = 2
    response = await appender.ask("first")
    assert (response.status_code, response.json()["error"]["param"]) == (400, "n")
    assert not model.chats


async def test_an_expired_session_is_not_begun_anew(
    model: Model, tmp_path: Path, appenders: Appenders, chats: Chats
) -> None:
    policy = write_policy(tmp_path, "p", '[store]\nttl = "100ms"\n')
    async with proxying(model.url, policy=str(policy)) as url:
        appender = appenders(url)
        await appender.ask("first")
        await asyncio.sleep(0.2)
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

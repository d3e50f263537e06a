"""In shadow everything is decided, recorded and told, and not a byte is changed, whatever the policy."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from proxy.core.recall.tool import NAME
from tests.support.append_client import Appender
from tests.support.browser import browsing
from tests.support.clients import (
    CHAT,
    HELLO,
    Chat,
    Chats,
    Small,
    admin,
    metrics,
    only_session,
    proxying,
    question,
    result_counts,
    tokens_of,
    told,
    write_policy,
)
from tests.support.servers import Exchange, FakeUpstream, until
from tests.support.stores import serving, valkey_command
from tests.support.upstreams import EVENTS, OPENAI, Model, calling, in_pieces, running, said, sse

BUSY = """
[budget]
tokens = 300
overflow = "error"
[economy]
enabled = false
[recall]
enabled = true
[memory]
enabled = true
[store]
on_fault = "closed"
[[tools]]
match = "*"
cache_exchanges = 3
serve = true
pure = true
"""
"""A policy that does all that it may."""


@pytest.fixture
async def busy(model: Model, tmp_path: Path) -> AsyncIterator[str]:
    policy = write_policy(tmp_path, "busy", BUSY)
    async with proxying(model.url, policy=str(policy), shadow=True) as url:
        yield url


async def talk(chat: Chat, turns: int) -> httpx2.Response:
    for number in range(turns):
        response = await chat.ask(question(number))
        assert response.status_code == 200
    return response  # pyright: ignore[reportPossiblyUnboundVariable] - every talk has a turn


async def post(url: str, body: bytes, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx2.AsyncClient() as client:
        return await client.post(f"{url}{CHAT}", content=body, headers=named)


def odd_body(draw: random.Random) -> bytes:
    """A long conversation, written as no SDK would write it."""
    blank = draw.choice(["", " ", "\n\t"])
    messages: list[dict[str, Any]] = [{"role": "system", "content": "Be brief.", "x": [1.0, None]}]
    for number in range(draw.randint(1, 30)):
        if draw.random() < 0.3:
            call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            messages += [{"role": "assistant", "content": None, "tool_calls": [call]}]
            messages += [{"role": "tool", "tool_call_id": f"c{number}", "content": "seen " * 50}]
        else:
            parts = [
                {"type": "text", "text": question(number, draw.choice(["é", "🐘", "\ud800", "a\u2028b"]))}
            ]
            messages += [{"role": "user", "content": parts}, {"role": "assistant", "content": "Yes."}]
    messages.append({"role": "user", "content": "And now?"})
    members = {"stream": draw.random() < 0.5, "x_unknown": 10**30, "messages": messages, "model": "gpt-test"}
    written = json.dumps(members, separators=(f"{blank},", f":{blank}"), indent=draw.choice([None, 1]))
    return f"{blank}{written}\r\n".encode()


@pytest.mark.parametrize("seed", range(20))
async def test_bodies_reach_the_upstream_byte_for_byte_however_much_would_be_cut(
    model: Model, busy: str, seed: int
) -> None:
    body = odd_body(random.Random(seed))
    model.replies.append(in_pieces(*(pieces := (b": a\r\n\r\ndata: {}\n", b"\ndata: [DO", b"NE]\n\nx"))))
    response = await post(busy, body)
    assert bytes(model.chats[0].body) == body
    assert response.content == b"".join(pieces)
    assert (told(response, "mode"), len(model.chats)) == ("shadow", 1)


async def test_the_answer_says_what_would_have_been_sent(model: Model, small: Small, chats: Chats) -> None:
    chat = chats(await small(300, summaries=False), X_Unabridged_Mode="shadow")
    response = await talk(chat, 8)
    tokens = tokens_of(response)
    assert tokens["sent"] <= tokens["budget"] == 300 < tokens["full"]
    assert (told(response, "mode"), told(response, "stage")) == ("shadow", "emergency")
    assert int(told(response, "cut")) > 0
    assert int(told(response, "epoch")) > 0
    assert model.views()[-1] == chat.messages[:-1]


async def test_the_session_is_recorded_whole_and_its_view_is_the_one_that_nobody_got(
    busy: str, chats: Chats, model: Model
) -> None:
    chat = chats(busy)
    await talk(chat, 6)
    session = await only_session(busy)
    assert session["shadow"] is True
    assert session["tokens"] < session["full_tokens"]
    assert session["epochs"]
    transcript = await admin(busy, f"sessions/{session['id']}/transcript")
    assert [entry["message"] for entry in transcript["messages"]] == chat.messages
    view = await admin(busy, f"sessions/{session['id']}/view")
    assert len(view["messages"]) < len(model.views()[-1])
    async with browsing(busy) as browser:
        page = await browser.text(f"sessions/{session['id']}")
        assert "In shadow: the model got the whole conversation." in page


async def test_what_was_decided_in_shadow_is_in_force_for_no_other_request(
    model: Model, small: Small, chats: Chats
) -> None:
    chat = chats(await small(300, summaries=False), X_Unabridged_Session="s", X_Unabridged_Mode="shadow")
    assert int(told(await talk(chat, 8), "epoch")) > 1
    chat.headers.pop("X-Unabridged-Mode")
    response = await chat.ask("Short.")
    assert told(response, "epoch") == "1"
    assert "x-unabridged-mode" not in response.headers
    assert len(model.views()[-1]) < len(model.views()[-2])


async def test_a_refusal_for_length_is_passed_on_as_it_is_and_teaches_the_window(chats: Chats) -> None:
    async with running(Model(window=300, words=OPENAI)) as model, proxying(model.url, shadow=True) as url:
        chat = chats(url)
        await talk(chat, 2)
        chat.messages.append({"role": "user", "content": "more, " * 300})
        refused = await chat.send()
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert model.refused == 1
        again = await chat.send()
        assert (again.status_code, tokens_of(again)["window"]) == (400, 300)


async def test_a_stream_that_breaks_off_breaks_off_for_the_client_too(model: Model, busy: str) -> None:
    begun = sse({"choices": [{"index": 0, "delta": {"content": "Hel"}, "finish_reason": None}]})
    model.replies.append(in_pieces(begun))
    assert (await post(busy, HELLO)).content == begun
    model.replies.append(in_pieces(begun, headers=(EVENTS,), end=False))
    with pytest.raises(httpx2.RemoteProtocolError):
        await post(busy, HELLO)


@pytest.mark.parametrize(("extra", "asked"), [("", False), ("shadow = true\n", True)])
async def test_no_summary_is_asked_for_unless_the_policy_wants_them_in_shadow(
    model: Model, small: Small, chats: Chats, extra: str, asked: bool
) -> None:
    chat = chats(await small(800, extra=extra, shadow=True))
    await talk(chat, 30)
    if not asked:
        assert model.summaries == []
        assert await result_counts(chat.url) == {}
        return
    await until(expected=True, ask=lambda: _tells_summary(chat.url))
    assert model.views()[-1] == chat.messages[:-1]


async def _tells_summary(url: str) -> bool:
    session = await only_session(url)
    return bool((await admin(url, f"sessions/{session['id']}"))["summary_bytes"])


async def test_what_is_handed_in_is_taken_out_and_not_told_to_the_model(model: Model, busy: str) -> None:
    inject = b'"unabridged":{"inject":{"text":"Ana is a guest."}},'
    response = await post(busy, HELLO.replace(b"{", b"{" + inject, 1))
    assert (response.status_code, bytes(model.chats[0].body)) == (200, HELLO)


async def test_what_is_handed_in_in_shadow_is_not_told_later_either(
    model: Model, client: httpx2.AsyncClient
) -> None:
    inject = b'"unabridged":{"inject":{"text":"Ana is a guest."}},'
    session = {"X-Unabridged-Session": "s"}
    for body, mode in ((HELLO.replace(b"{", b"{" + inject, 1), "shadow"), (HELLO, "full")):
        await client.post(CHAT, content=body, headers={**session, "X-Unabridged-Mode": mode})
    assert [bytes(chat.body) for chat in model.chats] == [HELLO, HELLO]


async def test_a_call_whose_result_is_kept_reaches_the_client(model: Model, busy: str, chats: Chats) -> None:
    chat, called = chats(busy), calling(("c1", "look", "{}"))
    model.replies += [called, said("Seen."), called]
    await chat.ask("Look.")
    await chat.say({"role": "tool", "tool_call_id": "c1", "content": "It is there."})
    assert (await chat.ask("Again.")).json()["choices"][0]["message"] == called
    assert len(model.chats) == 3


async def test_a_call_of_a_tool_that_is_not_offered_reaches_the_client(
    model: Model, busy: str, chats: Chats
) -> None:
    chat, called = chats(busy), calling(("c1", NAME, '{"query": "it"}'))
    assert int(told(await talk(chat, 5), "cut")) > 0
    model.replies.append(called)
    assert (await chat.ask("What was it?")).json()["choices"][0]["message"] == called


async def test_nothing_is_remembered_of_it(model: Model, tmp_path: Path, chats: Chats) -> None:
    policy = write_policy(tmp_path, "busy", BUSY)
    with serving(valkey_command()) as server:
        async with proxying(model.url, policy=str(policy), shadow=True, store=server.url) as url:
            await talk(chats(url), 2)
        assert server.run("KEYS", "*:nodes") != []
        assert server.run("KEYS", "*memor*") == []


async def test_what_a_policy_would_refuse_for_its_length_is_answered(busy: str) -> None:
    response = await post(busy, HELLO.replace(b"Hello", b"hello " * 600))
    tokens = tokens_of(response)
    assert (response.status_code, told(response, "mode")) == (200, "shadow")
    assert tokens["sent"] > tokens["budget"]


async def test_how_a_model_counts_is_learned_from_what_it_got(
    small: Small, chats: Chats, model: Model
) -> None:
    model.window = 100_000
    chat = chats(await small(300, summaries=False, shadow=True))
    await talk(chat, 12)
    session = await only_session(chat.url)
    explained = await admin(chat.url, f"sessions/{session['id']}/explain")
    assert explained["ratio"] == pytest.approx(1.0, abs=0.1)


async def test_a_body_that_cannot_be_read_is_the_upstreams_business() -> None:
    bodies = [b"", b"{", b"[]", b'{"messages":[]}', b'{"messages":7}', b"\xff"]
    came: list[bytes] = []

    async def answer(exchange: Exchange) -> None:
        came.append(await exchange.body())
        await exchange.answer(422, [], b"whatever")

    async with FakeUpstream(answer).serve() as upstream, proxying(upstream.url, shadow=True) as url:
        answers = [await post(url, body) for body in bodies]
    assert came == bodies
    assert {(each.status_code, each.content) for each in answers} == {(422, b"whatever")}


async def test_what_is_wrong_with_our_own_member_is_told(busy: str) -> None:
    response = await post(busy, HELLO.replace(b"{", b'{"unabridged":{"pin":7},', 1))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "unabridged.pin"


async def test_a_store_that_is_away_keeps_nobody_waiting_for_an_answer(
    model: Model, tmp_path: Path, chats: Chats
) -> None:
    policy = write_policy(tmp_path, "busy", BUSY)
    async with proxying(model.url, policy=str(policy), shadow=True, store="redis://127.0.0.1:1") as url:
        chat = chats(url)
        await talk(chat, 4)
        assert model.views()[-1] == chat.messages[:-1]
        assert (await chat.client.get(f"{url}/readyz")).status_code == 200


async def test_append_mode_is_refused_by_a_server_in_shadow(appenders: Any, busy: str) -> None:
    appender: Appender = appenders(busy)
    response = await appender.ask("Hello")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_header")
    assert "shadow" in response.json()["error"]["message"]


async def test_a_server_in_shadow_takes_full_for_shadow_and_leaves_off_alone(busy: str) -> None:
    assert told(await post(busy, HELLO, X_Unabridged_Mode="full"), "mode") == "shadow"
    assert "x-unabridged-mode" not in (await post(busy, HELLO, X_Unabridged_Mode="off")).headers


async def test_metrics_count_what_was_sent_and_what_would_have_been(small: Small, chats: Chats) -> None:
    url = await small(300, summaries=False, shadow=True)
    await talk(chats(url), 8)
    await until(expected=True, ask=lambda: _has_saved(url))


async def _has_saved(url: str) -> bool:
    count = await metrics(url, 'unabridged_tokens_total{kind="', '"}')
    assert count["received"] == count["sent"] == count["shadow_received"]
    return 0 < count["shadow_sent"] < count["sent"]

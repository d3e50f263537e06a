"""What a caller hands in stands before every request of its session, as it was first given."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.support.append_client import Appenders
from tests.support.canaries import logged
from tests.support.clients import (
    ADMIN,
    Chats,
    Small,
    admin,
    only_session,
    proxying,
    question,
    tokens_of,
    told,
    user,
    write_policy,
)
from tests.support.operator import ask
from tests.support.servers import Exchange, eventually
from tests.support.stores import dump, serving, valkey_command
from tests.support.upstreams import Message, Model, completion, count_tokens, fault_in, said

BUDGET = 800
CHAT = "/v1/chat/completions"
RAIN: Message = {"name": "weather", "arguments": {"city": "Rom"}, "result": {"sky": "rain"}, "call_id": "w1"}
HANDED: Message = {"text": "The customer is called Ada.", "tools": [RAIN]}
OTHER: Message = {"text": "The customer is called Bob."}
RESULT = {"role": "tool", "tool_call_id": "w1", "content": '{"sky":"rain"}'}
SYSTEM: Message = {"role": "system", "content": "Be kind."}


def prelude(view: list[Message]) -> list[Message]:
    """What stands between the head and the conversation; without a session's injection, nothing."""
    after = [message for message in view if message["role"] != "system"]
    texts = [json.dumps(message) for message in after]
    return after[:3] if "Ada" in texts[0] and "<note " in texts[0] else []


def degraded(response: httpx2.Response) -> str:
    return response.headers.get("x-unabridged-degraded", "")


# --- with the SDK ---


@pytest.mark.parametrize("streams", [False, True])
async def test_the_sdk_hands_in_and_the_model_reads_it_before_the_conversation(
    model: Model, url: str, streams: bool
) -> None:
    asked: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "How is the weather?"},
    ]
    model.replies.append(said("It rains."))
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0) as client:
        extra = {"unabridged": {"inject": HANDED}}
        if streams:
            stream = await client.chat.completions.create(
                model="m", messages=asked, stream=True, extra_body=extra
            )
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        else:
            answer = await client.chat.completions.create(model="m", messages=asked, extra_body=extra)
            text = answer.choices[0].message.content or ""
    assert text == "It rains."
    (body,) = model.bodies()
    assert "unabridged" not in body
    head, note, call, result, last = body["messages"]
    assert (head, last) == (asked[0], asked[1])
    assert (note["role"], "\nThe customer is called Ada.\n" in note["content"]) == ("user", True)
    assert call["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city":"Rom"}'}
    assert result == RESULT
    assert fault_in(body["messages"]) is None


async def test_every_byte_of_the_request_stays_but_for_what_is_put_in(model: Model, url: str) -> None:
    raw = (
        b'{ "x": 1.0 , "messages" :[ {"role":"user", "content":"Hi"} ],"unabridged":{"inject":%b}, "y":[ ] }'
    )
    async with httpx2.AsyncClient(headers={"Content-Type": "application/json"}) as client:
        content = raw % json.dumps({"text": "x"}).encode()
        assert (await client.post(url + CHAT, content=content)).status_code == 200
    sent = bytes(model.chats[-1].body)
    assert sent.startswith(b'{ "x": 1.0 , "messages" :[{"role":"user","content":"<note ')
    assert sent.endswith(b',{"role":"user", "content":"Hi"}], "y":[ ] }')


# --- it stays ---


@pytest.mark.parametrize("headers", [{}, {"X_Unabridged_Session": "s"}])
async def test_it_stands_before_later_requests_that_say_nothing_of_it(
    model: Model, chats: Chats, url: str, headers: dict[str, str]
) -> None:
    chat = chats(url, **headers)
    chat.members["unabridged"] = {"inject": HANDED}
    assert not degraded(await chat.ask("One?"))
    assert not degraded(await chat.ask("The same one again is no news."))
    del chat.members["unabridged"]
    for number in range(3):
        assert not degraded(await chat.ask(question(number)))
    first = prelude(model.views()[0])
    assert len(first) == 3
    for view, sent in zip(model.views(), (1, 3, 5, 7, 9), strict=True):
        assert view == [*first, *chat.messages[:sent]]


async def test_a_later_one_that_is_another_is_ignored_and_the_answer_says_so(
    model: Model, chats: Chats, url: str
) -> None:
    chat = chats(url, X_Unabridged_Session="s")
    chat.members["unabridged"] = {"inject": HANDED}
    await chat.ask("One?")
    chat.members["unabridged"] = {"inject": OTHER}
    assert degraded(await chat.ask("Two?")) == "inject-ignored"
    assert prelude(model.views()[1]) == prelude(model.views()[0]) != []
    assert "Bob" not in json.dumps(model.views())


async def test_it_may_be_the_first_one_of_a_session_that_has_begun(
    model: Model, chats: Chats, url: str
) -> None:
    chat = chats(url, X_Unabridged_Session="s")
    await chat.ask("One?")
    chat.members["unabridged"] = {"inject": HANDED}
    assert not degraded(await chat.ask("Two?"))
    assert [len(prelude(view)) for view in model.views()] == [0, 3]


async def test_it_is_known_to_another_worker_and_after_a_restart(
    model: Model, chats: Chats, small: Small
) -> None:
    with serving(valkey_command()) as server:
        one, two = [await small(BUDGET, store=server.url) for _ in range(2)]
        for headers in ({}, {"X_Unabridged_Session": "s"}):
            chat = chats(one, **headers)
            chat.members["unabridged"] = {"inject": HANDED}
            await chat.ask(f"One? {headers}")
            del chat.members["unabridged"]
            first = prelude(model.views()[-1])
            for url in (two, await small(BUDGET, store=server.url)):
                chat.url = url
                await chat.ask("And now?")
                assert prelude(model.views()[-1]) == first != []


async def test_two_workers_that_are_handed_two_at_once_agree_on_one(
    model: Model, chats: Chats, small: Small
) -> None:
    with serving(valkey_command()) as server:
        one, two = [await small(BUDGET, store=server.url) for _ in range(2)]
        begun = chats(one, X_Unabridged_Session="s")
        begun.members["unabridged"] = {"inject": HANDED}

        async def meanwhile(exchange: Exchange) -> None:
            other = chats(two, X_Unabridged_Session="s")
            other.members["unabridged"] = {"inject": OTHER}
            assert degraded(await other.ask("Two?")) == "inject-ignored"
            await exchange.answer_json(completion(said("Well.")))

        model.replies.append(meanwhile)
        assert not degraded(await begun.ask("One?"))
    assert [len(prelude(view)) for view in model.views()] == [3, 3]


async def test_without_a_store_it_holds_in_this_worker_and_the_answer_says_so(
    model: Model, chats: Chats, small: Small, tmp_path: Path
) -> None:
    chat = chats(await small(BUDGET, store=f"unix://{tmp_path}/none"), X_Unabridged_Session="s")
    chat.members["unabridged"] = {"inject": HANDED}
    assert degraded(await chat.ask("One?")) == "store, inject-not-saved"
    del chat.members["unabridged"]
    assert "inject-not-saved" in degraded(await chat.ask("Two?"))
    assert prelude(model.views()[1]) == prelude(model.views()[0]) != []


async def test_an_epoch_leaves_it_where_it_is(model: Model, chats: Chats, small: Small) -> None:
    model.window = 10_000  # and refuses what the real API would
    chat = chats(await small(BUDGET), X_Unabridged_Session="s")
    chat.members["unabridged"] = {"inject": HANDED}
    responses = [await chat.ask(question(number)) for number in range(20)]
    assert int(told(responses[-1], "epoch")) >= 2
    assert not model.invalid
    first = prelude(model.views()[0])
    for body, response in zip(model.bodies(), responses, strict=True):
        assert prelude(body["messages"]) == first != []
        assert count_tokens(body) <= BUDGET
        assert tokens_of(response)["sent"] >= count_tokens({"messages": first})


async def test_its_tokens_are_part_of_what_cannot_be_cut(model: Model, chats: Chats, tmp_path: Path) -> None:
    rules = f'extends = "balanced"\n[budget]\ntokens = {BUDGET}\noverflow = "error"\n'
    async with proxying(model.url, policy=str(write_policy(tmp_path, "strict", rules))) as url:
        chat = chats(url)
        chat.members["unabridged"] = {"inject": {"text": "a word and another. " * 400}}
        response = await chat.ask("Hello")
        assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
        chat.members["unabridged"] = {"inject": {"text": "a word and another. " * 20}}
        assert (await chat.ask("Hello")).status_code == 200
        explained = await admin(url, f"sessions/{(await only_session(url))['id']}/explain")
    assert explained["head_tokens"] == count_tokens({"messages": model.views()[-1][:1]}) > 100


# --- roles that alternate ---


async def test_a_model_that_insists_on_alternating_roles_gets_them(
    model: Model, chats: Chats, small: Small
) -> None:
    url = await small(BUDGET, extra="alternate = true\n")
    texts, results = chats(url), chats(url, X_Unabridged_Session="s")
    texts.members["unabridged"] = {"inject": OTHER}
    results.members["unabridged"] = {"inject": HANDED}
    for number in range(15):
        assert (await texts.ask(question(number))).status_code == 200
        assert (await results.ask(question(number))).status_code == 200
    for view in model.views():
        assert fault_in(view) is None
        spoken = [message["role"] for message in view if message["role"] != "tool" and not _calls(message)]
        assert spoken == (["user", "assistant"] * len(spoken))[: len(spoken)]


async def test_a_model_that_refuses_a_user_after_a_tool_is_asked_again(
    model: Model, chats: Chats, url: str
) -> None:
    async def picky(exchange: Exchange) -> None:
        roles = [message["role"] for message in model.views()[-1]]
        if ("tool", "user") in pairwise(roles):
            complaint = "Unexpected role 'user' after role 'tool'"
            await exchange.answer_json({"object": "error", "message": complaint}, status=400)
        else:
            await exchange.answer_json(completion(said("Well.")))

    model.replies.extend([picky] * 3)
    chat = chats(url, X_Unabridged_Session="s")
    chat.members["unabridged"] = {"inject": HANDED}
    assert [(await chat.ask(text)).status_code for text in ("One?", "Two?")] == [200, 200]
    assert len(model.chats) == 3, "one of them was refused, unseen"


def _calls(message: Message) -> bool:
    return bool(message.get("tool_calls"))


# --- whose it is ---


async def test_another_caller_who_names_the_same_session_never_sees_it(
    model: Model, chats: Chats, url: str
) -> None:
    chat = chats(url, X_Unabridged_Session="s")
    chat.members["unabridged"] = {"inject": HANDED}
    await chat.ask("One?")
    stranger = chats(url, X_Unabridged_Session="s", Authorization="Bearer sk-other")
    await stranger.ask("One?")
    assert model.views()[-1] == [user("One?")]
    stranger.members["unabridged"] = {"inject": OTHER}
    assert not degraded(await stranger.ask("Two?"))
    assert "Ada" not in json.dumps(model.views()[1:])


async def test_a_conversation_that_begins_with_the_same_words_has_none(
    model: Model, chats: Chats, url: str
) -> None:
    chat = chats(url)
    chat.members["unabridged"] = {"inject": HANDED}
    await chat.ask("Hello")
    other = chats(url)
    await other.ask("Hello")
    assert model.views()[-1] == [user("Hello")]


async def test_every_request_under_its_header_gets_it_whatever_it_asks(
    model: Model, chats: Chats, url: str
) -> None:
    chat = chats(url, X_Unabridged_Session="s")
    chat.members["unabridged"] = {"inject": HANDED}
    await chat.ask("One?")
    title = chats(url, X_Unabridged_Session="s")
    title.members["model"] = "gpt-small"
    await title.ask("Name this conversation.")
    assert len(prelude(model.views()[-1])) == 3


# --- append, off ---


async def test_an_appending_client_hands_it_in_once(model: Model, appenders: Appenders, small: Small) -> None:
    appender = appenders(await small(BUDGET))
    appender.members["unabridged"] = {"inject": HANDED}
    assert (await appender.say(SYSTEM, user("One?"))).status_code == 200
    del appender.members["unabridged"]
    first = prelude(model.views()[0])
    responses = [await appender.ask(question(number)) for number in range(12)]
    assert int(told(responses[-1], "cut")) > 0
    for view in model.views():
        assert view[0] == SYSTEM
        assert prelude(view) == first != []
        assert fault_in(view) is None
        assert sum("Ada" in json.dumps(message) for message in view) == 1


@pytest.mark.parametrize("by", [{"X-Unabridged-Mode": "off"}, {"X-Unabridged-Policy": "off"}])
async def test_where_nothing_is_read_the_member_goes_out_as_it_came(
    model: Model, client: httpx2.AsyncClient, by: dict[str, str]
) -> None:
    body = {"model": "m", "messages": [user("Hi")], "unabridged": {"inject": "no object, even"}}
    assert (await client.post(CHAT, json=body, headers=by)).status_code == 200
    assert model.bodies() == [body]


@pytest.mark.parametrize("mode", ["full", "append"])
async def test_what_cannot_be_meant_is_refused_by_its_name(
    model: Model, client: httpx2.AsyncClient, mode: str
) -> None:
    tools: list[Any] = [RAIN, {**RAIN, "call_id": "w2"}, {**RAIN, "name": ""}]
    body = {"model": "m", "messages": [user("Hi")], "unabridged": {"inject": {"tools": tools}}}
    headers = {"X-Unabridged-Mode": mode, "X-Unabridged-Session": "s"}
    response = await client.post(CHAT, json=body, headers=headers)
    error = response.json()["error"]
    assert response.status_code == 400
    assert (error["code"], error["param"]) == ("invalid_value", "unabridged.inject.tools[2].name")
    assert error["type"] == "invalid_request_error"
    assert not model.chats


# --- told, copied, forgotten ---


async def test_it_is_told_where_it_stands_and_is_no_part_of_the_transcript(
    model: Model, chats: Chats, url: str
) -> None:
    chat = chats(url, X_Unabridged_Session="s")
    chat.members["unabridged"] = {"inject": HANDED}
    await chat.say(SYSTEM, user("One?"))
    path = f"sessions/{(await only_session(url))['id']}"
    view = (await admin(url, f"{path}/view"))["messages"]
    assert view[: len(model.views()[-1])] == model.views()[-1]
    assert len(view) == len(model.views()[-1]) + 1
    told_all = (await admin(url, f"{path}/transcript"))["messages"]
    assert [entry["message"]["role"] for entry in told_all] == ["system", "user", "assistant"]
    assert (await admin(url, f"{path}/explain"))["injected"] == 3
    exported = await admin(url, f"{path}/export")
    assert len(exported["messages"]) == 3
    assert exported["injected"]["text"] == HANDED["text"]
    chat.members["unabridged"] = {"inject": exported["injected"]}
    assert not degraded(await chat.ask("What was exported is the same again."))


async def test_a_fork_takes_it_along_and_a_deleted_session_has_none(
    model: Model, chats: Chats, url: str
) -> None:
    chat = chats(url, X_Unabridged_Session="s")
    chat.members["unabridged"] = {"inject": HANDED}
    await chat.ask("One?")
    del chat.members["unabridged"]
    await eventually(lambda: bool(chat.messages))
    path = f"{url}/unabridged/v1/sessions/{(await only_session(url))['id']}"
    async with httpx2.AsyncClient(headers=ADMIN) as person:
        assert (await person.post(f"{path}/fork", json={"name": "f"})).status_code == 200
        assert (await person.delete(path)).status_code == 200
    chat.headers["X-Unabridged-Session"] = "f"
    await chat.ask("In the fork?")
    assert len(prelude(model.views()[-1])) == 3
    chat.headers["X-Unabridged-Session"] = "s"
    await chat.ask("In what was deleted?")
    assert prelude(model.views()[-1]) == []


@pytest.mark.parametrize("name", ["s", ""])
async def test_of_a_request_that_failed_it_ends_in_a_day_and_can_be_deleted_before(
    model: Model, chats: Chats, name: str
) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.answer_json({"error": {"message": "later"}}, 429)

    with serving(valkey_command()) as server:
        async with proxying(model.url, store=server.url) as url:
            chat = chats(url, **({"X_Unabridged_Session": name} if name else {}))
            chat.members["unabridged"] = {"inject": HANDED}
            model.replies.append(refuse)
            with logged() as lines:
                assert (await chat.ask("One?")).status_code == 429
                await eventually(lambda: any('"route":"chat"' in line for line in lines))
            (session,) = {found[1] for line in lines if (found := re.search(r'"session":"(\S+?)"', line))}
            stored = [key for key in server.run("KEYS", "u1:*") if session.split(".")[1].encode() in key]
            assert stored
            assert all(server.run("TTL", key) <= 86_400 for key in stored)
            assert (await ask(url, "GET", f"sessions/{session}")).status_code == 404
            for wrong in (session + "0", session.replace(".", ".0", 1), session.rpartition(".")[0] + ".tips"):
                assert (await ask(url, "DELETE", f"sessions/{wrong}")).status_code == 404
            answer = await ask(url, "DELETE", f"sessions/{session}")
            assert answer.json() == {"id": session, "name": "", "deleted": True}
            assert (await ask(url, "DELETE", f"sessions/{session}")).status_code == 404
            assert not any(b"Ada" in text for text in dump(server.url))
            chat.messages.clear()
            chat.members["unabridged"] = {"inject": OTHER}
            assert not degraded(await chat.ask("One?"))
            assert "Bob" in json.dumps(model.views()[-1])


async def test_its_results_are_fresh_for_as_long_as_it_says(model: Model, chats: Chats, url: str) -> None:
    async def fresh() -> list[Message]:
        return (await admin(url, f"sessions/{(await only_session(url))['id']}/tools"))["tools"]

    chat = chats(url, X_Unabridged_Session="s")
    chat.members["unabridged"] = {"inject": {"tools": [{**RAIN, "cache_exchanges": 2}]}}
    await chat.ask("How is the weather?")
    (kept,) = await fresh()
    assert (kept["tool_name"], kept["parameters"], kept["call_id"]) == ("weather", {"city": "Rom"}, "w1")
    assert (kept["result"], kept["result_bytes"]) == ('{"sky":"rain"}', 14)
    assert (kept["remaining_duration"], kept["original_duration"]) == (1, 2)
    await chat.ask("And now?")
    assert await fresh() == []

"""The admin API's verbs that keep sessions and change them, and the document that tells of all."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from proxy.adapters.tiktoken import TiktokenCounter
from proxy.cli.replay import read_session
from proxy.http.admin import shapes
from tests.servers import PATIENCE, Exchange, eventually
from tests.stores import embedded_valkey, run
from tests.upstreams import (
    ADMIN,
    KEY,
    Chat,
    Message,
    Model,
    admin,
    calling,
    only_session,
    proxying,
    said,
    told,
    user,
    write_policy,
)

Chats = Callable[..., Chat]
Small = Callable[..., Awaitable[str]]

EARLY = "[stages]\nwarn = 0.2\ntrim = 0.3\ncompact = 0.4\ntarget = 0.2\n"
"""Cuts where there is still much room above."""


LOOSE = 'extends = "default"\nkeep.recent = 0.03\n'
"""Lets all but the newest exchanges go when it is asked to."""


@pytest.fixture
async def url(model: Model, tmp_path: Path) -> AsyncIterator[str]:
    policy = write_policy(tmp_path, "loose", LOOSE)
    async with proxying(model.url, policy=str(policy)) as served:
        yield served


async def do(url: str, verb: str, body: object = None, session: str = "chat") -> Any:
    response = await ask(url, "POST", f"sessions/{session}/{verb}", body)
    assert response.status_code == 200, response.text
    return response.json()


async def ask(url: str, method: str, path: str, body: object = None, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=url, headers={**ADMIN, **headers}, timeout=PATIENCE) as client:
        return await client.request(method, f"/unabridged/v1/{path}", json=body)


def code(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def talk(chat: Chat, turns: int = 6, canary: str = "") -> list[httpx2.Response]:
    asked = (
        f"Question {number} {canary}: what then, and how would we go about it?" for number in range(turns)
    )
    return [await chat.ask(text) for text in asked]


@pytest.fixture
async def chat(url: str, chats: Chats) -> Chat:
    """A session of six turns, of which nothing is cut."""
    chat = chats(url, X_Unabridged_Session="chat")
    chat.messages.append({"role": "system", "content": "Be brief."})
    await talk(chat)
    return chat


async def views(url: str, session: str = "chat") -> list[Message]:
    return (await admin(url, f"sessions/{session}/view"))["messages"]


class TestExport:
    async def test_it_holds_the_exact_bytes_of_every_message(self, url: str, chats: Chats) -> None:
        sent = [
            b'{"role" :"user",\n "content":"\\ud800 \\u00e9 \xc3\xa9", "n": 1e400, "x": 1234567890123456789}',
            b'{ "content": [{"type":"text","text":"\xf0\x9f\x90\x98"}], "role":"user" }',
        ]
        chat = chats(url, X_Unabridged_Session="chat")
        body = b'{"model": "gpt-test", "messages": [' + b", ".join(sent) + b"]}"
        headers = {**chat.headers, "Content-Type": "application/json"}
        assert (
            await chat.client.post(f"{url}/v1/chat/completions", content=body, headers=headers)
        ).is_success
        export = await admin(url, "sessions/chat/export")
        originals = [entry["original"].encode() for entry in export["tree"]]
        assert originals[:2] == sent
        assert json.loads(originals[2])["role"] == "assistant"

    async def test_it_has_the_whole_tree_and_every_epoch_with_its_plan(
        self, chats: Chats, small: Small
    ) -> None:
        url = await small(800)
        chat = chats(url, X_Unabridged_Session="chat")
        await talk(chat, 14)
        chat.messages[-2:] = [user("Something else."), said("")]
        chat.messages.pop()
        await chat.say()
        export = await admin(url, "sessions/chat/export")
        session = await admin(url, "sessions/chat")
        assert export["session"] == session
        assert len(export["tree"]) == 14 * 2 + 2
        assert {entry["parent"] for entry in export["tree"][1:]} <= {
            entry["hash"] for entry in export["tree"]
        }
        (epochs,) = export["epochs"].values()
        assert [epoch["id"] for epoch in epochs] == [epoch["id"] for epoch in session["epochs"]]
        view = await views(url)
        notes = [json.loads(gap["note"]) for gap in epochs[-1]["cut"]]
        assert notes
        assert all(note in view for note in notes)
        assert [summary["text"] for epoch in epochs for gap in epoch["cut"] for summary in gap["summaries"]]

    async def test_it_has_the_epochs_of_every_lane(self, chats: Chats, small: Small) -> None:
        url = await small(800)
        chat = chats(url, X_Unabridged_Session="chat")
        await talk(chat, 10)
        chat.headers["X-Unabridged-Budget"] = "500"
        await talk(chat, 2)
        assert len((await admin(url, "sessions/chat/export"))["epochs"]) == 2

    async def test_it_is_a_line_that_replay_takes(self, url: str, chat: Chat) -> None:
        response = await ask(url, "GET", "sessions/chat/export")
        assert b"\n" not in response.content
        replayed = await asyncio.to_thread(
            lambda: asyncio.run(read_session(response.content, "gpt-test", TiktokenCounter()))
        )
        assert replayed.id == response.json()["id"]
        assert len(replayed.chain) == 12
        assert response.json()["messages"] == chat.messages


class TestDelete:
    async def test_a_deleted_session_is_gone_and_its_history_begins_a_new_one(
        self, chats: Chats, small: Small, model: Model
    ) -> None:
        url = await small(800)
        chat = chats(url, X_Unabridged_Session="chat")
        await talk(chat, 12)
        session = await only_session(url)
        assert session["prune_count"]
        deleted = await ask(url, "DELETE", f"sessions/{session['id']}")
        assert deleted.json() == {"id": session["id"], "name": "chat", "deleted": True}
        assert (await admin(url, "sessions"))["sessions"] == []
        for path in ("", "/transcript", "/view", "/export"):
            assert code(await ask(url, "GET", f"sessions/{session['id']}{path}")) == (404, "not_found")
        assert code(await ask(url, "DELETE", f"sessions/{session['id']}")) == (404, "not_found")
        response = await chat.ask("And now?")
        assert told(response, "epoch") == "1", "nothing that was decided before is in force"
        entries = (await admin(url, "sessions/chat/transcript"))["messages"]
        assert [entry["message"] for entry in entries] == chat.messages

    async def test_a_session_without_a_header_is_not_found_by_its_history_again(
        self, url: str, chats: Chats
    ) -> None:
        chat = chats(url)
        before = [told(response, "session") for response in await talk(chat, 2)]
        await ask(url, "DELETE", f"sessions/{(await only_session(url))['id']}")
        assert told(await chat.ask("And now?"), "session") not in before

    async def test_its_content_is_in_no_key_of_the_store(
        self, model: Model, chats: Chats, tmp_path: Path
    ) -> None:
        canary = "canary-5e1f"
        policy = write_policy(tmp_path, "small", 'extends = "balanced"\nbudget.tokens = 800\n')
        model.summary = said(f"They spoke of {canary} and of nothing else.")
        with embedded_valkey() as store:
            async with proxying(model.url, store=store, policy=str(policy)) as url:
                await chats(url, X_Unabridged_Session="other").ask("Hello")
                chat = chats(url, X_Unabridged_Session="chat")
                await talk(chat, 12, canary)
                assert (await admin(url, "sessions/chat"))["prune_count"]
                assert canary.encode() in contents(store)
                assert (await ask(url, "DELETE", "sessions/chat")).is_success
                assert canary.encode() not in contents(store)
                assert [each["name"] for each in (await admin(url, "sessions"))["sessions"]] == ["other"]


def contents(store: str) -> bytes:
    """All that stands in a store, whatever its type."""
    keys: list[bytes] = run(store, "KEYS", "*")
    return b"".join(key + repr(run(store, *reading(store, key))).encode() for key in keys)


def reading(store: str, key: bytes) -> tuple[str | bytes | int, ...]:
    """The command that reads a whole key."""
    commands: dict[bytes, tuple[str | bytes | int, ...]] = {
        b"hash": ("HGETALL", key),
        b"list": ("LRANGE", key, 0, -1),
        b"set": ("SMEMBERS", key),
        b"zset": ("ZRANGE", key, 0, -1),
        b"string": ("GET", key),
    }
    return commands[run(store, "TYPE", key)]


class TestFork:
    async def test_both_go_on_without_touching_each_other(self, url: str, chat: Chat, chats: Chats) -> None:
        fork = await do(url, "fork", {"name": "other"})
        assert fork["name"] == "other"
        assert fork["id"] != (await admin(url, "sessions/chat"))["id"]
        other = chats(url, X_Unabridged_Session="other")
        other.messages = list(chat.messages)
        await chat.ask("To the left?")
        await other.ask("To the right?")
        await other.ask("Further?")
        for each, name in ((chat, "chat"), (other, "other")):
            entries = (await admin(url, f"sessions/{name}/transcript"))["messages"]
            assert [entry["message"] for entry in entries] == each.messages
        assert len((await admin(url, "sessions/chat/export"))["tree"]) == 14
        assert len((await admin(url, "sessions/other/export"))["tree"]) == 16

    async def test_it_ends_at_a_message_of_the_transcript(self, url: str, chat: Chat) -> None:
        entries = (await admin(url, "sessions/chat/transcript"))["messages"]
        assert [entry["number"] for entry in entries] == [None, *range(12)]
        fork = await do(url, "fork", {"at": 3})
        copied = (await admin(url, f"sessions/{fork['id']}/transcript"))["messages"]
        assert copied[1:] == entries[1:5], "times and counts included"
        assert (fork["turns"], fork["exchanges"]) == (2, 2)
        assert fork["full_tokens"] < (await admin(url, "sessions/chat"))["full_tokens"]
        assert code(await ask(url, "POST", "sessions/chat/fork", {"at": 12})) == (400, "invalid_type")

    async def test_it_may_be_of_another_branch(self, url: str, chat: Chat, chats: Chats) -> None:
        tip = (await admin(url, "sessions/chat/transcript"))["tip"]
        edited = chats(url, X_Unabridged_Session="chat")
        edited.messages = chat.messages[:3]
        await edited.ask("Otherwise?")
        fork = await do(url, "fork", {"tip": tip})
        entries = (await admin(url, f"sessions/{fork['id']}/transcript"))["messages"]
        assert [entry["message"] for entry in entries] == chat.messages

    @pytest.mark.parametrize("header", [{"X_Unabridged_Session": "chat"}, {}], ids=["named", "by chain"])
    @pytest.mark.parametrize("body", [None, {"name": "other"}], ids=["unnamed", "named"])
    @pytest.mark.parametrize("person", [{}, {"user": "ann"}], ids=["nobody", "ann"])
    async def test_the_epochs_before_it_come_along_and_stay_in_force(
        self, chats: Chats, small: Small, model: Model, header: dict[str, str], body: object, person: Message
    ) -> None:
        url = await small(800)
        chat = chats(url, **header)
        chat.members |= person
        responses = await talk(chat, 12)
        session = await only_session(url)
        fork = await do(url, "fork", body, session["id"])
        assert fork["epochs"] == session["epochs"]
        assert fork["prune_count"] == int(told(responses[-1], "epoch")) > 0
        other = chats(url, X_Unabridged_Session=fork["name"])
        other.members |= person
        other.messages = list(chat.messages)
        for each in (chat, other):
            await each.ask("And now?")
        assert model.views()[-1] == model.views()[-2], "the same bytes go out"
        assert model.bodies()[-1]["messages"][0] != model.bodies()[-1]["messages"][-1]

    async def test_epochs_beyond_it_do_not_come_along(self, chats: Chats, small: Small) -> None:
        url = await small(800)
        chat = chats(url, X_Unabridged_Session="chat")
        await talk(chat, 20)
        before = await admin(url, "sessions/chat")
        assert before["prune_count"] >= 2
        fork = await do(url, "fork", {"at": 3})
        assert (fork["prune_count"], fork["epochs"]) == (0, [])
        assert fork["stage"] == "calm"
        assert await admin(url, "sessions/chat") == before

    async def test_an_appending_client_goes_on_from_its_tip(self, url: str, chat: Chat, model: Model) -> None:
        fork = await do(url, "fork", {"at": 3})
        headers = {"Authorization": KEY, "X-Unabridged-Mode": "append", "X-Unabridged-Session": fork["name"]}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE) as client:
            body = {"model": "gpt-test", "messages": [user("And now?")]}
            answer = await client.post("/v1/chat/completions", json=body)
        assert told(answer, "session") == fork["name"]
        assert model.views()[-1] == [*chat.messages[:5], user("And now?")]

    async def test_it_is_for_its_own_caller_alone(self, url: str, chat: Chat, chats: Chats) -> None:
        fork = await do(url, "fork")
        stranger = chats(url, X_Unabridged_Session=fork["name"], Authorization="Bearer sk-other")
        await stranger.ask("Let me in")
        assert len((await admin(url, f"sessions/{fork['id']}/transcript"))["messages"]) == 13

    async def test_a_name_that_a_session_has_is_refused(self, url: str, chat: Chat, chats: Chats) -> None:
        await chats(url, X_Unabridged_Session="taken").ask("Hello")
        refused = await ask(url, "POST", "sessions/chat/fork", {"name": "taken"})
        assert code(refused) == (409, "session_exists")
        for name in ("", "a\nb", "x" * 257, "橋"):
            refused = await ask(url, "POST", "sessions/chat/fork", {"name": name})
            assert code(refused) == (400, "invalid_session_id"), name

    async def test_an_answer_that_was_cut_off_does_not_come_along(
        self, url: str, chats: Chats, model: Model
    ) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        await talk(chat, 2)

        async def breaking(exchange: Exchange) -> None:
            await exchange.start(200, [(b"Content-Type", b"text/event-stream")])
            await exchange.chunk(b'data: {"choices": [{"index": 0, "delta": {"content": "Half"}}]}\n\n')
            exchange.close()

        model.replies.append(breaking)
        chat.members["stream"] = True
        chat.messages.append(user("Third?"))
        await chat.send()
        transcript = await admin(url, "sessions/chat/transcript")
        assert transcript["messages"][-1]["complete"] is False
        fork = await do(url, "fork", {"tip": transcript["tip"]})
        entries = (await admin(url, f"sessions/{fork['id']}/transcript"))["messages"]
        assert [entry["message"] for entry in entries] == chat.messages


class TestCompact:
    async def test_the_session_is_cut_and_the_next_request_goes_out_so(
        self, url: str, chat: Chat, model: Model
    ) -> None:
        epoch = await do(url, "compact")
        assert (epoch["asked"], epoch["stage"], epoch["number"]) == ("compact", "calm", 1)
        assert epoch["removed_tokens"] > 0
        response = await chat.ask("And now?")
        assert told(response, "epoch") == "1"
        assert 0 < int(told(response, "cut")) < 12
        assert model.views()[-1] == (await views(url))[:-1]
        assert model.views()[-1][-3:] == chat.messages[-4:-1]

    async def test_a_range_is_cut_and_nothing_else(self, url: str, chat: Chat, model: Model) -> None:
        await do(url, "compact", {"messages": "2-5"})
        await chat.ask("And now?")
        kept = [message for message in model.views()[-1] if message in chat.messages]
        assert kept == [*chat.messages[:3], *chat.messages[7:-1]]
        await do(url, "compact", {"messages": [6, 7]})
        units = (await admin(url, "sessions/chat/explain"))["units"]
        assert [unit["start"] for unit in units if unit["state"] == "cut"] == [2, 3, 4, 5, 6, 7]

    async def test_a_model_that_insists_on_alternating_roles_gets_them(
        self, chats: Chats, small: Small, model: Model
    ) -> None:
        url = await small(4_000, summaries=False, extra="alternate = true\n")
        chat = chats(url, X_Unabridged_Session="chat")
        await talk(chat)
        await do(url, "compact", {"messages": "2-5"})
        await chat.ask("And now?")
        roles = [message["role"] for message in model.views()[-1]]
        assert "<note " in str(model.views()[-1])
        assert roles == (["user", "assistant"] * len(roles))[: len(roles)]

    async def test_with_the_operators_key_the_gap_is_summarised(
        self, model: Model, chats: Chats, tmp_path: Path
    ) -> None:
        policy = write_policy(tmp_path, "loose", LOOSE)
        async with proxying(model.url, upstream_key="sk-operator", policy=str(policy)) as url:
            chat = chats(url, X_Unabridged_Session="chat")
            await talk(chat)
            await do(url, "compact")
            assert "They spoke of the plan" in json.dumps(await views(url))
        (call,) = model.summaries
        assert dict(call.headers)[b"authorization"] == b"Bearer sk-operator"

    async def test_without_it_a_notice_stands_there_and_nobodys_key_is_used(
        self, url: str, chat: Chat, model: Model
    ) -> None:
        await do(url, "compact")
        assert "messages omitted]" in json.dumps(await views(url))
        assert model.summaries == []

    async def test_meanwhile_the_session_is_compacting_and_appended_turns_wait(
        self, model: Model, chats: Chats, tmp_path: Path
    ) -> None:
        policy = write_policy(tmp_path, "patient", LOOSE + 'summary.wait = "10s"\n')
        released = asyncio.Event()

        async def slowly(exchange: Exchange) -> None:
            await released.wait()
            await exchange.answer_json({"choices": [{"message": said("Later."), "finish_reason": "stop"}]})

        async with proxying(model.url, upstream_key="sk-operator", policy=str(policy)) as url:
            chat = chats(url, X_Unabridged_Session="chat")
            await talk(chat)
            model.summary = slowly
            compacting = asyncio.create_task(do(url, "compact"))
            await eventually(lambda: bool(model.summaries))
            assert (await admin(url, "sessions/chat"))["blocked"] == "compacting"
            appended = asyncio.create_task(append(url, "chat", "And now?"))
            other = await append(url, "another", "Nobody waits here?")
            assert other.status_code == 200
            assert not appended.done()
            released.set()
            epoch = await compacting
            assert told(await appended, "epoch") == str(epoch["number"]) == "1"
            await until_free(url)

    async def test_a_compaction_that_fails_leaves_the_session_free(
        self, url: str, chats: Chats, model: Model
    ) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        await chat.ask("Hello")
        assert code(await ask(url, "POST", "sessions/chat/compact")) == (409, "nothing_to_change")
        await until_free(url)
        assert (await append(url, "chat", "And now?")).status_code == 200

    async def test_a_paused_session_can_be_compacted(self, url: str, chat: Chat) -> None:
        await do(url, "pause")
        assert (await do(url, "compact"))["number"] == 1
        assert (await admin(url, "sessions/chat"))["blocked"] == "paused"


async def append(url: str, session: str, text: str) -> httpx2.Response:
    headers = {"Authorization": KEY, "X-Unabridged-Mode": "append", "X-Unabridged-Session": session}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE) as client:
        return await client.post("/v1/chat/completions", json={"model": "gpt-test", "messages": [user(text)]})


async def until_free(url: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while (await admin(url, "sessions/chat"))["blocked"]:  # noqa: ASYNC110 - it is the server's to say
            await asyncio.sleep(0.01)


class TestRestore:
    async def test_the_clients_own_bytes_go_out_again(self, url: str, chat: Chat, model: Model) -> None:
        await do(url, "compact")
        await chat.ask("And now?")
        assert model.views()[-1] != chat.messages[:-1]
        epoch = await do(url, "restore")
        assert (epoch["asked"], epoch["number"]) == ("restore", 2)
        assert epoch["removed_count"] < 0
        assert await views(url) == chat.messages
        response = await chat.ask("And then?")
        assert (told(response, "epoch"), told(response, "cut")) == ("2", "0")
        assert model.chats[-1].body.endswith(
            json.dumps({**chat.members, "messages": chat.messages[:-1]}).encode()
        )

    async def test_a_part_comes_back_and_the_rest_stays_cut(self, url: str, chat: Chat) -> None:
        await do(url, "compact", {"messages": "0-9"})
        await do(url, "restore", {"messages": "4-5"})
        units = (await admin(url, "sessions/chat/explain"))["units"]
        assert [unit["start"] for unit in units if unit["state"] == "cut"] == [0, 1, 2, 3, 6, 7, 8, 9]
        await do(url, "restore", {"messages": [0]})
        view = await views(url)
        assert view[:2] == chat.messages[:2]
        assert "[3 messages omitted]" in view[2]["content"]

    async def test_what_one_epoch_cut_comes_back(self, url: str, chat: Chat) -> None:
        await do(url, "compact", {"messages": "0-3"})
        await do(url, "compact", {"messages": "6-7"})
        await do(url, "restore", {"epoch": 1})
        units = (await admin(url, "sessions/chat/explain"))["units"]
        assert [unit["start"] for unit in units if unit["state"] == "cut"] == [6, 7]
        assert code(await ask(url, "POST", "sessions/chat/restore", {"epoch": 9})) == (404, "not_found")

    async def test_a_call_comes_back_with_its_results(self, url: str, chats: Chats, model: Model) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        model.replies.append(calling(("c1", "look", "{}"), ("c2", "look", '{"at": 2}')))
        await chat.ask("Look around. " * 5)
        results = [{"role": "tool", "tool_call_id": each, "content": "a wall " * 50} for each in ("c1", "c2")]
        await chat.say(*results)
        await talk(chat, 2)
        await do(url, "compact", {"messages": "1-4"})
        await do(url, "restore", {"messages": [2]})
        view = await views(url)
        assert view[1:4] == chat.messages[1:4]

    async def test_what_fits_stays_for_an_exchange_and_then_the_policy_decides_again(
        self, chats: Chats, small: Small, model: Model
    ) -> None:
        url = await small(800, extra=EARLY)
        chat = chats(url, X_Unabridged_Session="chat")
        responses = await talk(chat, 6)
        assert int(told(responses[-1], "cut")) > 0
        await do(url, "restore")
        model.replies.append(calling(("c1", "look", "{}")))
        response = await chat.ask("And now?")
        assert (told(response, "cut"), told(response, "stage")) == ("0", "compact")
        response = await chat.say({"role": "tool", "tool_call_id": "c1", "content": "a wall"})
        assert told(response, "cut") == "0", "the rounds of the exchange belong to it"
        assert model.views()[-1] == chat.messages[:-1]
        assert int(told(await chat.ask("And then?"), "cut")) > 0

    async def test_what_does_not_fit_is_cut_at_once(self, chats: Chats, small: Small) -> None:
        url = await small(800)
        chat = chats(url, X_Unabridged_Session="chat")
        await talk(chat, 16)
        epoch = await do(url, "restore")
        assert epoch["final_tokens"] > 800
        response = await chat.ask("And now?")
        assert int(told(response, "epoch")) > epoch["number"]
        assert int(told(response, "cut")) > 0

    async def test_where_nothing_is_cut_nothing_changes(self, url: str, chat: Chat) -> None:
        before = await admin(url, "sessions/chat")
        for body in (None, {"messages": "0-3"}):
            assert code(await ask(url, "POST", "sessions/chat/restore", body)) == (409, "nothing_to_change")
        assert await admin(url, "sessions/chat") == before

    async def test_every_worker_restores_the_same(self, model: Model, chats: Chats, tmp_path: Path) -> None:
        policy = str(write_policy(tmp_path, "loose", LOOSE))
        with embedded_valkey() as store:
            async with (
                proxying(model.url, store=store, policy=policy) as one,
                proxying(model.url, store=store, policy=policy) as two,
            ):
                chat = chats(one, X_Unabridged_Session="chat")
                await talk(chat)
                await do(one, "compact")
                await chat.ask("And now?")
                await do(two, "restore")
                assert told(await chat.ask("And then?"), "cut") == "0"


class TestPause:
    async def test_appended_turns_wait_and_whole_histories_do_not(self, url: str, chat: Chat) -> None:
        assert (await do(url, "pause"))["blocked"] == "paused"
        waiting = asyncio.create_task(append(url, "chat", "And now?"))
        assert (await chat.ask("Do I wait?")).status_code == 200
        assert not waiting.done()
        assert (await do(url, "resume"))["blocked"] is None
        assert (await waiting).status_code == 200


class TestNames:
    async def test_the_beginning_of_an_id_is_enough_where_one_session_has_it(
        self, url: str, chat: Chat, chats: Chats
    ) -> None:
        await chats(url, X_Unabridged_Session="other").ask("Hello")
        session = await admin(url, "sessions/chat")
        tenant, tag, _ = session["id"].split(".")
        for beginning in (f"{tenant}.{tag[:8]}", tag[:8], f"{tag}.na"):
            assert (await admin(url, f"sessions/{beginning}"))["id"] == session["id"]
        for beginning in (tenant, tag[:3]):
            assert (await ask(url, "GET", f"sessions/{beginning}")).status_code == 404


CHANGES = [("DELETE", "")] + [
    ("POST", f"/{verb}") for verb in ("fork", "compact", "restore", "pause", "resume")
]


class TestTheDoor:
    @pytest.mark.parametrize(("method", "verb"), [*CHANGES, ("GET", "/export")])
    async def test_no_verb_is_open_without_the_token_or_to_a_clients_key(
        self, url: str, chat: Chat, method: str, verb: str
    ) -> None:
        before = await admin(url, "sessions/chat/export")
        for key, expected in (("", (401, "unauthorized")), (KEY, (403, "forbidden"))):
            response = await ask(url, method, f"sessions/chat{verb}", Authorization=key)
            assert code(response) == expected
        assert {**await admin(url, "sessions/chat/export"), "exported": ""} == {**before, "exported": ""}

    @pytest.mark.parametrize(("method", "verb"), CHANGES)
    async def test_a_session_that_is_not_there_is_not_found(self, url: str, method: str, verb: str) -> None:
        assert code(await ask(url, method, f"sessions/nobody{verb}")) == (404, "not_found")

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            (b"{", (400, "invalid_json")),
            (b"\xff", (400, "invalid_encoding")),
            (b"[]", (400, "invalid_type")),
            (b'{"mesages": "1-2"}', (400, "invalid_type")),
            (b'{"messages": "4-"}', (400, "invalid_type")),
            (b'{"messages": [-1]}', (400, "invalid_type")),
            (b'{"messages": "0-999999"}', (400, "invalid_type")),
            (b'{"messages": "0", "epoch": 1}', (400, "invalid_type")),
            (b"[" * 60_000, (400, "json_too_deep")),
            (b" " * 70_000, (413, "request_too_large")),
        ],
        ids=lambda value: str(value)[:30],
    )
    async def test_a_body_that_makes_no_sense_is_refused(
        self, url: str, chat: Chat, body: bytes, expected: tuple[int, str]
    ) -> None:
        headers = {**ADMIN, "Content-Type": "application/json"}
        async with httpx2.AsyncClient(base_url=url, headers=headers) as client:
            response = await client.post("/unabridged/v1/sessions/chat/restore", content=body)
        assert code(response) == expected

    async def test_a_form_is_no_body(self, url: str, chat: Chat) -> None:
        headers = {**ADMIN, "Content-Type": "application/x-www-form-urlencoded"}
        async with httpx2.AsyncClient(base_url=url, headers=headers) as client:
            response = await client.post("/unabridged/v1/sessions/chat/fork", content=b"at=1")
        assert code(response) == (415, "unsupported_media_type")

    async def test_another_method_is_not_allowed(self, url: str) -> None:
        assert code(await ask(url, "PUT", "sessions/chat")) == (405, "method_not_allowed")


# --- the document ---


@pytest.fixture
async def document(url: str) -> dict[str, Any]:
    return await admin(url, "openapi.json")


def references(value: Any) -> list[str]:
    return re.findall(r'"\$ref": "([^"]+)"', json.dumps(value))


class TestTheDocument:
    async def test_every_reference_leads_to_a_schema_and_every_operation_has_its_name(
        self, document: dict[str, Any]
    ) -> None:
        assert document["openapi"].startswith("3.1")
        schemas = document["components"]["schemas"]
        assert {each.removeprefix("#/components/schemas/") for each in references(document)} <= schemas.keys()
        operations = [each for path in document["paths"].values() for each in path.values()]
        assert len({each["operationId"] for each in operations}) == len(operations)
        for path, methods in document["paths"].items():
            for operation in methods.values():
                named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
                assert named == ({"id"} if "{id}" in path else set())

    async def test_it_has_every_route_of_the_contract(self, document: dict[str, Any]) -> None:
        told_of = {
            (method.upper(), path) for path, methods in document["paths"].items() for method in methods
        }
        one = "/unabridged/v1/sessions/{id}"
        assert told_of == {
            ("GET", "/unabridged/v1/openapi.json"),
            ("GET", "/unabridged/v1/sessions"),
            ("GET", one),
            *(("GET", f"{one}/{part}") for part in ("transcript", "view", "explain", "export")),
            *((method, f"{one}{verb}") for method, verb in CHANGES),
        }

    async def test_every_answer_is_of_its_schema(
        self, url: str, chat: Chat, document: dict[str, Any]
    ) -> None:
        await do(url, "compact", {"messages": "0-3"})
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if method == "delete":
                    continue
                body = {"messages": "4-7"} if path.endswith("/compact") else None
                route = path.removeprefix("/unabridged/v1/").replace("{id}", "chat")
                answer = await ask(url, method.upper(), route, body)
                assert answer.status_code == 200, (path, answer.text)
                shape(operation, "200").model_validate_json(answer.content)
        deleted = await ask(url, "DELETE", "sessions/chat")
        shape(document["paths"]["/unabridged/v1/sessions/{id}"]["delete"], "200").model_validate(
            deleted.json()
        )
        refused = await ask(url, "GET", "sessions/chat")
        operation = document["paths"]["/unabridged/v1/sessions/{id}"]["get"]
        shape(operation, "default").model_validate(refused.json())


def shape(operation: dict[str, Any], status: str) -> type[BaseModel]:
    """The model that the document names for an answer; the schema is made from it."""
    reference: str = operation["responses"][status]["content"]["application/json"]["schema"]["$ref"]
    return getattr(shapes, reference.rpartition("/")[2])

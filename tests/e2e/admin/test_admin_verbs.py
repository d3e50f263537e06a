"""The admin API's verbs that keep sessions, copy and end them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx2
import pytest

from proxy.adapters.tokens import TiktokenCounter
from proxy.cli.replay import read_session
from tests.support.clients import (
    CHAT,
    KEY,
    Chat,
    Chats,
    Small,
    admin,
    only_session,
    proxying,
    told,
    user,
    write_policy,
)
from tests.support.operator import append, ask, code, do, talk, views
from tests.support.servers import PATIENCE, Exchange
from tests.support.stores import dump, embedded_valkey
from tests.support.upstreams import Message, Model, calling, completion, said


def result(call: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call, "content": text}


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
        del session["bill"]
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

    async def test_a_session_that_is_deleted_while_it_is_compacted_is_gone_too(
        self, chats: Chats, small: Small, model: Model
    ) -> None:
        url = await small(8_000, upstream_key="sk-operator")
        await talk(chats(url, X_Unabridged_Session="chat"), 6)

        async def overtaken(exchange: Exchange) -> None:
            await ask(url, "DELETE", "sessions/chat")
            await exchange.answer_json(completion(said("They spoke of many items.")))

        model.summary = overtaken
        assert code(await ask(url, "POST", "sessions/chat/compact")) == (404, "not_found")
        assert code(await ask(url, "GET", "sessions/chat")) == (404, "not_found")

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
                assert canary.encode() in b"".join(dump(store))
                assert (await ask(url, "DELETE", "sessions/chat")).is_success
                assert canary.encode() not in b"".join(dump(store))
                assert [each["name"] for each in (await admin(url, "sessions"))["sessions"]] == ["other"]


class TestFork:
    @pytest.mark.parametrize("name", ["", "a\nb", "a" * 257])
    async def test_a_name_that_no_header_can_carry_is_refused(self, url: str, chat: Chat, name: str) -> None:
        refused = await ask(url, "POST", "sessions/chat/fork", {"name": name})
        assert code(refused) == (400, "invalid_session_id")
        assert refused.json()["error"]["message"] == "A session id has 1 to 256 printable characters."

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
        assert code(await ask(url, "POST", "sessions/chat/fork", {"at": 12})) == (400, "invalid_value")

    async def test_it_does_not_part_the_results_of_parallel_calls(
        self, url: str, chats: Chats, model: Model
    ) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        model.replies.append(calling(*((name, "look", "{}") for name in ("c1", "c2", "c3"))))
        await chat.ask("Look around.")
        await chat.say(*(result(name, f"seen {name}") for name in ("c1", "c2", "c3")))
        await chat.ask("And now?")
        for at in (2, 3):
            refused = await ask(url, "POST", "sessions/chat/fork", {"at": at})
            assert code(refused) == (400, "invalid_value")
            assert refused.json()["error"]["param"] == "at"
            assert refused.json()["error"]["message"].endswith("fork at 1 or at 4.")
        for at in (0, 1, 4, 5):
            fork = await do(url, "fork", {"at": at})
            copied = (await admin(url, f"sessions/{fork['id']}/transcript"))["messages"]
            assert [entry["message"] for entry in copied] == chat.messages[: at + 1]

    async def test_results_of_ones_own_answer_the_calls_that_it_ends_with(
        self, url: str, chats: Chats, model: Model
    ) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        model.replies.append(calling(("c1", "look", "{}"), ("c2", "look", "{}")))
        await chat.ask("Look around.")
        await chat.say(result("c1", "a door"), result("c2", "a window"))
        fork = await do(url, "fork", {"at": 1})
        other = chats(url, X_Unabridged_Session=fork["name"], X_Unabridged_Mode="append")
        own = [result("c1", "a wall"), result("c2", "a roof")]
        assert (await other.say(*own)).status_code == 200
        assert model.views()[-1] == [*chat.messages[:2], *own]

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
        url = await small(800, extra="[stages]\ntarget = 0.3\n")
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

    async def test_a_client_without_a_session_header_goes_on_in_the_session_that_was_forked(
        self, chats: Chats, small: Small
    ) -> None:
        url = await small(800)
        chat = chats(url)
        before = told((await talk(chat, 12))[-1], "session")
        await do(url, "fork", None, (await only_session(url))["id"])
        assert told(await chat.ask("And now?"), "session") == before
        assert told(await chat.ask("And then?"), "session") == before

    async def test_epochs_beyond_it_do_not_come_along(self, chats: Chats, small: Small) -> None:
        url = await small(800)
        chat = chats(url, X_Unabridged_Session="chat")
        await talk(chat, 20)
        before = await admin(url, "sessions/chat")
        assert before["prune_count"] >= 2
        fork = await do(url, "fork", {"at": 1})
        assert (fork["prune_count"], fork["epochs"]) == (0, [])
        assert fork["stage"] == "calm"
        after = await admin(url, "sessions/chat")
        del before["bill"], after["bill"]  # a summary that is still being written is billed when it ends
        assert after == before

    async def test_an_appending_client_goes_on_from_its_tip(self, url: str, chat: Chat, model: Model) -> None:
        fork = await do(url, "fork", {"at": 3})
        headers = {"Authorization": KEY, "X-Unabridged-Mode": "append", "X-Unabridged-Session": fork["name"]}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE) as client:
            body = {"model": "gpt-test", "messages": [user("And now?")]}
            answer = await client.post("/v1/chat/completions", json=body)
        assert told(answer, "session") == fork["name"]
        assert model.views()[-1] == [*chat.messages[:5], user("And now?")]

    async def test_its_name_may_be_in_any_script_and_clients_send_it_as_utf_8(
        self, url: str, chat: Chat, model: Model
    ) -> None:
        fork = await do(url, "fork", {"name": "橋"})
        assert (fork["name"], (await admin(url, "sessions/橋"))["id"]) == ("橋", fork["id"])
        headers = [(b"authorization", KEY.encode()), (b"x-unabridged-session", "橋".encode())]
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            body = {"model": "gpt-test", "messages": [user("And now?")]}
            appended = [*headers, (b"x-unabridged-mode", b"append")]
            assert (await client.post("/v1/chat/completions", json=body, headers=appended)).is_success
        assert model.views()[-1] == [*chat.messages, user("And now?")]

    async def test_it_is_for_its_own_caller_alone(self, url: str, chat: Chat, chats: Chats) -> None:
        fork = await do(url, "fork")
        stranger = chats(url, X_Unabridged_Session=fork["name"], Authorization="Bearer sk-other")
        await stranger.ask("Let me in")
        assert len((await admin(url, f"sessions/{fork['id']}/transcript"))["messages"]) == 13

    async def test_a_name_that_a_session_has_is_refused(self, url: str, chat: Chat, chats: Chats) -> None:
        await chats(url, X_Unabridged_Session="taken").ask("Hello")
        refused = await ask(url, "POST", "sessions/chat/fork", {"name": "taken"})
        assert code(refused) == (409, "session_exists")
        for name in ("", "a\nb", "x" * 257, "橋" * 86):
            refused = await ask(url, "POST", "sessions/chat/fork", {"name": name})
            assert code(refused) == (400, "invalid_session_id"), name

    async def test_a_session_that_happens_to_have_the_same_messages_is_no_fork(
        self, url: str, chat: Chat, chats: Chats, model: Model
    ) -> None:
        alike = chats(url, X_Unabridged_Session="alike")
        alike.messages = [*chat.messages[:-1]]
        model.replies.append(chat.messages[-1])
        await alike.say()
        assert alike.messages == chat.messages
        for name in ("chat", "alike"):
            refused = await ask(url, "POST", "sessions/chat/fork", {"name": name})
            assert code(refused) == (409, "session_exists"), name

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
        assert (await ask(url, "GET", f"sessions/{tag[:3]}")).status_code == 404

    async def test_what_several_sessions_have_is_told_with_those_that_may_be_meant(
        self, url: str, chat: Chat, chats: Chats
    ) -> None:
        await chats(url, X_Unabridged_Session="chat", Authorization="Bearer another").ask("Who else is here?")
        await chats(url, X_Unabridged_Session="other").ask("Hello")
        listed = {each["id"]: each for each in (await admin(url, "sessions"))["sessions"]}
        ours = (await admin(url, "sessions/other"))["id"].partition(".")[0]
        for given in ("chat", ours):
            answer = await ask(url, "GET", f"sessions/{given}")
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (409, "ambiguous_session")
            assert error["type"] == "invalid_request_error"
            assert f'"{given}" may mean 2 sessions' in error["message"]
            meant = [
                each for each in listed.values() if given in (each["name"], each["id"].partition(".")[0])
            ]
            members = ("id", "name", "began_with")
            assert error["candidates"] == [{name: each[name] for name in members} for each in meant]

    @pytest.mark.parametrize(("name", "encoding"), [("橋", "utf-8"), ("café", "utf-8"), ("café", "latin-1")])
    async def test_a_name_in_a_header_is_the_same_in_a_path(self, url: str, name: str, encoding: str) -> None:
        sent = name.encode(encoding)
        headers = [(b"authorization", KEY.encode()), (b"x-unabridged-session", sent)]
        body = {"model": "m", "messages": [user("Hello")]}
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
            response = await client.post(CHAT, json=body, headers=headers)
        assert (b"x-unabridged-session", sent) in [
            (each.lower(), value) for each, value in response.headers.raw
        ]
        assert (await admin(url, f"sessions/{name}"))["name"] == name

    async def test_a_listing_tells_how_each_session_began(self, url: str, chat: Chat, chats: Chats) -> None:
        other = chats(url, X_Unabridged_Session="other")
        await other.ask("  Where do we go\n from here? " + "And why? " * 20)
        await other.ask("Next?")
        listed = (await admin(url, "sessions"))["sessions"]
        began = {each["name"]: each["began_with"] for each in listed}
        assert (
            began["other"]
            == "Where do we go from here? And why? And why? And why? And why? And why? And why?…"
        )
        assert began["chat"] == (await admin(url, "sessions/chat/explain"))["units"][0]["begins_with"]


CHANGES = [("DELETE", "")] + [
    ("POST", f"/{verb}") for verb in ("fork", "compact", "restore", "pause", "resume")
]

"""Sessions that an operator cuts, and whose cuts it takes back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.clients import KEY, Chat, Chats, Small, admin, proxying, told, write_policy
from tests.support.operator import append, ask, code, do, talk, views
from tests.support.servers import PATIENCE, Exchange, awaited, eventually, until
from tests.support.stores import embedded_valkey
from tests.support.upstreams import Model, calling, completion, said

EARLY = "[stages]\nwarn = 0.2\ntrim = 0.3\ncompact = 0.4\ntarget = 0.2\n"
"""Cuts where there is still much room above."""


class TestCompact:
    async def test_the_session_is_cut_and_the_next_request_goes_out_so(
        self, url: str, chat: Chat, model: Model
    ) -> None:
        epoch = await do(url, "compact")
        assert (epoch["asked"], epoch["stage"], epoch["number"]) == ("compact", "calm", 1)
        assert epoch["removed_tokens"] > 0
        response = await chat.ask("And now?")
        assert told(response, "cut") == "10"
        assert model.views()[-1] == (await views(url))[:-1]
        assert model.views()[-1][-3:] == chat.messages[-4:-1]

    async def test_it_counts_as_an_epoch_in_bill_and_metrics(self, url: str, chat: Chat) -> None:
        removed = (await do(url, "compact"))["removed_count"]

        async def epochs() -> int:
            return (await admin(url, "sessions/chat"))["bill"]["epochs"]

        await until(1, epochs)
        metrics = (await chat.client.get(f"{url}/metrics")).text
        assert 'unabridged_epochs_total{stage="calm"} 1.0' in metrics
        assert f'unabridged_cut_messages_total{{reason="calm"}} {float(removed + 1)}' in metrics

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

    @pytest.mark.parametrize("turns", [2, 6], ids=["short", "longer"])
    async def test_with_the_operators_key_the_gap_is_summarised(
        self, model: Model, chats: Chats, turns: int
    ) -> None:
        async with proxying(model.url, upstream_key="sk-operator") as url:
            chat = chats(url, X_Unabridged_Session="chat")
            await talk(chat, turns)
            assert (await do(url, "compact"))["summary"] == "written with the operator's key"
            assert "They spoke of the plan" in json.dumps(await views(url))
            response = await chat.ask("And now?")
            assert (told(response, "epoch"), told(response, "cut")) == ("1", str(2 * turns - 2))
        (call,) = model.summaries
        assert dict(call.headers)[b"authorization"] == b"Bearer sk-operator"

    @pytest.mark.parametrize("turns", [2, 6], ids=["short", "longer"])
    async def test_without_it_the_tenants_next_request_brings_it(
        self, url: str, chats: Chats, model: Model, turns: int
    ) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        await talk(chat, turns)
        assert (await do(url, "compact"))["summary"] == "comes with the tenant's next request"
        assert "messages omitted]" in json.dumps(await views(url))
        assert model.summaries == [], "nobody's key is used"
        response = await chat.ask("And now?")
        assert told(response, "summary") == "waited"
        assert "They spoke of the plan" in json.dumps(model.views()[-1])
        (call,) = model.summaries
        assert dict(call.headers)[b"authorization"] == KEY.encode()
        brought = (await admin(url, "sessions/chat"))["epochs"][-1]
        assert brought["asked"] is None
        assert brought["reason"].endswith("late summaries take the place of notices")
        again = await chat.ask("And then?")
        assert told(again, "epoch") == told(response, "epoch")
        assert len(model.summaries) == 1

    async def test_a_summary_that_takes_longer_than_anybody_waits_comes_once_it_is_there(
        self, model: Model, chats: Chats, tmp_path: Path
    ) -> None:
        policy = write_policy(tmp_path, "hasty", 'extends = "default"\nsummary.wait = "20ms"\n')
        released = asyncio.Event()

        async def slowly(exchange: Exchange) -> None:
            await released.wait()
            await exchange.answer_json(completion(said("They spoke of the plan; all went well.")))

        model.summary = slowly
        async with proxying(model.url, upstream_key="sk-operator", policy=str(policy)) as url:
            chat = chats(url, X_Unabridged_Session="chat")
            await talk(chat)
            assert (await do(url, "compact"))["summary"] == "is being written with the operator's key"
            assert told(await chat.ask("And now?"), "epoch") == "1", "with a notice meanwhile"
            released.set()
            async with asyncio.timeout(PATIENCE):
                while told(await chat.ask("And then?"), "epoch") == "1":
                    pass
            assert "They spoke of the plan" in json.dumps(model.views()[-1])
        assert len(model.summaries) == 1, "nobody pays for it twice"

    async def test_of_several_gaps_each_gets_its_summary_however_short_it_is_and_whenever_it_is_written(
        self, model: Model, chats: Chats, tmp_path: Path
    ) -> None:
        policy = write_policy(tmp_path, "hasty", 'extends = "default"\nsummary.wait = "200ms"\n')
        released = asyncio.Event()

        async def the_short_one_slowly(exchange: Exchange) -> None:
            is_short = b"Question 0" in await exchange.body()
            if is_short:
                await released.wait()
            text = "They said hello." if is_short else "They spoke of the plan; all went well."
            await exchange.answer_json(completion(said(text)))

        model.summary = the_short_one_slowly
        async with proxying(model.url, policy=str(policy)) as url:
            chat = chats(url, X_Unabridged_Session="chat")
            await talk(chat, 8)
            await do(url, "compact", {"messages": [0, 1, *range(4, 12)]})
            async with asyncio.timeout(PATIENCE):
                while "They spoke of the plan" not in json.dumps(model.views()[-1]):
                    await chat.ask("And now?")
            assert "[2 messages omitted]" in json.dumps(model.views()[-1])
            (missing,) = (await admin(url, "sessions/chat/explain"))["missing_summaries"]
            assert missing["why"] == "not yet"
            released.set()
            async with asyncio.timeout(PATIENCE):
                while "They said hello" not in json.dumps(model.views()[-1]):
                    await chat.ask("And then?")
            assert "They spoke of the plan" in json.dumps(model.views()[-1])
            assert (await admin(url, "sessions/chat/explain"))["missing_summaries"] == []
        assert len(model.summaries) == 2

    async def test_one_that_failed_is_told_of_and_so_is_a_policy_that_wants_none(
        self, model: Model, chats: Chats, tmp_path: Path
    ) -> None:
        model.summary = said("")
        off = str(write_policy(tmp_path, "plain", 'extends = "default"\nsummary.enabled = false\n'))
        for policy, summary in (("default", "failed: empty"), (off, "none, as the policy says")):
            async with proxying(model.url, upstream_key="sk-operator", policy=policy) as url:
                chat = chats(url, X_Unabridged_Session="chat")
                await talk(chat)
                assert (await do(url, "compact"))["summary"] == summary
                assert "They spoke" not in json.dumps(await views(url))

    async def test_where_nothing_can_be_cut_the_refusal_says_why(self, url: str, chats: Chats) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        await chat.ask("Hello")
        for body, why in (
            (None, "newest request and its answer"),
            ({"messages": "0"}, "no whole message or tool call that may go is named"),
        ):
            refused = await ask(url, "POST", "sessions/chat/compact", body)
            assert code(refused) == (409, "nothing_to_change")
            assert why in refused.json()["error"]["message"]
        await talk(chat)
        await do(url, "compact")
        refused = await ask(url, "POST", "sessions/chat/compact")
        assert "comes with the tenant's next request" in refused.json()["error"]["message"]

    async def test_meanwhile_the_session_is_compacting_and_appended_turns_wait(
        self, model: Model, chats: Chats, tmp_path: Path
    ) -> None:
        policy = write_policy(tmp_path, "patient", 'extends = "default"\nsummary.wait = "10s"\n')
        released = asyncio.Event()

        async def slowly(exchange: Exchange) -> None:
            await released.wait()
            await exchange.answer_json(completion(said("Later.")))

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


async def until_free(url: str) -> None:
    await awaited(lambda: admin(url, "sessions/chat"), lambda session: not session["blocked"])


class TestRestore:
    async def test_the_clients_own_bytes_go_out_again(self, url: str, chat: Chat, model: Model) -> None:
        await do(url, "compact")
        await chat.ask("And now?")
        assert model.views()[-1] != chat.messages[:-1]
        epoch = await do(url, "restore")
        assert (epoch["asked"], epoch["number"]) == ("restore", 3)
        assert epoch["removed_count"] < 0
        assert await views(url) == chat.messages
        response = await chat.ask("And then?")
        assert (told(response, "epoch"), told(response, "cut")) == ("3", "0")
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

    async def test_who_names_messages_wrongly_hears_how_they_are_named(self, url: str, chat: Chat) -> None:
        written = '`messages`: must be numbers of messages, such as "17", "17-20", "4,17-20" or [4, 5].'
        for verb in ("compact", "restore"):
            for wrong in ("17 to 20", "4..9", "", "1-", "1" * 201, 17, [4, "5"], [-1, 4.5], {"from": 4}):
                answer = await ask(url, "POST", f"sessions/chat/{verb}", {"messages": wrong})
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (400, "invalid_type"), wrong
                assert (error["param"], error["message"]) == ("messages", written), wrong

    @pytest.mark.parametrize("number", [-1, 10**6])
    async def test_a_number_that_no_message_can_have_is_out_of_range(
        self, url: str, chat: Chat, number: int
    ) -> None:
        for verb in ("compact", "restore", "pin"):
            answer = await ask(url, "POST", f"sessions/chat/{verb}", {"messages": [4, number]})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_value", "messages")
            assert error["message"] == "`messages`: has a number that no message can have."

    async def test_a_range_that_ends_before_it_begins_is_named(self, url: str, chat: Chat) -> None:
        for verb in ("compact", "restore", "pin"):
            answer = await ask(url, "POST", f"sessions/chat/{verb}", {"messages": "2,9-4"})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_value", "messages")
            assert error["message"] == "`messages`: 9-4 ends before it begins."

    async def test_where_nothing_is_cut_nothing_changes(self, url: str, chat: Chat) -> None:
        before = await admin(url, "sessions/chat")
        for body in (None, {"messages": "0-3"}):
            refused = await ask(url, "POST", "sessions/chat/restore", body)
            assert code(refused) == (409, "nothing_to_change")
            assert refused.json()["error"]["message"] == "Nothing of these messages is cut."
        assert await admin(url, "sessions/chat") == before

    async def test_every_worker_restores_the_same(self, model: Model, chats: Chats) -> None:
        with embedded_valkey() as store:
            async with proxying(model.url, store=store) as one, proxying(model.url, store=store) as two:
                chat = chats(one, X_Unabridged_Session="chat")
                await talk(chat)
                await do(one, "compact")
                await chat.ask("And now?")
                await do(two, "restore")
                assert told(await chat.ask("And then?"), "cut") == "0"

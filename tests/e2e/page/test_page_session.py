"""A session on the page: what the model gets of it, why, and every verb with what it would do first."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.browser import Browser, browsing, plain
from tests.support.clients import Chat, Chats, Small, admin, bill_of, user
from tests.support.operator import talk
from tests.support.servers import awaited
from tests.support.upstreams import Model, calling, said

HOSTILE = "<script>alert(1)</script>"
ONE = "sessions/chat"


@pytest.fixture
async def url(small: Small) -> str:
    return await small(tokens=800)


@pytest.fixture
async def chat(url: str, chats: Chats) -> Chat:
    """A session of which messages were cut."""
    chat = chats(url, X_Unabridged_Session="chat")
    chat.messages.append({"role": "system", "content": "Be brief."})
    await talk(chat, turns=24)
    return chat


async def session(url: str) -> dict[str, Any]:
    return await admin(url, "sessions/chat")


class TestLooking:
    async def test_each_message_stands_beside_what_became_of_it_and_why(
        self, browser: Browser, chat: Chat, url: str
    ) -> None:
        page = (await browser.open(ONE)).text
        text = plain(page)
        explained = await admin(url, "sessions/chat/explain")
        assert {row["state"] for row in explained["units"]} >= {"kept", "cut"}
        for position, message in enumerate(chat.messages[1:]):
            assert f'id="m{position}"' in page
            assert plain(message["content"])[:40] in text
        assert re.search(r"since epochs? 1(: usage|, [\d, ]+, whose reasons stand under Epochs)", text)
        assert re.search(r"importance 0\.\d\d \(recency 0\.\d\d, role 1\.00, content", text)
        assert "Be brief." in text

    async def test_what_is_cut_tells_its_importance_at_that_time_its_epoch_and_its_class(
        self, browser: Browser, chat: Chat, url: str
    ) -> None:
        text = await browser.text(ONE)
        explained = await admin(url, "sessions/chat/explain")
        cut = [row for row in explained["units"] if row["state"] == "cut"]
        assert len(cut) > 5
        last = explained["units"][-1]["end"] - 1
        for row in cut:
            told = rf"{row['start']} epoch \d+, importance {row['score']['total']:.2f} \(.*?\), compressible"
            assert re.search(told, text), told
        assert any(row["score"]["recency"] > row["start"] / last for row in cut), "it was newer then"

    async def test_the_bill_of_the_session_is_that_of_the_api(
        self, browser: Browser, url: str, chats: Chats
    ) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        chat.members["model"] = "gpt-4o"
        await talk(chat, turns=12)
        await bill_of(url, "chat", has=lambda bill: bill["dollars"]["summaries"])
        bill, text = dict[str, Any](), ""
        while (told := (await session(url))["bill"]) != bill:  # summaries are written meanwhile
            bill, text = told, await browser.text(ONE)
        dollars = bill["dollars"]
        for name, kind in (("answers", "answers"), ("spent in all", "spent"), ("doing nothing", "without")):
            assert f" {name} ${dollars[kind]:.4f} " in text
        assert f" summaries ${dollars['summaries']:.4f} " in text

    async def test_the_picture_has_the_bands_and_a_mark_for_each_epoch(
        self, browser: Browser, chat: Chat, url: str
    ) -> None:
        page = (await browser.open(ONE)).text
        epochs = (await session(url))["epochs"]
        broad = page[page.index('<svg class="broad"') :].partition("</svg>")[0]
        assert broad.count("<circle") == len(epochs) > 0
        assert [each for each in ("60%", "80%", "90%", "100%") if each not in broad] == []

    async def test_hidden_characters_of_html_are_text(self, browser: Browser, url: str, chats: Chats) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        chat.messages.append({"role": "system", "content": HOSTILE})
        chat.messages.append({"role": "user", "name": HOSTILE, "content": HOSTILE})
        await chat.send()
        for path in (ONE, f"{ONE}/kept", f"{ONE}/epochs", f"{ONE}/fork", f"{ONE}/pin?messages=0"):
            page = await browser.open(*path.split("?")[:1], **({"messages": "0"} if "?" in path else {}))
            assert (page.status_code, "<script>alert" in page.text) == (200, False)
        assert HOSTILE in await browser.text(ONE)

    async def test_a_call_and_its_result_are_shown_as_one_unit(
        self, browser: Browser, url: str, chats: Chats, model: Model
    ) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        model.replies.append(calling(("c1", "read_file", '{"path": "a.py"}')))
        await chat.ask("Read it.")
        model.replies.append(said("Done."))
        await chat.say({"role": "tool", "tool_call_id": "c1", "content": "print(1)"})
        text = await browser.text(ONE)
        assert 'read_file({"path": "a.py"})' in text
        assert "one unit: a call and its results go together" in text

    async def test_what_is_kept_beside_the_messages_is_told(
        self, chats: Chats, model: Model, small: Small
    ) -> None:
        url = await small(tokens=800, extra='[[tools]]\nmatch = "get_*"\ncache_exchanges = 3\n')
        chat = chats(url, X_Unabridged_Session="chat")
        await chat.ask("Hello.")
        await chat.ask("My booking code is RX-4471, and you must never call before noon.")
        await talk(chat, turns=20)
        model.replies.append(calling(("c1", "get_tide", '{"day": "Saturday"}')))
        await chat.ask("When is it high?")
        model.replies.append(said("At noon."))
        await chat.say({"role": "tool", "tool_call_id": "c1", "content": "high at 12:04"})
        async with browsing(url) as browser:
            text = await browser.text(f"{ONE}/kept")
        assert re.search(r"get_tide\(.*Saturday.*\) high at 12:04 2 of 3", text), text
        assert "RX-4471" in text

    async def test_a_result_that_was_clipped_is_shown_as_it_goes_out(
        self, browser: Browser, url: str, chats: Chats, model: Model
    ) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        model.replies.append(calling(("c1", "read_file", '{"path": "a.py"}')))
        await chat.ask("Read it.")
        model.replies.append(said("It is long."))
        lines = "\n".join(f"line {number} of a long file" for number in range(900))
        await chat.say({"role": "tool", "tool_call_id": "c1", "content": lines})
        text = await browser.text(ONE)
        assert "clipped" in text
        assert "Goes out as tool" in text

    async def test_two_epochs_are_compared(self, browser: Browser, chat: Chat) -> None:
        text = await browser.text(f"{ONE}/epochs", **{"from": "0", "to": "1"})
        assert "From the whole conversation to epoch 1" in text
        assert "left the view" in text
        assert "came into it" in text
        assert (await browser.open(f"{ONE}/epochs", to="99")).status_code == 404
        assert (await browser.open(f"{ONE}/epochs", to="x")).status_code == 400

    async def test_a_session_that_is_not_there_is_told_so(self, browser: Browser) -> None:
        response = await browser.open("sessions/nobody")
        assert (response.status_code, "There is no such session." in response.text) == (404, True)

    async def test_a_long_session_is_shown_a_page_at_a_time(
        self, browser: Browser, url: str, chats: Chats
    ) -> None:
        chat = chats(url, X_Unabridged_Session="chat", X_Unabridged_Policy="default")
        for number in range(5_000):
            chat.messages += [
                user(f"question {number}"),
                {"role": "assistant", "content": f"answer {number}"},
            ]
        await chat.ask("the last question")
        # So long a turn is written after its answer.
        newest = (await awaited(lambda: browser.open(ONE), lambda answer: answer.status_code != 404)).text
        assert 'id="m10001"' in newest
        assert newest.count("<article") < 250
        assert "question 2500" in await browser.text(ONE, at="5000")
        assert "question 2500" not in plain(newest)


class TestVerbs:
    async def test_a_compaction_is_shown_before_it_is_made(
        self, browser: Browser, chat: Chat, url: str
    ) -> None:
        before = (await session(url))["epochs"]
        text = await browser.text(f"{ONE}/compact")
        assert "The view as it would be" in text
        assert (await session(url))["epochs"] == before
        told = re.search(r"Tokens sent (\d+) → (\d+)", text)
        assert told
        await browser.send(f"{ONE}/compact")
        (*_, epoch) = (await admin(url, "sessions/chat"))["epochs"]
        assert (epoch["asked"], epoch["original_tokens"]) == ("compact", int(told[1]))
        assert epoch["final_tokens"] < epoch["original_tokens"]

    async def test_what_an_epoch_cut_is_shown_and_restored(
        self, browser: Browser, chat: Chat, url: str
    ) -> None:
        text = await browser.text(f"{ONE}/restore")
        told = re.search(r"Messages sent (\d+) → (\d+)", text)
        assert told
        assert int(told[1]) < int(told[2]) == len(chat.messages)
        await browser.send(f"{ONE}/restore")
        assert len((await admin(url, "sessions/chat/view"))["messages"]) == len(chat.messages)
        assert "Nothing of these messages is cut" in await refused(browser, f"{ONE}/restore")

    async def test_a_pinned_message_is_told_and_outlives_a_compaction(
        self, browser: Browser, url: str, chats: Chats
    ) -> None:
        chat = chats(url, X_Unabridged_Session="chat")
        await talk(chat, turns=3)
        assert chat.messages[2]["content"] in await browser.text(f"{ONE}/pin", messages="2")
        assert (await admin(url, "sessions/chat/explain"))["pins"] == []
        await browser.send(f"{ONE}/pin", messages="2")
        assert (await admin(url, "sessions/chat/explain"))["pins"] == [2]
        await talk(chat, turns=20)
        await browser.send(f"{ONE}/compact")
        view = (await admin(url, "sessions/chat/view"))["messages"]
        assert chat.messages[2] in view
        assert chat.messages[4] not in view

    async def test_a_fork_has_the_messages_up_to_the_one_that_is_named(
        self, browser: Browser, chat: Chat, url: str
    ) -> None:
        assert "are copied to a new session" in await browser.text(f"{ONE}/fork")
        answer = await browser.send(f"{ONE}/fork", at="3", name="other")
        assert "/unabridged/sessions/" in str(answer.url)
        assert len((await admin(url, "sessions/other/transcript"))["messages"]) == 5

    async def test_a_session_is_paused_resumed_and_forgotten(
        self, browser: Browser, chat: Chat, url: str
    ) -> None:
        for verb, blocked in (("pause", "paused"), ("resume", None)):
            assert "now" in await browser.text(f"{ONE}/{verb}")
            await browser.send(f"{ONE}/{verb}")
            assert (await session(url))["blocked"] == blocked
        assert "This cannot be undone" in await browser.text(f"{ONE}/delete")
        await browser.send(f"{ONE}/delete")
        assert (await browser.open(ONE)).status_code == 404

    @pytest.mark.parametrize("messages", ["x", "0-", "999", "-1"])
    @pytest.mark.parametrize("verb", ["compact", "restore", "pin"])
    async def test_numbers_that_make_no_sense_are_refused_in_words(
        self, browser: Browser, chat: Chat, verb: str, messages: str
    ) -> None:
        response = await browser.open(f"{ONE}/{verb}", messages=messages)
        assert (response.status_code, "messages" in response.text) == (400, True)

    @pytest.mark.parametrize("verb", ["compact", "restore", "pin", "fork", "pause", "resume", "delete"])
    async def test_no_verb_is_done_for_a_form_of_another_page_or_a_stranger(
        self, browser: Browser, chat: Chat, url: str, verb: str
    ) -> None:
        before = await admin(url, "sessions/chat/export")
        assert (await browser.send(f"{ONE}/{verb}", csrf="0")).status_code == 403
        async with browsing(url, "") as stranger:
            assert (await stranger.send(f"{ONE}/{verb}", csrf="0")).status_code == 401
        assert {**await admin(url, "sessions/chat/export"), "exported": ""} == {**before, "exported": ""}


async def refused(browser: Browser, path: str) -> str:
    response = await browser.open(path)
    assert response.status_code >= 400
    return plain(response.text)

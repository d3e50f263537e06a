"""The first page: the sessions, and what is the matter."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from tests.support.browser import Browser, browsing, plain
from tests.support.clients import ADMIN, Chats, Small, admin, proxying, write_policy
from tests.support.operator import talk
from tests.support.servers import PATIENCE, awaited
from tests.support.upstreams import Model, said

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'"


async def test_a_session_is_listed_with_how_it_began_its_model_and_its_tokens(
    browser: Browser, url: str, chats: Chats
) -> None:
    assert "No session yet" in await browser.text()
    await chats(url, X_Unabridged_Session="tides").ask("When is the tide high on Saturday?")
    text = await browser.text()
    assert all(
        each in text for each in ("When is the tide high on Saturday?", "tides", "gpt-test", "just now")
    )


async def test_a_session_that_was_just_cut_tells_the_stage_it_was_cut_at(chats: Chats, small: Small) -> None:
    url = await small(tokens=800, summaries=False)
    chat = chats(url, X_Unabridged_Session="chat")
    told = stage = ""
    async with browsing(url) as browser:
        while told != "1":
            assert "cut at" not in await browser.text()
            response = await chat.ask("What then, and how would we go about it?")
            told = response.headers["x-unabridged-epoch"]
            stage = response.headers["x-unabridged-stage"]
        assert f"cut at {stage} " in await browser.text()


async def test_sessions_are_found_by_words_of_their_beginning_name_and_model(
    browser: Browser, url: str, chats: Chats
) -> None:
    for name, first in (("one", "About the harbour"), ("two", "About the letters")):
        await chats(url, X_Unabridged_Session=name).ask(first)
    assert "letters" not in await browser.text(q="HARBOUR about")
    assert "harbour" not in await browser.text(q="two gpt-test")
    assert "No session has all of these words" in await browser.text(q="harbour letters")


async def test_more_sessions_are_shown_up_to_the_most_that_a_page_has(
    browser: Browser, url: str, chats: Chats
) -> None:
    for name in ("harbour", "letters"):
        await chats(url, X_Unabridged_Session=name).ask("Hello")
    first = await browser.open(limit="1")
    assert "harbour" not in plain(first.text)
    assert "limit=2" in first.text
    assert "Show more" not in await browser.text(limit="1000")
    assert "`limit` is at most 1,000." in (await browser.open(limit="1001")).text


async def test_what_clients_say_is_shown_and_never_run(browser: Browser, url: str, chats: Chats) -> None:
    await chats(url, X_Unabridged_Session="hostile").ask(HOSTILE)
    for query in ({}, {"q": HOSTILE}):
        page = (await browser.open(**query)).text
        assert "<script>alert" not in page
        assert "<img" not in page
    assert HOSTILE[:25] in await browser.text()


async def test_a_window_that_nobody_knows_is_told_with_what_to_do(
    browser: Browser, url: str, chats: Chats, small: Small
) -> None:
    await chats(url).ask("hello")
    assert "Unknown context window: gpt-test" in await browser.text()
    budgeted = await small()
    await chats(budgeted).ask("hello")
    async with browsing(budgeted) as other:
        assert "context window" not in await other.text()


async def test_a_store_that_does_not_answer_is_told_with_what_to_do(model: Model, chats: Chats) -> None:
    async with (
        proxying(model.url, store="redis://127.0.0.1:1", store_timeout=0.5) as url,
        browsing(url) as browser,
    ):
        assert "The store cannot be used: connection refused." in await browser.text()
        assert (await chats(url).ask("hello")).status_code == 200


async def test_a_policy_that_cannot_be_used_is_named(model: Model, tmp_path: Path) -> None:
    path = write_policy(tmp_path, "odd", 'extends = "default"\n')
    broken = write_policy(tmp_path, "broken", "[stages]\nwarn = 7\n")
    async with proxying(model.url, policy=str(path), policies=tmp_path) as url, browsing(url) as browser:
        assert f"cannot be used as they are now: {broken.stem}." in await browser.text()


async def test_a_settings_file_that_cannot_be_used_is_told(model: Model, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[[use]]\nmodel = "gpt-*"\npolicy = "agent"\n')
    async with proxying(model.url, config=config) as url, browsing(url) as browser:
        assert "settings file" not in await browser.text()
        config.write_text('[[use]]\nmodel = "gpt-*"\npolicy = "nonesuch"\n')
        told = "The settings file cannot be used as it is now."
        assert "nonesuch" in await awaited(browser.text, lambda text: told in text)  # a file is watched


class TestEvents:
    async def test_a_session_that_changes_is_told_while_it_does(self, url: str, chats: Chats) -> None:
        async with (
            httpx2.AsyncClient(base_url=url, timeout=PATIENCE, headers=ADMIN) as client,
            client.stream("GET", "/unabridged/v1/events") as stream,
        ):
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.aiter_lines()
            assert await anext(lines) == "retry: 1000"
            await chats(url, X_Unabridged_Session="live").ask("hello")
            told = [line async for line in until_data(lines)]
        assert "event: session" in told
        assert json.loads(told[-1].removeprefix("data: "))["name"] == "live"

    async def test_who_comes_back_is_told_what_it_has_missed(self, url: str, chats: Chats) -> None:
        await chats(url, X_Unabridged_Session="before").ask("hello")
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, headers=ADMIN) as client:
            path = "/unabridged/v1/events?seconds=1"
            missed = (await client.get(path, headers={"Last-Event-ID": "1"})).text
            number = next(line for line in missed.splitlines() if line.startswith("id: ")).removeprefix(
                "id: "
            )
            nothing = (await client.get(path, headers={"Last-Event-ID": number})).text
        assert '"name":"before"' in missed
        assert "event:" not in nothing

    @pytest.mark.parametrize("after", ["x", "", "-1", "1e9", "2026-11-22T03:47:00Z"])
    async def test_a_time_that_is_no_number_is_refused(self, url: str, after: str) -> None:
        async with httpx2.AsyncClient(base_url=url, headers=ADMIN) as client:
            answer = await client.get("/unabridged/v1/events", params={"after": after, "seconds": "1"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_type")
        assert answer.json()["error"]["message"] == "`after` must be a time in seconds since 1970."

    async def test_a_page_hears_of_what_changed_before_it_listened(
        self, browser: Browser, url: str, chats: Chats
    ) -> None:
        page = (await browser.open()).text
        await chats(url, X_Unabridged_Session="meanwhile").ask("hello")
        seen = re.search(r'data-seen="([\d.]+)"', page)
        assert seen
        events = f"{url}/unabridged/v1/events"
        told = (await browser.client.get(events, params={"after": seen[1], "seconds": 1})).text
        assert '"name":"meanwhile"' in told


async def until_data(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line.startswith("data: "):
            return


class TestWhatItDid:
    async def test_tokens_and_dollars_are_told_for_today_the_week_and_in_all(
        self, browser: Browser, url: str, chats: Chats
    ) -> None:
        assert "What it did" not in await browser.text()
        chat = chats(url)
        chat.members["model"] = "gpt-4o-mini"
        await talk(chat, turns=3)
        text = await browser.text()
        total = (await admin(url, "stats", since="90d"))["total"]
        dollars, tokens = total["dollars"], total["tokens"]
        told = rf"\${dollars['spent']:.4f} {tokens['received']:,} {tokens['sent']:,}"
        for span in ("Today", "7 days", "90 days"):
            assert re.search(rf"{span} -?\$0\.\d{{4}} {told} 0% 3 0 0 none", text), text

    async def test_what_nobody_knows_the_price_of_is_unknown_and_not_nothing(
        self, browser: Browser, url: str, chats: Chats
    ) -> None:
        await chats(url).ask("hello")
        text = await browser.text()
        assert "Today unknown unknown" in text
        assert "The price is unknown for 1 of these requests and calls" in text

    async def test_what_shadow_would_have_cut_is_told_as_such(self, chats: Chats, small: Small) -> None:
        url = await small(tokens=800, summaries=False)
        chat = chats(url, X_Unabridged_Session="chat", X_Unabridged_Mode="shadow")
        chat.members["model"] = "gpt-4o-mini"
        await talk(chat, turns=20)
        async with browsing(url) as browser:
            assert re.search(r"in shadow [\d,]+ fewer", await browser.text())
            assert "This page shows what would have been sent" in await browser.text("sessions/chat")

    async def test_summaries_that_fail_are_told_with_what_to_do(
        self, chats: Chats, small: Small, model: Model
    ) -> None:
        model.summary = said("")
        url = await small(tokens=800)
        await talk(chats(url), turns=20)
        async with browsing(url) as browser:
            text = await browser.text()
        assert re.search(r"Summaries failed today: \d+ \w+", text)
        assert "Short notices stand in their place" in text

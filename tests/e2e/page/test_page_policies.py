"""The policies on the page: what follows from them, and what they would have made of a session."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.browser import Browser, browsing
from tests.support.clients import Chats, Small, proxying, write_policy
from tests.support.operator import talk
from tests.support.upstreams import Model


@pytest.fixture
async def url(small: Small) -> str:
    return await small(tokens=800)


async def test_every_policy_in_force_is_listed_with_the_servers_own_first(browser: Browser) -> None:
    text = await browser.text("policies")
    assert re.search(r"small default extends balanced", text)
    assert all(name in text for name in ("balanced", "agent", "sliding-window"))


async def test_what_follows_from_a_policy_is_told_in_sentences_with_what_differs(browser: Browser) -> None:
    text = await browser.text("policies/small")
    assert "from 640 tokens" in text
    assert 'budget.tokens 800 "auto"' in text
    assert (await browser.open("policies/nonesuch")).status_code == 400


async def test_what_is_odd_about_a_policy_is_told(model: Model, tmp_path: Path) -> None:
    path = write_policy(tmp_path, "odd", 'extends = "default"\n[budget]\ntokens = 20\n')
    async with proxying(model.url, policy=str(path)) as url, browsing(url) as browser:
        assert "budget.tokens" in await browser.text("policies/odd")
        assert 'class="notice"' in (await browser.open("policies/odd")).text


async def test_who_gets_which_policy_is_told(model: Model, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[[use]]\nmodel = "gpt-*"\npolicy = "agent"\n')
    async with proxying(model.url, config=config) as url, browsing(url) as browser:
        assert re.search(r"gpt-\*.*: agent", await browser.text("policies"))


async def test_a_session_is_tried_under_other_policies_side_by_side(
    browser: Browser, url: str, chats: Chats
) -> None:
    await talk(chats(url, X_Unabridged_Session="chat"), turns=24)
    assert "Side by side" not in await browser.text("sessions/chat/try")
    text = await browser.text("sessions/chat/try", policy="off")
    own = re.search(r"small its own 800 ([\d,]+) (\d+)% (\d+) 0", text)
    whole = re.search(r"off — ([\d,]+) 100% 0 0", text)
    assert own
    assert whole
    assert int(own[1].replace(",", "")) < int(whole[1].replace(",", ""))
    assert int(own[3]) > 0
    assert "The price of gpt-test is unknown" in text


async def test_a_policys_page_tells_what_each_table_comes_to_in_a_chosen_session(
    browser: Browser, url: str, chats: Chats
) -> None:
    assert "no session yet to try it on" in await browser.text("policies/small")
    await talk(chats(url, X_Unabridged_Session="chat"), turns=24)
    text = await browser.text("policies/small", session="chat")
    assert re.search(r"\[budget\] 800 tokens may be sent; the whole conversation has [\d,]{4,},", text)
    assert re.search(
        r"\[stages\] whole, it is at emergency \(\d{3}%\); a cut goes down to 5\d\d tokens", text
    )
    assert re.search(
        r"\[keep\] protects \d+ as recent, 1 as the first request.*; \d+ messages may be cut", text
    )
    assert "[limits] 48 of at most 100,000 messages" in text
    off = await browser.text("policies/off", session="chat")
    assert "[strategy] nothing is read or cut" in off
    assert "[budget]" not in off


async def test_a_policy_is_tried_on_the_session_that_was_chosen(
    browser: Browser, url: str, chats: Chats
) -> None:
    await talk(chats(url, X_Unabridged_Session="chat"), turns=4)
    page = (await browser.open("policies/off", session="chat")).text
    named = re.search(r'href="/unabridged/(sessions/[^"]+/try)\?policy=off">Try on this session', page)
    assert named
    assert "Side by side" in await browser.text(named[1], policy="off")


async def test_what_check_says_of_a_file_stands_on_its_page(model: Model, tmp_path: Path) -> None:
    path = write_policy(tmp_path, "idle", 'extends = "balanced"\n[strategy]\nlast = 7\n')
    async with proxying(model.url, policy=str(path)) as url, browsing(url) as browser:
        text = await browser.text("policies/idle")
        assert "strategy.last `strategy.last` has no effect" in text
        assert 'class="notice"' not in (await browser.open("policies/balanced")).text

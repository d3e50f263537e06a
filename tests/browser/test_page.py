"""The web page in a real Chromium: what people press works, nothing else is asked, and all can use it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.support.chromium import CHROMIUM, Tab, leading
from tests.support.clients import Chats, admin, making_chats, proxying, user, write_policy
from tests.support.operator import talk
from tests.support.upstreams import Model, running

AXE = Path(__file__).parents[1] / "clients" / "node" / "node_modules" / "axe-core" / "axe.min.js"
POLICY = 'extends = "balanced"\n[budget]\ntokens = 800\n'
PAGES = (
    *("", "sessions/chat", "sessions/chat/epochs", "sessions/chat/kept", "sessions/chat/compact"),
    *("sessions/chat/try?policy=off", "policies", "policies/small?session=chat", "memory"),
)
BEYOND = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
"""Pixels that one has to scroll sideways."""
WIDTHS = {"desk": 1280, "phone": 390}

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")


@pytest.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str]:
    """A proxy with a session of which messages were cut."""
    policy = write_policy(tmp_path, "small", POLICY)
    async with running(Model()) as model, proxying(model.url, policy=str(policy)) as served:
        async with making_chats() as chats:
            await talk(chats(served, X_Unabridged_Session="chat"), turns=20)
        yield served


@pytest.fixture
async def chats() -> AsyncGenerator[Chats]:
    async with making_chats() as made:
        yield made


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncGenerator[Tab]:
    async with leading(tmp_path) as opened:
        yield opened


async def log_in(tab: Tab, url: str) -> None:
    await tab.open(f"{url}/unabridged/?token=admin")


async def seen(tab: Tab) -> str:
    return await tab.evaluate("document.body.innerText")


async def look(tab: Tab, width: int = WIDTHS["desk"], scheme: str = "light") -> None:
    """How wide the window is, and which colours its owner likes."""
    await tab.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
    )
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    await tab.call("Emulation.setEmulatedMedia", features=features)


def complaints(tab: Tab) -> list[Any]:
    """What the browser would not do for the page, and what failed in it."""
    issues = [each["issue"] for each in tab.of("Audits.issueAdded")]
    refused = [each for each in issues if each["code"] == "ContentSecurityPolicyIssue"]
    return refused + [each for each in tab.of("Log.entryAdded") if each["entry"]["level"] == "error"]


async def test_a_person_logs_in_looks_compacts_and_restores(tab: Tab, url: str) -> None:
    await tab.open(f"{url}/unabridged/")
    assert "Admin token" in await seen(tab)
    await tab.evaluate("document.querySelector('#key').value = 'admin'")
    await tab.press("Log in")
    assert "Question 0" in await seen(tab)
    await tab.press(await tab.evaluate("document.querySelector('#sessions a').textContent"))
    assert "What the model gets, and why" in await seen(tab)
    await tab.press("Compact …")
    assert "The view as it would be" in await seen(tab)
    before = len((await admin(url, "sessions/chat"))["epochs"])
    await tab.press("Compact now")
    assert "What the model gets, and why" in await seen(tab)
    assert len((await admin(url, "sessions/chat"))["epochs"]) == before + 1
    await tab.press("Restore …")
    await tab.press("Restore now")
    assert (await admin(url, "sessions/chat"))["epochs"][-1]["asked"] == "restore"
    assert await tab.evaluate("document.cookie") == ""


async def test_a_session_that_goes_on_is_shown_without_a_reload(tab: Tab, url: str, chats: Chats) -> None:
    await log_in(tab, url)
    await chats(url, X_Unabridged_Session="news").ask("Is there anything new?")
    while "Is there anything new?" not in await seen(tab):  # noqa: ASYNC110 - another process shows it
        await asyncio.sleep(0.1)


async def test_no_page_asks_another_host_or_does_what_its_policy_forbids(tab: Tab, url: str) -> None:
    await log_in(tab, url)
    for page in PAGES:
        await tab.open(f"{url}/unabridged/{page}")
    asked = {each["request"]["url"] for each in tab.of("Network.requestWillBeSent")}
    assert len(asked) > len(PAGES)
    assert [each for each in asked if not each.startswith((url, "data:", "about:"))] == []
    assert complaints(tab) == []


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_no_page_is_wider_than_the_screen(tab: Tab, url: str, width: int, scheme: str) -> None:
    await look(tab, width, scheme)
    await log_in(tab, url)
    for page in PAGES:
        await tab.open(f"{url}/unabridged/{page}")
        beyond = await tab.evaluate(BEYOND)
        assert (page, beyond) == (page, 0)
    ground = await tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(251, 251, 250)") == (scheme == "light")


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core from npm is not here: `make browser` installs it")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_that_keeps_anybody_out(tab: Tab, url: str, scheme: str) -> None:
    await look(tab, scheme=scheme)
    await tab.open(f"{url}/unabridged/")
    found = {"login": await violations(tab)}
    await log_in(tab, url)
    for page in PAGES:
        await tab.open(f"{url}/unabridged/{page}")
        found[page] = await violations(tab)
    assert {page: each for page, each in found.items() if each} == {}


async def violations(tab: Tab) -> list[Any]:
    await tab.evaluate(AXE.read_text(encoding="utf-8") + ";undefined")
    return await tab.evaluate(
        "axe.run().then((told) => told.violations.map((each) => [each.id, each.nodes[0].html,"
        " each.nodes[0].failureSummary]))"
    )


async def test_a_session_of_ten_thousand_messages_opens_at_once_a_page_at_a_time(
    tab: Tab, url: str, chats: Chats
) -> None:
    chat = chats(url, X_Unabridged_Session="long")
    for number in range(5_000):
        answer = {"role": "assistant", "content": f"Answer {number}: so it is."}
        chat.messages += [user(f"Question {number}: what then?"), answer]
        if number % 500 == 499:
            await chat.ask("And now?")
    await log_in(tab, url)
    taken: list[float] = []
    for page in ("", "?at=5000", "?at=0"):
        await tab.open(f"{url}/unabridged/sessions/long{page}")
        taken.append(await tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventStart"))
        assert await tab.evaluate("document.querySelectorAll('main > .two .message[id]').length") <= 200
    assert "Question 0: what then?" in await seen(tab)
    assert min(taken) < 1_000  # milliseconds; of three, since whatever else runs here may hold one up

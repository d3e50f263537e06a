"""What is remembered, on the page: searched, looked at with its log, taken back and forgotten."""

from __future__ import annotations

from typing import Any

from tests.support.browser import browsing, plain
from tests.support.clients import Chats, admin
from tests.support.remembering import ALLERGIC, LIVES, OSLO, RememberingModel, person, read


async def test_items_are_listed_searched_and_shown_with_where_they_come_from(remembered: str) -> None:
    (scope,) = (await admin(remembered, "memory"))["scopes"]
    async with browsing(remembered) as browser:
        text = await browser.text("memory")
        assert ALLERGIC in text
        assert LIVES in text
        assert ALLERGIC not in await browser.text("memory", q=LIVES, limit="1")
        assert "Of late" in await browser.text("memory", scope=scope["id"])
        (item,) = (each for each in await items(remembered) if each["text"] == ALLERGIC)
        shown = await browser.text(f"memory/{item['id']}")
        assert OSLO in shown
        assert "create" in shown.casefold()
        assert ALLERGIC in await browser.text(f"sessions/{item['source']['session']}/kept")


async def test_an_item_is_forgotten_by_a_form_of_our_own_alone(remembered: str) -> None:
    (item,) = (each for each in await items(remembered) if each["text"] == ALLERGIC)
    async with browsing(remembered) as browser:
        assert (await browser.send(f"memory/{item['id']}/forget", csrf="0")).status_code == 403
        assert len(await items(remembered)) == 2
        assert ALLERGIC not in plain((await browser.send(f"memory/{item['id']}/forget")).text)
        assert (await browser.open(f"memory/{item['id']}")).status_code == 404
    assert len(await items(remembered)) == 1


async def test_each_verb_says_what_it_would_do_before_it_does_it(
    model: RememberingModel, remembered: str, chats: Chats
) -> None:
    found = await items(remembered)
    (allergic,) = (each for each in found if each["text"] == ALLERGIC)
    async with browsing(remembered) as browser:
        text = shown = await browser.text(f"memory/{allergic['id']}/forget")
        assert "Forget it for good" in text
        assert ALLERGIC in text
        assert "1 other items stay without the passage" in text
        assert await items(remembered) == found
        before = await lines(remembered)
        assert (await browser.open(f"memory/{allergic['id']}/restore")).status_code == 409
        speaking = person(chats, remembered, X_Unabridged_Session="two")
        await speaking.ask("I have moved to Bergen.")
        await read(model, 2)
        (old,) = (each for each in await items(remembered) if each["state"] == "superseded")
        text = await browser.text(f"memory/{old['id']}/restore")
        assert "worth 0.50 and with no uses" in text
        assert "something else" in text
        assert old in await items(remembered)
        await browser.send(f"memory/{allergic['id']}/forget")
        gone = before - await lines(remembered)
        assert gone
        assert all(" ".join(line.split()) in shown for line in gone)


async def test_what_is_remembered_already_cannot_be_taken_back(remembered: str) -> None:
    (item, _) = await items(remembered)
    async with browsing(remembered) as browser:
        response = await browser.send(f"memory/{item['id']}/restore")
        assert (response.status_code, "remembered as it is" in response.text) == (409, True)


async def lines(url: str) -> set[str]:
    """Of the texts of all memories."""
    scopes = (await admin(url, "memory"))["scopes"]
    return {line for each in scopes for line in (each["long"] + "\n" + each["short"]).splitlines() if line}


async def items(url: str) -> list[dict[str, Any]]:
    return (await admin(url, "memory"))["items"]

"""What is remembered, on the page: searched, looked at with its log, taken back and forgotten."""

from __future__ import annotations

from typing import Any

from tests.support.browser import browsing, plain
from tests.support.clients import admin
from tests.support.remembering import ALLERGIC, LIVES, OSLO


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


async def test_what_is_remembered_already_cannot_be_taken_back(remembered: str) -> None:
    (item, _) = await items(remembered)
    async with browsing(remembered) as browser:
        response = await browser.send(f"memory/{item['id']}/restore")
        assert (response.status_code, "remembered as it is" in response.text) == (409, True)


async def items(url: str) -> list[dict[str, Any]]:
    return (await admin(url, "memory"))["items"]

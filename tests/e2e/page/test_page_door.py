"""Who gets to see the page, and what keeps others out."""

from __future__ import annotations

import httpx2
import pytest

from tests.support.browser import ROOT, Browser, browsing, token_in
from tests.support.clients import ADMIN, KEY, Chats, proxying
from tests.support.servers import PATIENCE
from tests.support.upstreams import Model


async def get(url: str, path: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as client:
        return await client.get(path, headers=headers)


async def test_without_the_token_there_is_a_form_and_nothing_else(url: str, chats: Chats) -> None:
    await chats(url).ask("a secret of mine")
    response = await get(url, ROOT)
    assert (response.status_code, 'name="key"' in response.text) == (401, True)
    assert "secret of mine" not in response.text


async def test_a_clients_key_opens_no_page(url: str) -> None:
    assert (await get(url, ROOT, Authorization=KEY)).status_code == 403


async def test_a_wrong_token_is_told_and_lets_nobody_in(url: str) -> None:
    async with browsing(url, "") as stranger:
        response = await stranger.client.post(f"{ROOT}login", data={"key": "no"})
        assert (response.status_code, "set-cookie" in response.headers) == (403, False)
        assert (await stranger.open()).status_code == 401
        assert (await stranger.open(token="no")).status_code == 403


async def test_the_token_in_the_address_is_taken_out_of_it_for_a_cookie_that_no_script_reads(
    url: str,
) -> None:
    response = await get(url, f"{ROOT}?token=admin")
    assert (response.status_code, response.headers["location"]) == (303, ROOT)
    cookie = response.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=strict", "Path=/unabridged"))
    assert "=admin" not in cookie


@pytest.mark.parametrize("cookie", ["", "9999999999.00.00", "x", "9" * 4_000])
async def test_a_cookie_of_ones_own_making_opens_nothing(url: str, browser: Browser, cookie: str) -> None:
    (name,) = browser.client.cookies
    assert (await get(url, ROOT, Cookie=f"{name}={cookie}")).status_code == 401


async def test_the_cookie_opens_the_admin_api_to_look_and_changes_nothing_without_a_token_of_the_page(
    url: str, browser: Browser, chats: Chats
) -> None:
    await chats(url, X_Unabridged_Session="chat").ask("hello")
    api = f"{ROOT}v1/sessions"
    assert len((await browser.client.get(api)).json()["sessions"]) == 1
    assert (await browser.client.post(f"{api}/chat/pause")).status_code == 403
    csrf = token_in(await browser.open())
    paused = await browser.client.post(f"{api}/chat/pause", headers={"X-CSRF-Token": csrf})
    assert paused.json()["blocked"] == "paused"


async def test_a_form_of_another_page_changes_nothing(url: str, browser: Browser) -> None:
    assert (await browser.send("logout", csrf="")).status_code == 403
    async with browsing(url) as other:
        foreign = token_in(await other.open())
    assert (await browser.send("logout", csrf=foreign)).status_code == 403
    assert (await browser.open()).status_code == 200


async def test_who_logs_out_is_out(browser: Browser) -> None:
    assert (await browser.send("logout")).status_code == 401
    assert (await browser.open()).status_code == 401


@pytest.mark.parametrize(("public", "is_secure"), [(None, False), ("https://chat.example", True)])
async def test_the_cookie_of_a_server_behind_https_is_sent_by_that_alone(
    model: Model, public: str | None, is_secure: bool
) -> None:
    async with proxying(model.url, public_url=public) as served:
        cookie = (await get(served, f"{ROOT}?token=admin")).headers["set-cookie"]
    assert ("Secure" in cookie) == is_secure


@pytest.mark.parametrize("path", ["", "login", "nowhere"])
async def test_no_page_may_load_run_or_be_framed_by_anything_else(browser: Browser, path: str) -> None:
    response = await browser.open(path)
    if response.headers["content-type"].startswith("text/html"):
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'")
        assert "frame-ancestors 'none'" in policy
        assert response.headers["cache-control"] == "no-store"
    else:
        assert response.status_code in (404, 405)


async def test_what_the_pages_are_made_of_is_served_without_the_token(url: str) -> None:
    for name in ("page.css", "page.js", "icon.svg"):
        assert (await get(url, f"{ROOT}static/{name}")).status_code == 200
    assert (await get(url, f"{ROOT}static/../frame.py")).status_code == 404
    assert (await get(url, f"{ROOT}v1/sessions", **ADMIN)).status_code == 200

"""What all pages share, where an endpoint of one fails."""

from __future__ import annotations

import time

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request

from proxy.http.admin.auth import AdminAuth
from proxy.http.page.frame import Form, Frame, Page, Renderer, page
from tests.support.canaries import logged

SECRET = "what somebody said"


class Pages:
    @page("GET", "broken")
    async def broken(self, _: Request, form: Form) -> Page:
        raise KeyError(SECRET)


async def test_a_fault_of_our_own_is_a_page_in_plain_words_and_is_logged_without_contents() -> None:
    auth = AdminAuth("admin", time.time, is_secure=False)
    app = Starlette(routes=Frame(auth, Renderer(time.time), Pages()).routes())
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        await client.get("/unabridged/broken", params={"token": "admin"})
        with logged() as lines:
            page = await client.get("/unabridged/broken")
    assert page.status_code == 500
    assert page.headers["content-type"].startswith("text/html")
    assert "Something went wrong inside the proxy." in page.text
    assert "The log has the place." in page.text
    assert any("a page could not be shown" in line for line in lines)
    assert not any(SECRET in line for line in lines)

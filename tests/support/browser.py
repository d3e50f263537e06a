"""A user of the web page, with the cookies of a browser and without scripts."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html import unescape

import httpx2

from tests.support.servers import PATIENCE

ROOT = "/unabridged/"


class Browser:
    """One user, logged in or not."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    async def open(self, path: str = "", **query: str) -> httpx2.Response:
        return await self.client.get(ROOT + path, params=query)

    async def text(self, path: str = "", **query: str) -> str:
        """Return the text of a page, unescaped and without markup."""
        response = await self.open(path, **query)
        assert response.status_code == 200, response.text
        return plain(response.text)

    async def send(self, path: str, csrf: str | None = None, **fields: str) -> httpx2.Response:
        """Submit a form, with the page's CSRF token unless another one is given."""
        if csrf is None:
            csrf = token_in(await self.open())
        return await self.client.post(ROOT + path, data={**fields, "csrf": csrf})


def plain(page: str) -> str:
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", page)))


def token_in(response: httpx2.Response) -> str:
    found = re.search(r'name="csrf" value="(\w+)"', response.text)
    assert found, response.text
    return found[1]


@asynccontextmanager
async def browsing(url: str, token: str = "admin") -> AsyncGenerator[Browser]:
    """Yield a user who has logged in with this token; with an empty one, a user who has not."""
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, follow_redirects=True) as client:
        if token:
            await client.post(f"{ROOT}login", data={"key": token})
        yield Browser(client)

"""An operator at the admin API, and a conversation for it to work on."""

from __future__ import annotations

from typing import Any

import httpx2

from tests.support.clients import ADMIN, KEY, Chat, admin, user
from tests.support.servers import PATIENCE
from tests.support.upstreams import Message


async def do(url: str, verb: str, body: object = None, session: str = "chat") -> Any:
    response = await ask(url, "POST", f"sessions/{session}/{verb}", body)
    assert response.status_code == 200, response.text
    return response.json()


async def ask(url: str, method: str, path: str, body: object = None, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(base_url=url, headers={**ADMIN, **headers}, timeout=PATIENCE) as client:
        return await client.request(method, f"/unabridged/v1/{path}", json=body)


def code(response: httpx2.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


async def talk(chat: Chat, turns: int = 6, canary: str = "") -> list[httpx2.Response]:
    asked = (
        f"Question {number} {canary}: what then, and how would we go about it?" for number in range(turns)
    )
    return [await chat.ask(text) for text in asked]


async def views(url: str, session: str = "chat") -> list[Message]:
    return (await admin(url, f"sessions/{session}/view"))["messages"]


async def append(url: str, session: str, text: str) -> httpx2.Response:
    headers = {"Authorization": KEY, "X-Unabridged-Mode": "append", "X-Unabridged-Session": session}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=PATIENCE) as client:
        return await client.post("/v1/chat/completions", json={"model": "gpt-test", "messages": [user(text)]})

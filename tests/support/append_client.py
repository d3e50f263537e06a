"""A client that sends only new messages, and the transcript that the proxy stores for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import httpx2

from tests.support.clients import KEY, admin, only_session, user
from tests.support.servers import PATIENCE, Exchange, awaited
from tests.support.upstreams import Message, events, said, sse


@dataclass
class Appender:
    """A client that stores no history."""

    url: str
    session: str = "s"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    members: Message = field(default_factory=lambda: {"model": "gpt-test"})
    client: httpx2.AsyncClient = field(default_factory=lambda: httpx2.AsyncClient(timeout=PATIENCE))

    def request(self, *messages: Message, **headers: str) -> httpx2.Request:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        ours = {"X-Unabridged-Mode": "append", "X-Unabridged-Session": self.session}
        return self.client.build_request(
            "POST",
            f"{self.url}/v1/chat/completions",
            json={**self.members, "messages": messages},
            headers={"Authorization": KEY, **ours, **self.headers, **named},
        )

    async def say(self, *messages: Message, **headers: str) -> httpx2.Response:
        return await self.client.send(self.request(*messages, **headers))

    async def ask(self, text: str, **headers: str) -> httpx2.Response:
        return await self.say(user(text), **headers)

    async def leave_during(self, text: str) -> str:
        """Ask for a stream, read its first bytes, and leave."""
        self.members["stream"] = True
        response = await self.client.send(self.request(user(text)), stream=True)
        seen = ""
        async for chunk in response.aiter_text():
            seen += chunk
            if "content" in seen:
                break
        await response.aclose()
        self.members.pop("stream")
        return seen


class Appenders(Protocol):
    """Makes clients, and closes them at the end."""

    def __call__(self, url: str, session: str = "s") -> Appender: ...


def contents(view: list[Message]) -> list[str]:
    return [message["content"] for message in view]


def error_code(response: httpx2.Response) -> str:
    return response.json()["error"]["code"]


async def transcript(url: str, *, complete: bool = True) -> list[str]:
    """Return the complete messages of the transcript, or those that were cut off."""
    session = await only_session(url)
    messages = (await admin(url, f"sessions/{session['id']}/transcript"))["messages"]
    return [entry["message"]["content"] for entry in messages if entry["complete"] == complete]


async def kept(url: str, count: int) -> list[str]:
    """Return the transcript once it has so many messages, because turns are stored after the answer."""

    async def so_far() -> list[str]:
        return await transcript(url) if (await admin(url, "sessions"))["sessions"] else []

    return await awaited(so_far, lambda told: len(told) >= count)


async def hold(exchange: Exchange, *first: str) -> None:
    """A behaviour that begins a stream and then waits until the caller leaves."""
    await exchange.body()
    await exchange.start(200, [(b"Content-Type", b"text/event-stream")])
    for text in first:
        await exchange.chunk(sse(events(said(text))[1]))
    await exchange.gone()

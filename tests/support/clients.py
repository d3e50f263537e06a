"""The proxy as a real server on loopback, and clients that keep their history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import httpx2

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.settings import load_settings
from proxy.adapters.files.watcher import LoadedPolicies
from proxy.app import create_app
from tests.support.servers import PATIENCE, awaited, serve
from tests.support.upstreams import Message

ADMIN = {"Authorization": "Bearer admin"}
KEY = "Bearer sk-test"
SECRET = "secret-of-the-tests"

CHAT = "/v1/chat/completions"
HELLO = b'{"model":"gpt-test","messages":[{"role":"user","content":"Hello"}]}'
STREAMED = HELLO.replace(b"{", b'{"stream":true,', 1)


@asynccontextmanager
async def proxying(upstream: str, *, owns_store: bool = False, **settings: Any) -> AsyncGenerator[str]:
    """Run the proxy as a real server in front of `upstream`; yields its URL. `config` is a settings file.

    It is stopped from another thread: what it still asks of the upstream, this loop must answer.
    """
    usual: dict[str, Any] = {
        "store": "memory://",
        "secret": SECRET,
        "admin_token": "admin",
        "store_timeout": PATIENCE,
        "store_breaker": 0.2,
        "background_pause": 0.1,
    }
    loaded, written = load_settings(upstream=upstream, **(usual | settings))
    policies = LoadedPolicies.load(PolicyLibrary(loaded.policies), loaded.policy, written)
    app = create_app(loaded, loaded=policies, owns_store=owns_store)
    server = serve(app, request_timeout=loaded.request_timeout)
    try:
        yield server.__enter__()
    finally:
        await asyncio.to_thread(server.__exit__, None, None, None)


class Small(Protocol):
    """Starts a proxy whose budget is small: `await small(tokens=800, wait="200ms", summaries=True)`."""

    async def __call__(
        self,
        tokens: int = 800,
        *,
        wait: str = "2s",
        summaries: bool = True,
        extra: str = "",
        **settings: Any,
    ) -> str: ...


def write_policy(directory: Path, name: str, text: str) -> Path:
    path = directory / f"{name}.toml"
    path.write_text(text)
    return path


def told(response: httpx2.Response, name: str) -> str:
    """Return a header of ours in an answer."""
    return response.headers[f"x-unabridged-{name}"]


def tokens_of(response: httpx2.Response) -> dict[str, int]:
    """Return the numbers of `X-Unabridged-Tokens`, without entries that are `none`."""
    return {name: int(value) for name, value in _pairs_of(response) if value.isdigit()}


def window_from(response: httpx2.Response) -> str:
    """Return the source of the model's window, from a header."""
    return dict(_pairs_of(response))["window_from"]


def _pairs_of(response: httpx2.Response) -> list[tuple[str, str]]:
    parts = (pair.partition("=") for pair in told(response, "tokens").split(";"))
    return [(name, value) for name, _, value in parts]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def question(number: int, topic: str = "item") -> str:
    """Return question number ``number`` of many; each has about fifty tokens."""
    return f"Question {number}: what became of {topic} {number * 37}? " + "Tell me all of it, please. " * 6


@dataclass
class Chat:
    """A client that keeps its whole history and sends it each time."""

    url: str
    headers: dict[str, str] = field(default_factory=lambda: {"Authorization": KEY})
    messages: list[Message] = field(default_factory=list[Message])
    members: Message = field(default_factory=lambda: {"model": "gpt-test"})
    stages: list[str] = field(default_factory=list[str])
    query: str = ""
    """What follows the path, such as ``?api-version=2024-10-21``."""
    client: httpx2.AsyncClient = field(default_factory=lambda: httpx2.AsyncClient(timeout=PATIENCE))

    async def send(self) -> httpx2.Response:
        """Send the history as it is, and add nothing to it."""
        body = json.dumps({**self.members, "messages": self.messages}).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        url = f"{self.url}/v1/chat/completions{self.query}"
        return await self.client.post(url, content=body, headers=headers)

    async def say(self, *messages: Message) -> httpx2.Response:
        """Send the history with these messages added, and add the answer."""
        self.messages += messages
        response = await self.send()
        if response.status_code == 200:
            self.messages.append(answer_in(response))
            self.stages.append(response.headers.get("x-unabridged-stage", ""))
        return response

    async def ask(self, text: str) -> httpx2.Response:
        return await self.say(user(text))


class Chats(Protocol):
    """Makes clients, which are closed at the end: `chats(url, X_Unabridged_Session="s")`."""

    def __call__(self, url: str, **headers: str) -> Chat: ...


@asynccontextmanager
async def making_chats() -> AsyncGenerator[Chats]:
    made: list[Chat] = []

    def chat(url: str, **headers: str) -> Chat:
        made.append(Chat(url))
        made[-1].headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        return made[-1]

    try:
        yield chat
    finally:
        for each in made:
            await each.client.aclose()


def answer_in(response: httpx2.Response) -> Message:
    """The message of an answer, streamed or not, as a client would send it back."""
    if not response.headers["content-type"].startswith("text/event-stream"):
        return response.json()["choices"][0]["message"]
    text = ""
    for line in response.text.split("\n\n"):
        if line.startswith("data: {"):
            for choice in json.loads(line[6:]).get("choices", ()):
                text += choice["delta"].get("content") or ""
    return {"role": "assistant", "content": text}


async def admin(url: str, path: str, **query: str) -> Any:
    """Return an answer of the admin API."""
    async with httpx2.AsyncClient(base_url=url, headers=ADMIN) as client:
        response = await client.get(f"/unabridged/v1/{path}", params=query)
        assert response.status_code == 200, response.text
        return response.json()


async def bill_of(
    url: str, session: str = "s", requests: int = 1, has: Callable[[Any], object] = bool
) -> Any:
    """A session's bill, once it has so many requests, and what it must have: it is written behind answers."""
    async with httpx2.AsyncClient(base_url=url, headers=ADMIN) as client:

        async def bill() -> Any:
            return (await client.get(f"/unabridged/v1/sessions/{session}")).json().get("bill")

        return await awaited(bill, lambda found: found and found["requests"] >= requests and has(found))


async def only_session(url: str) -> Any:
    (session,) = (await admin(url, "sessions"))["sessions"]
    return session


async def recorded(url: str, turns: int) -> Any:
    """Return the sessions once they have so many turns together: a turn is written after its answer."""

    async def sessions() -> Any:
        return (await admin(url, "sessions"))["sessions"]

    return await awaited(sessions, lambda found: sum(each["turns"] for each in found) >= turns)


async def is_ready(url: str) -> bool:
    """Whether a proxy is ready, and has its store."""
    async with httpx2.AsyncClient() as client:
        return (await client.get(f"{url}/readyz")).json() == {"status": "ready"}


async def metrics(url: str, prefix: str = "", suffix: str = "") -> dict[str, float]:
    """Return metrics by their names with labels, without what those that are meant begin and end with."""
    async with httpx2.AsyncClient() as client:
        lines = (await client.get(f"{url}/metrics")).text.splitlines()
    found = (line.rpartition(" ") for line in lines if line.startswith(prefix) and line[0] != "#")
    return {
        name.removeprefix(prefix).removesuffix(suffix): float(value)
        for name, _, value in found
        if name.endswith(suffix)
    }


async def result_counts(url: str) -> dict[str, float]:
    """`unabridged_summaries_total` by its label."""
    return await metrics(url, 'unabridged_summaries_total{result="', '"}')

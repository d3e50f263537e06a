"""A scripted model that answers the questions of memory, and records them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.clients import Chat, Chats, admin, metrics, proxying, write_policy
from tests.support.servers import Exchange, Received, eventually, until
from tests.support.upstreams import Behaviour, Message, Model, said

REST = 0.1
"""Seconds without a turn after which a conversation is read, in tests."""
_POLICY = """
extends = "default"
[memory]
enabled = true
"""

OSLO = "I live in Oslo and I am allergic to nuts."
"""What Ana says, and what is remembered of it."""
LIVES, ALLERGIC = "Ana lives in Oslo.", "Ana is allergic to nuts."

# How the questions for a memory begin.
ITEMS = "You keep the memory of an assistant. Read the transcript"
TEXTS = "You keep the memory of an assistant across conversations"
COMPRESSING = "Say in one or two short sentences"


def task_of(body: Message) -> str:
    messages: Sequence[Message] = body.get("messages") or ({},)
    text = messages[0].get("content")
    return text if isinstance(text, str) else ""


@dataclass
class RememberingModel(Model):
    """Answers questions for a memory by what stands in them; any other request as the scripted model does.

    ``notes`` are items by a phrase of the transcript that has them proposed; ``writes`` makes the bullets of
    a text, of the task and of what was said.
    """

    notes: dict[str, Message] = field(default_factory=dict[str, Message])
    writes: Callable[[str, list[str]], list[str]] = lambda _, said: said
    asked_for_items: list[Received] = field(default_factory=list[Received])
    asked_for_texts: list[Received] = field(default_factory=list[Received])
    compressions: list[Received] = field(default_factory=list[Received])
    answers: dict[str, Message | Behaviour] = field(default_factory=dict[str, Message | Behaviour])
    """Other answers to questions, by how the questions begin."""
    meanwhile: Callable[[], Awaitable[object]] | None = None
    """Called while it writes a text."""

    async def serve_one(self, exchange: Exchange) -> None:
        body: Message = json.loads(await exchange.body() or b"{}")
        task = task_of(body)
        kinds = {
            ITEMS: self.asked_for_items,
            TEXTS: self.asked_for_texts,
            COMPRESSING: self.compressions,
        }
        asked = next((kind for begins, kind in kinds.items() if task.startswith(begins)), None)
        if asked is None:
            await super().serve_one(exchange)
            return
        asked.append(exchange.request)
        other = next((each for begins, each in self.answers.items() if task.startswith(begins)), None)
        if other is not None:
            await self._reply(exchange, body, other)
            return
        text: str = body["messages"][-1]["content"]
        if asked is self.asked_for_items:
            answer = json.dumps({"items": [item for phrase, item in self.notes.items() if phrase in text]})
        elif asked is self.asked_for_texts:
            if self.meanwhile is not None:
                await self.meanwhile()
            answer = "\n".join(f"- {line}" for line in self.writes(task, bullets_in(text)))
        else:
            answer = text.splitlines()[1][:80]
        await self._reply(exchange, body, said(answer))

    def prompts(self, asked: Sequence[Received]) -> list[str]:
        """Return the texts of these requests, the task first."""
        return [_text(json.loads(bytes(each.body))) for each in asked]


def _text(body: Message) -> str:
    return "\n".join(str(message.get("content")) for message in body["messages"])


def bullets_in(text: str) -> list[str]:
    """Return the lines of a transcript or of texts, without questions."""
    lines = re.findall(r"^(?!<)(?:\[[^\]]+\] [^:]+: |- ?|)(.+)$", text, re.MULTILINE)
    return [line for line in lines if not line.endswith("?")]


def note(text: str, kind: str = "fact", **members: Any) -> Message:
    """Return an item as a model proposes it."""
    return {"text": text, "kind": kind, **members}


def noting_ana() -> RememberingModel:
    """Return a model that proposes items about Ana and her boat."""
    return RememberingModel(
        notes={
            "live in Oslo": note(LIVES),
            "allergic to nuts": note(ALLERGIC, standing=True),
            "moved to Bergen": note("Ana lives in Bergen."),
            "paint the boat": note("The boat is painted green.", "decision"),
        }
    )


@asynccontextmanager
async def remembering(
    model: Model, directory: Path, rules: str = "channel_every = 1", **settings: Any
) -> AsyncGenerator[str]:
    """Run the proxy with these memory rules in its policy; yields its URL."""
    path = write_policy(directory, "remembering", _POLICY + rules)
    settings = {"memory_rest": REST, **settings}
    async with proxying(model.url, policy=str(path), **settings) as url:
        yield url


def person(chats: Chats, url: str, name: str = "ana", **headers: str) -> Chat:
    """Return a client whose requests name a person."""
    chat = chats(url, **headers)
    chat.members["user"] = name
    return chat


class Held:
    """Holds a model while it writes a text, as its `meanwhile`, until it is let go."""

    def __init__(self) -> None:
        self.is_writing, self.let_go = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.is_writing.set()
        await self.let_go.wait()


def prelude(view: Sequence[Message]) -> str:
    """Return the note before the conversation, if there is one."""
    text = next(message["content"] for message in view if message["role"] != "system")
    return text if isinstance(text, str) and text.startswith("<note ") else ""


async def read(model: RememberingModel, times: int = 1) -> None:
    """Until conversations of one home were read so often, and what they tell is written.

    Two texts of the conversation are asked for, then two of its home: by the last one all items are written.
    """
    await eventually(lambda: len(model.asked_for_texts) >= 4 * times)


async def item_texts(url: str) -> set[str]:
    """Return the texts of all items that the admin API lists, in whatever state."""
    return {each["text"] for each in (await admin(url, "memory"))["items"]}


async def opening(model: Model, chat: Chat, session: str, question: str = "Where do I live?") -> str:
    """Return the briefing of a new session that begins with this question."""
    chat.headers["X-Unabridged-Session"] = session
    chat.messages.clear()
    await chat.ask(question)
    return prelude(model.views()[-1])


async def ana_speaks(model: RememberingModel, url: str, chats: Chats, **headers: str) -> None:
    """Ana says where she lives, in a session of her own, until items and texts of that are written."""
    times = len(model.asked_for_texts) // 4 + 1
    await person(chats, url, **{"X_Unabridged_Session": "one", **headers}).ask(OSLO)
    await read(model, times)

    async def is_written() -> bool:
        scopes = (await admin(url, "memory"))["scopes"]
        return any("Oslo" in scope["long"] for scope in scopes)

    await until(True, is_written)


async def memory_gauges(url: str) -> dict[str, float]:
    """Return the metrics of memory, by the rest of their names."""
    return await metrics(url, "unabridged_memory_")

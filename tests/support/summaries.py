"""Conversations that are cut, and what the model gets of them."""

from __future__ import annotations

from typing import Any

from tests.support.clients import Chat, question, result_counts, told
from tests.support.servers import awaited
from tests.support.upstreams import Message, Model

BUDGET = 800
"""A budget in tokens that a few questions fill."""


async def until_cut(chat: Chat, model: Model) -> Any:
    """Send questions until something is cut; return the answer to that request."""
    for number in range(30):
        response = await chat.ask(question(number))
        assert response.status_code == 200
        if told(response, "cut") != "0":
            return response
    raise AssertionError("nothing was ever cut")


def notes(view: list[Message]) -> str:
    texts = [str(message["content"]) for message in view]
    return "\n".join(text for text in texts if text.startswith("<note"))


async def until_counted(url: str, result: str) -> None:
    await awaited(lambda: result_counts(url), lambda counts: counts.get(result))

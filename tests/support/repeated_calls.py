"""A conversation in which a model makes the same call again, and a policy by which the proxy answers it."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.support.clients import user
from tests.support.upstreams import Message, calling

POLICY = """
[[tools]]
match = "get_*"
cache_exchanges = 3
serve = true
invalidated_by = ["set_*"]
[[tools]]
match = "other"
"""
ROME = '{"city": "Rome"}'
WEATHER = ("c2", "get_weather", ROME)
TOOLS: list[Message] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("get_weather", "set_weather", "other")
]

both = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "in one piece"])


def result(call_id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def known(city: str = ROME) -> list[Message]:
    """Return a conversation in which the weather was requested."""
    return [
        user("How is the weather?"),
        calling(("c1", "get_weather", city)),
        result("c1", "18 degrees"),
        {"role": "assistant", "content": "It is 18 degrees."},
        user("And now?"),
    ]


def talking(text: str, *calls: tuple[str, str, str]) -> Message:
    return {**calling(*calls), "content": text}


async def ask(client: openai.AsyncOpenAI, messages: list[Message], *, stream: bool, **members: Any) -> Any:
    """Return the completion, assembled by the SDK if it is streamed."""
    asked: Any = messages
    arguments: Any = {"model": "gpt-test", "messages": asked, "tools": TOOLS, **members}
    if not stream:
        create: Any = client.chat.completions.create
        return await create(**arguments)
    async with client.chat.completions.stream(**arguments, stream_options={"include_usage": True}) as told:
        return await told.get_final_completion()


def sent_back(answer: Any) -> Message:
    """Return the answer's message as the SDK sends it back."""
    message = answer.choices[0].message.model_dump(exclude_none=True)
    for call in message.get("tool_calls", ()):
        call["function"].pop("parsed_arguments", None)
        call.pop("index", None)
    message.pop("parsed", None)
    return message


async def begin(client: openai.AsyncOpenAI, messages: list[Message]) -> Any:
    """Return the stream, chunk by chunk."""
    create: Any = client.chat.completions.create
    return await create(model="gpt-test", messages=messages, tools=TOOLS, stream=True)

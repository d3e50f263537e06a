"""The asynchronous SDK; streams by its own accumulator, messages sent back as the objects that they are."""

from __future__ import annotations

import asyncio
from typing import Any

import dialogue
import openai
from openai.types.chat import ChatCompletionMessage

TOOLS: Any = [{**dialogue.LOOK_UP, "function": {**dialogue.LOOK_UP["function"], "strict": True}}]


async def streamed(client: openai.AsyncOpenAI, model: str, messages: list[Any]) -> ChatCompletionMessage:
    async with client.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as events:
        async for _ in events:
            pass
        return (await events.get_final_completion()).choices[0].message


async def whole(client: openai.AsyncOpenAI, model: str, messages: list[Any]) -> ChatCompletionMessage:
    answer = await client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
    return answer.choices[0].message


async def main() -> None:
    task = dialogue.read()
    messages: list[Any] = [{"role": "system", "content": dialogue.INSTRUCTIONS}]
    async with openai.AsyncOpenAI(**task.connection) as client:
        for turn in task.turns:
            messages.append({"role": "user", "content": turn.text})
            ask = streamed if turn.stream else whole
            messages.append(message := await ask(client, task.model, messages))
            while message.tool_calls:
                for call in message.tool_calls:
                    assert call.type == "function"
                    messages.append(dialogue.result(call.id, call.function.arguments))
                messages.append(message := await ask(client, task.model, messages))
            dialogue.tell(message.content)


asyncio.run(main())

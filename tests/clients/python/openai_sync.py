"""The synchronous SDK; streams are put together by the program from their chunks."""

from __future__ import annotations

from typing import Any

import dialogue
import openai

TOOLS = [dialogue.LOOK_UP]


def streamed(client: openai.OpenAI, model: str, messages: list[Any]) -> dict[str, Any]:
    """The assistant message of a stream."""
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    calls: dict[int, dict[str, Any]] = {}
    for chunk in client.chat.completions.create(model=model, messages=messages, tools=TOOLS, stream=True):
        delta = chunk.choices[0].delta
        message["content"] += delta.content or ""
        for part in delta.tool_calls or ():
            empty = {"id": part.id, "type": "function", "function": {"name": "", "arguments": ""}}
            call = calls.setdefault(part.index, empty)
            if part.function is not None:
                call["function"]["name"] += part.function.name or ""
                call["function"]["arguments"] += part.function.arguments or ""
    return {**message, "tool_calls": list(calls.values())} if calls else message


def whole(client: openai.OpenAI, model: str, messages: list[Any]) -> dict[str, Any]:
    """The assistant message of an answer in one piece, as most programs keep it."""
    answer = client.chat.completions.create(model=model, messages=messages, tools=TOOLS)
    return answer.choices[0].message.model_dump(exclude_none=True)


def result_of(call: dict[str, Any]) -> dict[str, Any]:
    return dialogue.result(call["id"], call["function"]["arguments"])


def main() -> None:
    task = dialogue.read()
    messages: list[Any] = []
    with openai.OpenAI(**task.connection) as client:
        for turn in task.turns:
            messages.append({"role": "user", "content": turn.text})
            ask = streamed if turn.stream else whole
            message = ask(client, task.model, messages)
            while message.get("tool_calls"):
                messages += [message, *map(result_of, message["tool_calls"])]
                message = ask(client, task.model, messages)
            messages.append(message)
            dialogue.tell(message["content"])


main()

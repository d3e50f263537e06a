"""langchain-openai: a model with a bound tool, messages as LangChain's objects, streams as summed chunks."""

from __future__ import annotations

from typing import Any

import dialogue
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

look_up = tool(dialogue.look_up)


def streamed(model: Any, messages: list[BaseMessage]) -> AIMessage:
    whole: AIMessageChunk | None = None
    for chunk in model.stream(messages):
        whole = chunk if whole is None else whole + chunk
    assert whole is not None
    return whole


def main() -> None:
    task = dialogue.read()
    untyped: Any = ChatOpenAI(
        model=task.model,
        base_url=task.base_url,
        api_key=SecretStr(task.api_key),
        default_headers=task.headers or None,
    )
    model = untyped.bind_tools([look_up])
    messages: list[BaseMessage] = []
    for turn in task.turns:
        messages.append(HumanMessage(turn.text))
        while True:
            answer: AIMessage = streamed(model, messages) if turn.stream else model.invoke(messages)
            messages.append(answer)
            if not answer.tool_calls:
                break
            messages += [look_up.invoke(call) for call in answer.tool_calls]
        dialogue.tell(answer.text)


main()

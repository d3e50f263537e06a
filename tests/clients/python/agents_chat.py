"""openai-agents: an agent with a tool, on chat completions; or on its default, `/v1/responses`."""

from __future__ import annotations

import asyncio
import sys

import dialogue
from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    TResponseInputItem,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)
from openai import AsyncOpenAI


async def main() -> None:
    task = dialogue.read()
    set_tracing_disabled(disabled=True)  # it would tell a service on the network
    client = AsyncOpenAI(**task.connection)
    set_default_openai_client(client, use_for_tracing=False)
    chat = OpenAIChatCompletionsModel(model=task.model, openai_client=client)
    agent = Agent(
        name="Lexicographer",
        instructions=dialogue.INSTRUCTIONS,
        model=task.model if "responses" in sys.argv else chat,
        tools=[function_tool(dialogue.look_up)],
    )
    history: list[TResponseInputItem] = []
    for turn in task.turns:
        history.append({"role": "user", "content": turn.text})
        if turn.stream:
            result = Runner.run_streamed(agent, history)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, history)
        history = result.to_input_list()
        dialogue.tell(result.final_output)
    await client.close()


asyncio.run(main())

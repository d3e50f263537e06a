"""pydantic-ai: an agent with a tool on `openai-chat:…`, or on `openai:…`, which speaks to `/v1/responses`.

The base URL comes from the environment, as most of its users set it.
"""

from __future__ import annotations

import asyncio
import os
import sys

import dialogue
from pydantic_ai import Agent, ModelMessage, ModelSettings


async def main() -> None:
    task = dialogue.read()
    os.environ["OPENAI_BASE_URL"] = task.base_url
    os.environ["OPENAI_API_KEY"] = task.api_key
    provider = "openai" if "responses" in sys.argv else "openai-chat"
    settings = ModelSettings(extra_headers=task.headers)
    agent = Agent(f"{provider}:{task.model}", instructions=dialogue.INSTRUCTIONS, model_settings=settings)
    agent.tool_plain(dialogue.look_up)
    history: list[ModelMessage] = []
    for turn in task.turns:
        if turn.stream:
            async with agent.run_stream(turn.text, message_history=history) as running:
                answer = "".join([part async for part in running.stream_text(delta=True)])
                history = running.all_messages()
        else:
            result = await agent.run(turn.text, message_history=history)
            answer, history = result.output, result.all_messages()
        dialogue.tell(answer)


asyncio.run(main())

"""The SDK's own `/v1/responses`."""

from __future__ import annotations

from typing import Any

import dialogue
import openai


def main() -> None:
    task = dialogue.read()
    items: list[Any] = []
    with openai.OpenAI(**task.connection) as client:
        for turn in task.turns:
            items.append({"role": "user", "content": turn.text})
            if turn.stream:
                with client.responses.stream(model=task.model, input=items) as events:
                    for _ in events:
                        pass
                    response = events.get_final_response()
            else:
                response = client.responses.create(model=task.model, input=items)
            items += [item.model_dump(exclude_none=True) for item in response.output]
            dialogue.tell(response.output_text)


main()

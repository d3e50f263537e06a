"""The SDK's raw responses: the program reads headers, and parses when it likes."""

from __future__ import annotations

from typing import Any

import dialogue
import openai


def main() -> None:
    task = dialogue.read()
    messages: list[Any] = []
    with openai.OpenAI(**task.connection) as client:
        for turn in task.turns:
            messages.append({"role": "user", "content": turn.text})
            if turn.stream:
                streaming = client.chat.completions.with_raw_response.create(
                    model=task.model, messages=messages, stream=True
                )
                headers = streaming.headers
                text = "".join(chunk.choices[0].delta.content or "" for chunk in streaming.parse())
            else:
                raw = client.chat.completions.with_raw_response.create(model=task.model, messages=messages)
                headers = raw.headers
                text = raw.parse().choices[0].message.content or ""
            messages.append({"role": "assistant", "content": text})
            dialogue.tell(text, session=headers["x-unabridged-session"], epoch=headers["x-unabridged-epoch"])


main()

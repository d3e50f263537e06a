"""A client program's side of a test: what it shall say comes in, what it was answered goes out.

The test writes one JSON object to stdin and reads one line of JSON for each turn from stdout. The programs
beside this file are what their authors' users write: an SDK, a loop, and a base URL.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

INSTRUCTIONS = "You look words up."


@dataclass(frozen=True)
class Turn:
    """What the user says next, and whether the answer is to be streamed."""

    text: str
    stream: bool


@dataclass(frozen=True)
class Dialogue:
    """Where to talk, as whom, and the user's side of the conversation."""

    base_url: str
    api_key: str
    model: str
    headers: dict[str, str]
    turns: list[Turn]

    @property
    def connection(self) -> dict[str, Any]:
        """What the OpenAI SDKs are told: where, as whom, and a session's header if there is one."""
        return {"base_url": self.base_url, "api_key": self.api_key, "default_headers": self.headers or None}


def read() -> Dialogue:
    told: Any = json.load(sys.stdin)
    told["turns"] = [Turn(**turn) for turn in told["turns"]]
    return Dialogue(**told)


def tell(answer: object, **more: object) -> None:
    """One turn's answer."""
    sys.stdout.write(json.dumps({"answer": answer, **more}) + "\n")
    sys.stdout.flush()


def look_up(word: str) -> str:
    """Look a word up in the dictionary."""
    return f"{word}: " + f"a {word} is what people call a {word}; " * 8


LOOK_UP: Any = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a word up in the dictionary.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
            "additionalProperties": False,
        },
    },
}
"""The tool, for SDKs that leave its schema to the program."""


def result(call_id: str, arguments: str) -> dict[str, Any]:
    """The tool message that answers a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": look_up(json.loads(arguments)["word"])}

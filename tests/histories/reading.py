"""An answer as a client reads it: from the events of a stream, or from one body."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.histories.history import Message


@dataclass
class Reading:
    """The part of an answer that has arrived so far."""

    events: int = 0
    is_done: bool = False
    code: str = ""
    """The code of an error in place of the rest."""
    _rest: bytes = b""
    _text: str = ""
    _calls: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    _whole: Message | None = None

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of an event stream."""
        *events, self._rest = (self._rest + chunk).split(b"\n\n")
        for event in events:
            if event.startswith(b"data: "):
                self.events += 1
                self._take(event.removeprefix(b"data: "))

    def take_body(self, body: bytes) -> None:
        """Take a body that is not a stream."""
        try:
            told: dict[str, Any] = json.loads(body)
        except ValueError:
            return
        self._fail(told)
        if "choices" in told:
            self._whole = told["choices"][0]["message"]
            self.is_done = True

    @property
    def message(self) -> Message | None:
        """Return the message as a client sends it back; None if nothing arrived."""
        if self._whole is not None:
            return self._whole
        if not self._text and not self._calls:
            return None
        message: Message = {"role": "assistant", "content": self._text or None}
        if self._calls:
            message["tool_calls"] = [self._calls[index] for index in sorted(self._calls)]
        return message

    def _take(self, data: bytes) -> None:
        if data == b"[DONE]":
            self.is_done = not self.code
            return
        event: dict[str, Any] = json.loads(data)
        self._fail(event)
        for choice in event.get("choices", ()):
            delta: dict[str, Any] = choice["delta"]
            self._text += delta.get("content") or ""
            for call in delta.get("tool_calls") or ():
                self._add_call(call)

    def _add_call(self, piece: dict[str, Any]) -> None:
        usual = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        call = self._calls.setdefault(piece["index"], usual)
        call["id"] = call["id"] or piece.get("id", "")
        for name, text in piece["function"].items():
            call["function"][name] += text

    def _fail(self, told: dict[str, Any]) -> None:
        if "error" in told:
            self.code = str(told["error"].get("code") or "error")
            self.is_done = False

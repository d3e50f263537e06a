"""An answer edited while it streams: whole events go in and out, every other byte stays as it is."""

import re
from typing import Any

from proxy.core.jsonvalue import loads
from proxy.core.messages import as_mapping

_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_LONGEST = 2**20
"""Bytes of a pending event from which nothing is looked for any more."""


class UsageRemover:
    """Takes the usage-only event out of a stream whose client did not ask for it (law 1).

    It is the last event of a stream with ``include_usage``: no choices, and the usage.
    """

    def __init__(self) -> None:
        self._pending = b""
        self._is_over = False

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may go on to the client, now that this chunk is here."""
        if self._is_over:
            return chunk
        text, passed, position = self._pending + chunk, bytearray(), 0
        for end in _EVENT_END.finditer(text):
            event = text[position : end.end()]
            position = end.end()
            if _is_usage_only(event):
                self._is_over = True
                self._pending = b""
                return bytes(passed) + text[position:]
            passed += event
        self._pending = text[position:]
        if len(self._pending) > _LONGEST:
            self._is_over = True
            return bytes(passed) + self.rest()
        return bytes(passed)

    def rest(self) -> bytes:
        """What is left when the stream has ended."""
        left, self._pending = self._pending, b""
        return left


def _is_usage_only(event: bytes) -> bool:
    if b'"usage"' not in event or b"data:" not in event:
        return False
    try:
        chunk: Any = loads(event.partition(b"data:")[2].strip())
    except ValueError:
        return False
    members = as_mapping(chunk)
    return members.get("choices") == [] and bool(as_mapping(members.get("usage")))

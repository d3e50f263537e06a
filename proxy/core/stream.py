"""An answer edited while it streams: whole events go in and out, every other byte stays as it is."""

from typing import Any

from proxy.core.jsonvalue import loads
from proxy.core.messages import as_mapping
from proxy.core.sse import EVENT_END, OVERLAP, read_raw

_LONGEST = 2**20
"""Bytes of a pending event from which nothing is looked for any more."""


class UsageRemover:
    """Takes the usage-only event out of a stream whose client did not ask for it (law 1).

    It is the last event of a stream with ``include_usage``: no choices, and the usage. What passes is the
    same wherever the stream is cut: an LF that comes after a CR has ended an event belongs to that event.
    """

    def __init__(self) -> None:
        self._pending = bytearray()
        self._is_over = False
        self._after_cr = False

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may go on to the client, now that this chunk is here."""
        passed = bytearray()
        if self._after_cr and chunk:
            rest = chunk.removeprefix(b"\n")
            passed += b"" if self._is_over else chunk[: len(chunk) - len(rest)]
            chunk, self._after_cr = rest, False
        if self._is_over:
            return bytes(passed) + chunk
        return bytes(passed + self._searched(chunk))

    def rest(self) -> bytes:
        """What is left when the stream has ended."""
        left = bytes(self._pending)
        self._pending.clear()
        return left

    def _searched(self, chunk: bytes) -> bytes:
        """What may pass of the pending event and ``chunk``; only new bytes are searched for its end."""
        text, passed, position = self._pending, bytearray(), 0
        start = max(len(text) - OVERLAP, 0)
        text += chunk
        for end in [found.end() for found in EVENT_END.finditer(text, start)]:
            event = bytes(text[position:end])
            position = end
            self._after_cr = end == len(text) and event.endswith(b"\r")
            self._is_over = _is_usage_only(event)
            if self._is_over:
                break
            passed += event
        del text[:position]
        self._is_over = self._is_over or len(text) > _LONGEST
        return bytes(passed) + (self.rest() if self._is_over else b"")


def _is_usage_only(text: bytes) -> bool:
    if b'"usage"' not in text:
        return False
    event = read_raw(text)
    try:
        chunk: Any = loads(event.data) if event else None
    except ValueError:
        return False
    members = as_mapping(chunk)
    return members.get("choices") == [] and bool(as_mapping(members.get("usage")))

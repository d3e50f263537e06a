"""An answer edited while it streams: whole events go in and out, every other byte stays as it is."""

import re
from typing import Any

from proxy.core.formats.json import as_mapping, loads
from proxy.core.formats.sse import EVENT_END, OVERLAP, read_raw

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


# --- the end of a stream held back until that is true of its record ---


_FINAL = re.compile(rb"[\r\n]data: ?\[DONE\]")
_SPELLINGS = (b"data: [DONE]", b"data:[DONE]")


class FinalEvent:
    """Lets a stream's bytes pass as they come, but for ``data: [DONE]`` and what follows it."""

    def __init__(self) -> None:
        self._before: bytes = b"\n"
        """The last byte that has passed."""
        self._doubtful: bytes = b""
        """The beginning of a line that may become the final one."""
        self._held: bytes = b""

    @property
    def is_here(self) -> bool:
        """Whether the final event has begun."""
        return bool(self._held)

    def feed(self, chunk: bytes) -> bytes:
        """The bytes that may go on to the client, now that this chunk is here."""
        if self._held:
            self._held += chunk
            return b""
        text = self._before + self._doubtful + chunk
        found = _FINAL.search(text)
        held_from = found.start() + 1 if found else len(text) - _undecided(text)
        if found:
            self._held, self._doubtful = text[held_from:], b""
        else:
            self._doubtful = text[held_from:]
        self._before = text[held_from - 1 : held_from]
        return text[1:held_from]

    def rest(self) -> bytes:
        """What is held."""
        held, self._held, self._doubtful = self._held + self._doubtful, b"", b""
        return held


def _undecided(text: bytes) -> int:
    """How many bytes at the end may be the beginning of the final line."""
    line_end = max(text.rfind(b"\n"), text.rfind(b"\r"))
    line = text[line_end + 1 :]
    return len(line) if line_end >= 0 and any(each.startswith(line) for each in _SPELLINGS) else 0

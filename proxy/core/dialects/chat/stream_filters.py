"""An answer edited while it streams: whole events go in and out, every other byte stays as it is."""

import re

from proxy.core.formats.json import elements, members
from proxy.core.formats.sse import RawEvents, read_raw

_LONGEST = 2**20
"""Bytes of a pending event from which nothing is looked for any more."""


class UsageRemover:
    """Takes the usage-only event out of a stream whose client did not ask for it (law 1).

    It is the last event of a stream with ``include_usage``: no choices, and the usage.
    """

    def __init__(self) -> None:
        self._events = RawEvents(_LONGEST)
        self._is_over = False

    def feed(self, chunk: bytes) -> bytes:
        if self._is_over:
            return chunk
        passed: list[bytes] = []
        for event in self._events.feed(chunk):
            if not self._is_over and _is_usage_only(event):
                self._is_over = True
            else:
                passed.append(event)
        self._is_over = self._is_over or self._events.is_too_long
        return b"".join(passed) + (self._events.rest() if self._is_over else b"")

    def rest(self) -> bytes:
        return self._events.rest()


def _is_usage_only(text: bytes) -> bool:
    if b'"usage"' not in text:
        return False
    event = read_raw(text)
    top = (members(event.data) if event else None) or {}
    return elements(top.get("choices", b"")) == [] and bool(members(top.get("usage", b"")))


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
        return bool(self._held)

    def feed(self, chunk: bytes) -> bytes:
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
        held, self._held, self._doubtful = self._held + self._doubtful, b"", b""
        return held


def _undecided(text: bytes) -> int:
    """How many bytes at the end may be the beginning of the final line."""
    line_end = max(text.rfind(b"\n"), text.rfind(b"\r"))
    line = text[line_end + 1 :]
    return len(line) if line_end >= 0 and any(each.startswith(line) for each in _SPELLINGS) else 0

"""Filters for streamed answers that remove or hold back single events; every other byte is unchanged."""

import re

from proxy.core.dialects.chat.completion import reported_error
from proxy.core.dialects.chat.delta import NULL
from proxy.core.formats.json import elements, members
from proxy.core.formats.sse import RawEvents, read_raw

_LONGEST = 2**20
"""Bytes of a pending event beyond which the search is given up."""


class UsageRemover:
    """Removes the usage-only event from a stream whose client did not ask for it (law 1).

    It is the last event of a stream with ``include_usage``: it has the usage, and its choices are an empty
    list, null or missing.
    """

    def __init__(self) -> None:
        self._events = RawEvents(_LONGEST)
        self.has_found = False

    def feed(self, chunk: bytes) -> bytes:
        if self.has_found:
            return chunk
        passed: list[bytes] = []
        for event in self._events.feed(chunk):
            if not self.has_found and _is_usage_only(event):
                self.has_found = True
            else:
                passed.append(event)
        self.has_found = self.has_found or self._events.is_too_long
        return b"".join(passed) + (self._events.rest() if self.has_found else b"")

    def rest(self) -> bytes:
        return self._events.rest()


def _is_usage_only(text: bytes) -> bool:
    if b'"usage"' not in text:
        return False
    event = read_raw(text)
    top = (members(event.data) if event else None) or {}
    has_no_choices = elements(top.get("choices", NULL)) == [] or top.get("choices", NULL) == NULL
    return has_no_choices and bool(members(top.get("usage", NULL))) and reported_error(top) is None


# --- the end of a stream, held back until the answer is recorded ---


_FINAL = re.compile(rb"[\r\n]data: ?\[DONE\]")
_SPELLINGS = (b"data: [DONE]", b"data:[DONE]")


class FinalEvent:
    """Passes a stream's bytes on at once, except ``data: [DONE]`` and what follows it."""

    def __init__(self) -> None:
        self.has_found = False
        self._pending = b"\n"
        """The last byte that has passed, then the held bytes: the final line, or its possible start."""

    def feed(self, chunk: bytes) -> bytes:
        if self.has_found:
            self._pending += chunk
            return b""
        text = self._pending + chunk
        found = _FINAL.search(text)
        held_from = found.start() + 1 if found else len(text)
        if not found:  # the last line may be the beginning of the final one
            line_from = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
            if line_from and any(each.startswith(text[line_from:]) for each in _SPELLINGS):
                held_from = line_from
        self.has_found = found is not None
        self._pending = text[held_from - 1 :]
        return text[1:held_from]

    def rest(self) -> bytes:
        held, self._pending = self._pending[1:], self._pending[:1]
        return held

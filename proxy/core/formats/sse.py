"""Server-Sent Events, read as they arrive.

Keeps the parsing rules of WHATWG HTML, section 9.2.6 "Interpreting an event stream". Only CR, LF and CRLF end
a line: U+2028 and its like occur inside JSON strings and are data. The decoder reads a copy of the stream, so
it may give up where an event grows past its limit; the bytes themselves flow on.

One field more than the standard's is read: llama.cpp wrote errors as `error: {…}` until the end of 2025.
"""

from __future__ import annotations

import re

import msgspec

EVENT_LIMIT = 8 * 1024 * 1024
"""Bytes that one event may have before the decoder gives up."""

BOM = b"\xef\xbb\xbf"
_EVENT_END = re.compile(rb"(?>\r\n|\r|\n){2}")
_OVERLAP = 3
"""Bytes of an event's end that may have come before the rest of it."""
_DATA = b"data: "
_LINE_END = re.compile(rb"\r\n?")


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event: its type ("message" where the stream names none) and its data lines, joined by LF."""

    name: str
    data: bytes


class Decoder:
    """Turns chunks of bytes, cut anywhere, into events.

    Linear in the bytes fed: an unfinished event is kept in one growing buffer, and only new bytes are
    searched.
    """

    __slots__ = ("_after_cr", "_is_started", "_limit", "_pending", "overflowed")

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._pending = bytearray()  # an unfinished event, its line ends already LF
        self._is_started = False
        self._after_cr = False
        self.overflowed = False
        """Whether an event passed the limit. There is no way back: no further event is dispatched."""

    @property
    def is_within_event(self) -> bool:
        """Whether the bytes so far end within an event, so that what is appended would be part of it."""
        return bool(self._pending.strip(b"\n"))

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes and give the events that they complete."""
        if self.overflowed or not chunk:
            return []
        pending = self._pending
        if not self._is_started:
            # One BOM is no part of the stream; wait while the bytes so far may still become one.
            chunk = bytes(pending) + chunk
            if len(chunk) < len(BOM) and BOM.startswith(chunk):
                pending[:] = chunk
                return []
            self._is_started = True
            pending.clear()
            chunk = chunk.removeprefix(BOM)
        if chunk and (self._after_cr or b"\r" in chunk):  # a CR ends its line at once, an LF after it none
            chunk = chunk.removeprefix(b"\n") if self._after_cr else chunk
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        start = max(len(pending) - 1, 0)
        pending += chunk
        end = pending.rfind(b"\n\n", start)
        text = bytes(pending[: max(end, 0)])
        if end >= 0:
            del pending[: end + 2]
        if len(text) + len(pending) > self._limit:
            text = self._within_limit(text)
        return read_events(text) if text else []

    def _within_limit(self, text: bytes) -> bytes:
        """The blocks before the first one that is too long, if any is."""
        position = 0
        for block in (*text.split(b"\n\n"), self._pending):
            if len(block) > self._limit and len(block.strip(b"\n")) > self._limit:
                self.overflowed = True
                self._pending.clear()
                return text[:position]
            position += len(block) + 2
        return text


def read_events(text: bytes) -> list[Event]:
    """Read events, each but the last one ended by a blank line, all lines by LF.

    Nearly every stream has one data line an event and nothing else: seen without a look at each line.
    """
    data = text.removeprefix(_DATA).split(b"\n\n" + _DATA)
    line_ends_between = 2 * (len(data) - 1)
    if text.startswith(_DATA) and text.count(b"\n") == line_ends_between:
        return [Event("message", each) for each in data]
    return [event for block in text.split(b"\n\n") if (event := read_event(block)) is not None]


def read_event(block: bytes) -> Event | None:
    """Read one event's lines, ended by LF. No data line, no event; comments and other fields are skipped."""
    name = b""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ")
        elif field == b"error":
            name = field
            data.append(value.removeprefix(b" "))
    return Event(name.decode("utf-8", "replace") or "message", b"\n".join(data)) if data else None


def read_raw(raw: bytes) -> Event | None:
    """Read one event as it was written, its BOM and line ends included."""
    return read_event(_LINE_END.sub(b"\n", raw.removeprefix(BOM)).strip(b"\n"))


class RawEvents:
    """Cuts a stream's bytes, cut anywhere, into whole events; only new bytes are searched for an end.

    An event that ends with CR at the end of a chunk waits for the next byte, which may be its LF.
    """

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._pending = bytearray()
        self._has_cr = False

    @property
    def is_too_long(self) -> bool:
        """Whether the unfinished event has passed the limit."""
        return len(self._pending) > self._limit

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that these bytes complete."""
        text, position, events = self._pending, 0, list[bytes]()
        start = max(len(text) - _OVERLAP, 0)
        text += chunk
        self._has_cr = self._has_cr or b"\r" in chunk
        if self._has_cr:
            ends = [found.end() for found in _EVENT_END.finditer(text, start)]
        else:  # nearly every stream, several times as fast
            ends, found = list[int](), text.find(b"\n\n", start)
            while found >= 0:
                ends.append(found + 2)
                found = text.find(b"\n\n", found + 2)
        for end in ends:
            if end == len(text) and text.endswith(b"\r"):
                break
            events.append(bytes(text[position:end]))
            position = end
        del text[:position]
        return events

    def rest(self) -> bytes:
        """What is left of an unfinished event."""
        left = bytes(self._pending)
        self._pending.clear()
        return left

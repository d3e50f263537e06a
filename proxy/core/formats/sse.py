"""Server-Sent Events, read as they arrive.

Keeps the parsing rules of WHATWG HTML, section 9.2.6 "Interpreting an event stream". Only CR, LF and CRLF end
a line: U+2028 and the like occur inside JSON strings and are data. The decoder reads a copy of the stream, so
it may give up when an event exceeds its limit; the stream itself goes on.

One non-standard field is read: llama.cpp wrote errors as `error: {…}` until the end of 2025.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8

import msgspec

EVENT_LIMIT = 8 * 1024 * 1024
"""Bytes that one event may have before the decoder gives up."""

_EVENT_END = re.compile(rb"(?>\r\n|\r|\n){2}")
_OVERLAP = 3
"""Bytes of an event's end that may have arrived in an earlier chunk than the last byte."""
_DATA = b"data: "
_LINE_END = re.compile(rb"\r\n?")
_BEGINNINGS = (b"data:", b"event:", b"id:", b"retry:", b"error:", b":")
_LONGEST_BEGINNING = max(map(len, _BEGINNINGS))


class Event(msgspec.Struct, frozen=True, gc=False):
    """An event: its type ("message" where the stream names none) and its data lines, joined by LF."""

    name: str
    data: bytes


class Decoder:
    """Turns chunks of bytes, split anywhere, into events.

    Takes time linear in the bytes fed: an unfinished event is kept in one growing buffer, and only new bytes
    are searched.
    """

    __slots__ = ("_after_cr", "_is_started", "_limit", "_pending", "overflowed")

    def __init__(self, limit: int = EVENT_LIMIT) -> None:
        self._limit = limit
        self._pending = bytearray()  # an unfinished event, its line ends already LF
        self._is_started = False
        self._after_cr = False
        self.overflowed = False
        """Whether an event exceeded the limit; after that no further event is returned."""

    @property
    def is_within_event(self) -> bool:
        """Whether the bytes so far end within an event, so that appended bytes would be part of it."""
        return bool(self._pending.strip(b"\n"))

    def feed(self, chunk: bytes) -> list[Event]:
        """Take the next bytes and return the events that they complete."""
        if self.overflowed or not chunk:
            return []
        pending = self._pending
        if not self._is_started:
            # A leading BOM is not part of the stream; wait while the bytes so far may still become one.
            chunk = bytes(pending) + chunk
            if len(chunk) < len(BOM_UTF8) and BOM_UTF8.startswith(chunk):
                pending[:] = chunk
                return []
            self._is_started = True
            pending.clear()
            chunk = chunk.removeprefix(BOM_UTF8)
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
        """The blocks before the first one that exceeds the limit; all of them if none does."""
        position = 0
        for block in (*text.split(b"\n\n"), self._pending):
            if len(block) > self._limit and len(block.strip(b"\n")) > self._limit:
                self.overflowed = True
                self._pending.clear()
                return text[:position]
            position += len(block) + 2
        return text


def begins_stream(body: bytes | bytearray) -> bool | None:
    """Whether a body whose type does not say so is a stream, by its first bytes; None where these are few."""
    start = bytes(body.removeprefix(BOM_UTF8).lstrip()[:_LONGEST_BEGINNING])
    if start.startswith(_BEGINNINGS):
        return True
    return None if any(each.startswith(start) for each in _BEGINNINGS) else False


def read_events(text: bytes) -> list[Event]:
    """Read events that are separated by blank lines, with lines ended by LF.

    Nearly every stream has one data line per event and nothing else; that case is fast.
    """
    data = text.removeprefix(_DATA).split(b"\n\n" + _DATA)
    line_ends_between = 2 * (len(data) - 1)
    if text.startswith(_DATA) and text.count(b"\n") == line_ends_between:
        return [Event("message", each) for each in data]
    return [event for block in text.split(b"\n\n") if (event := read_event(block)) is not None]


def read_event(block: bytes) -> Event | None:
    """Read one event from lines ended by LF; None without a data line. Other fields are skipped."""
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
    """Read one event from its original bytes, with any line ends and perhaps a BOM."""
    return read_event(_LINE_END.sub(b"\n", raw.removeprefix(BOM_UTF8)).strip(b"\n"))


class RawEvents:
    """Splits a stream's bytes, fed in arbitrary chunks, into whole events; only new bytes are searched.

    An event that ends with CR at the end of a chunk waits for the next byte, which may be its LF.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pending = bytearray()
        self._has_cr = False

    @property
    def is_too_long(self) -> bool:
        """Whether the unfinished event exceeds the limit."""
        return len(self._pending) > self._limit

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes and return the events that they complete, as raw bytes."""
        text, position, events = self._pending, 0, list[bytes]()
        start = max(len(text) - _OVERLAP, 0)
        text += chunk
        self._has_cr = self._has_cr or b"\r" in chunk
        if self._has_cr:
            ends = [found.end() for found in _EVENT_END.finditer(text, start)]
        else:  # the usual case, several times as fast
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
        """Return the bytes of the unfinished event, and forget them."""
        left = bytes(self._pending)
        self._pending.clear()
        return left

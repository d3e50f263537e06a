"""Log lines on their way to standard error: one JSON object each, and as few writes as may be."""

import asyncio
import json
import logging
import sys
from datetime import UTC, datetime
from functools import lru_cache
from typing import TextIO

import msgspec

_PIPED = 4096
"""Bytes that a pipe takes in one piece (Linux): no other worker's lines come between."""


class JSONLines(logging.Formatter):
    """One JSON object a line."""

    _encode = msgspec.json.Encoder(enc_hook=str).encode

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "at": f"{_second(int(record.created))}.{int(record.created % 1 * 1000):03}+00:00",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        fields: dict[str, object] | None = getattr(record, "fields", None)
        if fields is not None:
            line |= fields
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        try:
            return self._encode(line).decode()
        except (UnicodeEncodeError, OverflowError):  # half of a surrogate pair, a number without end
            return json.dumps(line, default=str)


@lru_cache(maxsize=1)
def _second(at: int) -> str:
    """A second since 1970 as ISO 8601 has it; many lines are of the same."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")


class Lines(logging.StreamHandler[TextIO]):
    """Writes the lines of one pass of the event loop at once; what may not wait, immediately."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(JSONLines())
        self._unwritten: list[str] = []
        self._held = 0
        """Bytes in them."""
        self._flushed_by: asyncio.AbstractEventLoop | None = None
        """The loop that is about to write them; one that has ended never does."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
        except Exception:  # noqa: BLE001 - whatever is wrong with a line, logging says so by itself
            self.handleError(record)
            return
        size = len(line.encode())
        if self._held + size > _PIPED:
            self.flush()
        self._unwritten.append(line)
        self._held += size
        loop = _running_loop() if record.levelno < logging.WARNING else None
        if loop is None:
            self.flush()
        elif loop is not self._flushed_by:
            self._flushed_by = loop
            loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is held; logging asks for it at the end of the process, too."""
        self.acquire()
        try:
            lines, self._unwritten, self._held, self._flushed_by = self._unwritten, [], 0, None
            if lines:
                self.stream.write("".join(lines))
                self.stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads standard error any more, or it is closed: there is nowhere to say so
        finally:
            self.release()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None

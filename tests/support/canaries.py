"""A word that must not occur in any log, and the places to look for it."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from proxy.telemetry import JSONLines

CANARY = "canary9f3c"
KEY = f"Bearer sk-{CANARY}"


class Lines(logging.Handler):
    """Collects the lines of our log as they would be written, and those of libraries unless silenced."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JSONLines())
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("proxy") or record.levelno >= logging.WARNING:
            self.lines.append(self.format(record))


@contextmanager
def logged() -> Generator[list[str]]:
    """Collect the log lines of this process in the block."""
    kept, ours, root = Lines(), logging.getLogger("proxy"), logging.getLogger()
    level = ours.level
    ours.setLevel(logging.DEBUG)
    ours.addHandler(kept)
    root.addHandler(kept)
    try:
        yield kept.lines
    finally:
        root.removeHandler(kept)
        ours.removeHandler(kept)
        ours.setLevel(level)

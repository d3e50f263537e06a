"""How long an incomplete request may take: when its sender counts as gone (FAULTS, malformed 20).

A head has `timeout` seconds from its first byte to its end. A body may take as long as it likes while it
makes progress: no silence of `timeout` seconds, and `SLOWEST` bytes a second in each span of that length.
While we are the ones who do not read, no time passes. The clock's time comes in as an argument.
"""

from __future__ import annotations

SLOWEST = 100
"""Bytes a second of a body, below which its sender holds a connection and uploads nothing."""


class Pace:
    """That of one head, or of one body."""

    def __init__(self, timeout: float, *, body: bool) -> None:
        self._timeout = timeout
        self._is_body = body
        self._since = 0.0
        """When this head, or the span of a body that is looked at, began; 0 before its first byte."""
        self._heard = 0.0
        self._came = 0
        """Bytes of the span."""
        self._was_held_back = False
        """Whether we did not read at some time of the span."""

    def heard(self, now: float, size: int, *, held_back: bool) -> None:
        """Bytes have come; `held_back` says that no more will be read for now."""
        self._since = self._since or now
        self._heard = now
        self._came += size
        self._was_held_back = self._was_held_back or held_back

    def is_late(self, now: float, *, held_back: bool) -> bool:
        """Whether time is up; asked at `due`. Begins the next span where it is not."""
        if held_back or self._was_held_back:
            self._since = self._heard = now
            self._came, self._was_held_back = 0, held_back
            return False
        if not self._is_body:
            return now - self._since >= self._timeout
        if now - self._since >= self._timeout:
            if self._came < SLOWEST * self._timeout:
                return True
            self._since, self._came = now, 0
        return now - self._heard >= self._timeout

    @property
    def due(self) -> float:
        """When to ask next."""
        return (min(self._since, self._heard) if self._is_body else self._since) + self._timeout

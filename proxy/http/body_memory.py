"""A ceiling for all request bodies that this process holds at a time (FAULTS, malformed 12 and fault 12).

A body is held from its first byte until its request is over: the turn is recorded from it. Beyond the ceiling
a request hears at once that it should come again, instead of waiting for room.
"""

from __future__ import annotations

from typing import Self

from proxy.errors import Overloaded


class BodyMemory:
    """How many bytes are held, and how many may be."""

    def __init__(self, ceiling: int) -> None:
        self.ceiling = ceiling
        self.held = 0

    def share(self) -> Share:
        """What one request takes; a context manager that gives it back."""
        return Share(self)


class Share:
    """One request's part of the memory."""

    def __init__(self, memory: BodyMemory) -> None:
        self._memory = memory
        self._taken = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.held -= self._taken

    def expect(self, size: int) -> None:
        """Refuse what will not fit before it is read; room is taken as it comes (raises Overloaded)."""
        if self._memory.held + size > self._memory.ceiling:
            raise Overloaded("The proxy holds as many request bodies as it may; try again.")

    def take(self, size: int) -> None:
        """Hold so many bytes more (raises Overloaded)."""
        self.expect(size)
        self._memory.held += size
        self._taken += size

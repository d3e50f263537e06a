"""How many requests of clients are under way at a time in this process, and how large their bodies are.

One that comes when there is no room hears so at once, before its body is read. It is never queued: what waits
here costs memory and time that another worker or machine may have. A body is held from its first byte until
its request is over: the turn is recorded from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from proxy.errors import Overloaded

# --- request bodies ---


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


# --- requests ---


class Admission:
    """Lets requests in, managed and relayed alike; `limit` is the server's own, asked for each time.

    `bodies` is the memory for the bodies of those that are managed.
    """

    def __init__(self, limit: Callable[[], int], bodies: BodyMemory) -> None:
        self._limit = limit
        self.bodies = bodies
        self.under_way = 0

    def admitted(self, limit: int | None = None) -> Self:
        """Room for one request while it lasts; a policy's own `limit` can only be stricter (Overloaded)."""
        allowed = self._limit()
        if self.under_way >= (allowed if limit is None else min(limit, allowed)):
            raise Overloaded("The proxy answers as many requests as it may; try again.")
        return self

    def __enter__(self) -> None:
        self.under_way += 1

    def __exit__(self, *_: object) -> None:
        self.under_way -= 1

"""How many requests of clients are under way at a time in this process (FAULTS, fault 12).

One that comes when there is no room hears so at once, before its body is read. It is never queued: what waits
here costs memory and time that another worker or machine may have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from proxy.errors import Overloaded
from proxy.http.body_memory import BodyMemory


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

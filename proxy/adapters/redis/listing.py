"""The listing of sessions by their last use: one key for all of them, so turns enter it together.

While one trip is on its way, what comes meanwhile waits for the next; so a busy process makes a trip for many
turns, and a quiet one a trip for each.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from proxy.adapters.redis import keys
from proxy.adapters.redis.connection import Connection
from proxy.adapters.redis.scripts import Scripts
from proxy.errors import StoreUnavailable
from proxy.ports import SessionKey

_MOST: Final = 1_000
"""Sessions of one trip: a script's stack holds about 8,000 words."""


@dataclass
class _Group:
    """Sessions that are listed together."""

    used: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds since 1970, by the name in the listing."""
    ttl: int = 0
    """Milliseconds; more than none once there was anything to write."""
    is_written: asyncio.Event = field(default_factory=asyncio.Event)


class Listing:
    """Enters sessions into the listing, behind whoever used them."""

    def __init__(self, connection: Connection, scripts: Scripts) -> None:
        self._connection = connection
        self._scripts = scripts
        self._next = _Group()
        """Collects what is used while the one before it is on its way."""
        self._leaving: _Group | None = None
        self._writing: asyncio.Task[None] | None = None

    def add(self, key: SessionKey, used: float, ttl: int) -> None:
        """A session was used; the listing lives for another ``ttl`` (milliseconds) at least.

        What cannot be written is left: a session's next turn lists it.
        """
        self._next.used[keys.listed(key)] = used
        self._next.ttl = max(self._next.ttl, ttl)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="listing")

    def drop(self, key: SessionKey) -> None:
        """A session is gone."""
        self._next.used.pop(keys.listed(key), None)

    async def written(self) -> None:
        """Return once everything that was used so far is listed, or cannot be."""
        last = self._next if self._next.ttl else self._leaving
        if last is not None:
            await last.is_written.wait()

    async def _write(self) -> None:
        while self._next.ttl:
            group = self._leaving = self._next
            self._next = _Group()
            try:
                await self._write_all(group)
            finally:
                self._leaving = None
                group.is_written.set()

    async def _write_all(self, group: _Group) -> None:
        used = list(group.used.items())
        with suppress(StoreUnavailable):
            for start in range(0, len(used), _MOST):
                async with self._connection.call():
                    await self._scripts.list_used(dict(used[start : start + _MOST]), ttl=group.ttl)

"""The listing of sessions by their last use: one key for all of them, so turns enter it together.

While one trip is on its way, what comes meanwhile waits for the next; so a busy process makes a trip for many
turns, and a quiet one a trip for each.
"""

from __future__ import annotations

import asyncio

from proxy.adapters.redis import keys
from proxy.adapters.redis.connection import Connection
from proxy.errors import StoreUnavailable
from proxy.ports import SessionKey


class Listing:
    """Enters sessions into the listing, behind whoever used them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._used: dict[str, float] = {}
        """Seconds since 1970, by the name in the listing."""
        self._ttl = 0
        self._writing: asyncio.Task[None] | None = None

    def add(self, key: SessionKey, used: float, ttl: int) -> None:
        """A session was used; the listing lives for another ``ttl`` (milliseconds) at least.

        What cannot be written is left: a session's next turn lists it.
        """
        self._used[keys.listed(key)] = used
        self._ttl = max(self._ttl, ttl)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="listing")

    def drop(self, key: SessionKey) -> None:
        """A session is gone."""
        self._used.pop(keys.listed(key), None)

    async def written(self) -> None:
        """Return once everything that was used so far is listed, or cannot be."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        while self._used:
            used, ttl = self._used, self._ttl
            self._used, self._ttl = {}, 0
            try:
                await self._write_all(used, ttl)
            except StoreUnavailable:
                self._used.clear()

    async def _write_all(self, used: dict[str, float], ttl: int) -> None:
        async with self._connection.call() as client, client.pipeline(transaction=False) as pipe:
            pipe.zadd(keys.SESSIONS, used, gt=True)
            pipe.zremrangebyrank(keys.SESSIONS, 0, -keys.LISTED - 1)
            pipe.pexpire(keys.SESSIONS, ttl, nx=True)
            pipe.pexpire(keys.SESSIONS, ttl, gt=True)
            await pipe.execute()

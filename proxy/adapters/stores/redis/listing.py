"""The listing of sessions by their last use: one key for all of them, so turns enter it together.

While one trip is on its way, what comes meanwhile waits for the next; so a busy process makes a trip for many
turns, and a quiet one a trip for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

from proxy.adapters.stores.redis import keys, reading
from proxy.adapters.stores.redis.connection import Connection
from proxy.adapters.stores.redis.scripts import Fields, Scripts
from proxy.errors import StoreUnavailable
from proxy.ports import SessionKey

_MOST: Final = 1_000
"""Sessions of one trip: a script's stack holds about 8,000 words."""


Listed = tuple[SessionKey, Fields, bytes | None]
"""A session, its fields, and whose turn it is in its line."""


@dataclass
class _Group:
    """Sessions that are listed together."""

    used: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds since 1970, by the name in the listing."""
    ttl: int = 0
    """Milliseconds; more than none once there was anything to write."""
    is_written: asyncio.Event = field(default_factory=asyncio.Event)


class Listing:
    """The listing; sessions enter it behind whoever used them."""

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

    async def drop(self, key: SessionKey) -> None:
        """A session was deleted: it is listed no more, and will not be."""
        self._next.used.pop(keys.listed(key), None)
        await self.written()
        await self.remove([key])

    async def written(self) -> None:
        """Return once everything that was used so far is listed, or cannot be."""
        last = self._next if self._next.ttl else self._leaving
        if last is not None:
            await last.is_written.wait()

    async def page(self, start: int, limit: int) -> list[Listed]:
        """The sessions from this place on, those used last first."""
        async with self._connection.call("inspect") as client:
            stop = start + limit - 1
            newest = await client.zrange(keys.SESSIONS, start, stop, desc=True)  # pyright: ignore[reportUnknownMemberType]
            members = cast("list[bytes]", newest)
            listed = [keys.unlisted(member.decode(errors="replace")) for member in members]
            async with client.pipeline(transaction=False) as pipe:
                for key in listed:
                    reading.ask_session(pipe, key)
                answers: list[Any] = await pipe.execute(raise_on_error=False)
        # A key of another type under a session's name is an unreadable session, and no other's fault.
        read: list[Any] = [reading.UNREADABLE if isinstance(each, Exception) else each for each in answers]
        return list(zip(listed, read[::2], read[1::2], strict=True))

    async def remove(self, gone: Sequence[SessionKey]) -> int:
        """Take out sessions that have expired; how many were taken out."""
        if not gone:
            return 0
        async with self._connection.call("inspect") as client:
            return await client.zrem(keys.SESSIONS, *map(keys.listed, gone))

    async def _write(self) -> None:
        while self._next.ttl:
            group = self._leaving = self._next
            self._next = _Group()
            try:
                used = list(group.used.items())
                with suppress(StoreUnavailable):
                    for start in range(0, len(used), _MOST):
                        page = used[start : start + _MOST]
                        entries = (word for member, score in page for word in (score, member))
                        await self._scripts.of_key("list", keys.SESSIONS, group.ttl, keys.LISTED, *entries)
            finally:
                self._leaving = None
                group.is_written.set()

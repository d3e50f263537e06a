"""The listing of sessions by their last use: one key for all of them, so turns enter it together.

While one trip is on its way, what comes meanwhile waits for the next; so a busy process makes a trip for many
turns, and a quiet one a trip for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from proxy.adapters.stores.redis import keys, reading
from proxy.adapters.stores.redis.connection import Connection
from proxy.adapters.stores.redis.scripts import Fields, Scripts
from proxy.errors import StoreUnavailable
from proxy.ports import SessionKey

_MOST: Final = 1_000
"""Sessions of one trip: a script's stack holds about 8,000 words."""


Listed = tuple[SessionKey, Fields, bytes | None]
"""A session, its fields, and whose turn it is in its line."""


class Listing:
    """The listing; sessions enter it behind whoever used them."""

    def __init__(self, connection: Connection, scripts: Scripts) -> None:
        self._connection = connection
        self._scripts = scripts
        self._used: dict[str, float] = {}
        """What waits for the next trip: seconds since 1970, by the name in the listing."""
        self._ttl = 0
        """Milliseconds."""
        self._trip = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    def add(self, key: SessionKey, used: float, ttl: int) -> None:
        """A session was used; the listing lives for another ``ttl`` (milliseconds) at least.

        What cannot be written is left: a session's next turn lists it.
        """
        if not self._used:
            writing = asyncio.create_task(self._write(), name="listing")
            self._writing.add(writing)
            writing.add_done_callback(self._writing.discard)
        self._used[keys.listed(key)] = used
        self._ttl = max(self._ttl, ttl)

    async def _write(self) -> None:
        async with self._trip:
            used, self._used = [*self._used.items()], {}
            ttl, self._ttl = self._ttl, 0
            with suppress(StoreUnavailable):
                for start in range(0, len(used), _MOST):
                    entries = (word for name, at in used[start : start + _MOST] for word in (at, name))
                    await self._scripts.of_key("list", keys.SESSIONS, ttl, keys.LISTED, *entries)

    async def written(self) -> None:
        """Return once everything that was used so far is listed, or cannot be."""
        if self._writing:
            await asyncio.wait(self._writing)

    async def drop(self, key: SessionKey) -> None:
        """A session was deleted: it is listed no more, and will not be."""
        await self.written()
        await self.remove([key])

    async def page(self, start: int, limit: int) -> list[Listed]:
        """The sessions from this place on, those used last first."""
        members: list[bytes] = await self._connection.ask(
            "inspect", "ZRANGE", keys.SESSIONS, start, start + limit - 1, "REV"
        )
        listed = [keys.unlisted(member.decode(errors="replace")) for member in members]
        commands = [command for key in listed for command in reading.session_commands(key)]
        answers = await self._connection.ask_all("inspect", *commands, raises=False)
        # A key of another type under a session's name is an unreadable session, and no other's fault.
        read: list[Any] = [reading.UNREADABLE if isinstance(each, Exception) else each for each in answers]
        return list(zip(listed, read[::2], read[1::2], strict=True))

    async def remove(self, gone: Sequence[SessionKey]) -> int:
        """Take out sessions that have expired; how many were taken out."""
        if not gone:
            return 0
        return await self._connection.ask("inspect", "ZREM", keys.SESSIONS, *map(keys.listed, gone))

"""The listing of all sessions by their last use: one key, which is updated for several turns at once.

Updates that arrive while a trip to the server is under way wait for the next one; so a busy process makes one
trip for many turns, and a quiet one a trip for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Final

from redis.exceptions import AskError, MovedError, TryAgainError

from proxy.adapters.stores.redis import keys, reading
from proxy.adapters.stores.redis.scripts import Fields, Scripts
from proxy.errors import StoreUnavailable
from proxy.ports import SessionKey, UnreadableRecord

_MOVING: Final = (AskError, MovedError, TryAgainError)
"""What a cluster replies while it moves a slot: sessions in it cannot be read for a moment."""
_MOST: Final = 1_000
"""The most sessions in one trip: a script's stack holds about 8,000 words."""
PIECE_SESSIONS: Final = 250
"""The most sessions that are read in one trip: packing and reading them takes some milliseconds."""


Listed = tuple[SessionKey, Fields, bytes | None]
"""A session, its fields, and the first ticket in its queue."""


class Listing:
    """The listing. Sessions are added in the background."""

    def __init__(self, scripts: Scripts) -> None:
        self._connection = scripts.connection
        self._scripts = scripts
        self._used: dict[str, float] = {}
        """What the next trip writes: the last use (seconds since 1970) by the session's member name."""
        self._ttl = 0
        """The lifetime that the next trip gives to the listing, in milliseconds."""
        self._trip = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    def add(self, key: SessionKey, used: float, ttl: int) -> None:
        """Add a session that was used; the listing then lives another ``ttl`` (milliseconds) at least.

        If the store is unavailable, the update is dropped: the session's next turn adds it.
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
        """Return once all updates so far are written, or have failed."""
        if self._writing:
            await asyncio.wait(self._writing)

    async def names(self, start: int, limit: int) -> list[bytes]:
        """Return the names of at most ``limit`` sessions from position ``start`` on, last used first."""
        return await self._connection.ask("inspect", "ZRANGE", keys.SESSIONS, start, start + limit - 1, "REV")

    async def read(self, names: Sequence[bytes]) -> AsyncIterator[list[Listed]]:
        """Yield the sessions of these names, a part with each trip; others have their turn between."""
        for start in range(0, len(names), PIECE_SESSIONS):
            listed = [
                keys.unlisted(name.decode(errors="replace")) for name in names[start : start + PIECE_SESSIONS]
            ]
            commands = [command for key in listed for command in reading.session_commands(key)]
            answers = await self._connection.ask_all("inspect", *commands, raises=False)
            part: list[Listed] = []
            for key, fields, ticket in zip(listed, answers[::2], answers[1::2], strict=True):
                failure = next((each for each in (fields, ticket) if isinstance(each, Exception)), None)
                if failure is None:
                    part.append((key, fields, ticket))
                    continue
                if not isinstance(failure, _MOVING):
                    refusal = self._connection.failed(failure)
                    if not isinstance(refusal, UnreadableRecord):
                        raise refusal from failure
                part.append((key, reading.UNREADABLE, None))
            yield part

    async def remove(self, gone: Sequence[SessionKey]) -> int:
        if not gone:
            return 0
        return await self._connection.ask("inspect", "ZREM", keys.SESSIONS, *map(keys.listed, gone))

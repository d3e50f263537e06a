"""A store that is watched on its way to another: which calls come through, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from proxy.adapters.remembering import TellingStore
from proxy.adapters.through import Through
from proxy.core.plan import Epoch
from proxy.core.records import Turn
from proxy.ports import Found, Lookup, Recorded, SessionKey, Written


class WatchedStore(Through):
    """Counts the look-ups that reach `store`. Before and after each call it gives way `pauses()` times."""

    def __init__(self, store: TellingStore, pauses: Callable[[], int] = lambda: 0) -> None:
        super().__init__(store)
        self._telling = store
        self._pauses = pauses
        self.finds = 0

    @property
    def is_left_alone(self) -> bool:
        return self._telling.is_left_alone

    async def _pause(self) -> None:
        for _ in range(self._pauses()):
            await asyncio.sleep(0)

    async def find(self, lookup: Lookup) -> Found:
        self.finds += 1
        await self._pause()
        found = await super().find(lookup)
        await self._pause()
        return found

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        return (await self.write(key, turn, ttl)).recorded

    async def write(self, key: SessionKey, turn: Turn, ttl: float) -> Written:
        await self._pause()
        written = await self._telling.write(key, turn, ttl)
        await self._pause()
        return written

    async def begin_epoch(self, key: SessionKey, epoch: Epoch, seen: int, ttl: float) -> tuple[Epoch, ...]:
        await self._pause()
        epochs = await super().begin_epoch(key, epoch, seen, ttl)
        await self._pause()
        return epochs

    async def delete(self, key: SessionKey) -> bool:
        await self._pause()
        was_there = await super().delete(key)
        await self._pause()
        return was_there

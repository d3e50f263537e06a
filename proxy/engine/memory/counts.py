"""Count all remembered items for the metrics: in the background, when the metrics are asked for."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from proxy.cache import CacheMemory, Lru
from proxy.core.memory.lifecycle import MODEL, compression_rate
from proxy.core.memory.records import Scope
from proxy.engine.memory.maintenance import Maintenance
from proxy.errors import StoreUnavailable
from proxy.telemetry import Metrics

_MOST = 100_000
"""Most scopes that are counted, those that were changed last."""
_PATIENCE = 1.0
"""Seconds that a scrape waits for the newest count; after that it gets the last one."""
_PAUSE = 10.0
"""Least number of seconds between two counts."""
_SHARE = 20
"""Least pause between two counts, as a multiple of the time that the last one took."""


class _Counted(NamedTuple):
    version: int = 0
    remembered: int = 0
    superseded: int = 0
    archived: int = 0
    compressed: int = 0
    """Archived items that a model has compressed."""
    saved: float = 0.0
    """The sum of the shares of bytes that this compression saved."""


class MemoryCounts:
    """Counts remembered items. A scope is read again only if it has changed.

    ``daily`` gives access to the scopes, the policies and the clock; cached counts count against ``memory``.
    """

    def __init__(self, daily: Maintenance, metrics: Metrics, memory: CacheMemory) -> None:
        self.daily = daily
        self.metrics = metrics
        self._known: Lru[str, _Counted] = Lru(memory)
        """The last count of each scope, by tag."""
        self._task: asyncio.Task[None] | None = None
        self._due = 0.0
        """Monotonic time in seconds from which the next count may begin."""
        self._tell(())  # so that a scrape that gives up before the first count finds the names of the metrics

    async def counted(self) -> None:
        """Bring the metrics up to date, as far as that is possible within a second."""
        if self._task is None or self._task.done():
            if self.daily.writer.clock.monotonic() < self._due:
                return
            self._task = self.daily.background.run(self._count(), is_needed=False)
        await asyncio.wait({self._task}, timeout=_PATIENCE)

    async def _count(self) -> None:
        monotonic, is_on = self.daily.writer.clock.monotonic, self.daily.policies().remembers
        began = monotonic()
        counts = list[_Counted]()
        with suppress(StoreUnavailable):  # then the metrics keep the last count
            for scope in await self.daily.writer.scopes.store.scopes(_MOST) if is_on else ():
                counts.append(await self._of(scope))
            self._tell(counts)
        self._due = monotonic() + max(_PAUSE, _SHARE * (monotonic() - began))

    async def _of(self, scope: Scope) -> _Counted:
        before, store = self._known.get(scope.tag) or _Counted(), self.daily.writer.scopes.store
        news = await store.remembered(scope, before.version)
        if news.version == before.version:
            return before
        # Bypass the scope cache: counting all scopes would evict those that sessions need.
        whole = news if news.is_whole else await store.remembered(scope)
        is_told = [not item.superseded_by for item in whole.items.values() if item is not None]
        archive = (await store.archive(scope)).values()
        compressed = sum(each.compression_method == MODEL for each in archive)
        counted = _Counted(
            version=whole.version,
            remembered=sum(is_told),
            superseded=len(is_told) - sum(is_told),
            archived=len(archive),
            compressed=compressed,
            saved=compressed * compression_rate(archive),
        )
        self._known.put(scope.tag, counted)
        return counted

    def _tell(self, counts: Sequence[_Counted]) -> None:
        archived, compressed = sum(each.archived for each in counts), sum(each.compressed for each in counts)
        items = self.metrics.memory_items
        items.labels("remembered").set(sum(each.remembered for each in counts))
        items.labels("superseded").set(sum(each.superseded for each in counts))
        items.labels("archived").set(archived)
        self.metrics.memory_archive.set(archived)
        self.metrics.memory_compression.set(sum(each.saved for each in counts) / max(compressed, 1))

"""How much is remembered in all, for the metrics: counted when these are asked for, beside the requests."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from proxy.cache import Lru, Memory
from proxy.core.memory.lifecycle import MODEL, compression_rate
from proxy.core.memory.records import Scope
from proxy.engine.memory.maintenance import Maintenance
from proxy.errors import StoreUnavailable
from proxy.telemetry import Metrics

_MOST = 100_000
"""Scopes that are counted, those that were changed last."""
_PATIENCE = 1.0
"""Seconds that whoever asks waits for the newest count; else the last one is told."""
_PAUSE = 10.0
"""Seconds between two counts, at least;"""
_SHARE = 20
"""and so many times what the last one took."""


class _Counted(NamedTuple):
    """What there is in one scope, or in all."""

    version: int = 0
    remembered: int = 0
    superseded: int = 0
    archived: int = 0
    compressed: int = 0
    """Of the archived ones, those that a model has compressed."""
    saved: float = 0.0
    """The sum of what that saved of each, as shares."""


@dataclass
class MemoryCounts:
    """Counts what is remembered. A scope is read again only where it has changed."""

    daily: Maintenance
    """Which keeps what is counted."""
    metrics: Metrics
    memory: Memory
    """Where the counts of scopes are kept that have not changed."""
    _task: asyncio.Task[None] | None = None
    _due: float = 0.0
    """From when on it is counted again; monotonic seconds."""

    def __post_init__(self) -> None:
        self._tell(())  # whoever asks first, and is not answered in time, finds the names

    @cached_property
    def _known(self) -> Lru[str, _Counted]:
        """By tag."""
        return Lru(self.memory)

    async def counted(self) -> None:
        """Have the metrics say how much is remembered now, as far as that is known at once."""
        if self._task is None or self._task.done():
            if self.daily.writer.clock.monotonic() < self._due:
                return
            self._task = self.daily.background.run(self._count(), is_needed=False)
        await asyncio.wait({self._task}, timeout=_PATIENCE)

    async def _count(self) -> None:
        monotonic, policies = self.daily.writer.clock.monotonic, self.daily.policies()
        began = monotonic()
        is_on = any(each.memory.enabled for each in (policies.default, *policies.by_name.values()))
        counts = list[_Counted]()
        with suppress(StoreUnavailable):  # then what was counted last is told
            for scope in await self.daily.writer.scopes.store.scopes(_MOST) if is_on else ():
                counts.append(await self._of(scope))
            self._tell(counts)
        self._due = self.daily.writer.clock.monotonic() + max(
            _PAUSE, _SHARE * (self.daily.writer.clock.monotonic() - began)
        )

    async def _of(self, scope: Scope) -> _Counted:
        before, store = self._known.get(scope.tag) or _Counted(), self.daily.writer.scopes.store
        news = await store.remembered(scope, before.version)
        if news.version == before.version:
            return before
        # Past the cached scopes: a count of all would push those out that sessions need.
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

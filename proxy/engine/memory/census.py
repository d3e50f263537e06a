"""How much is remembered in all, for the metrics: counted when these are asked for, beside the requests."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.core.memory.archive import MODEL, compression_rate
from proxy.core.memory.records import Scope
from proxy.engine.memory.daily import DailyRun
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
class Census:
    """Counts what is remembered. A scope is read again only where it has changed."""

    daily: DailyRun
    """Which keeps what is counted."""
    metrics: Metrics
    _known: dict[str, _Counted] = field(default_factory=dict[str, _Counted])
    """By tag."""
    _task: asyncio.Task[None] | None = None
    _due: float = 0.0
    """From when on it is counted again; monotonic seconds."""

    async def counted(self) -> None:
        """Have the metrics say how much is remembered now, as far as that is known at once."""
        if self._task is None or self._task.done():
            if self.daily.runs.clock.monotonic() < self._due:
                return
            self._task = self.daily.background.run(self._count(), is_needed=False)
        await asyncio.wait({self._task}, timeout=_PATIENCE)

    async def _count(self) -> None:
        monotonic, policies = self.daily.runs.clock.monotonic, self.daily.policies()
        began = monotonic()
        is_on = any(each.memory.enabled for each in (policies.default, *policies.by_name.values()))
        known = dict[str, _Counted]()
        with suppress(StoreUnavailable):  # then what was counted last is told
            for scope in await self.daily.runs.scopes.store.scopes(_MOST) if is_on else ():
                known[scope.tag] = await self._of(scope)
            self._known = known
            self._tell()
        self._due = self.daily.runs.clock.monotonic() + max(
            _PAUSE, _SHARE * (self.daily.runs.clock.monotonic() - began)
        )

    async def _of(self, scope: Scope) -> _Counted:
        before, scopes = self._known.get(scope.tag, _Counted()), self.daily.runs.scopes
        news = await scopes.store.remembered(scope, before.version)
        if news.version == before.version:
            return before
        copy = await scopes.remembered(scope)
        archive = (await scopes.store.archive(scope)).values()
        compressed = sum(each.compression_method == MODEL for each in archive)
        return _Counted(
            version=news.version,
            remembered=len(copy.told),
            superseded=len(copy.items) - len(copy.told),
            archived=len(archive),
            compressed=compressed,
            saved=compressed * compression_rate(archive),
        )

    def _tell(self) -> None:
        counts = self._known.values()
        archived, compressed = sum(each.archived for each in counts), sum(each.compressed for each in counts)
        items = self.metrics.memory_items
        items.labels("remembered").set(sum(each.remembered for each in counts))
        items.labels("superseded").set(sum(each.superseded for each in counts))
        items.labels("archived").set(archived)
        self.metrics.memory_archive.set(archived)
        self.metrics.memory_compression.set(sum(each.saved for each in counts) / max(compressed, 1))

"""The engine's outside dependencies, for tests of what happens before anything is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.files.watcher import LoadedPolicies, WatchedPolicies
from proxy.adapters.search import SqliteSearch
from proxy.adapters.stores.in_process import InProcessStore
from proxy.app import Dependencies, SystemClock
from proxy.cache import CacheMemory
from proxy.errors import UpstreamUnreachable
from proxy.ports import TokenCounter, Upstream, UpstreamResponse
from proxy.telemetry import Metrics


class NoUpstream:
    """An upstream that cannot be reached."""

    async def send(
        self,
        method: str,
        target: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes | AsyncIterator[bytes] | None,
        *,
        at_root: bool = False,
    ) -> UpstreamResponse:
        raise UpstreamUnreachable

    async def aclose(self) -> None:
        """Nothing is open."""


def outside(counter: TokenCounter, upstream: Upstream | None = None) -> Dependencies:
    """Return outside dependencies; without an ``upstream`` none can be reached."""
    clock, metrics, memory = SystemClock(), Metrics(), CacheMemory()
    return Dependencies(
        memory=memory,
        learned_memory=memory,
        clock=clock,
        metrics=metrics,
        store=InProcessStore(clock),
        upstream=upstream or NoUpstream(),
        counter=counter,
        search=SqliteSearch(),
        policies=WatchedPolicies(LoadedPolicies.load(PolicyLibrary(), "default"), metrics),
    )

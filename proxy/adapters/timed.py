"""A store whose calls are timed: ``unabridged_store_seconds{op}``, whichever store it is.

What is known without asking it is no call.
"""

from collections.abc import Sequence
from time import perf_counter

from proxy.core.plan import Epoch
from proxy.core.records import HiddenCalls, Node, Session, Turn
from proxy.ports import Found, Lookup, Mark, Recorded, SessionKey, SessionStore, Standing, Stored
from proxy.telemetry import Metrics


class TimedStore:
    """Passes every call on to ``store``. What every turn calls does without a timer object."""

    def __init__(self, store: SessionStore, metrics: Metrics) -> None:
        self._store = store
        self._find = metrics.store.labels(op="find")
        self._begin_epoch = metrics.store.labels(op="begin_epoch")
        self._record = metrics.store.labels(op="record")
        self._history = metrics.store.labels(op="history")
        self._line = metrics.store.labels(op="line")
        self._summaries = metrics.store.labels(op="summaries")
        self._claim = metrics.store.labels(op="claim")
        self._keep_summary = metrics.store.labels(op="keep_summary")
        self._inspect = metrics.store.labels(op="inspect")
        self._move = metrics.store.labels(op="move")
        self._ping = metrics.store.labels(op="ping")

    def known(self, lookup: Lookup) -> Found | None:
        return self._store.known(lookup)

    async def find(self, lookup: Lookup) -> Found:
        began = perf_counter()
        try:
            return await self._store.find(lookup)
        finally:
            self._find.observe(perf_counter() - began)

    async def begin_epoch(self, key: SessionKey, epoch: Epoch, seen: int, ttl: float) -> tuple[Epoch, ...]:
        with self._begin_epoch.time():
            return await self._store.begin_epoch(key, epoch, seen, ttl)

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        began = perf_counter()
        try:
            return await self._store.record(key, turn, ttl)
        finally:
            self._record.observe(perf_counter() - began)

    async def pin(self, key: SessionKey, hashes: Sequence[bytes], ttl: float) -> None:
        with self._record.time():
            await self._store.pin(key, hashes, ttl)

    async def keep_hidden(
        self, key: SessionKey, hidden: HiddenCalls, ttl: float, *, begins: bool = False
    ) -> bool:
        with self._record.time():
            return await self._store.keep_hidden(key, hidden, ttl, begins=begins)

    async def hidden(self, key: SessionKey) -> tuple[HiddenCalls, ...]:
        with self._inspect.time():
            return await self._store.hidden(key)

    async def inject(self, key: SessionKey, digest: bytes, injection: bytes, ttl: float) -> bytes:
        with self._record.time():
            return await self._store.inject(key, digest, injection, ttl)

    async def injection(self, key: SessionKey) -> bytes | None:
        with self._inspect.time():
            return await self._store.injection(key)

    async def history(self, key: SessionKey, since: Mark | None = None) -> Stored:
        with self._history.time():
            return await self._store.history(key, since)

    async def delete(self, key: SessionKey) -> bool:
        with self._inspect.time():
            return await self._store.delete(key)

    async def move(self, former: str, tag: str, tenant: str) -> bool:
        with self._move.time():
            return await self._store.move(former, tag, tenant)

    async def pause(self, key: SessionKey, *, paused: bool) -> bool:
        with self._inspect.time():
            return await self._store.pause(key, paused=paused)

    async def mark_unsaved(self, key: SessionKey, answer: bytes) -> None:
        with self._record.time():
            await self._store.mark_unsaved(key, answer)

    async def stand(self, key: SessionKey, ticket: str, most: int, lease: float) -> Standing:
        with self._line.time():
            return await self._store.stand(key, ticket, most, lease)

    async def renew_lease(self, key: SessionKey, ticket: str, lease: float) -> None:
        with self._line.time():
            await self._store.renew_lease(key, ticket, lease)

    async def leave(self, key: SessionKey, ticket: str) -> None:
        with self._line.time():
            await self._store.leave(key, ticket)

    async def summaries(self, key: SessionKey, addresses: Sequence[str]) -> dict[str, str]:
        with self._summaries.time():
            return await self._store.summaries(key, addresses)

    async def claim(self, key: SessionKey, address: str, token: str, lease: float) -> bool:
        with self._claim.time():
            return await self._store.claim(key, address, token, lease)

    async def release(self, key: SessionKey, address: str, token: str) -> None:
        with self._claim.time():
            await self._store.release(key, address, token)

    async def keep_summary(
        self, key: SessionKey, address: str, text: str, ttl: float, token: str = ""
    ) -> bool:
        with self._keep_summary.time():
            return await self._store.keep_summary(key, address, text, ttl, token)

    async def session(self, key: SessionKey) -> Session | None:
        with self._inspect.time():
            return await self._store.session(key)

    async def sessions(self, limit: int) -> list[tuple[SessionKey, Session]]:
        with self._inspect.time():
            return await self._store.sessions(limit)

    async def nodes(self, key: SessionKey) -> dict[bytes, Node]:
        with self._inspect.time():
            return await self._store.nodes(key)

    async def epochs(self, key: SessionKey, lane: str) -> tuple[Epoch, ...]:
        with self._inspect.time():
            return await self._store.epochs(key, lane)

    async def lanes(self, key: SessionKey) -> tuple[str, ...]:
        with self._inspect.time():
            return await self._store.lanes(key)

    async def knows_secret(self) -> bool:
        with self._ping.time():
            return await self._store.knows_secret()

    async def ping(self) -> None:
        with self._ping.time():
            await self._store.ping()

    async def aclose(self) -> None:
        await self._store.aclose()

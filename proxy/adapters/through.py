"""A store that passes every call on to another: what stores begin with that do a few calls otherwise."""

from collections.abc import Sequence

from proxy.core.plan import Epoch
from proxy.core.records import HiddenCalls, Node, Session, Turn
from proxy.ports import Found, Lookup, Mark, Recorded, SessionKey, SessionStore, Standing, Stored


class Through:
    """Passes every call on to ``store``."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store

    def known(self, lookup: Lookup) -> Found | None:
        return self._store.known(lookup)

    async def find(self, lookup: Lookup) -> Found:
        return await self._store.find(lookup)

    async def begin_epoch(self, key: SessionKey, epoch: Epoch, seen: int, ttl: float) -> tuple[Epoch, ...]:
        return await self._store.begin_epoch(key, epoch, seen, ttl)

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        return await self._store.record(key, turn, ttl)

    async def pin(self, key: SessionKey, hashes: Sequence[bytes], ttl: float) -> None:
        await self._store.pin(key, hashes, ttl)

    async def keep_hidden(
        self, key: SessionKey, hidden: HiddenCalls, ttl: float, *, begins: bool = False
    ) -> bool:
        return await self._store.keep_hidden(key, hidden, ttl, begins=begins)

    async def hidden(self, key: SessionKey) -> tuple[HiddenCalls, ...]:
        return await self._store.hidden(key)

    async def inject(self, key: SessionKey, digest: bytes, injection: bytes, ttl: float) -> bytes:
        return await self._store.inject(key, digest, injection, ttl)

    async def injection(self, key: SessionKey) -> bytes | None:
        return await self._store.injection(key)

    async def history(self, key: SessionKey, since: Mark | None = None) -> Stored:
        return await self._store.history(key, since)

    async def delete(self, key: SessionKey) -> bool:
        return await self._store.delete(key)

    async def move(self, former: str, tag: str, tenant: str) -> bool:
        return await self._store.move(former, tag, tenant)

    async def pause(self, key: SessionKey, *, paused: bool) -> bool:
        return await self._store.pause(key, paused=paused)

    async def mark_unsaved(self, key: SessionKey, answer: bytes) -> None:
        await self._store.mark_unsaved(key, answer)

    async def stand(self, key: SessionKey, ticket: str, most: int, lease: float) -> Standing:
        return await self._store.stand(key, ticket, most, lease)

    async def renew_lease(self, key: SessionKey, ticket: str, lease: float) -> None:
        await self._store.renew_lease(key, ticket, lease)

    async def leave(self, key: SessionKey, ticket: str) -> None:
        await self._store.leave(key, ticket)

    async def summaries(self, key: SessionKey, addresses: Sequence[str]) -> dict[str, str]:
        return await self._store.summaries(key, addresses)

    async def claim(self, key: SessionKey, address: str, token: str, lease: float) -> bool:
        return await self._store.claim(key, address, token, lease)

    async def release(self, key: SessionKey, address: str, token: str) -> None:
        await self._store.release(key, address, token)

    async def keep_summary(
        self, key: SessionKey, address: str, text: str, ttl: float, token: str = ""
    ) -> bool:
        return await self._store.keep_summary(key, address, text, ttl, token)

    async def session(self, key: SessionKey) -> Session | None:
        return await self._store.session(key)

    async def sessions(self, limit: int) -> list[tuple[SessionKey, Session]]:
        return await self._store.sessions(limit)

    async def nodes(self, key: SessionKey) -> dict[bytes, Node]:
        return await self._store.nodes(key)

    async def epochs(self, key: SessionKey, lane: str) -> tuple[Epoch, ...]:
        return await self._store.epochs(key, lane)

    async def lanes(self, key: SessionKey) -> tuple[str, ...]:
        return await self._store.lanes(key)

    async def knows_secret(self) -> bool:
        return await self._store.knows_secret()

    async def ping(self) -> None:
        await self._store.ping()

    async def aclose(self) -> None:
        await self._store.aclose()

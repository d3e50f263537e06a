"""What callers hand in: read with the session, written before the request that brings it is forwarded.

The first that a session is given is its own for good (law 3): another worker reads it with the session's one
look-up, and only where it does not hold it already. Keeps law 6 (isolated): it lives under the session's key.
And law 7: while it cannot be written it holds in this process, and the answer says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.injection import Injection
from proxy.engine.recognition import Recognised
from proxy.errors import StoreUnavailable
from proxy.lru import Lru, Memory
from proxy.ports import SessionKey, SessionStore


@dataclass(frozen=True, slots=True)
class _Held:
    injection: Injection
    is_saved: bool


class Injections:
    """The injections of the sessions that this process has seen last."""

    def __init__(self, store: SessionStore, memory: Memory) -> None:
        self._store = store
        self._held: Lru[SessionKey, _Held] = Lru(memory, _size)

    def digest(self, key: SessionKey) -> bytes:
        """Digest of a session's injection; empty where none is held."""
        held = self._held.get(key)
        return held.injection.digest if held else b""

    async def settle(
        self, recognised: Recognised, asked: Injection | None, ttl: float
    ) -> tuple[Injection | None, tuple[str, ...]]:
        """The injection of a session, given what a request hands in; and what is degraded.

        Nobody waits for anything where the session has one, or is given none.
        """
        held = await self._standing(recognised)
        injection = held.injection if held else asked
        if injection is None:
            return None, ()
        if held is None or not held.is_saved:
            held = await self._saved(recognised.key, injection, ttl)
        self._held.put(recognised.key, held)
        degraded: list[str] = [] if held.is_saved else ["inject-not-saved"]
        if asked is not None and asked != held.injection:
            degraded.append("inject-ignored")
        return held.injection, tuple(degraded)

    async def _standing(self, recognised: Recognised) -> _Held | None:
        """What a session has by now: as the store says or, while that is away, as this process knows."""
        key, found = recognised.key, recognised.found
        held = self._held.get(key)
        if found.injected:
            if held is not None and held.injection.digest == found.injected:
                return _Held(held.injection, is_saved=True)
            raw = found.injection if found.injection is not None else await self._read(key)
            return _Held(Injection(raw), is_saved=True) if raw is not None else None
        if held is None or recognised.is_store_away:
            return held
        if found.was_here or (held.is_saved and found.sid is not None):
            self.forget(key)  # what ended there, or began anew, has ended here
            return None
        return _Held(held.injection, is_saved=False)  # a store that has lost it gets it back

    async def _read(self, key: SessionKey) -> bytes | None:
        """What this process held when the store was asked, and has let go of since."""
        try:
            return await self._store.injection(key)
        except StoreUnavailable:
            return None

    async def _saved(self, key: SessionKey, injection: Injection, ttl: float) -> _Held:
        """Write one that is new; where another was first, it is that one."""
        self._held.put(key, _Held(injection, is_saved=False))
        try:
            raw = await self._store.inject(key, injection.digest, injection.raw, ttl)
        except StoreUnavailable:
            return _Held(injection, is_saved=False)
        return _Held(injection if raw == injection.raw else Injection(raw), is_saved=True)

    def forget(self, key: SessionKey) -> None:
        """The session was deleted."""
        self._held.drop(key)


def _size(held: _Held) -> int:
    return 3 * len(held.injection.raw)  # also as results, and as messages

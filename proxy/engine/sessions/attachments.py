"""What is attached to a session: pinned messages, injections, and memory told at its start.

All of it is read with the session's one look-up, and written before the request that brings it is forwarded;
the first injection is the session's own for good (law 3). Keeps law 6 (isolated): it is stored under the
session's key, and a pin is a chain hash in that session. Keeps law 7: what cannot be written holds in this
process, and the answer says so.
"""

from collections.abc import Awaitable, Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from proxy.core.conversation.extension import MEMBER, Injection
from proxy.engine.sessions.session_cache import CachedInjection, SessionCache, SessionState
from proxy.errors import InvalidValue, StoreUnavailable
from proxy.ports import TurnStore

MAX_PINS = 1_000
"""Most pins of one session: each of its requests reads them all."""
ReadMemory = Callable[[], Awaitable[str]]
"""Returns what is remembered, as a text; never raises."""


@dataclass(frozen=True)
class Attachments:
    """Determines what is attached to a request's session, without waiting where nothing is new."""

    store: TurnStore
    cache: SessionCache

    async def pins(
        self, session: SessionState, wanted: AbstractSet[bytes], ttl: float
    ) -> tuple[AbstractSet[bytes], tuple[str, ...]]:
        """Return all pins of a session, including those ``wanted`` by a request, and what is degraded.

        Raises InvalidValue where there are too many.
        """
        found, cached = session.found, session.cached
        stored = frozenset(found.session.pins if found.session else ())
        unsaved = frozenset[bytes]() if found.has_ended else cached.pins
        missing = (unsaved | wanted) - stored
        if not missing:
            cached.pins = missing
            return stored, ()
        if len(stored) + len(missing) > MAX_PINS:
            raise InvalidValue(f"A session has at most {MAX_PINS} pins.", param=f"{MEMBER}.pin")
        cached.pins = missing
        self.cache.keep(session.key, cached)
        try:
            await self.store.pin(session.key, sorted(missing), ttl)
        except StoreUnavailable:
            return stored | missing, ("pins-not-saved",)
        return stored | missing, ()

    async def injection(
        self, session: SessionState, wanted: Injection | None, ttl: float, memory: ReadMemory | None = None
    ) -> tuple[Injection | None, tuple[str, ...]]:
        """Return the session's injection, given the one ``wanted`` by a request, and what is degraded.

        ``memory`` returns what other sessions remember; it is called once, when the session begins.
        """
        held = await self._current(session)
        injection, after = held.injection if held is not None else wanted, b""
        if held is None and memory is not None and session.found.session is None:
            injection = Injection.combined(await memory(), wanted)
        elif held is not None and wanted is not None and held.injection.injected is None:
            injection, after = Injection.combined(held.injection.memory, wanted), held.injection.digest
        if injection is not None and (held is None or not held.is_saved or after):
            session.cached.injection = CachedInjection(injection, is_saved=False)
            try:
                raw = await self.store.inject(session.key, injection.digest, injection.raw, ttl, after=after)
            except StoreUnavailable:
                held = session.cached.injection
            else:  # the one that was stored first counts
                held = CachedInjection(injection if raw == injection.raw else Injection(raw), is_saved=True)
        if held is None:
            return None, ()
        if held is not session.cached.injection:
            session.cached.injection = held
            self.cache.keep(session.key, session.cached)
        injection = held.injection
        is_injected = bool(injection.memory) or injection.injected is not None
        degraded: list[str] = [] if held.is_saved or not is_injected else ["inject-not-saved"]
        if wanted is not None and wanted != injection.injected:
            degraded.append("inject-ignored")
        return injection if is_injected else None, tuple(degraded)

    async def _current(self, session: SessionState) -> CachedInjection | None:
        """Return the session's current injection, from the store or, if that is away, from this process."""
        held, found = session.cached.injection, session.found
        if found.injected:
            if held is not None and held.injection.digest == found.injected:
                return held if held.is_saved else CachedInjection(held.injection, is_saved=True)
            raw = found.injection
            if raw is None:  # this process held it when the store was asked, and has dropped it since
                try:
                    raw = await self.store.injection(session.key)
                except StoreUnavailable:
                    return None
            return CachedInjection(Injection(raw), is_saved=True) if raw is not None else None
        if held is None or session.is_store_away:
            return held
        if found.has_ended or (held.is_saved and found.sid is not None):
            session.cached.injection = None  # the session ended or began again in the store, so it ends here
            return None
        return CachedInjection(held.injection, is_saved=False)  # to be written again: the store has lost it

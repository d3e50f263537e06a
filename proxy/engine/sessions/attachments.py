"""What is attached to a session: pins, what a caller handed in, and what stands upstream for answers.

All of it is read with the session's one look-up. Pins and what is handed in are written before the request
that brings them is forwarded; the first that is handed in is the session's own for good (law 3). Keeps law 6
(isolated): it lives under the session's key, and a pin is a chain hash in its own session. And law 7: what
cannot be written holds in this process, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from proxy.cache import Lru, Memory
from proxy.core.conversation.injection import Injection
from proxy.core.conversation.records import HiddenCalls
from proxy.core.dialects.chat.extension import MEMBER
from proxy.engine.flow import SessionState
from proxy.errors import InvalidValue, StoreUnavailable
from proxy.ports import Found, SessionKey, TurnStore

MOST = 1_000
"""Pins of one session: each of its requests reads them all."""
_NONE: frozenset[bytes] = frozenset()
_PIN_BYTES = 128
"""What a pin is reckoned at."""


class Pins:
    """The pins of all sessions of this process."""

    def __init__(self, store: TurnStore, memory: Memory) -> None:
        self._store = store
        self._held: Lru[SessionKey, frozenset[bytes]] = Lru(memory, lambda pins: _PIN_BYTES * len(pins))
        """Pins that were set here and have not been read back yet."""

    async def settle(
        self, session: SessionState, asked: AbstractSet[bytes], ttl: float
    ) -> tuple[frozenset[bytes], tuple[str, ...]]:
        """All pins of a session, those that a request asks for among them; and what is degraded.

        Nobody waits for anything where none are new. Raises InvalidValue where there are too many.
        """
        found, key = session.found, session.key
        stored = frozenset(found.session.pins) if found.session and found.session.pins else _NONE
        held = _NONE if found.was_here else self._held.get(key) or _NONE
        missing = (held | asked) - stored
        if not missing:
            self._held.drop(key)
            return stored, ()
        pins = stored | missing
        if len(pins) > MOST:
            raise InvalidValue(f"A session has at most {MOST} pins.", param=f"{MEMBER}.pin")
        self._held.put(key, missing)
        try:
            await self._store.pin(key, sorted(missing), ttl)
        except StoreUnavailable:
            return pins, ("pins-not-saved",)
        return pins, ()

    def forget(self, key: SessionKey) -> None:
        """The session was deleted."""
        self._held.drop(key)


# --- what callers hand in ---


@dataclass(frozen=True, slots=True)
class _Held:
    injection: Injection
    is_saved: bool


class Injections:
    """The injections of the sessions that this process has seen last."""

    def __init__(self, store: TurnStore, memory: Memory) -> None:
        self._store = store
        self._held: Lru[SessionKey, _Held] = Lru(memory, _size)

    def digest(self, key: SessionKey) -> bytes:
        """Digest of a session's injection; empty where none is held."""
        held = self._held.get(key)
        return held.injection.digest if held else b""

    async def settle(
        self, session: SessionState, asked: Injection | None, ttl: float
    ) -> tuple[Injection | None, tuple[str, ...]]:
        """The injection of a session, given what a request hands in; and what is degraded.

        Nobody waits for anything where the session has one, or is given none.
        """
        held = await self._standing(session)
        injection = held.injection if held else asked
        if injection is None:
            return None, ()
        if held is None or not held.is_saved:
            held = await self._saved(session.key, injection, ttl)
        self._held.put(session.key, held)
        degraded: list[str] = [] if held.is_saved else ["inject-not-saved"]
        if asked is not None and asked != held.injection:
            degraded.append("inject-ignored")
        return held.injection, tuple(degraded)

    async def _standing(self, session: SessionState) -> _Held | None:
        """What a session has by now: as the store says or, while that is away, as this process knows."""
        key, found = session.key, session.found
        held = self._held.get(key)
        if found.injected:
            if held is not None and held.injection.digest == found.injected:
                return _Held(held.injection, is_saved=True)
            raw = found.injection if found.injection is not None else await self._read(key)
            return _Held(Injection(raw), is_saved=True) if raw is not None else None
        if held is None or session.is_store_away:
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


# --- answers in which calls were hidden ---


_ANSWER_BYTES = 512
"""What an answer is reckoned at beside the messages that stand for it."""
_ByHash = dict[bytes, HiddenCalls]


@dataclass
class _Known:
    stored: _ByHash = field(default_factory=_ByHash)
    """As the store holds them, in its order: they count."""
    given: _ByHash = field(default_factory=_ByHash)
    """As this process gave them, whether or not the store has them."""


class HiddenCallCache:
    """The answers with hidden calls of the sessions used last."""

    def __init__(self, memory: Memory) -> None:
        self._known: Lru[SessionKey, _Known] = Lru(memory, _hidden_weight)

    def seen(self, key: SessionKey) -> int:
        """How many of those that the store holds are known here."""
        known = self._known.get(key)
        return len(known.stored) if known else 0

    def add(self, key: SessionKey, hidden: HiddenCalls) -> None:
        """An answer is being given; what stands for the same words already goes on to do so."""
        known = self._known.get(key) or _Known()
        known.given.setdefault(hidden.hash, hidden)
        self._known.put(key, known)

    def known(self, key: SessionKey, found: Found | None, *, is_whole: bool) -> Mapping[bytes, HiddenCalls]:
        """All of a session's, by chain hash, with those that the store has just told.

        ``is_whole`` says that it was asked for all of them.
        """
        known = self._known.get(key)
        if found is None:
            return {**known.given, **known.stored} if known else {}
        if known is None and not found.hidden:
            return {}
        if known is None or found.was_here:  # what ended there has ended here
            known = _Known()
        told = {each.hash: each for each in found.hidden}
        if found.sid != key.sid:
            known.given, known.stored = {**known.given, **known.stored}, told
        elif not is_whole:
            known.stored = {**known.stored, **told}
        elif len(told) >= len(known.stored):
            known.stored = told
        if not (known.stored or known.given):
            self._known.drop(key)
        elif told or found.sid != key.sid or found.was_here:
            known.given = {each: given for each, given in known.given.items() if each not in known.stored}
            self._known.put(key, known)
        return {**known.given, **known.stored}

    def forget(self, key: SessionKey) -> None:
        """The session was deleted."""
        self._known.drop(key)


def _hidden_weight(known: _Known) -> int:
    hidden = (*known.given.values(), *known.stored.values())
    return sum(_ANSWER_BYTES + sum(map(len, each.messages)) for each in hidden)

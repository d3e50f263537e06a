"""A store in front of another that this process alone writes to: what it knows for sure, it answers itself.

There what was read of a session, and what was written to it since, is the session, and its next turn needs no
trip. Whatever is not known for sure is asked of the store. Sessions are known whole, by the counts of all
their messages, from their first turn on where that one named them; of epochs and hidden calls it is known how
many there are, and who has them is told of none. So no plan can be missed: nobody else has begun one (law 3).

Every write goes to the store. A turn's reply tells the session as it is then, and the number of turns that
were written to it: where that is not the next one, nothing of the session is known any more. After a write
that ended badly nobody knows what it did, and after a fault another store may come back than went: then
nothing at all is known.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import WeakValueDictionary

from msgspec.structs import replace

from proxy.adapters.known_session import KnownSession, Traffic
from proxy.adapters.through import Through
from proxy.core.plan import Epoch
from proxy.core.records import HiddenCalls, Turn
from proxy.errors import StoreUnavailable
from proxy.lru import Lru, Memory
from proxy.ports import Clock, Found, Lookup, Mark, Recorded, SessionKey, SessionStore, Stored, Written

_EARLIER: Final = 1.0
"""Seconds before a session's end from which on it is asked for: the store's clock counts."""


class TellingStore(SessionStore, Protocol):
    """A store that tells what a write has made of a session."""

    @property
    def is_left_alone(self) -> bool:
        """Whether it is left alone for a while, after a fault."""
        ...

    async def write(self, key: SessionKey, turn: Turn, ttl: float) -> Written:
        """Record a turn."""
        ...


@dataclass(slots=True)
class _Writing:
    """A write to a session, from its beginning to its end."""

    traffic: Traffic
    key: SessionKey
    ended_badly: Callable[[SessionKey, BaseException], None]

    def __enter__(self) -> Traffic:
        self.traffic.writes += 1
        self.traffic.moves += 1
        return self.traffic

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self.traffic.writes -= 1
        self.traffic.moves += 1
        if error is not None:
            self.ended_badly(self.key, error)


class RememberingStore(Through):
    """In front of ``store``, to which nobody else writes. Remembers those sessions that were used last."""

    def __init__(self, store: TellingStore, clock: Clock, memory: Memory) -> None:
        super().__init__(store)
        self._telling = store
        self._clock = clock
        self._known: Lru[SessionKey, KnownSession] = Lru(memory, KnownSession.weigh)
        self._traffic: WeakValueDictionary[SessionKey, Traffic] = WeakValueDictionary()

    def known(self, lookup: Lookup) -> Found | None:
        """The session, its epochs and counts, where they are known for sure."""
        if self._telling.is_left_alone:
            self._forget_all()
        known = self._alive(SessionKey(lookup.tag, lookup.sid)) if lookup.sid is not None else None
        return known.answer(lookup) if known is not None else None

    async def find(self, lookup: Lookup) -> Found:
        """The session, its epochs and counts: no trip where they are known."""
        if lookup.sid is None:
            found = await self._store.find(lookup)
            if found.sid is None and lookup.fresh:  # a name that nobody else knows: nothing stands under it
                self._keep(SessionKey(lookup.tag, lookup.fresh), KnownSession(epochs={lookup.lane: 0}))
            return found
        return self.known(lookup) or await self._ask(SessionKey(lookup.tag, lookup.sid), lookup)

    async def begin_epoch(self, key: SessionKey, epoch: Epoch, seen: int, ttl: float) -> tuple[Epoch, ...]:
        """Append to the lane, or answer what others appended."""
        with self._writing(key) as traffic:
            traffic.changes += 1
            moves, ends = traffic.moves, self._clock.now() + ttl
            epochs = await self._store.begin_epoch(key, epoch, seen, ttl)
            traffic.changes += 1
            known = self._alive(key)
            if known is not None:
                known.epochs[epoch.lane] = max(known.epochs.get(epoch.lane, 0), seen + len(epochs))
                known.ends = ends if traffic.is_alone(moves) else min(known.ends, ends)
        return epochs

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        """Write a turn."""
        with self._writing(key) as traffic:
            moves, ends = traffic.moves, self._clock.now() + ttl
            written = await self._telling.write(key, turn, ttl)
            known = self._alive(key)
            if known is not None and known.take(turn, written):
                known.ends = ends if traffic.is_alone(moves) else min(known.ends, ends)
                self._keep(key, known)
            else:
                self._keep(key, None)
        return written.recorded

    async def pin(self, key: SessionKey, hashes: Sequence[bytes], ttl: float) -> None:
        with self._changing(key):
            await self._store.pin(key, hashes, ttl)

    async def keep_hidden(
        self, key: SessionKey, hidden: HiddenCalls, ttl: float, *, begins: bool = False
    ) -> bool:
        with self._changing(key):
            return await self._store.keep_hidden(key, hidden, ttl, begins=begins)

    async def inject(self, key: SessionKey, digest: bytes, injection: bytes, ttl: float) -> bytes:
        with self._changing(key):
            return await self._store.inject(key, digest, injection, ttl)

    async def history(self, key: SessionKey, since: Mark | None = None) -> Stored:
        with self._doubting():  # one that cannot be read is mended, which is a write
            return await self._store.history(key, since)

    async def delete(self, key: SessionKey) -> bool:
        with self._changing(key):
            return await self._store.delete(key)

    async def move(self, former: str, tag: str, tenant: str) -> bool:
        with self._doubting():
            is_moved = await self._store.move(former, tag, tenant)
        if is_moved:
            self._forget_all()
        return is_moved

    async def pause(self, key: SessionKey, *, paused: bool) -> bool:
        with self._changing(key):
            return await self._store.pause(key, paused=paused)

    async def mark_unsaved(self, key: SessionKey, answer: bytes) -> None:
        with self._changing(key):
            await self._store.mark_unsaved(key, answer)

    async def keep_summary(
        self, key: SessionKey, address: str, text: str, ttl: float, token: str = ""
    ) -> bool:
        with self._changing(key):
            return await self._store.keep_summary(key, address, text, ttl, token)

    async def _ask(self, key: SessionKey, lookup: Lookup) -> Found:
        """Ask the store, and remember its answer as far as nothing was written meanwhile."""
        traffic, known = self._on_its_way(key), self._alive(key)
        # What a write may overtake is not asked for whole: it could not be kept.
        is_calm, moves, changes = not traffic.writes, traffic.moves, traffic.changes
        asked = self._clock.now()
        with self._doubting():
            found = await self._store.find(replace(lookup, whole=known is None and is_calm))
        if known is not None and known is self._known.get(key) and traffic.changes == changes:
            known.learn(lookup, found)
            self._keep(key, known)
        if found.whole is None:
            return found
        if is_calm and traffic.moves == moves:
            ends, written = asked + found.whole.lives, found.whole.written
            known = KnownSession(found.session, found.counts, ends=ends, written=written)
            known.learn(lookup, found)
            self._keep(key, known)
        counts = {each: found.counts[each] for each in lookup.uncounted if each in found.counts}
        return replace(found, counts=counts, whole=None)

    # --- writes, and what is known after them ---

    def _writing(self, key: SessionKey) -> _Writing:
        return _Writing(self._on_its_way(key), key, self._ended_badly)

    def _ended_badly(self, key: SessionKey, error: BaseException) -> None:
        """Nobody knows what a write did; where the store cannot be used nothing that was known is certain."""
        if isinstance(error, StoreUnavailable):
            self._forget_all()
        else:
            self._keep(key, None)

    @contextmanager
    def _changing(self, key: SessionKey) -> Generator[None]:
        """A write that is no turn: after it the store is asked."""
        with self._writing(key) as traffic:
            traffic.changes += 1
            yield
            traffic.changes += 1
            self._keep(key, None)

    @contextmanager
    def _doubting(self) -> Generator[None]:
        """Where the store cannot be used, nothing that was known of it is certain."""
        try:
            yield
        except StoreUnavailable:
            self._forget_all()
            raise

    def _on_its_way(self, key: SessionKey) -> Traffic:
        traffic = self._traffic.get(key)
        if traffic is None:
            traffic = self._traffic[key] = Traffic()
        return traffic

    def _alive(self, key: SessionKey) -> KnownSession | None:
        """What is known of a session that has not ended."""
        known = self._known.get(key)
        if known is None or known.ends - _EARLIER <= self._clock.now():
            return None
        return known

    def _keep(self, key: SessionKey, known: KnownSession | None) -> None:
        """From now on this is what is known of a session."""
        if known is None:
            self._known.drop(key)
        else:
            self._known.put(key, known)

    def _forget_all(self) -> None:
        self._known.clear()

"""Look-ups that need no trip: after a turn of ours it is known what the store would say of its session.

That is certain where the store was asked before that turn, where nothing but turns was written since, and
where nobody else may write (:meth:`proxy.ports.TurnStore.revision`). It is held for the lane of that turn
alone. A message of an older branch may be in the store and not known here: it is written again, to no effect.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from proxy.cache import Lru, Memory
from proxy.core.conversation.records import Turn
from proxy.ports import Clock, Found, Lookup, SessionKey

_EARLIER: Final = 1.0
"""Seconds before a session's end from which on it is asked for: the store's clock counts."""
_SESSION, _ITEM = 2_048, 256
"""About what a session takes in bytes, and each message, pin and text of its head beside its length."""


class _Held(msgspec.Struct, frozen=True):
    """What the store would say of a session."""

    found: Found
    """Its counts are those of the last turn's messages."""
    lane: str
    revision: int
    epochs: int
    """How many of the lane the store holds."""
    hidden: int
    """How many answers with hidden calls."""
    parents: frozenset[bytes] = frozenset()
    """Messages that the last turn went on from."""
    ends: float = 0.0
    """Seconds since 1970; none before there was a turn, for a look-up does not tell."""


class LookupCache:
    """What the store would say of the sessions that were used last."""

    def __init__(self, clock: Clock, memory: Memory) -> None:
        self._clock = clock
        self._held: Lru[SessionKey, _Held] = Lru(memory, _weight)

    def answer(self, lookup: Lookup, revision: int | None) -> Found | None:
        """What the store would say; None where that is not certain."""
        held = self._held.get(SessionKey(lookup.tag, lookup.sid)) if lookup.sid else None
        if held is None or (held.revision, held.lane) != (revision, lookup.lane):
            return None
        found, sid = held.found, lookup.sid
        is_all_seen = lookup.epochs_from(sid) >= held.epochs and lookup.hidden_from(sid) >= held.hidden
        if not is_all_seen or found.injected not in (b"", lookup.injected):
            return None
        here = found.counts.keys() | held.parents
        new = next((place for place, each in enumerate(lookup.newest) if each in here), None)
        if new is None or held.ends - _EARLIER <= self._clock.now():
            return None
        if not found.counts.keys() | lookup.newest[:new] >= set(lookup.uncounted):
            return None  # the store counted it, and this process does not know it any more
        return replace(found, known=lookup.newest[new])

    def asked(self, key: SessionKey, lookup: Lookup, found: Found, revision: int | None) -> None:
        """The store was asked, not before this revision; it will say the same until a turn is written."""
        if revision is not None:
            self._held.put(
                key,
                _Held(
                    Found(sid=key.sid, session=found.session, injected=found.injected),
                    lookup.lane,
                    revision,
                    epochs=lookup.epochs_from(key.sid) + len(found.epochs),
                    hidden=lookup.hidden_from(key.sid) + len(found.hidden),
                ),
            )

    def recorded(self, key: SessionKey, lane: str, turn: Turn, ttl: float) -> None:
        """A turn was written to a session, which lives for another ``ttl`` (seconds)."""
        held = self._held.get(key)
        before = held.found.session if held else None
        if held is None or before is None or held.lane != lane or not turn.advances_tip:
            self.forget(key)  # of a session that was not there, nobody has told what was pinned before
            return
        counts = {node.hash: node.tokens for node in turn.nodes}
        found = replace(held.found, session=replace(turn.session, pins=before.pins), counts=counts)
        ends = turn.session.updated + ttl
        self._held.put(key, replace(held, found=found, parents=frozenset(turn.outer_parents), ends=ends))

    def forget(self, key: SessionKey) -> None:
        """Nothing of a session is certain any more."""
        self._held.drop(key)


def _weight(held: _Held) -> int:
    session = held.found.session
    texts = (*session.head, *session.pins) if session else ()
    return _SESSION + _ITEM * (len(held.found.counts) + len(texts)) + sum(map(len, texts))

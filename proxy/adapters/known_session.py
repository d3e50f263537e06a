"""What a process knows for sure of one session, and what is on its way to the store for it.

How it comes to know, and when it no longer does, :mod:`proxy.adapters.remembering` says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from proxy.core.records import Session, Turn
from proxy.ports import Found, Lookup, Written

_SESSION: Final = 1_024
_ITEM: Final = 256
"""About what a session takes in bytes, and each message, pin and lane of it."""


@dataclass(slots=True)
class KnownSession:
    """What is known of a session."""

    session: Session | None = None
    counts: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """Counted tokens of every message by chain hash."""
    epochs: dict[str, int] = field(default_factory=dict[str, int])
    """By lane: there are none from this number on."""
    hidden: int = 0
    """There are no answers with hidden calls from this number on."""
    injected: bytes = b""
    """Digest of what was handed in; empty where nothing was."""
    ends: float = math.inf
    """Seconds since 1970."""
    written: int = 0
    """How many turns were written to it."""

    def answer(self, lookup: Lookup) -> Found | None:
        """What the store would say; None where that is not known."""
        sid = lookup.sid
        knows_epochs = lookup.epochs_from(sid) >= self.epochs.get(lookup.lane, math.inf)
        knows_hidden = lookup.hidden_from(sid) >= self.hidden
        knows_injection = self.injected in (b"", lookup.injected)
        if self.session is None or not (knows_epochs and knows_hidden and knows_injection):
            return None
        return Found(
            sid=sid,
            session=self.session,
            known=self._newest(lookup.newest),
            counts={each: self.counts[each] for each in lookup.uncounted if each in self.counts},
            injected=self.injected,
        )

    def _newest(self, hashes: Sequence[bytes]) -> bytes | None:
        """The first of these chain hashes that the session holds."""
        for chain_hash in hashes:
            if chain_hash in self.counts:
                return chain_hash
        return None

    def learn(self, lookup: Lookup, found: Found) -> None:
        """What an answer says beside the session itself."""
        self.epochs[lookup.lane] = lookup.epochs_from(lookup.sid) + len(found.epochs)
        self.hidden = lookup.hidden_from(lookup.sid) + len(found.hidden)
        self.injected = found.injected

    def take(self, turn: Turn, written: Written) -> bool:
        """Add what a turn has written; False where that is not the session then, or nothing was written."""
        for node in turn.nodes:
            before = self.counts.setdefault(node.hash, node.tokens)
            if before != node.tokens and node.answer:
                return False  # it may have taken the place of one that was cut off
        self.session, self.written = written.session, self.written + 1
        return self.session is not None and self.written == written.written

    def weigh(self) -> int:
        """About the bytes that it takes."""
        items = len(self.counts) + len(self.epochs)
        texts = 0
        if self.session is not None:
            items += len(self.session.pins)
            texts = sum(map(len, self.session.head)) + len(self.session.name) + len(self.session.model)
        return _SESSION + texts + _ITEM * items


@dataclass(slots=True, eq=False, weakref_slot=True)
class Traffic:
    """What is on its way to the store, for one session."""

    writes: int = 0
    """How many are under way."""
    moves: int = 0
    """How many have begun and ended."""
    changes: int = 0
    """How many of these were no turns."""

    def is_alone(self, moves: int) -> bool:
        """Whether a write that has begun with the last of these is the only one since."""
        return self.writes == 1 and self.moves == moves

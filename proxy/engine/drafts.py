"""Drafts whose summaries are being written while the session goes on; no content is held.

A draft that waits, for its summaries or because an epoch would not pay yet, is remembered in this process, so
that the next turns neither plan again nor ask for other summaries.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Self

from proxy.core.budget import Stage
from proxy.core.plan import Replacement, Span
from proxy.core.planner import Draft, acts_now, noticed
from proxy.core.situation import Situation
from proxy.core.strategies import Strategy
from proxy.engine.case import Case
from proxy.engine.folds import off_loop
from proxy.lru import Lru, Memory
from proxy.ports import SessionKey

_DRAFT_BYTES = 2048
"""What a draft is reckoned at beside its texts."""
_STEPS = 0.02, 0.05
"""By which share of the room a conversation grows, at least and at most, before it is reckoned again whether
an epoch pays. Between them it grows by what was lacking: sooner nothing but the pace can have changed."""


class _Request(NamedTuple):
    """The request at which something was found of a lane."""

    parent: str
    """Id of the epoch in force."""
    seal: bytes
    length: int

    @classmethod
    def of(cls, case: Case, parent: str) -> Self:
        return cls(parent, case.chain.hashes[-1], len(case.chain))

    def leads_to(self, case: Case, parent: str) -> bool:
        """Whether another goes on from it, under the same epoch."""
        hashes = case.chain.hashes
        return parent == self.parent and len(hashes) >= self.length and hashes[self.length - 1] == self.seal


@dataclass(frozen=True)
class _Kept:
    """A draft at the request for which it was made."""

    stage: Stage
    spans: tuple[Span, ...]
    quotes: Mapping[Span, tuple[str, ...]]
    yielded: int
    cleared: tuple[Replacement, ...]
    strategy: Strategy | None
    request: _Request

    def is_of(self, decided: Draft) -> bool:
        ours, theirs = (self.stage, self.spans, self.cleared), (decided.stage, decided.spans, decided.cleared)
        return ours == theirs


class _Reckoned(NamedTuple):
    """At which request it was last reckoned whether an epoch pays."""

    request: _Request
    lacking: int
    """Counted tokens."""


class Drafts:
    """The drafts of all sessions of this process, one a lane."""

    def __init__(self, memory: Memory) -> None:
        self._kept: Lru[tuple[SessionKey, str], _Kept] = Lru(memory, _weight)
        self._reckoned: Lru[tuple[SessionKey, str], _Reckoned] = Lru(memory)

    def keep(self, case: Case, decided: Draft, parent: str) -> None:
        """Remember a draft until an epoch begins."""
        kept = self._kept.get((case.key, case.lane))
        if kept is not None and kept.request.leads_to(case, parent) and kept.is_of(decided):
            return
        made = _Kept(
            stage=decided.stage,
            spans=decided.spans,
            quotes=decided.quotes,
            yielded=decided.yielded,
            cleared=decided.cleared,
            strategy=decided.strategy,
            request=_Request.of(case, parent),
        )
        self._kept.put((case.key, case.lane), made)

    async def still_good(self, case: Case, situation: Situation, stage: Stage, parent: str) -> Draft | None:
        """The draft that is kept for a lane, if it still brings the view well below *trim*."""
        kept = self._kept.get((case.key, case.lane))
        if kept is None or not kept.request.leads_to(case, parent) or acts_now(situation):
            return None
        kept_stage = stage if stage in (Stage.COMPACT, Stage.EMERGENCY) else kept.stage
        if any(start <= place < end for place in situation.standing_pins for start, end in kept.spans):
            return None
        decided = Draft(
            situation, kept_stage, kept.spans, kept.quotes, kept.yielded, kept.cleared, strategy=kept.strategy
        )
        size = await off_loop(case, lambda: noticed(decided))
        return decided if size < case.budget.share(case.policy.stages.trim) else None

    def reckon(self, case: Case, parent: str, lacking: int = 0) -> None:
        """It is reckoned whether an epoch pays; so many counted tokens are ``lacking``, if that is known."""
        if case.chain.hashes:
            self._reckoned.put((case.key, case.lane), _Reckoned(_Request.of(case, parent), lacking))

    def has_grown(self, case: Case, parent: str) -> bool:
        """Whether so much came since then that the sums may come out otherwise."""
        before = self._reckoned.get((case.key, case.lane))
        if before is None or not before.request.leads_to(case, parent):
            return True
        least, most = map(case.budget.share, _STEPS)
        grown = case.chain.tokens.between(before.request.length)
        return grown >= min(max(before.lacking, least), most)

    def drop(self, case: Case) -> None:
        """An epoch has begun."""
        self._kept.drop((case.key, case.lane))
        self._reckoned.drop((case.key, case.lane))

    def forget(self, key: SessionKey) -> None:
        """The session was deleted."""
        self._kept.drop_where(lambda entry, _: entry[0] == key)
        self._reckoned.drop_where(lambda entry, _: entry[0] == key)


def _weight(kept: _Kept) -> int:
    texts = [*chain.from_iterable(kept.quotes.values()), *[each.raw for each in kept.cleared]]
    return _DRAFT_BYTES + sum(map(len, texts))

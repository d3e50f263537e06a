"""What this process remembers of planning: drafts that wait, and plans from scratch.

A draft that waits, for its summaries or because an epoch would not pay yet, is remembered without content, so
that the next turns neither plan again nor ask for other summaries.

A plan from scratch is a pure function of what it is given (:mod:`proxy.core.planning.from_scratch`), and dear
where the chain is long. Such requests come again, retried or to be answered anew, before there is an epoch
for them. Keeps law 6 (isolated): what is remembered is addressed by the tenant and every byte, and holds for
the very policy that it was made by.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Self

import msgspec

from proxy.cache import Lru, Memory
from proxy.core.budget.budget import Stage
from proxy.core.planning.from_scratch import plan_from_scratch
from proxy.core.planning.plan import EMPTY, Plan, Replacement, Span
from proxy.core.planning.planner import Draft, acts_now, noticed
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Conditions, Count, Situation
from proxy.core.planning.strategies import Strategy
from proxy.core.policy.policy import Policy
from proxy.engine.background import off_loop
from proxy.engine.flow import Request
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
    def of(cls, request: Request, parent: str) -> Self:
        return cls(parent, request.chain.hashes[-1], len(request.chain))

    def leads_to(self, request: Request, parent: str) -> bool:
        """Whether another goes on from it, under the same epoch."""
        hashes = request.chain.hashes
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


class PendingDrafts:
    """The drafts of all sessions of this process, one a lane."""

    def __init__(self, memory: Memory) -> None:
        self._kept: Lru[tuple[SessionKey, str], _Kept] = Lru(memory, _weight)
        self._reckoned: Lru[tuple[SessionKey, str], _Reckoned] = Lru(memory)

    def keep(self, request: Request, decided: Draft, parent: str) -> None:
        """Remember a draft until an epoch begins."""
        kept = self._kept.get((request.session.key, request.session.lane.id))
        if kept is not None and kept.request.leads_to(request, parent) and kept.is_of(decided):
            return
        made = _Kept(
            stage=decided.stage,
            spans=decided.spans,
            quotes=decided.quotes,
            yielded=decided.yielded,
            cleared=decided.cleared,
            strategy=decided.strategy,
            request=_Request.of(request, parent),
        )
        self._kept.put((request.session.key, request.session.lane.id), made)

    async def still_good(
        self, request: Request, situation: Situation, stage: Stage, parent: str
    ) -> Draft | None:
        """The draft that is kept for a lane, if it still brings the view well below *trim*."""
        kept = self._kept.get((request.session.key, request.session.lane.id))
        if kept is None or not kept.request.leads_to(request, parent) or acts_now(situation):
            return None
        kept_stage = stage if stage.is_pressing else kept.stage
        if any(start <= place < end for place in situation.standing_pins for start, end in kept.spans):
            return None
        decided = Draft(
            situation, kept_stage, kept.spans, kept.quotes, kept.yielded, kept.cleared, strategy=kept.strategy
        )
        size = await off_loop(request.chain, lambda: noticed(decided))
        return decided if size < request.budget.share(request.incoming.policy.stages.trim) else None

    def reckon(self, request: Request, parent: str, lacking: int = 0) -> None:
        """It is reckoned whether an epoch pays; so many counted tokens are ``lacking``, if that is known."""
        if request.chain.hashes:
            self._reckoned.put(
                (request.session.key, request.session.lane.id),
                _Reckoned(_Request.of(request, parent), lacking),
            )

    def has_grown(self, request: Request, parent: str) -> bool:
        """Whether so much came since then that the sums may come out otherwise."""
        before = self._reckoned.get((request.session.key, request.session.lane.id))
        if before is None or not before.request.leads_to(request, parent):
            return True
        least, most = map(request.budget.share, _STEPS)
        grown = request.chain.tokens.between(before.request.length)
        return grown >= min(max(before.lacking, least), most)

    def drop(self, request: Request) -> None:
        """An epoch has begun."""
        self._kept.drop((request.session.key, request.session.lane.id))
        self._reckoned.drop((request.session.key, request.session.lane.id))

    def forget(self, key: SessionKey) -> None:
        """The session was deleted."""
        self._kept.drop_where(lambda entry, _: entry[0] == key)
        self._reckoned.drop_where(lambda entry, _: entry[0] == key)


def _weight(kept: _Kept) -> int:
    texts = [*chain.from_iterable(kept.quotes.values()), *[each.raw for each in kept.cleared]]
    return _DRAFT_BYTES + sum(map(len, texts))


# --- plans from scratch ---


_PLAN_BYTES = 1024
"""What an entry is reckoned at beside its plan."""


@dataclass(frozen=True, slots=True)
class _Planned:
    policy: Policy
    plan: Plan
    epochs: int


class PlanCache:
    """The plans of all tenants of this process."""

    def __init__(self, count: Count, memory: Memory) -> None:
        self._count = count
        self._plans: Lru[bytes, _Planned] = Lru(
            memory, lambda planned: _PLAN_BYTES + len(msgspec.msgpack.encode(planned.plan))
        )

    async def of(self, request: Request, conditions: Conditions = UNKNOWN_CONDITIONS) -> tuple[Plan, int]:
        """The plan that a request's chain would have come to by itself, and how many epochs it took."""
        address = await off_loop(request.chain, lambda: _address(request, conditions))
        planned = self._plans.get(address)
        if planned is None or planned.policy is not request.incoming.policy:
            given = Situation(
                chain=request.chain,
                plan=EMPTY,
                policy=request.incoming.policy,
                budget=request.budget,
                count=self._count,
                conditions=conditions,
                pins=request.pins,
            )
            plan, epochs = await off_loop(request.chain, lambda: plan_from_scratch(given))
            planned = _Planned(request.incoming.policy, plan, epochs)
            self._plans.put(address, planned)
        return planned.plan, planned.epochs


def _address(request: Request, conditions: Conditions) -> bytes:
    chain = request.chain
    given = (
        [*chain.raws],
        [*chain.tokens],
        [*chain.hashes],
        request.budget,
        conditions,
        sorted(request.pins),
    )
    return hashlib.sha256(msgspec.msgpack.encode((request.session.tenant, given))).digest()

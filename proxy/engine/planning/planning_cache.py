"""What this process remembers of planning: epochs that are still to begin, and plans from scratch.

Of an epoch to come it remembers which summaries were begun for it, and when it was reckoned whether it pays.

A plan from scratch is a pure function of what it is given (:mod:`proxy.core.planning.from_scratch`), and dear
where the chain is long. Such requests come again, retried or to be answered anew, before there is an epoch
for them. Keeps law 6 (isolated): what is remembered is addressed by the tenant and every byte, and holds for
the very policy that it was made by.
"""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple, Self

import msgspec

from proxy.cache import Lru, Memory
from proxy.core.planning.from_scratch import plan_from_scratch
from proxy.core.planning.plan import Plan, Span
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.engine.background import off_loop
from proxy.engine.flow import Request
from proxy.ports import SessionKey

_STEPS = 0.02, 0.05
"""By which share of the room a conversation grows, at least and at most, before it is reckoned again whether
an epoch pays. Between them it grows by what was lacking: sooner nothing but the pace can have changed."""
_PREPARED = 16
"""Gaps of a lane whose summaries are remembered to be on their way."""


def _lane(request: Request) -> tuple[SessionKey, str]:
    return request.session.key, request.session.lane.id


class _Moment(NamedTuple):
    """The request of a lane at which something was found."""

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


class PendingEpochs:
    """What is known of the epochs that no lane has begun yet."""

    def __init__(self, memory: Memory) -> None:
        self._prepared: Lru[tuple[SessionKey, str], tuple[_Moment, tuple[Span, ...]]] = Lru(memory)
        """By lane: gaps whose summaries were begun, and in no note when they were."""
        self._reckoned: Lru[tuple[SessionKey, str], tuple[_Moment, int]] = Lru(memory)
        """By lane: when it was last reckoned whether an epoch pays, and the counted tokens that it lacked."""

    def prepare(self, request: Request, parent: str, spans: tuple[Span, ...]) -> None:
        """The summaries of these gaps have been begun; those of others before them may be on their way."""
        latest = tuple(dict.fromkeys((*spans, *self.prepared(request))))[:_PREPARED]
        self._prepared.put(_lane(request), (_Moment.of(request, parent), latest))

    def prepared(self, request: Request) -> tuple[Span, ...]:
        """The gaps whose summaries were begun last, as far as the chain is the same, the latest first."""
        moment, spans = self._prepared.get(_lane(request)) or (None, ())
        return spans if moment is not None and moment.leads_to(request, moment.parent) else ()

    def is_prepared(self, request: Request, parent: str) -> bool:
        """Whether the next epoch upon ``parent`` has been prepared."""
        found = self._prepared.get(_lane(request))
        return found is not None and found[0].leads_to(request, parent)

    def reckon(self, request: Request, parent: str, lacking: int = 0) -> None:
        """It is reckoned whether an epoch pays; so many counted tokens are ``lacking``, if that is known."""
        if request.chain.hashes:
            self._reckoned.put(_lane(request), (_Moment.of(request, parent), lacking))

    def lacking(self, request: Request) -> int:
        """Counted tokens that an epoch lacked to pay when it was last reckoned."""
        return (self._reckoned.get(_lane(request)) or (None, 0))[1]

    def has_grown(self, request: Request, parent: str) -> bool:
        """Whether so much came since then that the sums may come out otherwise."""
        moment, lacking = self._reckoned.get(_lane(request)) or (None, 0)
        if moment is None or not moment.leads_to(request, parent):
            return True
        least, most = map(request.budget.share, _STEPS)
        return request.chain.tokens.between(moment.length) >= min(max(lacking, least), most)

    def drop(self, request: Request) -> None:
        self._reckoned.drop(_lane(request))

    def forget(self, key: SessionKey) -> None:
        self._prepared.drop_where(lambda entry, _: entry[0] == key)
        self._reckoned.drop_where(lambda entry, _: entry[0] == key)


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

    def __init__(self, memory: Memory) -> None:
        self._plans: Lru[bytes, _Planned] = Lru(
            memory, lambda planned: _PLAN_BYTES + len(msgspec.msgpack.encode(planned.plan))
        )

    async def of(self, tenant: str, given: Situation) -> tuple[Plan, int]:
        """The plan that a chain would have come to by itself, and how many epochs it took.

        ``given`` has no plan. What it says is read once: by this, and by whoever goes on from it.
        """
        address = await off_loop(given.chain, lambda: _address(tenant, given))
        planned = self._plans.get(address)
        if planned is None or planned.policy is not given.policy:
            plan, epochs = await off_loop(given.chain, lambda: plan_from_scratch(given))
            planned = _Planned(given.policy, plan, epochs)
            self._plans.put(address, planned)
        return planned.plan, planned.epochs


def _address(tenant: str, given: Situation) -> bytes:
    chain = given.chain
    content = (
        tenant,
        [*chain.raws],
        [*chain.tokens],
        [*chain.hashes],
        given.budget,
        given.conditions,
        sorted(given.pins),
    )
    return hashlib.sha256(msgspec.msgpack.encode(content)).digest()

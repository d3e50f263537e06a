"""What this process remembers of planning: epochs still to begin, and plans from scratch.

For an epoch to come it remembers which summaries were started, and when it last computed whether the epoch
pays.

A plan from scratch is a pure function of its input (:mod:`proxy.core.planning.from_scratch`), and expensive
where the chain is long. Such requests come again, as retries or regenerations, before they have an epoch.
Keeps law 6 (isolated): plans are addressed by the tenant and every byte, and hold only for the very policy
that they were made with.
"""

import hashlib
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
"""Least and most growth, as a share of the room, before it is computed again whether an epoch pays. Between
them it is the tokens that were lacking: before that only the pace can have changed."""
_PREPARED = 16
"""Most gaps of a lane whose started summaries are remembered."""


def _lane(request: Request) -> tuple[SessionKey, str]:
    return request.session.key, request.session.lane.id


class _Moment(NamedTuple):
    """The request of a lane at which something was computed."""

    parent: str
    """Id of the epoch in force."""
    seal: bytes
    length: int

    @classmethod
    def of(cls, request: Request, parent: str) -> Self:
        return cls(parent, request.chain.hashes[-1], len(request.chain))

    def leads_to(self, request: Request, parent: str) -> bool:
        """Whether another request continues from it, under the same epoch."""
        hashes = request.chain.hashes
        return parent == self.parent and len(hashes) >= self.length and hashes[self.length - 1] == self.seal


class PendingEpochs:
    """What is known of epochs that have not begun yet."""

    def __init__(self, memory: Memory) -> None:
        self._prepared: Lru[tuple[SessionKey, str], tuple[_Moment, tuple[Span, ...]]] = Lru(memory)
        """By lane: gaps whose summaries were started, and in no note at that time."""
        self._lacking: Lru[tuple[SessionKey, str], tuple[_Moment, int]] = Lru(memory)
        """By lane: when it was last computed whether an epoch pays, and the counted tokens that it lacked."""

    def prepare(self, request: Request, parent: str, spans: tuple[Span, ...]) -> None:
        """Note that summaries of these gaps have been started; earlier ones may still be running."""
        latest = tuple(dict.fromkeys((*spans, *self.prepared(request))))[:_PREPARED]
        self._prepared.put(_lane(request), (_Moment.of(request, parent), latest))

    def prepared(self, request: Request) -> tuple[Span, ...]:
        """Return the gaps whose summaries were started last, latest first, if the chain is the same."""
        moment, spans = self._prepared.get(_lane(request)) or (None, ())
        return spans if moment is not None and moment.leads_to(request, moment.parent) else ()

    def is_prepared(self, request: Request, parent: str) -> bool:
        """Whether the next epoch after ``parent`` has been prepared."""
        found = self._prepared.get(_lane(request))
        return found is not None and found[0].leads_to(request, parent)

    def note_lacking(self, request: Request, parent: str, lacking: int = 0) -> None:
        """Note that it was computed whether an epoch pays, and the counted tokens ``lacking`` if known."""
        if request.chain.hashes:
            self._lacking.put(_lane(request), (_Moment.of(request, parent), lacking))

    def lacking(self, request: Request) -> int:
        """Return the counted tokens that an epoch lacked to pay when that was last computed."""
        return (self._lacking.get(_lane(request)) or (None, 0))[1]

    def has_grown(self, request: Request, parent: str) -> bool:
        """Whether the conversation has grown enough since then for another result."""
        moment, lacking = self._lacking.get(_lane(request)) or (None, 0)
        if moment is None or not moment.leads_to(request, parent):
            return True
        least, most = map(request.budget.share, _STEPS)
        return request.chain.tokens.between(moment.length) >= min(max(lacking, least), most)

    def drop(self, request: Request) -> None:
        self._lacking.drop(_lane(request))

    def forget(self, key: SessionKey) -> None:
        self._prepared.drop_where(lambda entry, _: entry[0] == key)
        self._lacking.drop_where(lambda entry, _: entry[0] == key)


# --- plans from scratch ---


_PLAN_BYTES = 1024
"""Estimated bytes of an entry, beside its plan."""


class PlanCache:
    """The plans from scratch of all tenants of this process."""

    def __init__(self, memory: Memory) -> None:
        self._plans: Lru[bytes, tuple[Policy, Plan, int]] = Lru(
            memory, lambda planned: _PLAN_BYTES + len(msgspec.msgpack.encode(planned[1]))
        )

    async def of(self, tenant: str, given: Situation, *, at_trim: bool = False) -> tuple[Plan, int]:
        """Return the plan that a chain would have reached by itself, and the number of its epochs.

        ``given`` has no plan. Its properties are computed once, for this and for later steps; ``at_trim`` is
        that of :func:`plan_from_scratch`.
        """
        address = await off_loop(given.chain, lambda: _address(tenant, given, at_trim=at_trim))
        planned = self._plans.get(address)
        if planned is not None and planned[0] is given.policy:
            return planned[1:]
        plan, epochs = await off_loop(given.chain, lambda: plan_from_scratch(given, at_trim=at_trim))
        self._plans.put(address, (given.policy, plan, epochs))
        return plan, epochs


def _address(tenant: str, given: Situation, *, at_trim: bool) -> bytes:
    chain, pins = given.chain, sorted(given.pins)
    sent = [*chain.raws], [*chain.tokens], [*chain.hashes]
    content = tenant, sent, given.budget, given.conditions, pins, at_trim
    return hashlib.sha256(msgspec.msgpack.encode(content)).digest()

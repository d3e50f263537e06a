"""What this process remembers of planning: epochs still to begin, and plans from scratch.

For an epoch to come it remembers which summaries were started, and when it last computed whether the epoch
pays.

A plan from scratch is a pure function of its input (:mod:`proxy.core.planning.from_scratch`), and expensive
where the chain is long. Such requests come again, as retries or regenerations, before they have an epoch.
Keeps law 6 (isolated): plans are addressed by the tenant and every byte, and hold only for the very policy
that they were made with.
"""

import hashlib
from typing import Generic, NamedTuple, Self, TypeVar

import msgspec

from proxy.cache import CacheMemory, Lru
from proxy.core.planning.from_scratch import plan_from_scratch
from proxy.core.planning.plan import Plan, Span
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.engine.background import off_loop
from proxy.engine.flow import Request
from proxy.ports import SessionKey

_STEPS = 0.02, 0.05
"""Whether an epoch pays is computed again once the conversation has grown by the missing tokens, but at least
and at most by these shares of the room."""
_PREPARED = 16
"""Most gaps of a branch whose started summaries are remembered."""
_BRANCHES = 8
"""Most branches of a lane for which something is remembered."""
_MOMENT_BYTES = 400
"""Estimated bytes of what is remembered for a branch."""
V = TypeVar("V")


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

    def leads_to(self, request: Request) -> bool:
        """Whether another request continues from it."""
        hashes = request.chain.hashes
        return len(hashes) >= self.length and hashes[self.length - 1] == self.seal


class _Moments(Generic[V]):
    """What was last computed on each branch of a lane, the newest first.

    Branches of a session (regenerations, tabs, parallel agents) may go on by turns; each is found by its own
    messages.
    """

    def __init__(self, memory: CacheMemory) -> None:
        self._lanes: Lru[tuple[SessionKey, str], tuple[tuple[_Moment, V], ...]] = Lru(
            memory, lambda found: _MOMENT_BYTES * len(found)
        )

    def put(self, request: Request, parent: str, value: V) -> None:
        """Note what was computed at a request, in place of what it continues from."""
        if request.chain.hashes:
            others = [each for each in self._of(request) if not each[0].leads_to(request)]
            newest = (_Moment.of(request, parent), value), *others
            self._lanes.put(_lane(request), newest[:_BRANCHES])

    def get(self, request: Request, parent: str | None = None) -> tuple[_Moment, V] | None:
        """Return what the request continues from; where given, ``parent`` has to be the epoch in force."""
        led = (each for each in self._of(request) if each[0].leads_to(request))
        found = max(led, key=lambda each: each[0].length, default=None)
        return found if found is not None and parent in (None, found[0].parent) else None

    def drop(self, request: Request) -> None:
        others = tuple(each for each in self._of(request) if not each[0].leads_to(request))
        self._lanes.put(_lane(request), others)

    def forget(self, key: SessionKey) -> None:
        self._lanes.drop_where(lambda lane, _: lane[0] == key)

    def _of(self, request: Request) -> tuple[tuple[_Moment, V], ...]:
        return self._lanes.get(_lane(request)) or ()


class PendingEpochs:
    """What is known of epochs that have not begun yet."""

    def __init__(self, memory: CacheMemory) -> None:
        self._prepared = _Moments[tuple[Span, ...]](memory)
        """Gaps whose summaries were started, and in no note at that time."""
        self._lacking = _Moments[int](memory)
        """When it was last computed whether an epoch pays, and the counted tokens that it lacked."""

    def prepare(self, request: Request, parent: str, spans: tuple[Span, ...]) -> None:
        """Note that summaries of these gaps have been started; earlier ones may still be running."""
        latest = tuple(dict.fromkeys((*spans, *self.prepared(request))))[:_PREPARED]
        self._prepared.put(request, parent, latest)

    def prepared(self, request: Request) -> tuple[Span, ...]:
        """Return the gaps whose summaries were started last, latest first, if the chain is the same."""
        found = self._prepared.get(request)
        return found[1] if found is not None else ()

    def is_prepared(self, request: Request, parent: str) -> bool:
        """Whether the next epoch after ``parent`` has been prepared."""
        return self._prepared.get(request, parent) is not None

    def note_lacking(self, request: Request, parent: str, lacking: int = 0) -> None:
        """Note that it was computed whether an epoch pays, and the counted tokens ``lacking`` if known."""
        self._lacking.put(request, parent, lacking)

    def lacking(self, request: Request) -> int:
        """Return the counted tokens that an epoch lacked to pay when that was last computed."""
        found = self._lacking.get(request)
        return found[1] if found is not None else 0

    def has_grown(self, request: Request, parent: str) -> bool:
        """Whether the conversation has grown enough since then for another result."""
        found = self._lacking.get(request, parent)
        if found is None:
            return True
        (moment, lacking), (least, most) = found, map(request.budget.share, _STEPS)
        return request.chain.tokens.between(moment.length) >= min(max(lacking, least), most)

    def drop(self, request: Request) -> None:
        self._lacking.drop(request)

    def forget(self, key: SessionKey) -> None:
        self._prepared.forget(key)
        self._lacking.forget(key)


# --- plans from scratch ---


_PLAN_BYTES = 1024
"""Estimated bytes of an entry, beside its plan."""


class PlanCache:
    """The plans from scratch of all tenants of this process."""

    def __init__(self, memory: CacheMemory) -> None:
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

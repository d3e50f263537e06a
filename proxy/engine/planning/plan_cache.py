"""Plans from scratch: a request that is asked again before there is an epoch for it is planned once.

Such a plan is a pure function of what it is given (:mod:`proxy.core.planning.from_scratch`), and dear where
the chain is long. Such requests come again, retried or to be answered anew. Keeps law 6 (isolated): what is
remembered is addressed by the tenant and every byte, and holds for the very policy that it was made by.
"""

import hashlib
from dataclasses import dataclass

import msgspec

from proxy.cache import Lru, Memory
from proxy.core.planning.from_scratch import plan_from_scratch
from proxy.core.planning.plan import EMPTY, Plan
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Conditions, Count, Situation
from proxy.core.policy.policy import Policy
from proxy.engine.background import off_loop
from proxy.engine.flow import Request

_PLAN_BYTES = 1024
"""What an entry is reckoned at beside its plan."""


@dataclass(frozen=True, slots=True)
class _Known:
    policy: Policy
    plan: Plan
    epochs: int


class PlanCache:
    """The plans of all tenants of this process."""

    def __init__(self, count: Count, memory: Memory) -> None:
        self._count = count
        self._known: Lru[bytes, _Known] = Lru(
            memory, lambda known: _PLAN_BYTES + len(msgspec.msgpack.encode(known.plan))
        )

    async def of(self, request: Request, conditions: Conditions = UNKNOWN_CONDITIONS) -> tuple[Plan, int]:
        """The plan that a request's chain would have come to by itself, and how many epochs it took."""
        address = await off_loop(request, lambda: _address(request, conditions))
        known = self._known.get(address)
        if known is None or known.policy is not request.policy:
            given = Situation(
                chain=request.chain,
                plan=EMPTY,
                policy=request.policy,
                budget=request.budget,
                count=self._count,
                conditions=conditions,
                pins=request.pins,
            )
            plan, epochs = await off_loop(request, lambda: plan_from_scratch(given))
            known = _Known(request.policy, plan, epochs)
            self._known.put(address, known)
        return known.plan, known.epochs


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

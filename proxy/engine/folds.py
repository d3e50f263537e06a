"""Folds that were made: a request that is asked again before there is an epoch for it is planned once.

A fold is a pure function of what it is given (:mod:`proxy.core.fold`), and dear where the chain is long. Such
requests come again, retried or to be answered anew. Keeps law 6 (isolated): what is remembered is addressed
by the tenant and every byte, and holds for the very policy that it was made by.
"""

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from proxy.core.conditions import UNKNOWN, Conditions
from proxy.core.fold import fold
from proxy.core.plan import Plan
from proxy.core.policy import Policy
from proxy.core.situation import Count
from proxy.engine.case import Case
from proxy.lru import Lru, Memory

T = TypeVar("T")

_LONG = 20_000
"""Counted tokens of a chain from which planning happens off the event loop."""
_FEW_MESSAGES = 200
_FOLD_BYTES = 1024
"""What a fold is reckoned at beside its plan."""


@dataclass(frozen=True, slots=True)
class _Known:
    policy: Policy
    plan: Plan
    epochs: int


class Folds:
    """The folds of all tenants of this process."""

    def __init__(self, count: Count, memory: Memory) -> None:
        self._count = count
        self._known: Lru[bytes, _Known] = Lru(memory, _weight)

    async def of(self, case: Case, conditions: Conditions = UNKNOWN) -> tuple[Plan, int]:
        """The plan that a case's chain would have come to by itself, and how many epochs it took."""
        address = await off_loop(case, lambda: _address(case, conditions))
        known = self._known.get(address)
        if known is None or known.policy is not case.policy:
            known = await off_loop(case, lambda: self._fold(case, conditions))
            self._known.put(address, known)
        return known.plan, known.epochs

    def _fold(self, case: Case, conditions: Conditions) -> _Known:
        plan, epochs = fold(case.chain, case.policy, case.budget, self._count, conditions, case.pins)
        return _Known(case.policy, plan, epochs)


async def off_loop(case: Case, work: Callable[[], T]) -> T:
    """Run planning where it cannot hold up other requests, if it is much."""
    if case.counted < _LONG and len(case.chain) < _FEW_MESSAGES:
        return work()
    return await asyncio.to_thread(work)


def _address(case: Case, conditions: Conditions) -> bytes:
    chain = case.chain
    given = ([*chain.raws], [*chain.tokens], [*chain.hashes], case.budget, conditions, sorted(case.pins))
    return hashlib.sha256(msgspec.msgpack.encode((case.tenant, given))).digest()


def _weight(known: _Known) -> int:
    return _FOLD_BYTES + len(msgspec.msgpack.encode(known.plan))

"""Strategies: which units are cut, and in which order."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from proxy.core.budget import Stage
from proxy.core.situation import Situation
from proxy.core.strategies.importance import ByImportance
from proxy.core.strategies.off import Off
from proxy.core.strategies.sliding_window import SlidingWindow


class Strategy(Protocol):
    """A rule that chooses what goes. It sees everything, and changes nothing."""

    by_count: bool
    """Whether it acts by counting, at any usage, rather than by tokens."""

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """Whether an epoch should begin now."""
        ...

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Units that may be cut, in the order in which they go."""
        ...

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Whether cutting may stop: ``view`` and ``goal`` in counted tokens."""
        ...


STRATEGIES: Mapping[str, Strategy] = {
    "importance": ByImportance(),
    "sliding_window": SlidingWindow(),
    "off": Off(),
}


def strategy_of(name: str) -> Strategy:
    """The strategy of a policy; those that are not built yet act as ``importance``."""
    return STRATEGIES.get(name, STRATEGIES["importance"])

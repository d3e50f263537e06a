"""Strategies: which units are cut, and in which order."""

from collections.abc import Mapping

from proxy.core.planning.strategies.base import ByImportance, Off, Session, SlidingWindow, Strategy
from proxy.core.planning.strategies.exchanges import Exchanges
from proxy.core.planning.strategies.topic import Topic
from proxy.core.policy import values

__all__ = ["STRATEGIES", "Strategy", "strategy_of"]

STRATEGIES: Mapping[str, Strategy] = {
    "importance": ByImportance(),
    "sliding_window": SlidingWindow(),
    "session": Session(),
    "topic": Topic(),
    "exchanges": Exchanges(),
    "off": Off(),
}
"""Those that are built in."""


def strategy_of(name: str) -> Strategy:
    """The strategy of a policy, built in or added. Raises KeyError, which a checked policy cannot cause."""
    return STRATEGIES[name] if name in STRATEGIES else values.STRATEGIES[name]

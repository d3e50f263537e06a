"""Strategies: which units are cut, and in which order."""

from collections.abc import Mapping

from proxy.core import registry
from proxy.core.strategies.exchanges import Exchanges
from proxy.core.strategies.importance import ByImportance
from proxy.core.strategies.off import Off
from proxy.core.strategies.session import Session
from proxy.core.strategies.sliding_window import SlidingWindow
from proxy.core.strategies.strategy import Strategy
from proxy.core.strategies.topic import Topic

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
    return STRATEGIES[name] if name in STRATEGIES else registry.STRATEGIES[name]

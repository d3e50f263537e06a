"""What installed packages add by entry points: strategies, compactors and searches.

Loaded once a process, before the first policy is read, so that policies may name them.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from proxy.core.planning.strategy import Strategy
from proxy.core.policy import values
from proxy.errors import OperatorError

STRATEGIES = "unabridged.strategies"
"""An entry point's name is what `strategy.name` says; it stands for a Strategy, or for its class."""
COMPACTORS = "unabridged.compactors"
"""An entry point's name is what `[[compactors]]` says; it stands for a compactor, or for its class."""
SEARCHES = "unabridged.searches"
"""An entry point's name is what `recall.search` says; it stands for a search, or for its class."""


class PluginError(OperatorError):
    """An installed package offers what cannot be used; the message names its entry point."""


@cache
def load_plugins() -> None:
    """Make known what is installed. Raises PluginError, which names the entry point and its package."""
    for point in entry_points(group=STRATEGIES):
        strategy = _loaded(point)
        if not isinstance(strategy, Strategy):
            raise PluginError(_complaint(point, f"is no {Strategy.__module__}.{Strategy.__qualname__}"))
        _add(values.STRATEGIES, point, strategy)
    for point in entry_points(group=COMPACTORS):
        _add(values.COMPACTORS, point, _with_methods(point, "can_compact", "compact"))
    for point in entry_points(group=SEARCHES):
        _add(values.SEARCHES, point, _with_methods(point, "search"))


def _with_methods(point: EntryPoint, *names: str) -> Any:
    found = _loaded(point)
    for name in names:
        if not callable(getattr(found, name, None)):
            raise PluginError(_complaint(point, f"has no method `{name}`"))
    return found


def _loaded(point: EntryPoint) -> Any:
    """What an entry point names, called where that is a class."""
    try:
        found = point.load()
        return found() if isinstance(found, type) else found
    except Exception as error:  # whatever a stranger's module raises while it is imported
        raise PluginError(_complaint(point, f"cannot be loaded: {type(error).__name__}: {error}")) from error


def _add(known: values.Registry[Any], point: EntryPoint, thing: Any) -> None:
    try:
        known.add(point.name, thing)
    except ValueError as error:
        raise PluginError(_complaint(point, str(error))) from error


def _complaint(point: EntryPoint, why: str) -> str:
    package = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    return f"entry point `{point.name} = {point.value}`{package} in {point.group}: {why}"

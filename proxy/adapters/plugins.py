"""What installed packages add by entry points: `unabridged.strategies` and `unabridged.compactors`.

Loaded once a process, before the first policy is read, so that policies may name them.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from proxy.core import registry
from proxy.core.strategies import Strategy
from proxy.errors import PluginError

STRATEGIES = "unabridged.strategies"
"""An entry point's name is what `strategy.name` says; it stands for a Strategy, or for its class."""
COMPACTORS = "unabridged.compactors"
"""An entry point's name is what `[[compactors]]` says; it stands for a compactor, or for its class."""
_COMPACTOR = ("can_compact", "compact")


@cache
def load_plugins() -> None:
    """Make known what is installed. Raises PluginError, which names the entry point and its package."""
    for point in entry_points(group=STRATEGIES):
        strategy = _loaded(point)
        if not isinstance(strategy, Strategy):
            raise PluginError(_told(point, "is no proxy.core.strategies.Strategy"))
        _add(registry.STRATEGIES, point, strategy)
    for point in entry_points(group=COMPACTORS):
        compactor = _loaded(point)
        missing = [member for member in _COMPACTOR if not callable(getattr(compactor, member, None))]
        if missing:
            raise PluginError(_told(point, f"has no method `{missing[0]}`"))
        _add(registry.COMPACTORS, point, compactor)


def _loaded(point: EntryPoint) -> Any:
    """What an entry point names, called where that is a class."""
    try:
        found = point.load()
        return found() if isinstance(found, type) else found
    except Exception as error:  # whatever a stranger's module raises while it is imported
        raise PluginError(_told(point, f"cannot be loaded: {type(error).__name__}: {error}")) from error


def _add(known: registry.Registry[Any], point: EntryPoint, thing: Any) -> None:
    try:
        known.add(point.name, thing)
    except ValueError as error:
        raise PluginError(_told(point, str(error))) from error


def _told(point: EntryPoint, what: str) -> str:
    package = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    return f"entry point `{point.name} = {point.value}`{package} in {point.group}: {what}"

"""What installed packages add by entry points: strategies, in the group `unabridged.strategies`.

Loaded once a process, before the first policy is read, so that policies may name them.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from proxy.core import registry
from proxy.core.strategies import Strategy
from proxy.errors import PluginError

STRATEGIES = "unabridged.strategies"
"""An entry point's name is what `strategy.name` says; it stands for a Strategy, or for its class."""


@cache
def load_plugins() -> None:
    """Make known what is installed. Raises PluginError, which names the entry point and its package."""
    for point in entry_points(group=STRATEGIES):
        strategy = _loaded(point)
        try:
            registry.STRATEGIES.add(point.name, strategy)
        except ValueError as error:
            raise PluginError(_told(point, str(error))) from error


def _loaded(point: EntryPoint) -> Strategy:
    try:
        found = point.load()
        made = found() if isinstance(found, type) else found
    except Exception as error:  # whatever a stranger's module raises while it is imported
        raise PluginError(_told(point, f"cannot be loaded: {type(error).__name__}: {error}")) from error
    if not isinstance(made, Strategy):
        raise PluginError(_told(point, "is no proxy.core.strategies.Strategy"))
    return made


def _told(point: EntryPoint, what: str) -> str:
    package = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    return f"entry point `{point.name} = {point.value}`{package} in {point.group}: {what}"

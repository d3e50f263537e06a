"""Plugins: strategies, compactors and searches that installed packages add by entry points.

They are loaded once per process, before the first policy is read, so that policies can name them.
"""

from functools import cache
from importlib.metadata import EntryPoint, entry_points

from proxy.core.planning.strategy import Strategy
from proxy.core.policy import values
from proxy.errors import OperatorError


class PluginError(OperatorError):
    """An entry point of an installed package cannot be used; the message names it."""


@cache
def load_plugins() -> None:
    """Register all installed plugins. Raises PluginError, which names the entry point and its package.

    The name of an entry point is the one used in policies (`strategy.name`, `[[compactors]]`,
    `recall.search`); the entry point refers to an object, or to its class.
    """
    for group, known, methods in (
        ("unabridged.strategies", values.STRATEGIES, ()),
        ("unabridged.compactors", values.COMPACTORS, ("can_compact", "compact")),
        ("unabridged.searches", values.SEARCHES, ("search",)),
    ):
        for point in entry_points(group=group):
            try:
                found = point.load()
                found = found() if isinstance(found, type) else found
            except (
                Exception,
                SystemExit,
            ) as error:  # whatever a stranger's module raises while it is imported
                why = f"cannot be loaded: {type(error).__name__}: {error}"
                raise PluginError(_complaint(point, why)) from error
            if known is values.STRATEGIES and not isinstance(found, Strategy):
                raise PluginError(_complaint(point, f"is no {Strategy.__module__}.{Strategy.__qualname__}"))
            for name in methods:
                if not callable(getattr(found, name, None)):
                    raise PluginError(_complaint(point, f"has no method `{name}`"))
            try:
                known.add(point.name, found)
            except ValueError as error:
                raise PluginError(_complaint(point, str(error))) from error


def _complaint(point: EntryPoint, why: str) -> str:
    package = f" of {point.dist.name} {point.dist.version}" if point.dist else ""
    return f"entry point `{point.name} = {point.value}`{package} in {point.group}: {why}"

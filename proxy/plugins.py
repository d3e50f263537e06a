"""Parts that other distributions bring along, found by entry-point group once at start.

A broken one stops the start: a policy that names it would otherwise silently do something else.
"""

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from proxy.errors import PluginError

COMPACTORS = "unabridged.compactors"


def load(group: str, *members: str) -> dict[str, Any]:
    """One object for each entry point of ``group``, by name: what it names, called where that is a class.

    Raises PluginError where one cannot be loaded, lacks one of ``members``, or has another's name.
    """
    return loaded(entry_points(group=group), members)


def loaded(found: Iterable[EntryPoint], members: Iterable[str]) -> dict[str, Any]:
    """As :func:`load`, for these entry points."""
    parts: dict[str, Any] = {}
    for point in sorted(found, key=lambda point: point.name):
        if point.name in parts:
            raise PluginError(f"Two plug-ins of {point.group} are named {point.name!r}.")
        parts[point.name] = _part(point, members)
    return parts


def _part(point: EntryPoint, members: Iterable[str]) -> Any:
    told = f"The plug-in {point.name!r} of {point.group} ({point.value})"
    try:
        found = point.load()
        part = found() if isinstance(found, type) else found
    except Exception as error:  # whatever foreign code raises is told to whoever starts the server
        raise PluginError(f"{told} cannot be loaded: {type(error).__name__}: {error}") from error
    missing = [member for member in members if not hasattr(part, member)]
    if missing:
        raise PluginError(f"{told} has no {' and no '.join(f'`{member}`' for member in missing)}.")
    return part

"""What several requests to the upstream have cost together, told as the usage of one answer."""

from typing import cast

from proxy.core.jsonvalue import dumps, loads


def summed(*usages: bytes) -> bytes:
    """The sum of usages, each as JSON or empty: numbers are added, details member by member."""
    total: object = None
    for usage in usages:
        if usage:
            total = _sum(total, loads(usage))
    return b"" if total is None else dumps(total)


def _sum(first: object, second: object) -> object:
    if isinstance(first, dict) and isinstance(second, dict):
        one, other = cast("dict[str, object]", first), cast("dict[str, object]", second)
        return {name: _sum(one.get(name), other.get(name)) for name in {**one, **other}}
    if _is_number(first) and _is_number(second):
        return cast("float", first) + cast("float", second)
    return first if second is None else second


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

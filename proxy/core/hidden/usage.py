"""What several requests to the upstream have cost together, told as the usage of one answer."""

from proxy.core.jsonvalue import dumps, loads
from proxy.core.messages import as_mapping


def summed(*usages: bytes) -> bytes:
    """The sum of usages, each as JSON or empty: numbers are added, details member by member."""
    total: object = None
    for usage in usages:
        if usage:
            total = _sum(total, loads(usage))
    return b"" if total is None else dumps(total)


def _sum(first: object, second: object) -> object:
    one, other = as_mapping(first), as_mapping(second)
    if one and other:
        return {name: _sum(one.get(name), other.get(name)) for name in {**one, **other}}
    if isinstance(first, int | float) and isinstance(second, int | float):
        return first + second
    return first if second is None else second

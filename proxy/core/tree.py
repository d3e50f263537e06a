"""A session's tree of messages: each knows the one before it; a branch is the way to one from the root."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from proxy.core.records import Node


def way_to(nodes: Mapping[bytes, Node], last: bytes, after: AbstractSet[bytes] = frozenset()) -> list[Node]:
    """The messages up to the one of chain hash ``last``, first to last.

    It begins behind those in ``after``, else at the root. Where messages are missing it begins after the gap:
    then the first one's ``sequence`` is not 0.
    """
    way: list[Node] = []
    while last not in after and (node := nodes.get(last)) is not None:
        way.append(node)
        last = node.parent
    return way[::-1]

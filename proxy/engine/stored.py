"""Histories of sessions as the store has them, each read once: a turn reads what was written since.

Keeps law 8 (O(new)) for turns that are sent without their history. The store is asked each time, for any
machine may have written; only what it says to be as it was is taken from here.
"""

from collections.abc import Mapping

from proxy.core.identity import root
from proxy.core.records import Node
from proxy.core.tree import way_to
from proxy.errors import HistoryUnavailable
from proxy.lru import Lru, Memory
from proxy.ports import SessionKey, SessionStore, Stored

_NODE_BYTES = 512
"""What a message is reckoned at beside its bytes."""


class StoredHistory:
    """A session and its messages, and the way to one of them."""

    def __init__(self, stored: Stored) -> None:
        self.session = stored.session
        self.was_here = stored.was_here
        self.mark = stored.mark
        self._nodes = stored.nodes
        self._ends = b""
        """Chain hash of the last message of the way."""
        self._begun = b""
        """Chain hash before the first."""
        self._told = bytearray()
        """Its messages, with commas between them."""
        self.weight = sum(map(_weight, stored.nodes.values()))

    @property
    def nodes(self) -> Mapping[bytes, Node]:
        """Every message by chain hash."""
        return self._nodes

    def take(self, stored: Stored) -> None:
        """Go on to what is stored now, of which the messages are new."""
        self.session, self.mark = stored.session, stored.mark
        self._nodes.update(stored.nodes)
        self.weight += sum(map(_weight, stored.nodes.values()))

    def _start(self) -> bytes:
        return next((node.parent for node in self._nodes.values() if not node.sequence), root())

    def way(self, last: bytes) -> tuple[bytes, bytearray]:
        """h₀, and the messages from the first to the one of this chain hash, with commas between them.

        No messages where that is h₀, or empty. Raises HistoryUnavailable where messages are missing.
        """
        if last not in self._nodes:
            start = self._start()
            if last not in (b"", start):
                raise HistoryUnavailable
            return start, bytearray()
        new = way_to(self._nodes, last, after={self._ends})
        if new and new[0].parent != self._ends:
            if new[0].sequence:
                raise HistoryUnavailable
            self._begun, self._told = new[0].parent, bytearray()
        for node in new:
            self._told += b"," + node.raw if self._told else node.raw
        self._ends = last
        return self._begun, self._told


class StoredHistories:
    """Reads histories, and remembers those used last."""

    def __init__(self, store: SessionStore, memory: Memory) -> None:
        self._store = store
        self._known: Lru[SessionKey, StoredHistory] = Lru(memory, lambda known: known.weight)

    async def read(self, key: SessionKey) -> StoredHistory:
        """A session's history as it is now. Raises StoreUnavailable."""
        known = self._known.get(key)
        self._known.drop(key)  # nobody else goes on from it meanwhile
        stored = await self._store.history(key, known.mark if known else None)
        if known is not None and stored.is_news:
            known.take(stored)
        else:
            known = StoredHistory(stored)
        if known.mark is not None:
            self._known.put(key, known)
        return known


def _weight(node: Node) -> int:
    return _NODE_BYTES + 2 * len(node.raw)

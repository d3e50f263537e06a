"""LRU caches that share one memory and together stay within its limit.

What one cache does not need, another may use, so an operator sets one ceiling instead of one for each cache.
The event loop and threads may use the caches at the same time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar

import msgspec

K = TypeVar("K")
V = TypeVar("V")

_MOST = 256 * 2**20
_ENTRY_BYTES = 300
"""Estimated bytes of an entry without its value: its key, and its place in the order of use."""


def small(_: object) -> int:
    """Return the weight (bytes) of a value that is small beside its entry."""
    return 200


# There are many of them and none refers to its holder: the garbage collector need not visit them (gc=False).
class _Entry(msgspec.Struct, gc=False, eq=False):
    """A cached value."""

    key: Any
    value: Any = None
    weight: int = 0


class CacheMemory:
    """Room for ``most`` bytes of cached values, as their caches weigh them.

    No value may take more than one ``part``-th of it, since it would push out too much that others need.
    Whoever changes what is held must have the ``lock``.
    """

    def __init__(self, most: int = _MOST, part: int = 8) -> None:
        self.most = most
        self.largest = most // part
        """Bytes."""
        self.held = 0
        """Bytes."""
        self.lock = Lock()
        self.order: OrderedDict[_Entry, dict[Any, _Entry]] = OrderedDict()
        """Each entry, least recently used first, with the dict of the cache that holds it."""


class Lru(Generic[K, V]):
    """One cache; ``weigh`` returns a value's bytes when it is put. A look-up counts as use."""

    def __init__(self, memory: CacheMemory, weigh: Callable[[V], int] = small) -> None:
        self._memory = memory
        self._weigh = weigh
        self._entries: dict[K, _Entry] = {}
        self._use = memory.order.move_to_end

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        try:  # one atomic step, so it needs no lock; code that iterates over the order has to expect it
            self._use(entry)
        except KeyError:
            return None  # evicted just now
        return entry.value

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """Return the value of a key; where there is none, make it and put it."""
        value = self.get(key)
        if value is None:
            self.put(key, value := make())
        return value

    def put(self, key: K, value: V) -> None:
        weight, memory = _ENTRY_BYTES + self._weigh(value), self._memory
        with memory.lock:
            if weight > memory.largest:
                self._drop(key)
                return
            entry = self._entries.get(key)
            if entry is None:
                entry = self._entries[key] = _Entry(key)
            entry.value = value
            memory.order[entry] = self._entries
            memory.order.move_to_end(entry)
            memory.held += weight - entry.weight
            entry.weight = weight
            while memory.held > memory.most:  # evict the least recently used
                oldest, home = memory.order.popitem(last=False)
                memory.held -= oldest.weight
                del home[oldest.key]

    def drop(self, key: K) -> None:
        if key in self._entries:
            with self._memory.lock:
                self._drop(key)

    def _drop(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            del self._memory.order[entry]
            self._memory.held -= entry.weight

    def drop_where(self, is_meant: Callable[[K, V], bool]) -> None:
        """Drop every entry for which ``is_meant`` is true; iterates over all of them."""
        with self._memory.lock:
            for key in [key for key, entry in self._entries.items() if is_meant(key, entry.value)]:
                self._drop(key)

    def clear(self) -> None:
        with self._memory.lock:
            for key in list(self._entries):
                self._drop(key)

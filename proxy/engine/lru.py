"""A mapping that forgets what was not used for longest."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Lru(Generic[K, V]):
    """Entries of at most ``size`` together, each of 1 or what ``weigh`` says; looking one up keeps it."""

    def __init__(self, size: int, weigh: Callable[[V], int] | None = None) -> None:
        self._size = size
        self._weigh = weigh
        self._weight = 0
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> None:
        self.drop(key)
        self._entries[key] = value
        self._weight += self._weigh(value) if self._weigh else 1
        while self._weight > self._size:
            self.drop(next(iter(self._entries)))

    def drop(self, key: K) -> None:
        dropped = self._entries.pop(key, None)
        if dropped is not None:
            self._weight -= self._weigh(dropped) if self._weigh else 1

    def drop_where(self, is_meant: Callable[[K, V], bool]) -> None:
        """Forget the entries that are meant; looks at all of them."""
        for key in [key for key, value in self._entries.items() if is_meant(key, value)]:
            self.drop(key)

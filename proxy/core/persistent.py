"""Sequences that can be extended without copying: serves law 8 (a turn costs what it brings).

A conversation grows only at its end. Extending a sequence that ends where its underlying list ends appends to
that list; extending an earlier place, a branch, makes a new list. Each sequence sees only its own part of the
list (law 6).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice
from operator import sub
from typing import Any, Generic, Self, TypeVar, cast, overload

import msgspec

T = TypeVar("T")


class PersistentList(Sequence[T]):
    """Items ``start`` to ``end`` (exclusive) of a list that only objects of this class append to."""

    __slots__ = ("_end", "_items", "_start")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, items: list[T], start: int = 0, end: int | None = None) -> None:
        self._items = items
        self._start = start
        self._end = len(items) if end is None else end

    def followed_by(self, new: Sequence[T]) -> "PersistentList[T]":
        """Return a sequence of these items and the ``new`` ones."""
        if not new:
            return self
        if self._end == self._start or self._end < len(self._items):
            return PersistentList([*self, *new])
        self._items.extend(new)
        return PersistentList(self._items, self._start)

    def __len__(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[T]:
        return iter(self._items[self._start : self._end])

    def __reversed__(self) -> Iterator[T]:
        return map(self._items.__getitem__, range(self._end - 1, self._start - 1, -1))

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> "PersistentList[T]": ...
    def __getitem__(self, place: int | slice) -> "T | PersistentList[T]":
        if isinstance(place, slice):
            first = self._start
            start, end, step = place.indices(self._end - first)
            if step != 1:
                return PersistentList([*self][place])
            return PersistentList(self._items, first + start, first + max(start, end))
        index = place + (self._start if place >= 0 else self._end)
        if not self._start <= index < self._end:
            raise IndexError(place)
        return self._items[index]

    def begins_with(self, others: "PersistentList[T]") -> bool:
        """Whether this sequence begins with all items of ``others``."""
        first = others.after(0)
        end = self._start + len(first)
        return end <= self._end and self._items[self._start : end] == first

    def after(self, place: int) -> list[T]:
        """Return the items from ``place`` on."""
        return self._items[self._start + place : self._end]

    def last_place(self, item: T) -> int:
        """Return the index of the last occurrence of an item, or -1; searches from the end."""
        items, place = self._items, self._end - 1
        while place >= self._start and items[place] != item:
            place -= 1
        return place - self._start

    def newest(self, most: int) -> tuple[T, ...]:
        """Return the last items, at most ``most``, newest first."""
        return tuple(self._items[max(self._end - most, self._start) : self._end][::-1])

    def __contains__(self, value: object) -> bool:
        return value in self._items[self._start : self._end]

    def index(self, value: Any, start: int = 0, stop: int | None = None) -> int:
        """Return the index of the first occurrence of a value. Raises ValueError if there is none."""
        start, stop, _ = slice(start, stop).indices(len(self))
        return self._items.index(value, self._start + start, self._start + stop) - self._start

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (PersistentList, list)):
            return NotImplemented
        others = cast("PersistentList[object] | list[object]", other)
        if (
            isinstance(others, PersistentList)
            and self._items is others._items
            and self._start == others._start
        ):
            return self._end == others._end
        return [*self] == [*others]

    def __repr__(self) -> str:
        return f"Grown({[*self]!r})"


class Sizes(Sequence[int]):
    """Integers stored as prefix sums, so that any run is added up in constant time."""

    __slots__ = ("_end", "_start", "_sums", "total")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, sums: list[int], start: int = 0, end: int | None = None) -> None:
        """The sizes between prefix sums ``start`` and ``end`` of a list that may be longer."""
        self._sums = sums
        self._start = start
        self._end = len(sums) - 1 if end is None else end
        self.total = sums[self._end] - sums[start]
        """The sum of all sizes."""

    @classmethod
    def of(cls, sizes: Iterable[int]) -> Self:
        """Return the sizes as prefix sums."""
        return cls([*accumulate(sizes, initial=0)])

    def followed_by(self, new: Sequence[int]) -> "Sizes":
        """Return these sizes followed by ``new`` ones."""
        if not new:
            return self
        if self._end == self._start or self._end < len(self._sums) - 1:
            return Sizes.of([*self, *new])
        self._sums.extend([*islice(accumulate(new, initial=self._sums[-1]), 1, None)])
        return Sizes(self._sums, self._start)

    def between(self, start: int, end: int | None = None) -> int:
        """Return the sum of the sizes ``start`` to ``end`` (exclusive); without ``end`` up to the last."""
        first, last = self._start, self._end
        if end is None or end > last - first:
            end = last - first
        return self._sums[first + end] - self._sums[first + min(start, end)]

    def after(self, place: int) -> list[int]:
        """Return the sizes from ``place`` on."""
        sums = self._sums[self._start + place : self._end + 1]
        return [*map(sub, sums[1:], sums)]

    def __len__(self) -> int:
        return self._end - self._start

    def __iter__(self) -> Iterator[int]:
        sums = self._sums[self._start : self._end + 1]
        return map(sub, sums[1:], sums)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> "Sizes": ...
    def __getitem__(self, place: int | slice) -> "int | Sizes":
        if isinstance(place, slice):
            first = self._start
            start, end, step = place.indices(self._end - first)
            if step != 1:
                return Sizes.of([*self][place])
            return Sizes(self._sums, first + start, first + max(start, end))
        index = place + (self._start if place >= 0 else self._end)
        if not self._start <= index < self._end:
            raise IndexError(place)
        return self._sums[index + 1] - self._sums[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Sizes, list)):
            return NotImplemented
        return [*self] == [*cast("Sequence[object]", other)]

    def __repr__(self) -> str:
        return f"Sizes({[*self]!r})"


# --- results computed from a chain's first messages, for the chains that continue it ---


class Incremental(msgspec.Struct, Generic[T], eq=False):
    """A cache of items made from messages; valid for chains that begin with exactly those bytes.

    Threads may read and write it at once: the stored value is never changed, only replaced.
    """

    __hash__ = None  # type: ignore[assignment]

    found: tuple[Sequence[bytes], Sequence[T], int] = ((), (), 0)
    """The messages, the items made from them, and how many of the items are valid."""

    def continued(
        self, raws: Sequence[bytes], may_go_on: Callable[[int], bool], made_from: Callable[[int], Iterable[T]]
    ) -> list[T]:
        """Return a new list of a chain's items: cached ones, and those ``made_from`` the next message on.

        ``may_go_on`` says whether messages from an index on leave the items before it unchanged. If not, or
        if the chain does not begin with the cached messages, all items are made again. The bytes of all
        messages are compared, which is quick if they are the same objects.
        """
        before, items, count = self.found
        first = len(before) - 1
        if first < 0 or raws[: len(before)] != before or not may_go_on(first):
            return [*made_from(0)]
        every = [*items]
        every[count:] = made_from(first)
        return every

    def keep(self, raws: Sequence[bytes], items: Sequence[T], count: int) -> None:
        """Cache the first ``count`` items, in place of what was cached.

        They were made from ``raws`` except the last of them, where a longer chain continues. The caller must
        not change ``items`` afterwards.
        """
        self.found = (raws, items, count)

    def __eq__(self, other: object) -> bool:
        """All caches are equal: the cached value is not part of a chain's identity."""
        return isinstance(other, Incremental)

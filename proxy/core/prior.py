"""What was found of a conversation's first messages, for the chains that go on from them.

Serves law 8 (a turn costs what it brings) for what is asked of few turns, and of all messages: it is made of
what came since the last of these turns, and joined to what is kept.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Prior(Generic[T]):
    """Items that were made of some messages, for as long as a chain begins with those very bytes.

    Threads may ask and keep at once: what is kept is never changed, only replaced.
    """

    __slots__ = ("_kept",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, kept: tuple[Sequence[bytes], Sequence[T]] = ((), ())) -> None:
        self._kept = kept

    def forked(self) -> "Prior[T]":
        """The same for a chain that goes on from this one: what either keeps from now on is its own."""
        return Prior(self._kept)

    def continued(
        self, raws: Sequence[bytes], may_go_on: Callable[[int], bool], made_from: Callable[[int], Iterable[T]]
    ) -> list[T]:
        """The items of a chain, as a new list: those kept, and those ``made_from`` the message after them on.

        ``may_go_on`` says whether what comes from a message on leaves the items before it as they are. The
        bytes of all messages are compared, which is quick where they are the same objects.
        """
        before, items = self._kept
        first = len(before) - 1
        if first < 0 or raws[: len(before)] != before or not may_go_on(first):
            return [*made_from(0)]
        return [*items, *made_from(first)]

    def keep(self, raws: Sequence[bytes], items: Sequence[T]) -> None:
        """Keep what was made of these messages but the last, which ends it, in place of what was kept."""
        self._kept = (raws, items)

    def __eq__(self, other: object) -> bool:
        """What is kept is no part of what a chain is: with or without it, the same is found."""
        return isinstance(other, Prior)

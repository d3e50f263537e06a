"""A history, indexed for the questions of the checker; and what the checker may find."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from tests.histories.history import Attempt, Forwarded, History, Kept, Message, Said, Tree, said

GRACE = 1.5
"""Seconds within which a worker knows that a write has failed: more than the tests' store timeout."""


class Kind(StrEnum):
    """The kinds of faults."""

    LOST = "lost"
    """An answered turn is in no transcript, and no answer reported that."""
    UNCOUNTED = "uncounted"
    """Turns were lost that no metric counted."""
    TWICE = "twice"
    """A turn is there more than once."""
    UNEXPLAINED = "unexplained"
    """A message is stored that nobody sent, or not at that place."""
    INTERLEAVED = "interleaved"
    """Another turn's messages are within a turn."""
    DISORDER = "disorder"
    """A turn comes before one that was over when it began."""
    HISTORY_MISSING = "history missing"
    """An appended turn was forwarded without all that was acknowledged before it."""
    PARTIAL_IN_VIEW = "partial in view"
    """An answer that was cut off was forwarded as if it were one."""
    ALTERED = "altered"
    """What was forwarded is not what was sent."""
    DIVERGED = "diverged"
    """Two workers sent different bytes for one request."""
    LEAKED = "leaked"
    """Words of one conversation were forwarded in another."""
    SPLIT = "split"
    """A conversation without a header went on in another session."""
    POLLUTED = "polluted"
    """The tip is where it must not be."""
    UNANSWERED = "unanswered"
    """A request was not answered without a reason."""
    DEGRADED = "degraded"
    """An answer said that it was degraded while nothing had failed."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A fault of an attempt or a session."""

    kind: Kind
    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.where}: {self.why}"


class Evidence:
    """A history, and what follows from it."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.attempts = {attempt.id: attempt for attempt in history.attempts}
        self._branches: dict[int, dict[tuple[bytes, Said], list[Kept]]] = {}

    @cached_property
    def _talks(self) -> dict[str, str]:
        """The conversation of each client."""
        return {attempt.id.rpartition(".")[0]: attempt.talk for attempt in self.history.attempts}

    def talk_of(self, attempt: str) -> str:
        """Return the conversation to which words that name an attempt belong."""
        return self._talks.get(attempt.rpartition(".")[0], "of nobody")

    @cached_property
    def forwarded(self) -> dict[str, list[Forwarded]]:
        """What was forwarded to the upstream, by attempt."""
        sent: dict[str, list[Forwarded]] = defaultdict(list)
        for each in self.history.forwarded:
            sent[each.attempt].append(each)
        return sent

    def intended(self, attempt: Attempt) -> Message | None:
        """The answers that the upstream gave or was about to give, by attempt."""
        return next((each.answer for each in reversed(self.forwarded.get(attempt.id, ()))), None)

    def tree_of(self, attempt: Attempt) -> Tree | None:
        """Return the stored session of an attempt."""
        return self.history.trees.get((attempt.tenant, attempt.session or attempt.header))

    def crashed(self, began: float, ended: float) -> bool:
        """Whether a worker was killed in a period."""
        return any(began - GRACE <= at <= ended + GRACE for at in self.history.crashes)

    def find(self, tree: Tree, path: Iterable[Said]) -> list[Kept]:
        """Return the stored messages at which a path with these messages ends."""
        branches = self._branches.setdefault(id(tree), _branches(tree))
        found: list[Kept] = []
        before = [b""]
        for each in path:
            found = [node for parent in before for node in branches.get((parent, each), ())]
            before = [node.hash for node in found]
        return found


def _branches(tree: Tree) -> dict[tuple[bytes, Said], list[Kept]]:
    """Index stored messages by content and parent; the first messages have the empty hash as parent."""
    branches: dict[tuple[bytes, Said], list[Kept]] = defaultdict(list)
    for node in tree.kept.values():
        parent = node.parent if node.parent in tree.kept else b""
        branches[parent, said(node.message)].append(node)
    return branches


def begins(piece: Said, whole: Message | None) -> bool:
    """Whether an answer is the beginning of another one."""
    if whole is None:
        return False
    role, text, calls, _ = said(whole)
    texts = text.startswith(piece[1])
    return piece[0] == role and texts and all(_begins(each, calls) for each in piece[2])


def _begins(call: tuple[str, str, str], whole: Sequence[tuple[str, str, str]]) -> bool:
    return any(
        other[0].startswith(call[0]) and other[1].startswith(call[1]) and other[2].startswith(call[2])
        for other in whole
    )

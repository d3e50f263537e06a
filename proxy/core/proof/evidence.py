"""What was found out about cuts: counts that add up, and nothing of what anybody said.

Two things are counted, by policy and model. *Pairs*: an answer and a second one to the same request, asked
with the whole history, or, as a control, with the same view, since a model disagrees with itself. And
*regret*: what was asked for again, by who asks, and by the kind of message that it was in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from math import sqrt
from typing import NamedTuple, Self

from proxy.core.economics.bill import NANO, added

Counts = Mapping[str, int]
"""By name; what belongs to a name stands behind a colon."""
_CONFIDENCE = 1.96
"""Standard errors of a confidence of 95 %."""
BUCKETS = 10


class Arm(StrEnum):
    """What was asked for the second time."""

    WHOLE = "whole"
    CONTROL = "control"


class Unproven(StrEnum):
    """Why an answer that was chosen was not compared."""

    BEYOND = "beyond"
    """The whole history does not fit the model's window."""
    CEILING = "ceiling"
    """The day's ceiling is reached, or nobody can say whether it is."""
    BUSY = "busy"
    """Too many were waiting."""
    FAILED = "failed"
    """The upstream gave no second answer that can be compared."""


class Signal(StrEnum):
    """Who asked for a message again."""

    RECALLED = "recalled"
    """The model, by the tool for that."""
    RERUN = "rerun"
    """The model, by the same call of a tool."""
    REREAD = "reread"
    """The model, by a call of the same tool on the same file."""
    SAID_AGAIN = "said_again"
    """The user, who said the same again."""
    USED = "used"
    """The answer to the whole history, which had an exact string of it."""


SIGNALS = frozenset(map(str, Signal))
"""Their names."""


class Interval(NamedTuple):
    """A value, and between what it lies with a confidence of 95 %."""

    value: float
    low: float
    high: float


def share_of(part: int, of: int) -> Interval | None:
    """A share, by the score interval (Wilson 1927); None of nothing."""
    if of <= 0:
        return None
    share, z = part / of, _CONFIDENCE
    centre, scale = share + z * z / (2 * of), 1 + z * z / of
    spread = z * sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = max((centre - spread) / scale, 0.0), min((centre + spread) / scale, 1.0)
    return Interval(share, min(low, share), max(high, share))


def difference_of(one: Interval, other: Interval) -> Interval:
    """By how much one share is more than another (Newcombe 1998, method 10)."""
    value = one.value - other.value
    below = sqrt((one.value - one.low) ** 2 + (other.high - other.value) ** 2)
    above = sqrt((one.high - one.value) ** 2 + (other.value - other.low) ** 2)
    return Interval(value, max(value - below, -1.0), min(value + above, 1.0))


class Missed(NamedTuple):
    """How often messages of one kind were asked for again."""

    kind: str
    """Who said them: user, assistant, system, or result, of a tool."""
    retention: str
    """Their retention class."""
    signal: Signal
    cut: int
    """While they were cut,"""
    shown: int
    """and while they stood in the view."""


@dataclass(frozen=True)
class Evidence:
    """Counts, read."""

    counts: Counts

    @classmethod
    def total(cls, each: Iterable[Counts]) -> Self:
        """The sum."""
        return cls(reduce(added, each, {}))

    def pairs(self, arm: Arm) -> int:
        """Answers that were compared."""
        return self.counts.get(f"{arm}:same", 0) + self.counts.get(f"{arm}:different", 0)

    def agreement(self, arm: Arm) -> Interval | None:
        """The share of pairs that agree."""
        return share_of(self.counts.get(f"{arm}:same", 0), self.pairs(arm))

    @property
    def difference(self) -> Interval | None:
        """By how much the model agrees more with itself than with its answer to the whole history."""
        whole, control = self.agreement(Arm.WHOLE), self.agreement(Arm.CONTROL)
        return difference_of(control, whole) if whole and control else None

    def likeness(self, arm: Arm) -> list[int]:
        """Pairs by how alike they are, in tenths, those least alike first."""
        return [self.counts.get(f"{arm}:like:{bucket}", 0) for bucket in range(BUCKETS)]

    @property
    def unproven(self) -> dict[Unproven, int]:
        """Answers that were chosen and not compared, by the reason."""
        return {why: number for why in Unproven if (number := self.counts.get(f"unproven:{why}", 0))}

    @property
    def cut(self) -> dict[tuple[str, str], int]:
        """Messages that were cut, by kind and retention class."""
        named = (name.split(":") for name in self.counts if name.startswith("cut:"))
        return {(kind, retention): self.counts[f"cut:{kind}:{retention}"] for _, kind, retention in named}

    @property
    def missed(self) -> list[Missed]:
        """What was asked for again, by kind, class and who asked."""
        found: set[tuple[str, str, Signal]] = set()
        for name in self.counts:
            signal, _, rest = name.removeprefix("shown:").partition(":")
            if signal in SIGNALS:
                kind, _, retention = rest.partition(":")
                found.add((kind, retention, Signal(signal)))
        return [
            Missed(
                *(kind, retention, signal),
                self.counts.get(f"{signal}:{kind}:{retention}", 0),
                self.counts.get(f"shown:{signal}:{kind}:{retention}", 0),
            )
            for kind, retention, signal in sorted(found)
        ]

    @property
    def spent(self) -> int:
        """Nano-dollars for second answers."""
        return self.counts.get("spent", 0)

    @property
    def tokens(self) -> int:
        """Tokens of their prompts and of these answers."""
        return self.counts.get("tokens", 0)

    @property
    def dollars(self) -> float:
        """Money for second answers."""
        return self.spent / NANO

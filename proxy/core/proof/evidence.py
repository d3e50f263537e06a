"""Evidence about cuts: counts that can be added, without any content of messages.

Two things are counted, by policy and model. *Pairs*: an answer and a second answer to the same request, asked
for with the whole history or, as a control, with the same view, since a model disagrees even with itself.
*Regret*: what was asked for again, by who asked, and by the kind of message that had it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from math import sqrt
from typing import NamedTuple, Self

from proxy.core.economics.bill import NANO, added

Counts = Mapping[str, int]
"""Counts by name; the parts of a name are separated by colons."""
_CONFIDENCE = 1.96
"""Number of standard errors for a confidence of 95 %."""
BUCKETS = 10


class Arm(StrEnum):
    """With what the model was asked for the second answer: the whole history, or the same view."""

    WHOLE = "whole"
    CONTROL = "control"


class Unproven(StrEnum):
    """Why an answer that was chosen for a comparison was not compared."""

    BEYOND = "beyond"
    """The whole history does not fit the model's window."""
    CEILING = "ceiling"
    """The day's ceiling is reached, or it is unknown whether it is."""
    BUSY = "busy"
    """Too many requests were waiting already."""
    FAILED = "failed"
    """The upstream gave no second answer that can be compared."""


class Signal(StrEnum):
    """Who asked for a message again, and how."""

    RECALLED = "recalled"
    """The model, with the recall tool."""
    RERUN = "rerun"
    """The model, by making the same tool call again."""
    REREAD = "reread"
    """The model, by calling the same tool on the same file."""
    SAID_AGAIN = "said_again"
    """The user, by saying the same again."""
    USED = "used"
    """The answer to the whole history, by using an exact string of the message."""


SIGNALS = frozenset(map(str, Signal))
"""The names of all signals."""


class Interval(NamedTuple):
    """A value with its confidence interval of 95 %."""

    value: float
    low: float
    high: float


def share_of(part: int, of: int) -> Interval | None:
    """A share with its score interval (Wilson 1927); None if ``of`` is zero."""
    if of <= 0:
        return None
    share, z = part / of, _CONFIDENCE
    centre, scale = share + z * z / (2 * of), 1 + z * z / of
    spread = z * sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = max((centre - spread) / scale, 0.0), min((centre + spread) / scale, 1.0)
    return Interval(share, min(low, share), max(high, share))


def difference_of(one: Interval, other: Interval) -> Interval:
    """The difference ``one - other`` of two shares, with its interval (Newcombe 1998, method 10)."""
    value = one.value - other.value
    below = sqrt((one.value - one.low) ** 2 + (other.high - other.value) ** 2)
    above = sqrt((one.high - one.value) ** 2 + (other.value - other.low) ** 2)
    return Interval(value, max(value - below, -1.0), min(value + above, 1.0))


class Missed(NamedTuple):
    """How often messages of one kind were asked for again."""

    kind: str
    """Who said them: user, assistant or system; `result` for tool results."""
    retention: str
    """Their retention class."""
    signal: Signal
    cut: int
    """Number of times while they were cut."""
    shown: int
    """Number of times while they were in the view."""


@dataclass(frozen=True)
class Evidence:
    """The meaning of the counts."""

    counts: Counts

    @classmethod
    def total(cls, each: Iterable[Counts]) -> Self:
        """Return the evidence of all these counts together."""
        return cls(reduce(added, each, {}))

    def pairs(self, arm: Arm) -> int:
        """Number of answers that were compared."""
        return self.counts.get(f"{arm}:same", 0) + self.counts.get(f"{arm}:different", 0)

    def agreement(self, arm: Arm) -> Interval | None:
        """The share of pairs that agree."""
        return share_of(self.counts.get(f"{arm}:same", 0), self.pairs(arm))

    @property
    def difference(self) -> Interval | None:
        """By how much more often the model agrees with itself than with its answer to the whole history."""
        whole, control = self.agreement(Arm.WHOLE), self.agreement(Arm.CONTROL)
        return difference_of(control, whole) if whole and control else None

    def likeness(self, arm: Arm) -> list[int]:
        """Numbers of pairs by likeness in steps of a tenth, the least alike first."""
        return [self.counts.get(f"{arm}:like:{bucket}", 0) for bucket in range(BUCKETS)]

    @property
    def unproven(self) -> dict[Unproven, int]:
        """Numbers of answers that were chosen but not compared, by reason."""
        return {why: number for why in Unproven if (number := self.counts.get(f"unproven:{why}", 0))}

    @property
    def cut(self) -> dict[tuple[str, str], int]:
        """Numbers of messages that were cut, by kind and retention class."""
        named = (name.split(":") for name in self.counts if name.startswith("cut:"))
        return {(kind, retention): self.counts[f"cut:{kind}:{retention}"] for _, kind, retention in named}

    @property
    def missed(self) -> list[Missed]:
        """What was asked for again, by kind, retention class and signal."""
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
        """Nano-dollars spent on second answers."""
        return self.counts.get("spent", 0)

    @property
    def tokens(self) -> int:
        """Tokens of the second answers and their prompts."""
        return self.counts.get("tokens", 0)

    @property
    def dollars(self) -> float:
        """Dollars spent on second answers."""
        return self.spent / NANO

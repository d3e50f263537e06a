"""Evidence about cuts: counts that can be added, without any content of messages.

Two things are counted, by policy and model. *Pairs*: an answer and a second answer to the same request, asked
for with the whole history or, as a control, with the same view, since a model disagrees even with itself.
*Regret*: what was asked for again, by who asked, and by the kind of message that had it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import sqrt
from typing import NamedTuple, Self

from proxy.core.economics.bill import NANO

Counts = Mapping[str, int]
"""Evidence as it is stored: counts by name, the parts of a name separated by colons."""
_CONFIDENCE = 1.96
"""Number of standard errors for a confidence of 95 %."""
BUCKETS = 10
OUTCOMES = ("different", "same")
"""Names of comparisons, by whether the answers agree."""


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
    HIDDEN = "hidden"
    """The proxy answered tool calls within the answer; a second answer would end at such a call."""
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


_ARMS, _REASONS, _SIGNALS = ({*map(str, names)} for names in (Arm, Unproven, Signal))


@dataclass(frozen=True)
class Interval:
    """A share, or a difference of shares, with its confidence interval of 95 %."""

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


class Kind(NamedTuple):
    """A kind of message."""

    role: str
    """Who said it: user, assistant or system; `result` for tool results."""
    retention: str
    """Its retention class."""


class Pair(NamedTuple):
    """The outcome of comparing an answer with a second one."""

    arm: Arm
    agrees: bool


class Likeness(NamedTuple):
    """How alike an answer and a second one are, in tenths."""

    arm: Arm
    bucket: int


class AskedAgain(NamedTuple):
    """A message that was asked for again."""

    signal: Signal
    kind: Kind
    is_cut: bool
    """Whether the view lacked it, all or in part."""


@dataclass(frozen=True)
class Missed:
    """How often messages of one kind were asked for again."""

    kind: str
    """Who said them: user, assistant or system; result for tool results."""
    retention: str
    """Their retention class."""
    signal: Signal
    """recalled, rerun, reread, said_again, or used (an exact string of it, in a second answer only)."""
    cut: int
    """Number of times while they were cut, cleared or clipped."""
    shown: int
    """Number of times while they were in the view."""


@dataclass(frozen=True)
class Evidence:
    """What was found out about cuts. Evidence adds up, and is stored as :data:`Counts`."""

    compared: Counter[Pair] = field(default_factory=Counter[Pair])
    alike: Counter[Likeness] = field(default_factory=Counter[Likeness])
    unproven: Counter[Unproven] = field(default_factory=Counter[Unproven])
    """Numbers of answers that were chosen but not compared, by reason."""
    cut: Counter[Kind] = field(default_factory=Counter[Kind])
    """Numbers of messages that were cut, by kind."""
    asked_again: Counter[AskedAgain] = field(default_factory=Counter[AskedAgain])
    spent: int = 0
    """Nano-dollars spent on second answers."""
    tokens: int = 0
    """Tokens of the second answers and their prompts."""

    def __add__(self, other: Evidence) -> Evidence:
        return Evidence(**{name: own + getattr(other, name) for name, own in vars(self).items()})

    @classmethod
    def of(cls, stored: Iterable[Counts]) -> Self:
        """Return the evidence of all these counts together; names of a newer release are skipped."""
        total = Counter[str]()
        for counts in stored:
            total.update(counts)
        found = cls(spent=total["spent"], tokens=total["tokens"])
        for name, number in (+total).items():
            match name.split(":"):
                case [arm, outcome] if arm in _ARMS and outcome in OUTCOMES:
                    found.compared[Pair(Arm(arm), agrees=outcome == OUTCOMES[True])] = number
                case [arm, "like", bucket] if arm in _ARMS and bucket.isdecimal():
                    found.alike[Likeness(Arm(arm), int(bucket))] = number
                case ["unproven", why] if why in _REASONS:
                    found.unproven[Unproven(why)] = number
                case ["cut", role, retention]:
                    found.cut[Kind(role, retention)] = number
                case [*shown, signal, role, retention] if signal in _SIGNALS and shown in ([], ["shown"]):
                    asked = AskedAgain(Signal(signal), Kind(role, retention), is_cut=not shown)
                    found.asked_again[asked] = number
                case _:
                    pass
        return found

    def counts(self) -> Counts:
        """Return the evidence as it is stored."""
        counts = {f"{arm}:{OUTCOMES[agrees]}": number for (arm, agrees), number in self.compared.items()}
        counts |= {f"{arm}:like:{bucket}": number for (arm, bucket), number in self.alike.items()}
        counts |= {f"unproven:{why}": number for why, number in self.unproven.items()}
        counts |= {f"cut:{role}:{retention}": number for (role, retention), number in self.cut.items()}
        for (signal, (role, retention), is_cut), number in self.asked_again.items():
            counts[f"{'' if is_cut else 'shown:'}{signal}:{role}:{retention}"] = number
        amounts = {"spent": self.spent, "tokens": self.tokens}
        return counts | {name: amount for name, amount in amounts.items() if amount}

    def pairs(self, arm: Arm) -> int:
        """Number of answers that were compared."""
        return self.compared[Pair(arm, agrees=True)] + self.compared[Pair(arm, agrees=False)]

    def agreement(self, arm: Arm) -> Interval | None:
        """The share of pairs that agree."""
        return share_of(self.compared[Pair(arm, agrees=True)], self.pairs(arm))

    @property
    def difference(self) -> Interval | None:
        """By how much more often the model agrees with itself than with its answer to the whole history."""
        whole, control = self.agreement(Arm.WHOLE), self.agreement(Arm.CONTROL)
        return difference_of(control, whole) if whole and control else None

    def likeness(self, arm: Arm) -> list[int]:
        """Numbers of pairs by likeness in steps of a tenth, the least alike first."""
        return [self.alike[Likeness(arm, bucket)] for bucket in range(BUCKETS)]

    @property
    def missed(self) -> list[Missed]:
        """What was asked for again, by kind, retention class and signal."""
        return [
            Missed(
                *(kind.role, kind.retention, signal),
                cut=self.asked_again[AskedAgain(signal, kind, is_cut=True)],
                shown=self.asked_again[AskedAgain(signal, kind, is_cut=False)],
            )
            for kind, signal in sorted({(each.kind, each.signal) for each in self.asked_again})
        ]

    @property
    def dollars(self) -> float:
        """Dollars spent on second answers."""
        return self.spent / NANO

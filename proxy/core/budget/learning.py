"""What answers teach about a model: its context window, and how far our count of tokens is from its own.

Whoever states a window may be wrong; what the upstream does is true. So a refusal or a silent truncation
lowers what anybody states, the policy too, and an answer shows that the window is at least what it took. That
alone never cuts anything: where it is all that is known, or has refuted what was stated, the view may grow
until the upstream says no. The newest evidence counts.

Counting too little breaks law 4, counting too much only prunes early: so the ratio of real to counted tokens
rises at once and falls one step at a time, on a grid of 5 % with hysteresis, because a move may begin an
epoch and so cost a provider's prompt cache (law 3).

Pure state machines, without a clock, made of plain data. The engine reads them once a turn; what is learned
acts from the next.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from statistics import median
from typing import Literal

import msgspec

from proxy.core.budget.budget import Window, WindowSource

FADES = 3_600.0
"""Seconds for which a refusal or a truncation is believed: servers are restarted with other windows."""
LEAST = 256
"""Tokens; what states less is no context window."""
_SHRUNK = 0.75
"""Share of the tokens sent that a refusal without numbers leaves as the window."""
COUNTED = 1024
"""Tokens that must have been counted before a truncation is believed."""
_STALLS = 2
"""Requests of one session whose count did not grow before a truncation is believed."""
_AGREES = 5
"""The part of a count by which it may be off what the one before it lets expect."""
_PINNED = 10
"""Counts of a truncating server are not below the largest by more than this part."""
_CACHE_BLOCK = 128
"""Tokens by which a count of what is not cached may be off: prefixes are cached in blocks."""


class WindowEvidence(msgspec.Struct):
    """What answers have taught about one model's window, to one caller."""

    refused: int | None = None
    """Tokens of the window by the newest refusal or truncation."""
    by: Literal[WindowSource.REFUSAL, WindowSource.TRUNCATED] = WindowSource.REFUSAL
    believed_until: float = 0.0
    """Monotonic seconds."""
    answered: int = 0
    """The most prompt tokens that were answered."""
    is_tracked: bool = False
    """Whether the upstream's count has ever grown with what was sent; before that no truncation is believed.

    That of servers that leave out what is cached has not, for in a session's second request most of it is.
    """
    counts_answer: bool = False
    """Whether a prompt was refused that would have fitted alone: its answer's limit counts too."""

    def window(self, policy: int | None, upstream: int | None, prices: int | None, now: float) -> Window:
        """The window, of those that are stated in tokens and what is known beside; ``now`` is monotonic."""
        if now > self.believed_until:
            self.refused = None
        if policy is not None:
            lowered = self.refused is not None and self.refused < policy
            return Window(self.refused, self.by) if lowered else Window(policy, WindowSource.POLICY)
        if self.refused is not None:
            return Window(self.refused, self.by)
        stated = upstream or prices
        if stated is None:
            return Window()
        source = WindowSource.UPSTREAM if upstream else WindowSource.PRICES
        return Window(max(stated, self.answered), source, is_least=self.answered > stated)

    def learn_refusal(self, stated: int | None, sent: int, now: float) -> None:
        """Take over the window that a refusal states, or guess from the tokens that were sent."""
        if stated is None or stated < LEAST:
            stated = max(int(min(sent, self.refused or sent) * _SHRUNK), LEAST)
        self._lower(stated, WindowSource.REFUSAL, now)

    def learn_truncation(self, counted: int, now: float) -> None:
        """The upstream drops what goes beyond so many tokens."""
        self._lower(counted, WindowSource.TRUNCATED, now)

    def _lower(
        self, window: int, by: Literal[WindowSource.REFUSAL, WindowSource.TRUNCATED], now: float
    ) -> None:
        self.refused, self.by, self.believed_until = window, by, now + FADES
        self.answered = min(self.answered, window)

    def learn_answer(self, prompt: int) -> None:
        """A prompt of so many tokens, as the upstream counted them, was answered."""
        self.answered = max(self.answered, prompt)
        if self.refused is not None and prompt > self.refused:
            self.refused = None


class Sample(StrEnum):
    """What a count says, beside what was sent."""

    TRACKED = "tracked"
    """It has grown as what was sent did."""
    PLAIN = "plain"
    """It may be compared with what was sent."""
    ODD = "odd"
    """Something was not counted."""


class Growth(msgspec.Struct):
    """How the upstream's count has grown with what one session sent to one model.

    A server that truncates in silence counts what it keeps: about as much each time. Others count less than
    was sent, too: what is cached is left out, or templates drop reasoning of earlier exchanges. There the
    count falls far below the largest, or goes on growing from one request to the next.
    """

    sent: int = 0
    """Counted tokens of the request with the largest count."""
    count: int = 0
    """The largest count: the upstream's tokens."""
    newest_sent: int = 0
    """Of the newest request that is not far shorter."""
    newest_count: int = 0
    stalls: int = 0
    """Requests in a row that were longer by a tenth, and of which no more was counted."""

    def observe(self, sent: int, count: int) -> Sample:
        """Take in that of ``sent`` counted tokens the upstream counted ``count``."""
        if 2 * sent < self.sent:
            return Sample.PLAIN  # a request aside, such as a subagent's, says nothing of the conversation
        before_sent, before_count = self.newest_sent, self.newest_count
        self.newest_sent, self.newest_count = sent, count
        if not self.count:
            self.sent, self.count = sent, count
            return Sample.PLAIN
        rate, brought = self.count / self.sent, sent - before_sent
        if count > self.count:
            is_short = 20 * (count - self.count) < excess(sent, self.sent) * rate
            self.sent, self.count, self.stalls = sent, count, 0
            expected = sent * before_count / before_sent
            is_tracked = excess(sent, before_sent) >= 0 and abs(count - expected) <= expected / _AGREES
            return Sample.ODD if is_short else Sample.TRACKED if is_tracked else Sample.PLAIN
        if sent <= self.sent:
            return Sample.PLAIN
        is_growing = 2 * (count - before_count) >= brought * rate > 0
        is_without_cached = abs(count - brought * rate) <= max(count, brought * rate) / 10 + _CACHE_BLOCK
        if is_growing or is_without_cached or _PINNED * count < (_PINNED - 1) * self.count:
            self.stalls = 0
        elif excess(sent, self.sent) >= 0:
            self.stalls += 2 if count == self.count else 1  # one number for two requests says it twice
        return Sample.ODD

    @property
    def window(self) -> int | None:
        """Tokens at which the upstream truncates; None where it does not seem to."""
        return self.count if self.stalls >= _STALLS and self.count >= COUNTED else None


def excess(sent: int, before: int) -> int:
    """Tenths of a token that were ``sent`` beyond a tenth more than ``before``.

    Below 0 hardly more was sent, and a count that did not grow means nothing.
    """
    return 10 * sent - 11 * before


# --- the learned ratio real/counted of one (upstream, model) ---

STEPS = 20
"""Grid points in 1.0: the ratio is a whole number of steps of 5 %."""
LOWEST, HIGHEST = 16, 60
"""0.8 and 3.0, in steps."""
UNKNOWN = 26
"""1.3, where a model that we do not know starts, in steps."""
SMALL = 200
"""Counted tokens below which a sample is ignored: it says more about the template's framing (about 25 tokens
a request and 5 a message) than about the text."""
WINDOW = 7
"""Samples whose median is the estimate: three strange ones in a row do not move it."""
TRUSTED = 3
"""Samples from which the median outvotes a strange one."""
PLAUSIBLE = 12
"""Steps from which a sample agrees with our count: with fewer tokens no tokenizer says the same."""
TOLERANCE = 0.05
"""Steps by which the estimate may pass the ratio: a quarter of a percent, so that it does not rock there."""

_O200K = re.compile(r"(?:ft:)?(?:gpt-(?:4o|4\.1|4\.5|5|oss)|chatgpt-|o[134](?:-|$))")


class Ratio(msgspec.Struct):
    """What is known of one (upstream, model). Begin with `Ratio.of(model)`."""

    steps: int = UNKNOWN
    samples: int = 0
    """Samples seen in all."""
    recent: list[float] = msgspec.field(default_factory=list[float])
    """The newest samples, real/counted in steps, oldest first."""

    @classmethod
    def of(cls, model: str) -> Ratio:
        """1.0 where the model's own encoding is o200k, with or without a provider's prefix; 1.3 else."""
        name = model.rpartition("/")[2].lower()
        return cls(steps=STEPS if _O200K.match(name) else UNKNOWN)

    @property
    def value(self) -> float:
        """Real tokens per counted token, on the grid, within 0.8 and 3.0."""
        return self.steps / STEPS

    @property
    def is_plausible(self) -> bool:
        """Whether some recent sample agrees with what we counted, as far as two tokenizers do."""
        return max(self.recent, default=0.0) >= PLAUSIBLE

    def calibrated(self, tokens: int) -> int:
        """Counted tokens as the upstream would count them, rounded up."""
        return -(-tokens * self.steps // STEPS)

    def observe(self, counted: int, real: int) -> None:
        """Learn from a usage: we counted `counted` prompt tokens (before the ratio), the upstream `real`."""
        if not self._sampled(counted, real):
            return
        estimate = median(self.recent)
        covering = math.ceil(estimate - TOLERANCE)  # the lowest ratio that covers it
        if covering > self.steps:
            self._move(covering if len(self.recent) >= TRUSTED else self.steps + 1)
        elif estimate <= self.steps - 1:
            self._move(self.steps - 1)

    def refused(self, counted: int, real: int | None) -> None:
        """Learn from an overflow error: what `observe` would do slowly is done at once, and only upwards.

        With `real` the ratio covers it from now on; without, it rises by a quarter.
        """
        if counted <= 0:
            return
        if real is None:
            self._move(-(-self.steps * 5 // 4))
        else:
            self._sampled(counted, real)
            self._move(max(self.steps, -(-real * STEPS // counted)))

    def _sampled(self, counted: int, real: int) -> bool:
        if counted < SMALL or real <= 0:
            return False
        self.samples += 1
        self.recent = [*self.recent[1 - WINDOW :], real * STEPS / counted]
        return True

    def _move(self, steps: int) -> None:
        self.steps = min(max(steps, LOWEST), HIGHEST)

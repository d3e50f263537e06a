"""The learned ratio real/counted of one (upstream, model): how far our count is from the upstream's.

A pure state machine, without a clock, made of plain data. The engine reads it once a
turn; what is learned acts from the next. It moves on a grid of 5 % with hysteresis, because a move may begin
an epoch and so cost a provider's prompt cache (law 3). Counting too little breaks law 4,
counting too much only prunes early: so the ratio rises at once and falls one step at a time.
"""

from __future__ import annotations

import math
import re
from statistics import median

import msgspec

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
        return any(sample >= PLAUSIBLE for sample in self.recent)

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

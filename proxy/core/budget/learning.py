"""What answers show about a model: its context window, and how far the proxy's token count is from its own.

A stated window may be wrong; the upstream's behaviour is not (docs/policies.md, "How large a model's window
is"). The newest evidence counts. A lower bound never causes a cut: where it is all that is known, or has
refuted the stated window, the view may grow until the upstream refuses.

Counting too few tokens breaks law 4, while counting too many only prunes early. So the ratio of real to
counted tokens rises at once and falls one step at a time. It moves on a grid of 5 % with hysteresis, because
a move may begin an epoch and so cost a provider's prompt cache (law 3).

These are pure state machines of plain data, without a clock; what they learn takes effect at the next turn.
"""

from __future__ import annotations

import math
import re
from enum import StrEnum
from statistics import median
from typing import Literal

import msgspec

from proxy.core.budget.budget import Window, WindowSource

BELIEVED_FOR = 3_600.0
"""Seconds for which a refusal or a truncation is believed: servers are restarted with other windows."""
LEAST_WINDOW = 256
"""Tokens; a smaller number is not taken for a context window."""
_SHRUNK = 0.75
"""Share of the tokens sent that is taken as the window after a refusal without numbers."""
MOST_MEDIA_SHARE = 0.05
"""Share of a request's tokens that may be images, audio and files where counts are compared."""
LEAST_TRUNCATED = 1024
"""Tokens that the upstream must have counted before a truncation is believed."""
_STALLS = 2
"""Longer requests of one session whose count did not grow, before a truncation is believed."""
_AGREES = 5
"""A count may differ from what the previous one predicts by one part in this many."""
_PINNED = 10
"""Counts of a truncating server are at most one part in this many below the largest count."""
_CACHE_BLOCK = 128
"""Tokens by which a count without cached tokens may be off: prefixes are cached in blocks."""


class WindowEvidence(msgspec.Struct):
    """What answers to one caller have shown about one model's window."""

    refused: int | None = None
    """The window in tokens according to the newest refusal or truncation."""
    by: Literal[WindowSource.REFUSAL, WindowSource.TRUNCATED] = WindowSource.REFUSAL
    believed_until: float = 0.0
    """Time until which ``refused`` holds, in monotonic seconds."""
    answered: int = 0
    """Tokens of the longest prompt that was answered."""
    answered_at: float = 0.0
    """When a prompt of that length was last answered, in monotonic seconds."""
    is_tracked: bool = False
    """Whether the upstream's count has ever grown with what was sent; before that no truncation is believed.

    Servers that leave out cached tokens never set this: in a session's second request most of it is cached.
    """
    counts_answer: bool = False
    """Whether a prompt was refused that would have fitted alone, so that the answer's limit counts too."""

    def window(self, policy: int | None, upstream: int | None, prices: int | None, now: float) -> Window:
        """The window from the stated ones (in tokens) and this evidence; ``now`` is in monotonic seconds."""
        if now > self.believed_until:
            self.refused = None
        if self.refused is not None and (policy is None or self.refused < policy):
            return Window(self.refused, self.by)
        if policy is not None:
            return Window(policy, WindowSource.POLICY)
        stated = upstream or prices
        if stated is None:
            return Window()
        source = WindowSource.UPSTREAM if upstream else WindowSource.PRICES
        return Window(max(stated, self.answered), source, is_least=self.answered > stated)

    def learn_refusal(self, stated: int | None, sent: int, now: float, upstream: int | None = None) -> int:
        """Take the window that a refusal states, or guess it from the number of tokens sent.

        Returns the window that the refused request is to be pruned to. A guess lowers the window for others
        neither below what was answered in the last hour nor below half of what the ``upstream`` states: a
        server whose requests share one cache refuses what it takes a moment later.
        """
        if stated is not None and stated >= LEAST_WINDOW:
            self._lower(stated, WindowSource.REFUSAL, now)
            return stated
        guessed = max(int(min(sent, self.refused or sent) * _SHRUNK), LEAST_WINDOW)
        answered = self.answered if now <= self.answered_at + BELIEVED_FOR else 0
        taken = min(max(answered, (upstream or 0) // 2), self.refused or sent)
        if taken < sent:
            self._lower(max(guessed, taken), WindowSource.REFUSAL, now)
        return guessed

    def learn_truncation(self, counted: int, now: float) -> bool:
        """Take note that the upstream silently drops what exceeds ``counted`` tokens.

        Returns False and learns nothing where the last hour's answers included one to a longer prompt.
        """
        if excess(self.answered, counted) >= 0 and now <= self.answered_at + BELIEVED_FOR:
            return False
        self._lower(counted, WindowSource.TRUNCATED, now)
        return True

    def _lower(
        self, window: int, by: Literal[WindowSource.REFUSAL, WindowSource.TRUNCATED], now: float
    ) -> None:
        self.refused, self.by, self.believed_until = window, by, now + BELIEVED_FOR
        self.answered = min(self.answered, window)

    def learn_answer(self, prompt: int, now: float = 0.0) -> None:
        """Take note that a prompt of this many tokens, by the upstream's count, was answered."""
        if prompt >= self.answered:
            self.answered, self.answered_at = prompt, now
        if self.refused is not None and prompt > self.refused:
            self.refused = None


class CountQuality(StrEnum):
    """How the upstream's count relates to what was sent."""

    GROWING = "tracked"
    """The count has grown as the request did."""
    COMPARABLE = "plain"
    """The count may be compared with what was sent."""
    UNRELIABLE = "odd"
    """Some of the request was not counted, or something else was."""


class Growth(msgspec.Struct):
    """How the upstream's count grows with what one session sends to one model.

    A server that truncates silently counts only what it keeps: about as much each time. Other servers also
    count less than was sent: some leave out cached tokens, and some templates drop the reasoning of earlier
    exchanges. But there the count falls far below the largest, or keeps growing between requests. Some
    count more than was sent, such as a remote video or what a web search found. That may shrink, so only a
    count below that of the request itself can be a truncation.
    """

    sent: int = 0
    """Counted tokens of the request with the largest count."""
    count: int = 0
    """The largest count, in the upstream's tokens."""
    newest_sent: int = 0
    """Counted tokens of the newest request, leaving out those less than half as long as the largest."""
    newest_count: int = 0
    stalls: int = 0
    """Consecutive requests that were longer by a tenth without a larger count."""
    media_tokens: int = 0
    """How many of the tokens sent are of images, audio and files, which only estimates tell."""

    def observe(self, sent: int, count: int, media_tokens: int = 0, ratio: float = 1.0) -> CountQuality:
        """Take note that the upstream counted ``count`` tokens for ``sent`` counted tokens.

        Where ``media_tokens`` differ much from those before, the counts so far say nothing of what was sent.
        ``ratio`` is the learned one: the request itself has ``ratio * sent`` of the upstream's tokens.
        """
        if 2 * sent < self.sent:
            # A side request, such as a subagent's, tells nothing about the conversation.
            return CountQuality.COMPARABLE
        if abs(media_tokens - self.media_tokens) > MOST_MEDIA_SHARE * sent:
            self.sent = self.count = self.newest_sent = self.newest_count = self.stalls = 0
            self.media_tokens = media_tokens
        before_sent, before_count = self.newest_sent, self.newest_count
        self.newest_sent, self.newest_count = sent, count
        if not self.count:
            self.sent, self.count = sent, count
            return CountQuality.COMPARABLE
        rate, brought = self.count / self.sent, sent - before_sent
        if count > self.count:
            is_short = 20 * (count - self.count) < excess(sent, self.sent) * rate
            self.sent, self.count, self.stalls = sent, count, 0
            expected = sent * before_count / before_sent
            is_tracked = excess(sent, before_sent) >= 0 and abs(count - expected) <= expected / _AGREES
            if is_short:
                return CountQuality.UNRELIABLE
            return CountQuality.GROWING if is_tracked else CountQuality.COMPARABLE
        if sent <= self.sent:
            return CountQuality.COMPARABLE
        is_growing = 2 * (count - before_count) >= brought * rate > 0
        is_without_cached = abs(count - brought * rate) <= max(count, brought * rate) / 10 + _CACHE_BLOCK
        if is_growing or is_without_cached or _PINNED * count < (_PINNED - 1) * self.count:
            self.stalls = 0
        elif excess(sent, self.sent) >= 0 and ratio * sent > self.count:
            self.stalls += 2 if count == self.count else 1  # exactly the same count is stronger evidence
        return CountQuality.UNRELIABLE

    @property
    def window(self) -> int | None:
        """Number of tokens at which the upstream truncates; None where it does not seem to."""
        return self.count if self.stalls >= _STALLS and self.count >= LEAST_TRUNCATED else None


def excess(sent: int, before: int) -> int:
    """Tenths of a token by which ``sent`` exceeds 1.1 times ``before``.

    Below 0 hardly more was sent, so a count that did not grow means nothing.
    """
    return 10 * sent - 11 * before


# --- the learned ratio real/counted of one (upstream, model) ---

STEPS = 20
"""Grid points in 1.0: the ratio is a whole number of steps of 5 %."""
LOWEST, HIGHEST = 16, 60
"""0.8 and 3.0, in steps. A sample above that is ignored: it counts what was not in the request."""
INITIAL_STEPS = 26
"""1.3 in steps: the initial ratio of an unknown model."""
LEAST_SAMPLE = 200
"""Counted tokens below which a sample is ignored: it shows more of the template's framing (about 25 tokens
per request and 5 per message) than of the text."""
SAMPLE_SIZE = 7
"""Number of samples whose median is the estimate: three outliers in a row do not move it."""
_TRUSTED = 3
"""Number of samples from which the median outvotes an outlier."""
PLAUSIBLE = 12
"""Steps from which a sample is plausible: no tokenizer writes a text in fewer tokens than this ratio."""
_TOLERANCE = 0.05
"""Steps by which the estimate may exceed the ratio, a quarter of a percent, to prevent oscillation."""

_O200K = re.compile(r"(?:ft:)?(?:gpt-(?:4o|4\.1|4\.5|5|oss)|chatgpt-|o[134](?:-|$))")


class Ratio(msgspec.Struct):
    """The learned ratio of one (upstream, model). Begin with `Ratio.of(model)`."""

    steps: int = INITIAL_STEPS
    samples: int = 0
    recent: list[float] = msgspec.field(default_factory=list[float])
    """The newest samples, real/counted in steps, oldest first."""

    @classmethod
    def of(cls, model: str) -> Ratio:
        """The initial ratio: 1.0 for models with the o200k encoding, 1.3 for others.

        A provider's prefix before the model's name is ignored.
        """
        name = model.rpartition("/")[2].lower()
        return cls(steps=STEPS if _O200K.match(name) else INITIAL_STEPS)

    @property
    def value(self) -> float:
        """Real tokens per counted token, on the grid, within 0.8 and 3.0."""
        return self.steps / STEPS

    def calibrated(self, tokens: int) -> int:
        """Convert counted tokens to the upstream's tokens, rounded up."""
        return -(-tokens * self.steps // STEPS)

    def observe(self, counted: int, real: int) -> None:
        """Learn from a usage: `counted` are our prompt tokens (before the ratio), `real` the upstream's."""
        if not self._sampled(counted, real):
            return
        estimate = median(self.recent)
        covering = math.ceil(estimate - _TOLERANCE)  # the lowest ratio that covers it
        if covering > self.steps:
            self.steps = min(covering if len(self.recent) >= _TRUSTED else self.steps + 1, HIGHEST)
        elif estimate <= self.steps - 1:
            self.steps = max(self.steps - 1, LOWEST)

    def refused(self, counted: int, real: int | None) -> None:
        """Learn from an overflow error: raise the ratio at once, where `observe` would do so slowly.

        With the `real` tokens, the ratio rises until it covers them; without, it rises by a quarter.
        """
        if counted <= 0:
            return
        raised = -(-self.steps * 5 // 4)
        if real is not None:
            self._sampled(counted, real)
            raised = max(self.steps, -(-real * STEPS // counted))
        self.steps = min(raised, HIGHEST)

    def _sampled(self, counted: int, real: int) -> bool:
        if counted < LEAST_SAMPLE or not 0 < real * STEPS <= HIGHEST * counted:
            return False
        self.samples += 1
        self.recent = [*self.recent[1 - SAMPLE_SIZE :], real * STEPS / counted]
        return True

"""The token budget of a request, the context window behind it, and the stage that a view reaches.

There are two units. *Counted tokens* are the proxy's own count; *tokens* are those of the model: counted
tokens times a learned ratio. Planning uses counted tokens; everything shown to people is in tokens.
"""

import math
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.core.policy.sections import Stages

MESSAGE_TOKENS = 4
"""Counted tokens that a message costs in addition to its text."""
REQUEST_TOKENS = 3
"""Counted tokens that a request costs in addition to its messages."""
_ANY = 2**40
"""Tokens, more than any request has: no limit."""


class WindowSource(StrEnum):
    """Where the size of a window is known from."""

    POLICY = "policy"
    REFUSAL = "refusal"
    TRUNCATED = "truncated"
    UPSTREAM = "upstream"
    PRICES = "prices"
    UNKNOWN = "unknown"


class Window(msgspec.Struct, frozen=True):
    """A model's context window, as far as it is known."""

    tokens: int | None = None
    source: WindowSource = WindowSource.UNKNOWN
    is_least: bool = False
    """Whether this is only a lower bound: a request longer than its source states was answered."""

    @property
    def limit(self) -> int | None:
        """Tokens that a request may have, prompt and answer together; None where unknown."""
        return None if self.is_least else self.tokens


UNKNOWN_WINDOW = Window()


class Stage(StrEnum):
    """How full a view is, from the least to the most pressing."""

    CALM = "calm"
    WARN = "warn"
    TRIM = "trim"
    COMPACT = "compact"
    EMERGENCY = "emergency"

    @property
    def is_pressing(self) -> bool:
        """Whether an epoch at this stage must not wait, neither for growth nor for better prices."""
        return self in (Stage.COMPACT, Stage.EMERGENCY)


class Budget(msgspec.Struct, frozen=True):
    """The tokens that a view may have."""

    tokens: int | None
    """The model's tokens that head and view may have together; None where there is no budget."""
    ratio: float
    """The model's tokens over counted tokens."""
    head: int
    """Counted tokens of the head: tools, response format, leading system and developer messages."""
    window: Window = UNKNOWN_WINDOW
    last_user_tokens: int = 0
    """Counted tokens of the last user message, which like the head is never cut; 0 if all must yield."""
    chain_tokens: int = 0
    """Counted tokens of the chain, of which shares are taken where there is no budget."""
    tool: int = 0
    """How many tokens of the head are the proxy's own tool. Its room is always kept, though it is not always
    sent."""

    @property
    def limit(self) -> int:
        """The budget in counted tokens, rounded down, that epochs are planned with.

        Without a budget it is all that there is: an epoch that begins for another reason takes its shares of
        that. Of a window or a budget that is overrun, what follows the head gets half.
        """
        if self.tokens is None:
            return self.head + self.chain_tokens
        if self.is_overrun:
            return self.head + 2 * self.growth_when_overrun
        return math.floor(self.tokens / self.ratio)

    @property
    def is_overrun(self) -> bool:
        """Whether cutting more cannot help: what is never cut exceeds the window, or the head the budget."""
        return self._overrun is not None

    @property
    def _overrun(self) -> int | None:
        """The window that head and last user message exceed, or the budget that the head does; else None."""
        window = self.window.limit
        if window is not None and self.real(self.head + self.last_user_tokens) > window:
            return window
        return self.tokens if self.tokens is not None and self.real(self.head) > self.tokens else None

    @property
    def growth_when_overrun(self) -> int:
        """Counted tokens by which an overrun conversation must grow from one epoch to the next."""
        return math.floor((self._overrun or 0) / 4 / self.ratio)

    @property
    def room(self) -> int:
        """Counted tokens that are left for the chain."""
        return max(self.limit - self.head, 0)

    def usage(self, view: int) -> float:
        """Head and ``view`` (counted tokens) divided by the budget; 0.0 without a budget."""
        if self.tokens is None:
            return 0.0
        return (self.head + view) / max(math.floor(self.tokens / self.ratio), 1)

    def is_over(self, view: int) -> bool:
        """Whether a view of this many counted tokens is more than an epoch may leave."""
        return self.tokens is not None and view > self.room

    def left(self, sent: int) -> int:
        """Counted tokens that are left of the budget after ``sent`` ones."""
        return _ANY if self.tokens is None else math.floor(self.tokens / self.ratio) - sent

    def spare(self, view: int) -> int:
        """Counted tokens that may be added to a view that cannot fit: half of what the window leaves."""
        window = self.window.limit
        return _ANY if window is None else max(math.floor(window / self.ratio) - self.head - view, 0) // 2

    def share(self, part: float) -> int:
        """Counted tokens of a view that fills ``part`` of the room."""
        return math.floor(part * self.room)

    def filled(self, view: int, usage: float) -> "Budget":
        """Return a budget so small that head and ``view`` (counted tokens) have this ``usage`` of it.

        It is never larger than the present one. If the head alone overruns that, the view has one token.
        """
        tokens = self.real(math.floor((self.head + view) / usage))
        tokens = tokens if self.tokens is None else min(tokens, self.tokens)
        tokens = max(tokens, self.real(self.head + 1))
        return replace(self, tokens=tokens, window=UNKNOWN_WINDOW, last_user_tokens=0)

    def with_head(self, view: int) -> int:
        """The model's tokens of the head and a ``view`` of this many counted tokens."""
        return self.real(self.head + view)

    def real(self, counted: int) -> int:
        """Convert ``counted`` tokens to the model's tokens, rounded up."""
        return math.ceil(counted * self.ratio)


def stage_of(usage: float, stages: Stages) -> Stage:
    """The stage at a usage: calm < warn ≤ … < trim ≤ … < compact ≤ … emergency line < emergency."""
    if usage > stages.emergency:
        return Stage.EMERGENCY
    if usage >= stages.compact:
        return Stage.COMPACT
    if usage >= stages.trim:
        return Stage.TRIM
    return Stage.WARN if usage >= stages.warn else Stage.CALM


def budget_tokens(
    limit: int | None,
    window: int | None,
    reserve: int | None,
    needed: int = 0,
    *,
    counts_answer: bool = False,
) -> int | None:
    """The budget in tokens: the smaller of ``limit`` and the window without what is reserved for the answer.

    None where neither limit nor window is known. ``reserve`` is the output limit of the request, or of the
    policy; without one an eighth of the window is reserved. Whatever a client asks for, at most half of the
    window without its ``needed`` tokens is reserved. With ``counts_answer``, for an upstream that refuses
    prompt and output limit that together exceed the window, all of ``reserve`` is, if it fits.
    """
    if window is None:
        return None if limit is None else max(limit, 1)
    reserved = window // 8 if reserve is None or reserve < 0 else reserve
    beside = max(window - needed, 0)
    most = reserved if counts_answer and reserved < beside else beside // 2
    left = max(window - min(reserved, most), 1)
    return max(min(limit, left), 1) if limit is not None else left

"""The token budget of a request, the window that it comes from, and the stage that a view of it has reached.

Two units of tokens occur. *Counted* tokens are what our counter says; *tokens* are what the model makes of
them: counted tokens times a learned ratio. Planning happens in counted tokens, everything shown in tokens.
"""

import math
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.core.policy.sections import Stages

MESSAGE_TOKENS = 4
"""Counted tokens that a message costs beside its text."""
REQUEST_TOKENS = 3
"""Counted tokens that a request costs beside its messages."""
_ANY = 2**40
"""Tokens: more than anything has."""


class WindowSource(StrEnum):
    """Who says how large a window is."""

    POLICY = "policy"
    REFUSAL = "refusal"
    TRUNCATED = "truncated"
    UPSTREAM = "upstream"
    PRICES = "prices"
    UNKNOWN = "unknown"


class Window(msgspec.Struct, frozen=True):
    """A context window as far as it is known."""

    tokens: int | None = None
    source: WindowSource = WindowSource.UNKNOWN
    is_least: bool = False
    """Whether it is only known to be at least so large: an answer took more than its source states."""

    @property
    def limit(self) -> int | None:
        """Tokens that a request may have, prompt and answer together; None where nobody knows."""
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
        """Whether nothing waits at it, neither for growth nor for better prices."""
        return self in (Stage.COMPACT, Stage.EMERGENCY)


class Budget(msgspec.Struct, frozen=True):
    """What a view may cost."""

    tokens: int | None
    """The model's tokens that head and view may have together; None: nothing is cut for its tokens."""
    ratio: float
    """The model's tokens over counted tokens."""
    head: int
    """Counted tokens of the head: tools, response format, leading system and developer messages."""
    window: Window = UNKNOWN_WINDOW
    """The model's context window."""
    last_user_tokens: int = 0
    """Counted tokens of the last user message, which like the head is never cut."""
    whole: int = 0
    """Counted tokens of the chain: what shares are taken of where there is no budget."""

    @property
    def limit(self) -> int:
        """The budget in counted tokens, rounded down, as an epoch is planned by it.

        Without a budget, an epoch that begins for another reason takes its shares of what there is. In a
        window that head and last message alone exceed, half of it is for what follows the head.
        """
        if self.tokens is None:
            return self.head + self.whole
        if self.is_overrun:
            return self.head + 2 * self.earned
        return math.floor(self.tokens / self.ratio)

    @property
    def is_overrun(self) -> bool:
        """Whether head and last message alone exceed the window, so that cutting more cannot help."""
        window = self.window.limit
        return window is not None and self.real(self.head + self.last_user_tokens) > window

    @property
    def earned(self) -> int:
        """Counted tokens by which a conversation must grow from one epoch to the next in such a window."""
        return math.floor((self.window.limit or 0) / 4 / self.ratio)

    @property
    def room(self) -> int:
        """Counted tokens that are left for the chain."""
        return max(self.limit - self.head, 0)

    def usage(self, view: int) -> float:
        """Head and ``view`` (counted tokens) over the budget."""
        if self.tokens is None:
            return 0.0
        return (self.head + view) / max(math.floor(self.tokens / self.ratio), 1)

    def is_over(self, view: int) -> bool:
        """Whether a view of so many counted tokens is more than an epoch may leave."""
        return self.tokens is not None and view > self.room

    def left(self, sent: int) -> int:
        """Counted tokens that may still follow where so many were ``sent``."""
        return _ANY if self.tokens is None else math.floor(self.tokens / self.ratio) - sent

    def share(self, part: float) -> int:
        """Counted tokens of a view that, with the head, fills the head and ``part`` of the room."""
        return math.floor(part * self.room)

    def filled(self, view: int, usage: float) -> "Budget":
        """The same for fewer tokens, of which head and ``view`` (counted tokens) are ``usage``."""
        tokens = max(math.floor((self.head + view) / usage * self.ratio), 1)
        tokens = tokens if self.tokens is None else min(tokens, self.tokens)
        return replace(self, tokens=tokens, window=UNKNOWN_WINDOW)

    def real(self, counted: int) -> int:
        """The model's tokens for ``counted`` tokens, rounded up."""
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
    """The budget: the smaller of a set limit and what the window leaves beside the reserved output.

    None where there is neither. ``reserve`` is the request's own limit of output tokens, or the policy's; an
    eighth of the window where there is none. It takes at most half of what the window leaves beside the
    tokens that are ``needed``, whatever a client asks for; ``counts_answer``: all of it, where the upstream
    refuses what is more together and there is room.
    """
    if window is None:
        return None if limit is None else max(limit, 1)
    reserved = window // 8 if reserve is None or reserve < 0 else reserve
    beside = max(window - needed, 0)
    most = reserved if counts_answer and reserved < beside else beside // 2
    left = max(window - min(reserved, most), 1)
    return max(min(limit, left), 1) if limit is not None else left

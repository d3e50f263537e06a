"""The token budget of a request, and the stage that a view of it has reached.

Two units of tokens occur. *Counted* tokens are what our counter says; *tokens* are what the model makes of
them: counted tokens times a learned ratio. Planning happens in counted tokens, everything shown in tokens.
"""

import math
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from proxy.core.policy_sections import Stages

MESSAGE_TOKENS = 4
"""Counted tokens that a message costs beside its text."""
REQUEST_TOKENS = 3
"""Counted tokens that a request costs beside its messages."""
UNKNOWN_WINDOW = 8_000
"""Context window, in tokens, of a model of which nothing is known."""


class Stage(StrEnum):
    """How full a view is, from the least to the most pressing."""

    CALM = "calm"
    WARN = "warn"
    TRIM = "trim"
    COMPACT = "compact"
    EMERGENCY = "emergency"


class Budget(msgspec.Struct, frozen=True):
    """What a view may cost."""

    tokens: int
    """The model's tokens that head and view may have together."""
    ratio: float
    """The model's tokens over counted tokens."""
    head: int
    """Counted tokens of the head: tools, response format, leading system and developer messages."""

    @property
    def limit(self) -> int:
        """The budget in counted tokens, rounded down."""
        return math.floor(self.tokens / self.ratio)

    @property
    def room(self) -> int:
        """Counted tokens that are left for the chain."""
        return max(self.limit - self.head, 0)

    def usage(self, view: int) -> float:
        """Head and ``view`` (counted tokens) over the budget."""
        return (self.head + view) / max(self.limit, 1)

    def share(self, part: float) -> int:
        """Counted tokens of a view that, with the head, fills the head and ``part`` of the room."""
        return math.floor(part * self.room)

    def filled(self, view: int, usage: float) -> "Budget":
        """The same for fewer tokens, of which head and ``view`` (counted tokens) are ``usage``."""
        tokens = math.floor((self.head + view) / usage * self.ratio)
        return replace(self, tokens=max(min(tokens, self.tokens), 1))

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


def budget_tokens(limit: int | None, window: int | None, reserve: int | None) -> int:
    """The budget: the smaller of a set limit and what the window leaves beside the reserved output.

    ``reserve`` is the request's own limit of output tokens, or the policy's; an eighth of the window where
    there is none. At least an eighth of the window stays for the prompt, whatever a client reserves.
    """
    if limit is not None and window is None:
        return max(limit, 1)
    known = window or UNKNOWN_WINDOW
    reserved = known // 8 if reserve is None or reserve < 0 else reserve
    left = max(known - reserved, known // 8, 1)
    return max(min(limit, left), 1) if limit is not None else left

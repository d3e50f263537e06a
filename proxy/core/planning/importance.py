"""How much a message matters, in [0, 1]: 0.3 recency + 0.3 role + 0.4 content."""

import re
from dataclasses import dataclass
from functools import lru_cache

from proxy.core.conversation.messages import TOOL_ROLES
from proxy.core.policy.sections import Importance

_KEYWORD, _TOOL, _MARKER, _APPROVAL = 0.30, 0.25, 0.20, 0.30
_OTHER_ROLES = 0.5


@dataclass(slots=True)  # a frozen one takes three times as long to make
class Score:
    """The three parts, each in [0, 1], and their weighted sum."""

    recency: float
    role: float
    content: float
    total: float


def score(role: str, text: str, position: int, count: int, weights: Importance) -> Score:
    """Score message number ``position`` of ``count``."""
    recency = position / max(count - 1, 1)
    by_role = weights.roles.get(role, _OTHER_ROLES)
    content = content_score(role, text, weights)
    total = weights.recency * recency + weights.role * by_role + weights.content * content
    return Score(recency, by_role, content, min(total, 1.0))


def content_score(role: str, text: str, weights: Importance) -> float:
    """What the text alone says of a message's importance."""
    points = 0.0
    if _any_of(weights.keywords, folded=True).search(text.lower()):
        points += _KEYWORD
    if role in TOOL_ROLES or weights.tool_marker in text:
        points += _TOOL
    if _any_of(weights.markers).search(text):
        points += _MARKER
    if _any_of(weights.approvals).search(text):
        points += _APPROVAL
    if len(text) < weights.short_length:
        points *= weights.short_penalty
    return min(points, 1.0)


@lru_cache(maxsize=64)
def _any_of(words: tuple[str, ...], *, folded: bool = False) -> re.Pattern[str]:
    """A pattern that finds any of the words; one that never matches where there are none."""
    return re.compile("|".join(re.escape(word.lower() if folded else word) for word in words) or r"(?!)")

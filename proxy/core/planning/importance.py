"""The importance of a message, in [0, 1]: by default 0.3 recency + 0.3 role + 0.4 content."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from proxy.core.conversation.messages import TOOL_ROLES
from proxy.core.policy.sections import Importance
from proxy.core.text.lexicon.words import SUCCESSES

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
    """Return the part of a message's importance that follows from its role and text, in [0, 1]."""
    points = 0.0
    folded = text.lower()
    if _holds_any(folded, _folded(weights.counted_keywords, is_ascii=folded.isascii())):
        points += _KEYWORD
    if weights.success and _holds_any(folded, SUCCESSES):
        points += weights.success
    if role in TOOL_ROLES or weights.tool_marker in text:
        points += _TOOL
    if _holds_any(text, weights.markers):
        points += _MARKER
    if _holds_any(folded, _folded(weights.approvals, is_ascii=False)):
        points += _APPROVAL
    if len(text) < weights.short_length:
        points *= weights.short_penalty
    return min(points, 1.0)


def _holds_any(text: str, words: Iterable[str]) -> bool:
    """Whether a text contains any of the words; a regular expression of all takes four times as long."""
    for word in words:  # noqa: SIM110 - a generator costs more than the search
        if word in text:
            return True
    return False


@lru_cache(maxsize=64)
def _folded(words: tuple[str, ...], *, is_ascii: bool) -> tuple[str, ...]:
    """Return words in lower case, without those that no ASCII text holds if the text is ASCII."""
    folded = [word.lower() for word in words]
    return tuple([word for word in folded if word.isascii()] if is_ascii else folded)

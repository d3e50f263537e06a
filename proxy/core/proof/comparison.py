"""Compare two answers to the same request, and find what one took from messages that the other lacked.

Answers that call tools agree if they make the same calls with the same arguments. Other answers are compared
by their words and by the exact strings in them, and the lower likeness counts: the same sentence with another
code in it is a different answer.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, TypeVar, cast

from proxy.core.dialects.dialect import Content
from proxy.core.extraction.reading import read
from proxy.core.formats.json import loads
from proxy.core.proof.evidence import BUCKETS, Arm, Evidence, Likeness, Pair
from proxy.core.text.similarity import likeness
from proxy.core.tool_cache.cache import key_of

T = TypeVar("T")

_AGREES = 0.6
"""Likeness from which texts agree; the control shows how often a model agrees with itself by this measure."""
_PART = re.compile(r"\w")


class Comparison(NamedTuple):
    """The result of comparing two answers."""

    agrees: bool
    likeness: float
    """From 0 (nothing in common) to 1 (the same)."""

    def evidence(self, arm: Arm) -> Evidence:
        bucket = min(int(self.likeness * BUCKETS), BUCKETS - 1)
        return Evidence(compared=Counter([Pair(arm, self.agrees)]), alike=Counter([Likeness(arm, bucket)]))


def compared(one: Content, other: Content) -> Comparison:
    """Compare two answers; their order does not matter."""
    calls = [Counter(key_of(name, arguments) for _, name, arguments in each.calls) for each in (one, other)]
    if any(calls):
        return Comparison(calls[0] == calls[1], _overlap(*calls))
    exact = [Counter(_exact_in(each)) for each in (one, other)]
    alike = likeness(one.countable(), other.countable())
    if any(exact):
        alike = min(alike, _overlap(*exact))
    return Comparison(alike >= _AGREES, alike)


def _overlap(one: Counter[T], other: Counter[T]) -> float:
    """The share of common elements (Dice coefficient)."""
    return 2 * (one & other).total() / (one.total() + other.total())


def _exact_in(answer: Content) -> list[str]:
    """The exact strings of an answer, each once: codes, paths, numbers, names, also those in tool calls."""
    facts = (fact for _, of_voice in read(answer).facts for fact in of_voice)
    return [fact.value for fact in facts if _PART.search(fact.value)]


def used(whole: Content, answer: Content, view: str, cut: Iterable[tuple[int, str]]) -> list[tuple[str, int]]:
    """Exact strings that only the answer to the whole history has: not the view, nor the answer to the view.

    Each comes with the position of the first message of ``cut`` (positions and texts) that has it. Strings
    that no such message has are left out: the answer has invented or computed them.
    """
    own = answer.countable()
    lacking = [each for each in _exact_in(whole) if each not in view and each not in own]
    found: dict[str, int] = {}
    for position, text in cut if lacking else ():
        found.update((each, position) for each in lacking if each not in found and each in text)
    return list(found.items())


def strings_of(body: bytes) -> str:
    """All strings and numbers in a JSON body, at any depth, a line each."""
    found: list[str] = []
    waiting: list[object] = [loads(body)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            waiting += cast("dict[str, object]", value).values()
        elif isinstance(value, list):
            waiting += cast("list[object]", value)
        elif isinstance(value, int | float):
            found.append(str(value))
    return "\n".join(found)

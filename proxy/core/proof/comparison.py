"""Whether two answers to the same request say the same, and what one of them knew that the other could not.

Answers that call tools are the same where they make the same calls with the same arguments. Others are alike
by their words, and by the exact things that they name, whichever is less: a sentence with another code in it
is another answer.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, TypeVar, cast

from proxy.core.dialects.dialect import Content
from proxy.core.extraction.reading import read
from proxy.core.formats.json import loads
from proxy.core.proof.evidence import BUCKETS, Arm
from proxy.core.text.similarity import likeness
from proxy.core.tool_cache.cache import key_of

T = TypeVar("T")

AGREES = 0.6
"""Likeness from which texts agree; how often a model agrees with itself by it is what the control tells."""
_PART = re.compile(r"\w")


class Comparison(NamedTuple):
    """How two answers compare."""

    agrees: bool
    likeness: float
    """0 nothing in common, 1 the same."""

    def counts(self, arm: Arm) -> dict[str, int]:
        """As what it is counted."""
        bucket = min(int(self.likeness * BUCKETS), BUCKETS - 1)
        return {f"{arm}:{'same' if self.agrees else 'different'}": 1, f"{arm}:like:{bucket}": 1}


def compared(one: Content, other: Content) -> Comparison:
    """Compare two answers; which of them comes first says nothing."""
    calls = [Counter(key_of(name, arguments) for _, name, arguments in each.calls) for each in (one, other)]
    if any(calls):
        return Comparison(calls[0] == calls[1], _overlap(*calls))
    exact = [Counter(exact_in(each)) for each in (one, other)]
    alike = likeness(one.countable(), other.countable())
    if any(exact):
        alike = min(alike, _overlap(*exact))
    return Comparison(alike >= AGREES, alike)


def _overlap(one: Counter[T], other: Counter[T]) -> float:
    """What two have in common, as a share of both (Dice)."""
    return 2 * (one & other).total() / (one.total() + other.total())


def exact_in(answer: Content) -> list[str]:
    """The exact strings of an answer, each once: codes, paths, numbers, names, those in calls among them."""
    facts = (fact for _, of_voice in read(answer).facts for fact in of_voice)
    return [fact.value for fact in facts if _PART.search(fact.value)]


def used(whole: Content, answer: Content, view: str, cut: Iterable[tuple[int, str]]) -> list[tuple[str, int]]:
    """Exact strings that the answer to the whole history has, and neither the view nor the answer to that.

    Each with the position of the message that it was in, the first that has it of ``cut``: positions and
    texts. What no message has, the answer has made up or worked out, and is left out.
    """
    own = answer.countable()
    lacking = [each for each in exact_in(whole) if each not in view and each not in own]
    found: dict[str, int] = {}
    for position, text in cut if lacking else ():
        found.update((each, position) for each in lacking if each not in found and each in text)
    return list(found.items())


def strings_of(body: bytes) -> str:
    """All that a body says, in whichever place."""
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

"""How alike texts are, by the words that they share: TF-IDF, in pure Python.

A word weighs more the more often a text has it and the fewer texts have it; likeness is the cosine of the
angle between the weights (Salton & Buckley 1988, `ltc`). Scripts that put no spaces between words are read in
pairs of characters.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import accumulate, takewhile

from proxy.core.text.lexicon.words import UNSPACED

Likeness = Callable[[int, int], float]
"""How alike two of the texts are, by their indexes: 0 not at all, 1 the same."""
Similarity = Callable[[Sequence[str]], Likeness]
"""Reads texts once, to compare them often. What embeddings tell takes the same place."""

_TERMS = 64
"""Terms by which a text is known, the weightiest ones: comparing stays cheap, however long it is."""
_CAREFUL = 0.999
"""Of a bound, so that no rounding makes it too low."""
_WORD = re.compile(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{UNSPACED}]")


def tfidf(texts: Sequence[str]) -> "Vectors":
    """Likeness by shared words."""
    counts = [Counter(_terms(text)) for text in texts]
    spread = Counter(term for found in counts for term in found)
    return Vectors([_vector(found, spread, len(texts)) for found in counts])


def likeness(one: str, other: str) -> float:
    """How alike two texts are by all of their words: no others tell which of these matter."""
    counts = [Counter(_terms(text)) for text in (one, other)]
    if counts[0] == counts[1]:
        return 1.0
    weights = [{term: 1 + math.log(count) for term, count in found.items()} for found in counts]
    shared = sum(weight * weights[1][term] for term, weight in weights[0].items() if term in weights[1])
    lengths = [math.sqrt(sum(weight**2 for weight in each.values())) for each in weights]
    return min(shared / (lengths[0] * lengths[1]), 1.0) if shared else 0.0


class Vectors:
    """Texts as the weights of their words, each of length 1."""

    def __init__(self, vectors: Sequence[Mapping[str, float]]) -> None:
        self._vectors = vectors
        self._most: dict[str, float] = {}
        for vector in vectors:
            for term, weight in vector.items():
                self._most[term] = max(weight, self._most.get(term, 0.0))

    def __call__(self, one: int, other: int) -> float:
        """How alike two of the texts are."""
        if one == other:
            return 1.0
        less, more = sorted((self._vectors[one], self._vectors[other]), key=len)
        return sum(weight * more[term] for term, weight in less.items() if term in more)

    def terms(self, text: int) -> Collection[str]:
        """What a text is known by."""
        return self._vectors[text].keys()

    def telling(self, text: int, least: float) -> list[str]:
        """Terms of which every text that is at least so alike has one (Bayardo and others 2007)."""
        vector = self._vectors[text]
        weights = {term: weight * self._most[term] for term, weight in vector.items()}
        terms = sorted(weights, key=weights.__getitem__)
        sums = accumulate(map(weights.__getitem__, terms))
        return terms[sum(1 for _ in takewhile(lambda total: total < least * _CAREFUL, sums)) :]


def _terms(text: str) -> Iterator[str]:
    for found in _WORD.finditer(text.casefold()):
        word = found[0]
        if _IS_UNSPACED.match(word) and len(word) > 1:
            yield from (word[at : at + 2] for at in range(len(word) - 1))
        else:
            yield word


def _vector(counts: Mapping[str, int], spread: Mapping[str, int], texts: int) -> dict[str, float]:
    weights = {
        term: (1 + math.log(count)) * math.log(texts / spread[term])
        for term, count in counts.items()
        if spread[term] < texts
    }
    weightiest = sorted(weights, key=lambda term: (-weights[term], term))[:_TERMS]
    length = math.sqrt(sum(weights[term] ** 2 for term in weightiest))
    return {term: weights[term] / length for term in weightiest}


# --- which name may be meant by one that there is not ---


_ALIKE = 0.65
"""How much of both is the same, at least (difflib's ratio)."""
_LIKELY = 3
"""Of so many that are most like it, the one nearest in length: typing slips on letters, not on endings."""


def nearest(name: str, candidates: Iterable[str]) -> str:
    """The candidate that is most like a name; empty where none is much like it."""
    others = [each for each in candidates if each != name]
    found = get_close_matches(name, others, n=_LIKELY, cutoff=_ALIKE)
    return min(found, key=lambda each: abs(len(each) - len(name)), default="")

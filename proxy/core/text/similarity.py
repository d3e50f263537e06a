"""Similarity of texts by the words that they share: TF-IDF, in pure Python.

A word weighs more the more often a text has it and the fewer texts have it; similarity is the cosine of the
angle between the weights (Salton & Buckley 1988, `ltc`). Scripts without spaces between words are read in
pairs of characters.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import accumulate, takewhile

from proxy.core.text.lexicon.words import UNSPACED

_TERMS = 64
"""Number of a text's weightiest terms that are compared, so that comparing is cheap however long it is."""
_CAREFUL = 0.999
"""Factor on a lower bound, so that rounding errors lose no match."""
_WORD = re.compile(rf"[{UNSPACED}]+|[^\W_{UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{UNSPACED}]")


def tfidf(texts: Sequence[str]) -> "Vectors":
    """Similarity by shared words."""
    counts = [Counter(_terms(text)) for text in texts]
    spread = Counter(term for found in counts for term in found)
    vectors: list[dict[str, float]] = []
    for found in counts:
        weights = {
            term: (1 + math.log(count)) * math.log(len(texts) / spread[term])
            for term, count in found.items()
            if spread[term] < len(texts)
        }
        weightiest = sorted(weights, key=lambda term: (-weights[term], term))[:_TERMS]
        length = math.sqrt(sum(weights[term] ** 2 for term in weightiest))
        vectors.append({term: weights[term] / length for term in weightiest})
    return Vectors(vectors)


def likeness(one: str, other: str) -> float:
    """Similarity of two texts by all of their words, without other texts to weight the words by."""
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
        """The similarity of two texts, given by index: 0 for none, 1 for equal texts."""
        if one == other:
            return 1.0
        less, more = sorted((self._vectors[one], self._vectors[other]), key=len)
        return sum(weight * more[term] for term, weight in less.items() if term in more)

    def terms(self, text: int) -> Collection[str]:
        """The weightiest terms of a text."""
        return self._vectors[text].keys()

    def prefix(self, text: int, least: float) -> list[str]:
        """Terms of which each text with a similarity of at least ``least`` has one (Bayardo et al. 2007)."""
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


# --- the known name that an unknown one may mean ---


_ALIKE = 0.65
"""Least similarity of a suggestion (difflib's ratio)."""
_LIKELY = 3
"""Number of most similar names, of which the one nearest in length is taken: typos rarely change it."""


def nearest(name: str, candidates: Iterable[str]) -> str:
    """The candidate that is most similar to a name; empty where none is similar enough."""
    others = [each for each in candidates if each != name]
    found = get_close_matches(name, others, n=_LIKELY, cutoff=_ALIKE)
    return min(found, key=lambda each: abs(len(each) - len(name)), default="")


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Return the end of an error message: `; did you mean ...?`, or nothing."""
    found = nearest(name, candidates)
    return f"; did you mean `{found}`?" if found else ""

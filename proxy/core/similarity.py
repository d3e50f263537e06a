"""How alike texts are, by the words that they share: TF-IDF, in pure Python.

A word weighs more the more often a text has it and the fewer texts have it; likeness is the cosine of the
angle between the weights (Salton & Buckley 1988, `ltc`). Scripts that put no spaces between words are read in
pairs of characters.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

Likeness = Callable[[int, int], float]
"""How alike two of the texts are, by their indexes: 0 not at all, 1 the same."""
Similarity = Callable[[Sequence[str]], Likeness]
"""Reads texts once, to compare them often. What embeddings tell takes the same place."""

_TERMS = 64
"""Terms by which a text is known, the weightiest ones: comparing stays cheap, however long it is."""
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u0e00-\u0eff"
"""Kana, Han, Thai and Lao."""
_WORD = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")


def tfidf(texts: Sequence[str]) -> Likeness:
    """Likeness by shared words."""
    counts = [Counter(_terms(text)) for text in texts]
    spread = Counter(term for found in counts for term in found)
    vectors = [_vector(found, spread, len(texts)) for found in counts]

    def likeness(one: int, other: int) -> float:
        return 1.0 if one == other else _product(vectors[one], vectors[other])

    return likeness


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


def _product(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    if len(one) > len(other):
        one, other = other, one
    return sum(weight * other[term] for term, weight in one.items() if term in other)

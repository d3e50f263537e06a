"""Two rankings of passages made one, by reciprocal rank: what both put high comes first.

Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
methods", SIGIR 2009.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

_DAMPING = 60
_MEANING = 0.5
"""What a rank by meaning counts beside one by words: small models mistake more than they find."""


def fused(by_words: Sequence[int], by_meaning: Sequence[int]) -> list[int]:
    """All that is ranked, best first; of two that are equal the smaller index."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking, weight in ((by_words, 1.0), (by_meaning, _MEANING)):
        for rank, index in enumerate(ranking, 1):
            scores[index] += weight / (_DAMPING + rank)
    return sorted(scores, key=lambda index: (-scores[index], index))

"""Rankings of passages made one, by reciprocal rank: what all put high comes first.

Cormack, Clarke and Büttcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
methods", SIGIR 2009. Passages overlap, and one ranking may know fewer of them than another: so it is the
pieces that are ranked, each by the best passage that it is part of, and a passage counts for its pieces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

_DAMPING = 60


def fused(windows: Sequence[range], *rankings: Sequence[int]) -> list[int]:
    """Indexes of all ``windows`` that share a piece with a ranked one, best first."""
    scores: defaultdict[int, float] = defaultdict(float)
    for ranking in rankings:
        for piece, rank in _best_ranks(windows, ranking).items():
            scores[piece] += 1 / (_DAMPING + rank)
    totals = [sum(scores.get(piece, 0.0) for piece in window) for window in windows]
    found = [index for index, total in enumerate(totals) if total]
    return sorted(found, key=lambda index: (-totals[index], index))


def _best_ranks(windows: Sequence[range], ranking: Sequence[int]) -> dict[int, int]:
    ranks: dict[int, int] = {}
    for rank, index in enumerate(ranking, 1):
        for piece in windows[index]:
            ranks.setdefault(piece, rank)
    return ranks

"""Passages: what is searched, and how much around a hit is shown.

A question seldom shares its words with the one message that answers it, but often with that message and its
neighbours. So three neighbouring pieces are searched together, at every place, and a hit is shown with up to
three more on either side; docs/benchmarks.md has the curve. Long messages are cut into pieces of about the
length of a chat message, because a score by words is diluted by length.

Positions are those of a chain; a passage never spans messages that stand in the view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

PIECE_BYTES = 800
"""Of UTF-8: about 200 tokens."""
WINDOW = 3
"""Pieces that are searched together."""
WINGS = 3
"""Pieces that are shown on either side of them, while there is room."""
PASSAGE_BYTES = 2_400
"""Of a passage: about 600 tokens."""
BEST = 5
"""Passages that one search gives."""


class Piece(NamedTuple):
    """A part of a message's text, in characters from ``start`` up to and without ``end``."""

    position: int
    start: int
    end: int
    size: int
    """Bytes."""


def pieces_of(position: int, text: str) -> list[Piece]:
    """A message's text in pieces; an empty text is one empty piece."""
    size = len(text.encode(errors="surrogatepass"))
    if size <= PIECE_BYTES:
        return [Piece(position, 0, len(text), size)]
    most = max(1, PIECE_BYTES * len(text) // size)
    ends = list(_ends(text, most))
    return [
        Piece(position, start, end, len(text[start:end].encode(errors="surrogatepass")))
        for start, end in zip([0, *ends], ends, strict=False)
    ]


def _ends(text: str, most: int) -> Iterator[int]:
    """Where pieces of at most so many characters end: after a line, else after a word."""
    start = 0
    while len(text) - start > most:
        least, limit = start + most // 2, start + most
        line, word = text.rfind("\n", least, limit), text.rfind(" ", least, limit)
        start = next((found + 1 for found in (line, word) if found >= 0), limit)
        yield start
    yield len(text)


def windows_of(pieces: Sequence[Piece]) -> list[range]:
    """Each passage that is searched, as a range of pieces, in order."""
    windows: list[range] = []
    for run in _runs(pieces):
        last = max(run.stop - WINDOW, run.start)
        windows += [range(start, min(start + WINDOW, run.stop)) for start in range(run.start, last + 1)]
    return windows


def _runs(pieces: Sequence[Piece]) -> Iterator[range]:
    """Pieces of messages that follow each other."""
    start = 0
    for index in range(1, len(pieces) + 1):
        if index == len(pieces) or pieces[index].position > pieces[index - 1].position + 1:
            yield range(start, index)
            start = index


def best_of(windows: Sequence[range], ranked: Sequence[int], most: int = BEST) -> list[range]:
    """The best windows that share no piece, best first; ``ranked`` are indexes of windows."""
    chosen: list[range] = []
    for index in ranked:
        window = windows[index]
        if all(window.stop <= other.start or other.stop <= window.start for other in chosen):
            chosen.append(window)
        if len(chosen) == most:
            break
    return chosen


def widened(pieces: Sequence[Piece], window: range, wings: int = WINGS) -> list[int]:
    """The pieces to show of a hit, in the order in which they matter: itself, then its neighbours."""
    shown = list(window)
    left = PASSAGE_BYTES - sum(pieces[index].size for index in window)
    before, after = window.start - 1, window.stop
    for _ in range(wings):
        for index, neighbour in ((before, before + 1), (after, after - 1)):
            if neighbour not in shown or not _is_next(pieces, index, neighbour):
                continue
            if pieces[index].size <= left:
                shown.append(index)
                left -= pieces[index].size
        before, after = before - 1, after + 1
    return shown


def _is_next(pieces: Sequence[Piece], index: int, neighbour: int) -> bool:
    if not 0 <= index < len(pieces):
        return False
    return abs(pieces[index].position - pieces[neighbour].position) <= 1

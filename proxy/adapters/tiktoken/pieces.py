"""Cutting a text into pieces that tokenise in bounded time and stack.

tiktoken's merge is slow in one unbroken run (1 MB of one letter: half a second), and its regular expression
overflows the stack on a million spaces, a panic that is not even an Exception. Both are bounded by bounding
what it is handed. Every cut of an ordinary text falls where the encoding's own pattern has a boundary, so
that the pieces count exactly what the whole counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

PIECE = 64 * 1024
"""Characters handed to the encoder at once, at most."""
RUN = 1024
"""An aligned stretch of so many characters of one kind is its own piece: no run of twice this is left."""

_SEARCH = 4096  # how far back from the end of a piece a good place to cut is looked for

# The kinds of character that o200k's pattern gathers into one pretoken: signs, letters with their marks,
# white space (digits come in threes). Blocks stand for properties, which Python's `re` lacks: where they are
# wrong, a run is merely cut, or merely not.
_SIGNS = (
    r"\x00-\x08\x0e-\x1b!-/:-@\[-`{-\xa9\xab-\xb4"
    r"\u2000-\u2bff\u3000-\u303f\ufe30-\ufe6f\uff00-\uff0f\U0001f000-\U0001faff"
)
_ONE_KIND = re.compile(rf"[{_SIGNS}]+|[^\s\d{_SIGNS}]+|\s+")

# Nothing in o200k's pattern reaches over a space that follows a non-space, nor over a line end that follows a
# letter or digit. Greedy, so that the last such place of the searched stretch is found.
_LAST_BOUNDARY = re.compile(r".*(?:(?<=\S)(?= )|(?<=[^\W_])(?=\n))", re.DOTALL)


def pieces(text: str, size: int = PIECE, run: int = RUN) -> Iterator[str]:
    """`text`, whole and in order, in pieces of at most `size` characters without long unbroken runs.

    Looks at each stretch of `run` only until its first change of kind: ordinary text costs next to nothing.
    """
    start = 0
    for at in range(0, len(text) - run + 1, run):
        if _ONE_KIND.fullmatch(text, at, at + run):
            yield from _sized(text, start, at, size)
            yield text[at : at + run]
            start = at + run
    yield from _sized(text, start, len(text), size)


def _sized(text: str, start: int, end: int, size: int) -> Iterator[str]:
    while end - start > size:
        cut = _cut(text, start, start + size)
        yield text[start:cut]
        start = cut
    if start < end:
        yield text[start:end]


def _cut(text: str, start: int, limit: int) -> int:
    """The last boundary of the encoding before `limit`, or `limit` where none is near."""
    found = _LAST_BOUNDARY.match(text, max(start + 1, limit - _SEARCH), limit)
    return found.end() if found else limit

"""What a new session is told of earlier ones: texts and items, within the tokens of a note.

An item is told with its day and who said it, so that what only the model said is nobody's fact. The note
fences it as data (:func:`proxy.core.conversation.notes.remembered`).
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import NamedTuple

from proxy.core.conversation.notes import SAID_BY_MODEL, remembered
from proxy.core.memory.records import Item, Trust
from proxy.core.text.words import shares

_ITEMS_SHARE = 0.5
"""Of the room: what items get at least, where there are as many."""


class Told(NamedTuple):
    """What a session is told, and which items are used by that."""

    text: str
    """Lines, without their note; none where there is nothing to say."""
    items: tuple[Item, ...]


def told(
    texts: Sequence[str], items: Sequence[Item], room: int, language: str, count: Callable[[str], int]
) -> Told:
    """What of the texts, in their order, and of the items, the best first, a note of ``room`` tokens holds.

    Texts are shortened from their ends, the longest most, for the items' half.
    """
    left = room - count(remembered("", language))
    ranked = [item for item in items if not item.superseded_by]
    sizes = [1 + count(item_line(item, language)) for item in ranked]
    reserved = min(int(left * _ITEMS_SHARE), sum(sizes))
    lines = _shortened(texts, max(left - reserved, 0), count)
    left -= sum(1 + count(line) for line in lines)
    chosen: list[Item] = []
    for item, size in zip(ranked, sizes, strict=True):
        if size <= left:
            chosen.append(item)
            left -= size
    chosen.sort(key=lambda item: (item.source.at, item.id))
    lines += [item_line(item, language) for item in chosen]
    return Told("\n".join(lines), tuple(chosen))


def recalled(lines: Sequence[str], room: int, language: str, count: Callable[[str], int]) -> tuple[str, int]:
    """A note of ``room`` tokens with the first of these lines, and how many they are; empty without any."""
    sizes = accumulate((1 + count(line) for line in lines), initial=count(remembered("", language)))
    kept = sum(size <= room for size in sizes) - 1
    return (remembered("\n".join(lines[:kept]), language), kept) if kept > 0 else ("", 0)


def _shortened(texts: Sequence[str], room: int, count: Callable[[str], int]) -> list[str]:
    """The first lines of each text, short texts whole before long ones get more."""
    split = [[line for line in text.splitlines() if line.strip()] for text in texts]
    sizes = [[1 + count(line) for line in lines] for lines in split]
    given = shares([sum(each) for each in sizes], room)
    return [
        line
        for lines, of_lines, most in zip(split, sizes, given, strict=True)
        for line, total in zip(lines, accumulate(of_lines), strict=True)
        if total <= most
    ]


def item_line(item: Item, language: str) -> str:
    """An item as it is told: its day (UTC), who said it if that is known, and what it says."""
    day = f"{datetime.fromtimestamp(item.source.at, UTC):%Y-%m-%d}"
    if item.trust is not Trust.USER:
        return f"- {day}: {item.text} {SAID_BY_MODEL[language]}"
    return f"- {day}, {item.source.name}: {item.text}" if item.source.name else f"- {day}: {item.text}"

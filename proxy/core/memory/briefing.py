"""What a new session is told of earlier ones, and what a search tells: within the tokens of a note.

What was said stands under its day, and says by whom, so that what only the model said is nobody's fact. The
note fences it as data (:func:`proxy.core.conversation.notes.remembered`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

from proxy.core.conversation.notes import SAID_BY_MODEL, remembered
from proxy.core.memory.merging import normal
from proxy.core.memory.records import Item, Trust, day_of
from proxy.core.memory.utterances import Utterance
from proxy.core.text.words import shares

IN_THE_NOTE = "What is remembered of this stands in the note at the beginning of this conversation."
_ITEMS_SHARE = 0.5
"""Of the room: what items get at least, where there are as many."""


class Briefing(NamedTuple):
    """What a session is told, and which items are used by that."""

    text: str
    """Empty where there is nothing to say."""
    items: tuple[Item, ...]


def opening_briefing(
    texts: Sequence[str], items: Sequence[Item], room: int, language: str, count: Callable[[str], int]
) -> Briefing:
    """What of the texts, in their order, and of the items, the best first, a note of ``room`` tokens holds.

    Lines, without their note. Texts are shortened from their ends, the longest most, for the items' half.
    What several of them say in the same words is told once, as an item if there is room for that.
    """
    left = room - count(remembered("", language))
    once = {normal(item.text): item for item in reversed(items) if not item.superseded_by}
    sayings = [_of_item(item, language, count) for item in items if once.get(normal(item.text)) is item]
    needed = sum(each.size for each in sayings) + sum({each.day: each.day_size for each in sayings}.values())
    lines = _shortened(texts, max(left - min(int(left * _ITEMS_SHARE), needed), 0), count)
    chosen = _fitting(sayings, left - sum(_size(line, count) for line in lines))
    told = {normal(text) for each in chosen if each.item for text in (each.item.text, each.line)}
    lines = [line for line in lines if normal(line) not in told]
    return Briefing("\n".join([*lines, *_by_day(chosen)]), _items_of(chosen))


def recall_briefing(
    said: Mapping[int, Utterance],
    items: Sequence[Item],
    room: int,
    language: str,
    count: Callable[[str], int],
) -> Briefing:
    """A note of ``room`` tokens with what was said, the best first, and then items; empty without any.

    ``said`` are lines by their places: what was said one after the other is told so.
    """
    sayings = [_of_line(place, line, count) for place, line in said.items()]
    sayings += [_of_item(item, language, count) for item in items]
    chosen = _fitting(sayings, room - count(remembered("", language)))
    text = "\n".join(_by_day(chosen))
    return Briefing(remembered(text, language) if text else "", _items_of(chosen))


class _Saying(NamedTuple):
    """Something that is told under its day, with the tokens of both."""

    order: tuple[float, int, str]
    """When it was said; and of what was said at one time, what comes first."""
    day: str
    day_size: int
    line: str
    size: int
    item: Item | None = None


def _of_line(place: int, line: Utterance, count: Callable[[str], int]) -> _Saying:
    return _saying((line.at, place, ""), f"- {line.name}: {line.text}", count)


def _of_item(item: Item, language: str, count: Callable[[str], int]) -> _Saying:
    """An item with who said it, if that is known."""
    line = f"- {item.source.name}: {item.text}" if item.source.name else f"- {item.text}"
    if item.trust is not Trust.USER:
        line = f"- {item.text} {SAID_BY_MODEL[language]}"
    return _saying((item.source.at, 0, item.id), line, count)._replace(item=item)


def _saying(order: tuple[float, int, str], line: str, count: Callable[[str], int]) -> _Saying:
    day = f"{day_of(order[0])}:"
    return _Saying(order, day, _size(day, count), line, _size(line, count))


def _fitting(sayings: Iterable[_Saying], room: int) -> list[_Saying]:
    """Those of them, the best first, that ``room`` tokens hold with their days."""
    chosen, days = list[_Saying](), set[str]()
    for each in sayings:
        size = each.size + (0 if each.day in days else each.day_size)
        if size <= room:
            room -= size
            chosen.append(each)
            days.add(each.day)
    return chosen


def _by_day(sayings: Iterable[_Saying]) -> Iterator[str]:
    """Each day before what was said on it, the first day first."""
    for day, of_day in groupby(sorted(sayings, key=lambda each: each.order), key=lambda each: each.day):
        yield day
        yield from (each.line for each in of_day)


def _items_of(sayings: Iterable[_Saying]) -> tuple[Item, ...]:
    return tuple(each.item for each in sayings if each.item is not None)


def _shortened(texts: Sequence[str], room: int, count: Callable[[str], int]) -> list[str]:
    """The first lines of each text, short texts whole before long ones get more; the same one only once."""
    seen = set[str]()
    split = [[line for line in text.splitlines() if line.strip() and _is_first(line, seen)] for text in texts]
    sizes = [[_size(line, count) for line in lines] for lines in split]
    given = shares([sum(each) for each in sizes], room)
    return [
        line
        for lines, of_lines, most in zip(split, sizes, given, strict=True)
        for line, total in zip(lines, accumulate(of_lines), strict=True)
        if total <= most
    ]


def _is_first(line: str, seen: set[str]) -> bool:
    """Whether no line before has said the same; from now on it has."""
    before = len(seen)
    seen.add(normal(line))
    return len(seen) > before


def _size(line: str, count: Callable[[str], int]) -> int:
    """Tokens of a line within a text: a full stop and the end of a line are often one token together."""
    return count(f"{line}\n")

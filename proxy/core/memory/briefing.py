"""Write briefings: what a new session is told about earlier ones, and the answer to a recall.

A briefing fits the tokens of its note. Each line stands under the day on which it was said and names who said
it, so that nothing that only the model said reads as a fact. The note fences the text as data
(:func:`proxy.core.conversation.notes.memory_note`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

from proxy.core.conversation.notes import SAID_BY_MODEL, memory_note
from proxy.core.memory.merging import normal
from proxy.core.memory.records import Item, Trust, day_of
from proxy.core.memory.utterances import Utterance
from proxy.core.text.cutting import shares

IN_THE_NOTE = "What is remembered of this stands in the note at the beginning of this conversation."
_ITEMS_SHARE = 0.5
"""Share of the room reserved for items, if there are enough of them to fill it."""


class Briefing(NamedTuple):
    """The text that a session is given, and the items in it, which count as used."""

    text: str
    """Empty where there is nothing to say."""
    items: tuple[Item, ...]


def opening_briefing(
    texts: Sequence[str], items: Sequence[Item], room: int, language: str, count: Callable[[str], int]
) -> Briefing:
    """Fit the texts, in their order, and the items, the best first, into a note of ``room`` tokens.

    Returns the lines without the note around them. Texts are cut at their ends, the longest ones most, so
    that items get their half. A sentence that occurs several times is written once, as an item if one fits.
    """
    left = room - count(memory_note("", language))
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
    """Write a note of ``room`` tokens: lines that were said, the best first, then items; empty if none fits.

    ``said`` has lines by their places in the conversation, so that consecutive lines stay in order.
    """
    sayings = [
        _saying((line.at, place, ""), f"- {line.name}: {line.text}", count) for place, line in said.items()
    ]
    sayings += [_of_item(item, language, count) for item in items]
    chosen = _fitting(sayings, room - count(memory_note("", language)))
    text = "\n".join(_by_day(chosen))
    return Briefing(memory_note(text, language) if text else "", _items_of(chosen))


class _Saying(NamedTuple):
    """A line of a briefing and the day that it stands under, with the tokens of both."""

    order: tuple[float, int, str]
    """Sort key: when it was said, then what decides between lines of the same time."""
    day: str
    day_size: int
    line: str
    size: int
    item: Item | None = None


def _of_item(item: Item, language: str, count: Callable[[str], int]) -> _Saying:
    """An item's line, with who said it if that is known."""
    line = f"- {item.source.name}: {item.text}" if item.source.name else f"- {item.text}"
    if item.trust is not Trust.USER:
        line = f"- {item.text} {SAID_BY_MODEL[language]}"
    return _saying((item.source.at, 0, item.id), line, count)._replace(item=item)


def _saying(order: tuple[float, int, str], line: str, count: Callable[[str], int]) -> _Saying:
    day = f"{day_of(order[0])}:"
    return _Saying(order, day, _size(day, count), line, _size(line, count))


def _fitting(sayings: Iterable[_Saying], room: int) -> list[_Saying]:
    """Choose the lines, the best first, that fit into ``room`` tokens together with their days."""
    chosen, days = list[_Saying](), set[str]()
    for each in sayings:
        size = each.size + (0 if each.day in days else each.day_size)
        if size <= room:
            room -= size
            chosen.append(each)
            days.add(each.day)
    return chosen


def _by_day(sayings: Iterable[_Saying]) -> Iterator[str]:
    """Yield each day, then the lines of that day, in chronological order."""
    for day, of_day in groupby(sorted(sayings, key=lambda each: each.order), key=lambda each: each.day):
        yield day
        yield from (each.line for each in of_day)


def _items_of(sayings: Iterable[_Saying]) -> tuple[Item, ...]:
    return tuple(each.item for each in sayings if each.item is not None)


def _shortened(texts: Sequence[str], room: int, count: Callable[[str], int]) -> list[str]:
    """Keep the first lines of each text, without repeated lines; short texts stay whole before long ones."""
    seen, split = set[str](), list[list[str]]()
    for text in texts:
        split.append([])
        for line in text.splitlines():
            if line.strip() and (said := normal(line)) not in seen:
                seen.add(said)
                split[-1].append(line)
    sizes = [[_size(line, count) for line in lines] for lines in split]
    given = shares([sum(each) for each in sizes], room)
    return [
        line
        for lines, of_lines, most in zip(split, sizes, given, strict=True)
        for line, total in zip(lines, accumulate(of_lines), strict=True)
        if total <= most
    ]


def _size(line: str, count: Callable[[str], int]) -> int:
    """Tokens of a line within a text, counted with its line break: a full stop and it are often one token."""
    return count(f"{line}\n")

"""Pack facts as densely as a model can still read: one line per key or kind, each directory named once.

Values are literal and not repeated: a value that is part of one already included is left out.
"""

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from proxy.core.extraction.facts import Fact
from proxy.core.extraction.kinds import kind_of
from proxy.core.extraction.reading import title_of, untitled
from proxy.core.lazy import lazy
from proxy.core.planning.ledger_odds import KINDS, Mentions
from proxy.core.planning.situation import Count

_SHARED = 6
"""Minimal length in characters of a directory that is named once for all of its files."""
_MAX_MISSES = 64
"""Number of facts that may fail to fit before packing stops."""
OFTEN = 200
"""Number of searches of a text from which on an index of it pays."""
_GRAM = 4
"""Length in characters of the substrings by which the index finds words."""
_RUN = re.compile(r"\S+")
_WORD = re.compile(r"[^\s'\"()=<>,;]+")
"""What a command, a call or a requirement consists of."""
_LETTER = re.compile(r"[^\W\d_]")
_DOT = re.compile(r"\.(?!\d)")


class SubstringIndex:
    """A text that is searched for many values, to leave out those that it already contains.

    If the text contains a value, one of its words contains the value's longest word. So after many searches
    only the words with the rarest four characters of it are searched.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._searches = 0
        self._short: dict[str, bool] = {}

    def __contains__(self, value: str) -> bool:
        self._searches += 1
        word = max(value.split(), key=len, default="")
        if self._searches < OFTEN:
            return value in self.text
        if len(word) < _GRAM:  # of so short ones there are few
            known = self._short.get(value)
            if known is None:
                known = self._short[value] = value in self.text
            return known
        is_word = word == value
        if is_word and word in self._words:
            return True
        # Of the words that contain four characters of it, those of the rarest four.
        by_gram, holding = self._holding, self._words
        for at in range(len(word) - _GRAM + 1):
            found = by_gram.get(word[at : at + _GRAM])
            if found is None:
                return False
            if len(found) < len(holding):
                holding = found
        if is_word:
            return any(word in each for each in holding)
        return any(self._stands_at(value, word, each) for each in holding)

    def _stands_at(self, value: str, word: str, holding: str) -> bool:
        """Whether the text has ``value`` at a place where its ``word`` is within the word ``holding``."""
        before, within = value.index(word), holding.find(word)
        while within >= 0:
            starts = [place + within - before for place in self._places[holding]]
            if any(start >= 0 and self.text.startswith(value, start) for start in starts):
                return True
            within = holding.find(word, within + 1)
        return False

    @lazy
    def _words(self) -> Mapping[str, None]:
        """The words of the text, found line by line because one long step would block other threads."""
        words: dict[str, None] = {}
        for line in self.text.splitlines():
            words.update(dict.fromkeys(line.split()))
        return words

    @lazy
    def _places(self) -> Mapping[str, Sequence[int]]:
        """The positions of each word in the text."""
        places: defaultdict[str, list[int]] = defaultdict(list)
        for match in _RUN.finditer(self.text):
            places[match[0]].append(match.start())
        return places

    @lazy
    def _holding(self) -> Mapping[str, Sequence[str]]:
        """By four characters, the words that contain them."""
        holding: defaultdict[str, list[str]] = defaultdict(list)
        for word in self._words:
            for gram in {word[at : at + _GRAM] for at in range(len(word) - _GRAM + 1)}:
                holding[gram].append(word)
        return holding


class _Chosen(NamedTuple):
    place: int
    """Where it stands among the others: it grows with each that is chosen."""
    fact: Fact
    cost: int
    """Counted tokens that it takes."""
    mentioned: tuple[int, int]
    """Positions of the newest and the oldest message that mention it."""


class Packing:
    """Facts chosen one by one, the most important first, if they fit.

    Facts that the view or the same note contains are left out, and those that another ledger has under the
    same label (for a file of a listing: its directory).
    """

    def __init__(
        self,
        room: int,
        count: Count,
        in_view: Container[str],
        in_note: Container[str],
        in_ledgers: Container[tuple[str, str]] = (),
    ) -> None:
        self._room = room
        self._count = count
        self._in_view = in_view
        self._in_note = in_note
        self._in_ledgers = in_ledgers
        self._chosen: dict[str, _Chosen] = {}
        """By value; an unlabelled one gives its place to a later one that contains it."""
        self._groups: set[str] = set()
        self._parts: set[str] = set()
        self._left = room

    def fill(self, mentions: Iterable[Mentions]) -> None:
        """Take the facts that fit, in order; the directory of those in listings may be named apart."""
        spare = _MAX_MISSES
        for each in mentions:
            whole, value = each.fact, each.fact.value
            if value in self._parts or value in self._in_view or value in self._in_note:
                continue
            directory, slash, name = value.rpartition("/")
            is_path = each.is_listed and whole.kind == "path" and not whole.key
            is_below = is_path and name and len(directory) >= _SHARED
            fact = Fact("file", name, directory + slash) if is_below else whole
            group = label_of(fact)
            if (group, fact.value) in self._in_ledgers:
                continue
            cost = self._count(" " + fact.value)
            if group not in self._groups:
                cost += self._count(group + ":") + 1
            if cost <= self._left:
                parts = _parts_of(fact)
                held = [part for part in parts & self._chosen.keys() if not self._chosen[part].fact.key]
                within = [self._chosen.pop(part) for part in held]
                place = min((part.place for part in within), default=len(self._parts))
                self._left += sum(part.cost for part in within) - cost
                self._groups.add(group)
                self._chosen[value] = _Chosen(place, fact, cost, (each.last, each.first))
                self._parts |= parts
                continue
            spare -= 1
            if spare == 0:
                return

    @property
    def text(self) -> str:
        """The chosen facts, one line per group: the most important group first, in a line the newest value.

        The last ones are dropped if the whole text has more tokens than the sum of its parts suggested.
        """
        chosen = sorted(self._chosen.values(), key=attrgetter("place"))
        text = _packed(chosen)
        while chosen and self._count(text) > self._room:
            chosen = chosen[: len(chosen) - max(len(chosen) // 20, 1)]
            text = _packed(chosen)
        return text


def label_of(fact: Fact) -> str:
    """Return the label of the line that contains a fact."""
    return fact.key or KINDS[fact.kind][1]


def values_in(ledger: str) -> set[tuple[str, str]]:
    """The values in the lines of a ledger, each with its label."""
    found: set[tuple[str, str]] = set()
    for label, _, values in (line.partition(": ") for line in ledger.splitlines()):
        found.update((label, value) for value in values.split(", " if ", " in values else " "))
    return found


def _packed(chosen: Sequence[_Chosen]) -> str:
    groups: dict[str, list[str]] = {label_of(each.fact): [] for each in chosen}
    for each in sorted(chosen, key=attrgetter("mentioned"), reverse=True):
        groups[label_of(each.fact)].append(each.fact.value)
    lines: list[str] = []
    for label, values in groups.items():
        apart = ", " if any(" " in value for value in values) else " "
        lines.append(f"{label}: {apart.join(values)}")
    return "\n".join(lines)


def _parts_of(fact: Fact) -> set[str]:
    """Return the value and the exact things in it, and of a path or a name in code what comes before a part.

    Of a path also its name, its stem and what comes after each part. A number is no part of a longer one.
    """
    parts = {fact.value}
    if fact.value.isalnum():  # as most are
        return parts
    for word in filter(_LETTER.search, _WORD.findall(fact.value)):
        if word != fact.value and "://" not in word and kind_of(word) is None:
            continue  # a word of prose
        parts.add(word)
        if "/" in word or fact.kind == "file":
            ends = [at for at, letter in enumerate(word) if letter == "/"]
            parts.update(word[:at] for at in ends)
            parts.update(word[at:] for at in ends)
            parts.update(word[at + 1 :] for at in ends)
            parts.update(word.split("/"))
            parts.add(word.rpartition("/")[2].partition(".")[0])
        else:
            parts.update(word[: dot.start()] for dot in _DOT.finditer(word))
    return parts


# --- constraints as lines: each on its own line, or those with the same title on one ---
# People put rules under titles, as in ``HOUSE RULE: no boats.`` If not every rule fits, a title is written
# once for all of its sentences, as a directory is for its files. The sentences stay literal.


_AROUND = "\n-"
"""What a ledger writes around a sentence; the space after it is part of the next word."""
_ENDS = (".", "!", "\u2026", "\u3002", "\uff01")


def tokens_of(sentences: Iterable[str], count: Count) -> int:
    """Counted tokens of sentences, each on its own line."""
    return sum(count(text + _AROUND) for text in sentences)


def may_share(sentences: Iterable[str]) -> bool:
    """Whether any two sentences have the same title."""
    titles = [title for title in map(title_of, sentences) if title]
    return len(set(titles)) < len(titles)


class Bullets:
    """Sentences chosen one by one, the most important first, while they fit."""

    def __init__(self, count: Count, *, shares: bool) -> None:
        self._count = count
        self._shares = shares
        self._titles: set[str] = set()
        self.chosen: dict[str, None] = {}

    def fill(self, sentences: Iterable[str], room: int) -> int:
        """Take new sentences that fit into ``room`` counted tokens; return the tokens used."""
        taken = 0
        for text in sentences:
            if text in self.chosen:
                continue
            title = title_of(text)
            is_titled = self._shares and title and title in self._titles
            size = self._count(f"; {untitled(text)}") if is_titled else tokens_of([text], self._count)
            if taken + size <= room:
                taken += size
                self.chosen[text] = None
                self._titles.add(title)
        return taken

    def lines(self, order: Sequence[str]) -> tuple[str, ...]:
        """The chosen sentences in ``order``; those that share a line are placed with the first of them."""
        lines: dict[str, str] = {}
        for text in order:
            if text not in self.chosen:
                continue
            title = (title_of(text) if self._shares else "") or text
            standing = lines.get(title)
            apart = " " if standing and standing.endswith(_ENDS) else "; "
            lines[title] = f"{standing}{apart}{untitled(text)}" if standing else text
        return tuple(lines.values())

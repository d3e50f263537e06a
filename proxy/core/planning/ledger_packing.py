"""Facts as densely as a model can still read them: a line for each key or kind, directories named once.

Values stand word for word, none twice: what is part of a value that stands there already needs no room.
"""

import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property

from proxy.core.extraction.facts import Fact
from proxy.core.extraction.reading import title_of, untitled
from proxy.core.planning.situation import Count

_PLURAL = {
    "url": "URLs",
    "email": "e-mails",
    "path": "paths",
    "file": "files",
    "id": "ids",
    "code": "codes",
    "date": "dates",
    "time": "times",
    "amount": "amounts",
    "phone": "phones",
    "version": "versions",
    "error": "errors",
    "name": "names",
    "class": "classes",
    "function": "functions",
    "constant": "constants",
    "test": "tests",
    "symbol": "in code",
    "member": "in code",
    "number": "numbers",
    "quoted": "quoted",
    "text": "texts",
}
_SHARED = 6
"""Characters from which a directory is named once for all that it holds."""
_SPARE = 64
"""Facts that are tried after the first that no longer fits."""
OFTEN = 200
"""Searches of a text from which an index of it pays."""
LONG = 16_000
"""Characters of a text of which the same is true."""
_GRAM = 4
"""Characters by which the index finds words."""
_RUN = re.compile(r"\S+")


class Standing:
    """What stands there already, searched for one value after the other.

    The longest word of a value stands within a word of the text, so words are looked through, each once,
    however often it was said; after many searches those alone that have its rarest four characters.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._searches = 0

    def __contains__(self, value: str) -> bool:
        word = max(value.split(), key=len, default="")
        if len(self.text) < LONG or not word:
            return value in self.text
        self._searches += 1
        if self._searches < OFTEN or len(word) < _GRAM:
            return word in self._joined and (word == value or value in self.text)
        holding = min([self._holding.get(gram, ()) for gram in _grams_of(word)], key=len)
        if word == value:
            return word in self._words or any(word in each for each in holding)
        return any(self._stands_at(value, word, each) for each in holding)

    def _stands_at(self, value: str, word: str, holding: str) -> bool:
        """Whether a value stands where a ``word`` of it does within one that is ``holding`` it."""
        before, within = value.index(word), holding.find(word)
        while within >= 0:
            starts = [place + within - before for place in self._places[holding]]
            if any(start >= 0 and self.text.startswith(value, start) for start in starts):
                return True
            within = holding.find(word, within + 1)
        return False

    @cached_property
    def _words(self) -> Mapping[str, None]:
        """The words of the text, found line by line: a long step would hold up other threads."""
        words: dict[str, None] = {}
        for line in self.text.splitlines():
            words.update(dict.fromkeys(line.split()))
        return words

    @cached_property
    def _joined(self) -> str:
        return "\n".join(self._words)

    @cached_property
    def _places(self) -> Mapping[str, Sequence[int]]:
        """Where each word of the text stands."""
        places: defaultdict[str, list[int]] = defaultdict(list)
        for match in _RUN.finditer(self.text):
            places[match[0]].append(match.start())
        return places

    @cached_property
    def _holding(self) -> Mapping[str, Sequence[str]]:
        """The words that hold each four characters."""
        holding: defaultdict[str, list[str]] = defaultdict(list)
        for word in self._words:
            for gram in set(_grams_of(word)):
                holding[gram].append(word)
        return holding


def _grams_of(word: str) -> list[str]:
    return [word[at : at + _GRAM] for at in range(len(word) - _GRAM + 1)]


class Packing:
    """Facts chosen one by one, the most wanted first, while they fit and stand in none of the texts."""

    def __init__(self, room: int, count: Count, *standing: Container[str]) -> None:
        self._room = room
        self._count = count
        self._standing = standing
        self._chosen: list[Fact] = []
        self._groups: set[str] = set()
        self._parts: set[str] = set()
        self._left = room

    def fill(self, facts: Iterable[tuple[Fact, bool]]) -> None:
        """Take what fits of ``facts``, in their order; of each, whether it may stand below its directory."""
        spare = _SPARE
        for whole, is_listed in facts:
            if whole.value in self._parts or any(whole.value in text for text in self._standing):
                continue
            fact = _below_directory(whole) if is_listed else whole
            group = group_of(fact)
            cost = self._count(" " + fact.value)
            if group not in self._groups:
                cost += self._count(group + ":") + 1
            if cost <= self._left:
                self._left -= cost
                self._groups.add(group)
                self._chosen.append(fact)
                self._parts.update(_parts_of(fact))
                continue
            spare -= 1
            if spare == 0:
                return

    @property
    def text(self) -> str:
        """What was chosen, a line for each group; within the room even where counting apart was too kind."""
        chosen = self._chosen
        text = _packed(chosen)
        while chosen and self._count(text) > self._room:
            chosen = chosen[: len(chosen) - max(len(chosen) // 20, 1)]
            text = _packed(chosen)
        return text


def _below_directory(fact: Fact) -> Fact:
    """A path as a name under its directory, where that has a name worth sharing."""
    directory, slash, name = fact.value.rpartition("/")
    if fact.kind != "path" or fact.key or not name or len(directory) < _SHARED:
        return fact
    return Fact("file", name, directory + slash)


def group_of(fact: Fact) -> str:
    """The label of the line that a fact stands on."""
    return fact.key or _PLURAL[fact.kind]


def _packed(facts: Sequence[Fact]) -> str:
    groups: dict[str, list[str]] = {}
    for fact in facts:
        groups.setdefault(group_of(fact), []).append(fact.value)
    lines: list[str] = []
    for label, values in groups.items():
        apart = ", " if any(" " in value for value in values) else " "
        lines.append(f"{label}: {apart.join(values)}")
    return "\n".join(lines)


def _parts_of(fact: Fact) -> set[str]:
    """The value, and what can be read off it: of a path its directories, its name, its stem."""
    value = fact.value
    parts = {value}
    if fact.kind in ("path", "file", "url"):
        ends = [at for at, letter in enumerate(value) if letter == "/"]
        parts.update(value[:at] for at in ends)
        parts.update(value[at:] for at in ends)
        parts.update(value[at + 1 :] for at in ends)
        parts.update(value.split("/"))
        parts.add(value.rpartition("/")[2].partition(".")[0])
    return parts


# --- constraints as lines: each on its own, or those under one title on one line ---
# People write what is to be remembered under titles, ``HOUSE RULE: no boats.`` Where not every rule would
# fit, a title is said once for all sentences that stand under it, as a directory is for its files. The
# sentences stay word for word.


_AROUND = "\n-"
"""What a ledger says around a sentence; the space after it is part of the next word."""
_ENDS = (".", "!", "\u2026", "\u3002", "\uff01")


def tokens_of(sentences: Iterable[str], count: Count) -> int:
    """Counted tokens that sentences take, each on a line."""
    return sum(count(text + _AROUND) for text in sentences)


def may_share(sentences: Iterable[str]) -> bool:
    """Whether some stand under the same title."""
    titles = [title for title in map(title_of, sentences) if title]
    return len(set(titles)) < len(titles)


class Bullets:
    """Sentences chosen one by one, the most wanted first, while they fit."""

    def __init__(self, count: Count, *, shares: bool) -> None:
        self._count = count
        self._shares = shares
        self._titles: set[str] = set()
        self.chosen: dict[str, None] = {}

    def fill(self, sentences: Iterable[str], room: int) -> int:
        """Take what fits into ``room`` counted tokens and was not taken yet; what that takes."""
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
        """What was chosen, in ``order``; what shares a line stands where the first of it does."""
        lines: dict[str, str] = {}
        for text in order:
            if text not in self.chosen:
                continue
            title = (title_of(text) if self._shares else "") or text
            standing = lines.get(title)
            apart = " " if standing and standing.endswith(_ENDS) else "; "
            lines[title] = f"{standing}{apart}{untitled(text)}" if standing else text
        return tuple(lines.values())

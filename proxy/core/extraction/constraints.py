"""Constraints: what users and systems laid down, the newest where one takes the place of another.

Two sentences are about the same subject where most of their words are the same, values apart, or where they
give another value to the same attribute ("spending", "expenses"). Such a sentence replaces an older one,
unless the two speak of different things of one kind ("unit tests" and "integration tests"), or forbid the
same of different things: to lose a rule is worse than to tell an old one too.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from proxy.core.extraction.subjects import Subject, subject_of
from proxy.core.text.lexicon.rules import FIRM, PLAIN, QUESTION, STATED
from proxy.core.text.lexicon.words import ABBREVIATIONS

# --- which sentences bind later behaviour: rules, limits, preferences, and what people lay down ---


LONGEST = 320
"""Characters of a sentence."""
_SHORTEST = 4
_SHORT_LINE = 140
"""Characters of a line that is not taken apart."""
_OUTRIGHT = 3
MOST_SENTENCES = 60
"""Sentences of one message."""

_END = re.compile(
    r"(?<=[.!?…][\"”»)\]])\s+(?=[^\Wa-zß-ÿ])|(?<=[.!?…])\s+(?=[^\Wa-zß-ÿ]|[\"“«(¡¿])|(?<=[。!?])(?![」』”])"
)
_ABBREVIATED = re.compile(rf"(?:\b(?:{ABBREVIATIONS})|\b[A-Z])\.$")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_PROGRAM = re.compile(
    r"^\s*(?://|/\*|\*/|>>>|\.\.\. |\$ |#!|@\w|def |class |import |from \w+ import|return\b|raise |assert "
    r"|if .*:$|for .*:$|else:|try:|except|\d+[:|]|[+-]{1,3} ?\w*\(|\w+\s*=[^=]|<\/?\w)"
    r"|[{;\\]\s*$|^\s{8,}\S|\w\(\w*\)\s*[.:{]?$"
)
_SYMBOLS = re.compile(r"[{}()\[\];=<>|\\`_]")
_BULLET = re.compile(r"^\s*(?:[-*•·>+]|\(?\d{1,3}[.)]|[a-z]\)|#{1,6})\s+")

_TITLE = re.compile(r"^(?:[A-Z][A-Z _-]{2,30}(?: \d{1,3})?:(?=\s?\S)|【[^】]{1,12}】)")
"""A sentence under a title, as people write what is to be remembered: `HOUSE RULE: no boats.`"""
_LABEL = re.compile(r"^(?:[A-Z]\w{2,15}(?: \d{1,3})?|[^\W\d_]{2,8}):\s?\S")


class Sentence(msgspec.Struct, frozen=True, gc=False):
    """A sentence that may bind."""

    text: str
    strength: int
    """3 for what says so outright, 2 for what limits or prefers, 1 for what is merely laid down."""


def weighed(text: str) -> list[Sentence]:
    """The sentences of a text, in order, those that do not bind among them."""
    return [Sentence(each, strength_of(each)) for each in sentences_of(text)]


def binding(told: Sequence[Sentence]) -> list[Sentence]:
    """The sentences of a message that bind."""
    return [each for each in told if each.strength][:MOST_SENTENCES]


def lays_down(told: Sequence[Sentence]) -> bool:
    """Whether a message is nothing but sentences that say outright what must be: a rule, and no request."""
    return bool(told) and all(each.strength == _OUTRIGHT for each in told)


def strength_of(sentence: str) -> int:
    """How firmly a sentence binds; 0 where it does not."""
    if QUESTION.search(sentence):
        return 0
    lower = sentence.lower()
    if FIRM.search(lower) or _TITLE.match(sentence):
        return _OUTRIGHT
    if PLAIN.search(lower) or _LABEL.match(sentence):
        return 2
    return 1 if STATED.search(lower) else 0


def title_of(sentence: str) -> str:
    """The title that a sentence stands under, colon and all; "" where there is none."""
    match = _TITLE.match(sentence)
    return match[0] if match else ""


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a text that are prose and short enough to stand as they are.

    What stands on one short line belongs together: "The cap is $500. Never exceed it." is told as one.
    """
    in_fence = False
    for line in text.splitlines():
        if _FENCE.match(line):
            in_fence = not in_fence
        elif not in_fence and len(line) >= _SHORTEST and not _PROGRAM.search(line):
            yield from _told(_BULLET.sub("", line).strip())


def _told(line: str) -> Iterator[str]:
    found: list[str] = []
    start = 0
    for end in _END.finditer(line):
        if not _ABBREVIATED.search(line[start : end.start()]):
            found.append(line[start : end.start()].strip())
            start = end.end()
    found.append(line[start:].strip())
    if len(line) <= _SHORT_LINE and not any(map(QUESTION.search, found)):
        found = [line]
    for each in found:
        is_program = len(_SYMBOLS.findall(each)) * 10 > len(each)
        if _SHORTEST <= len(each) <= LONGEST and not is_program:
            yield each


# --- constraints: what users and systems laid down, the newest where one takes the place of another ---


MOST_COMPARED = 400
"""Sentences, the newest, that are compared with each other."""
_ALIKE, _ALIKE_IN_KIND = 0.6, 0.5
"""Of the shorter sentence's words, how many the other has; the second where both name the same kinds."""

_CHANGED = 0.4
"""The same where the newer one tells of a change, and both name values of a kind."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A binding sentence where it was said."""

    position: int
    sentence: Sentence


def in_force(rules: Iterable[Rule]) -> tuple[list[Rule], list[tuple[Rule, Rule]]]:
    """Rules, the newest first, without those that newer ones replace; and those, each with its successor.

    What takes the place of a rule is as firm as that was.
    """
    standing = _Standing()
    replaced: list[tuple[Rule, Rule]] = []
    said: set[str] = set()
    for rule in sorted(rules, key=lambda rule: -rule.position)[:MOST_COMPARED]:
        if rule.sentence.text in said:
            continue
        said.add(rule.sentence.text)
        subject = subject_of(rule.sentence.text)
        near = standing.near(subject)
        newer = next((each for each, about in near if _replaces(each, about, rule, subject)), None)
        if newer is None:
            standing.add(rule, subject)
        else:
            replaced.append((rule, newer))
    for rule, subject in standing.all():
        old = _changed_by(rule, subject, standing.near(subject)) if subject.tells_change else None
        if old is not None:
            standing.remove(old)
            replaced.append((old, rule))
    return [_as_firm(rule, replaced) for rule, _ in standing.all()], replaced


class _Standing:
    """Rules in force, the newest first, found by the words that they share with another."""

    def __init__(self) -> None:
        self._rules: dict[int, tuple[Rule, Subject]] = {}
        self._sizes: dict[int, int] = {}
        self._places: dict[str, list[int]] = {}

    def add(self, rule: Rule, subject: Subject) -> None:
        place = len(self._rules)
        self._rules[place] = (rule, subject)
        self._sizes[place] = len(subject.words)
        for word in subject.words:
            self._places.setdefault(word, []).append(place)

    def remove(self, rule: Rule) -> None:
        self._rules = {place: each for place, each in self._rules.items() if each[0] != rule}

    def near(self, subject: Subject) -> list[tuple[Rule, Subject]]:
        """Those that name an attribute that ``subject`` names, or share many of its words."""
        shared = Counter(place for word in subject.words for place in self._places.get(word, ()))
        named = {place for word in subject.attributes for place in self._places.get(word, ())}
        return [
            self._rules[place]
            for place in sorted(shared)
            if place in self._rules
            and (place in named or shared[place] >= _CHANGED * min(self._sizes[place], len(subject.words)))
        ]

    def all(self) -> list[tuple[Rule, Subject]]:
        return list(self._rules.values())


def _as_firm(rule: Rule, replaced: Sequence[tuple[Rule, Rule]]) -> Rule:
    sentence = rule.sentence
    strength = max([sentence.strength, *(old.sentence.strength for old, newer in replaced if newer is rule)])
    return (
        rule if strength == sentence.strength else replace(rule, sentence=Sentence(sentence.text, strength))
    )


def _replaces(newer: Rule, about: Subject, older: Rule, subject: Subject) -> bool:
    """Whether two sentences are about the same, so that the newer one counts."""
    if newer.position == older.position:
        return False
    alike = _ALIKE_IN_KIND if about.kinds and about.kinds == subject.kinds else _ALIKE
    is_same = about.gives_another(subject) or (
        about.is_like(subject, alike) and not about.concerns_others(subject)
    )
    return is_same and not about.contrasts(subject)


def _changed_by(rule: Rule, subject: Subject, standing: Sequence[tuple[Rule, Subject]]) -> Rule | None:
    """The older sentence whose value this one, which tells of a change, has changed: the likest."""
    likest = max(
        (
            (len(subject.words & about.words) / len(about.words), older.position, older)
            for older, about in standing
            if older.position < rule.position
            and subject.kinds & about.kinds
            and (subject.attributes & about.attributes or about.is_like(subject, _CHANGED))
            and not subject.contrasts(about)
        ),
        key=lambda found: found[:2],
        default=None,
    )
    return likest[2] if likest is not None else None

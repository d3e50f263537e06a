"""Constraints: what users and systems laid down, the newest where one takes the place of another.

Two sentences are about the same subject where most of their words are the same, values apart, or where they
give another value to the same attribute ("spending", "expenses"). Such a sentence replaces an older one,
unless the two speak of different things of one kind ("unit tests" and "integration tests"), or forbid the
same of different things: to lose a rule is worse than to tell an old one too.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from proxy.core.extraction.facts import Fact, facts_in
from proxy.core.extraction.reading import Sentence
from proxy.core.text.lexicon.concepts import ATTRIBUTES, CONCEPTS, FITTING, SCOPES, TOKEN, VALUES
from proxy.core.text.lexicon.rules import CHANGES, COPULA, NEGATION, STATES
from proxy.core.text.lexicon.words import (
    DEMANDING_VERBS,
    FUNCTION_WORDS,
    GERMAN,
    GERMAN_COMPOUNDS,
    MODAL_WORDS,
    STATE_WORDS,
)

# --- what a sentence is about: its words, values apart, and what it says of which attribute ---

_REMEMBERED = 4_096
"""Subjects that a process remembers."""
_SUFFIX = re.compile(r"(?:ing|ped|ned|ed|es|s|'s|\u2019s|en|e)$")
_TITLE = re.compile(r"^[A-Z][A-Z _-]{2,30}(?: \d{1,3})?:\s?|^【[^】]{1,12}】")
_STOP = FUNCTION_WORDS | MODAL_WORDS | STATE_WORDS
_KIND = {"amount": "quantity", "number": "quantity", "error": "code", "id": "code", "file": "path"}
"""Kinds that stand for each other."""
_GERMAN = re.compile(rf"\b(?:{GERMAN})\b", re.IGNORECASE)
_COMPOUND = re.compile(rf"(\w{{3,}}?)s?({GERMAN_COMPOUNDS})")
_OBJECTS = frozenset({"path", "file", "symbol", "url", "email", "code", "name"})
_UNTYPED = ATTRIBUTES - FITTING.keys()
_ENDS = ".!?:;\u2026\u2013\u2014\"'“«(¡¿"


@dataclass(frozen=True, slots=True)
class Subject:
    """What a sentence is about."""

    words: frozenset[str]
    """Its words, values apart; those that name a concept by its name."""
    attributes: frozenset[str]
    """Those of its words that name what has one value at a time."""
    before: Mapping[str, str]
    """What stands before each word, if that is a word too."""
    values: frozenset[str]
    kinds: frozenset[str]
    """Of its values."""
    head: frozenset[str]
    """The words before "is", where the sentence says of something what it is."""
    states: bool
    forbids: bool
    tells_change: bool

    def is_like(self, other: "Subject", part: float) -> bool:
        """Whether the sentence with fewer words shares ``part`` of them with the other."""
        least = min(len(self.words), len(other.words))
        common = self.words & other.words
        return len(common) >= part * least and (least > 1 or self.words == other.words)

    def contrasts(self, other: "Subject") -> bool:
        """Whether what stands before a word tells two apart that both have it: unit and smoke *tests*."""
        scopes, others = self.words & SCOPES, other.words & SCOPES
        if scopes and others and not scopes & others:
            return True
        return any(
            self.before.get(word, "") not in ("", *other.words)
            and other.before.get(word, "") not in ("", *self.words)
            for word in self.words & other.words
        )

    def concerns_others(self, other: "Subject") -> bool:
        """Whether the two are about different things, of which the same is said."""
        if not (self.attributes & other.attributes or self.kinds & other.kinds) and (
            self.words - other.words and other.words - self.words
        ):
            return True
        differing = self.kinds_of_differing(other)
        if not differing & _OBJECTS or self._fitting(other) & differing:
            return False
        return self.forbids or other.forbids or not (self.states and other.states)

    def kinds_of_differing(self, other: "Subject") -> frozenset[str]:
        """The kinds of the values that only one of the two has."""
        return self.kinds | other.kinds if self.values != other.values else frozenset()

    def gives_another(self, older: "Subject") -> bool:
        """Whether this gives another value to an attribute that the older sentence gave one."""
        if self.head and self.head == older.head and self.head <= _UNTYPED:
            return True
        fitting = self._fitting(older)
        if not fitting or self.values & older.values:
            return False
        return self.tells_change or (self.kinds == older.kinds and not (self.kinds - fitting) & _OBJECTS)

    def _fitting(self, other: "Subject") -> frozenset[str]:
        """Kinds of values that both give to an attribute that both name."""
        both = self.kinds & other.kinds
        return frozenset(
            kind
            for name in self.attributes & other.attributes
            for kind in FITTING.get(name, ())
            if kind in both
        )


@lru_cache(_REMEMBERED)
def subject_of(sentence: str) -> Subject:
    """What a sentence is about."""
    untitled = _TITLE.sub("", sentence)
    facts = {_trimmed(fact): _KIND.get(fact.kind, fact.kind) for fact in facts_in(untitled)}
    facts.pop("", None)
    plain = untitled
    for value in sorted(facts, key=lambda value: -len(value)):
        plain = plain.replace(value, " ; ")
    words = _Words(plain)
    values = facts.keys() | words.values
    kinds = {*facts.values(), *words.kinds}
    copula = COPULA.search(plain)
    head = _Words(plain[: copula.start()].rpartition(",")[2]) if copula else None
    content = frozenset(words.words)
    return Subject(
        content,
        content & ATTRIBUTES,
        words.before,
        frozenset(values),
        frozenset(kinds),
        frozenset() if head is None or head.values else frozenset(head.words),
        bool(STATES.search(untitled)),
        bool(NEGATION.search(untitled)),
        bool(CHANGES.search(untitled)),
    )


class _Words:
    """The words of a text in their order, and the values that are written as words."""

    def __init__(self, text: str) -> None:
        self.words: list[str] = []
        self.before: dict[str, str] = {}
        self.values: set[str] = set()
        self.kinds: set[str] = set()
        self._previous = ""
        self._end = -1
        is_german = bool(_GERMAN.search(text))
        matches = list(TOKEN.finditer(text))
        self._has_style = any(match.lastgroup == "style" for match in matches)
        for match in matches:
            self._read(match, may_name=not is_german)

    def _read(self, match: re.Match[str], *, may_name: bool) -> None:
        kind = match.lastgroup or "word"
        text = match[0].lower()
        if kind == "letter":
            if match.start() == self._end:  # scripts without spaces are read in pairs of letters
                self.words.append(match.string[match.start() - 1 : match.end()])
            self._end, self._previous = match.end(), ""
        elif kind in CONCEPTS:
            self._word(kind)
        elif kind in VALUES and (kind != "tone" or self._has_style):
            self._value(kind, text)
        elif any(map(str.isdigit, text)) or (may_name and _is_name(match)):
            self._value("name" if text.isalpha() else "", text)
        elif _bare(text) in _STOP or len(text) < 2:
            self._previous = ""
        elif compound := _COMPOUND.fullmatch(text):
            self._word(_stem(compound[1]))
            self._word(_group_of(compound[2]) or compound[2])
        else:
            self._word(_stem(text), is_verb=text in DEMANDING_VERBS)

    def _value(self, kind: str, text: str) -> None:
        if kind:
            self.kinds.add(kind)
            self.values.add(text)
        self._previous = ""

    def _word(self, word: str, *, is_verb: bool = False) -> None:
        self.words.append(word)
        if self._previous:
            self.before.setdefault(word, self._previous)
        self._previous = "" if is_verb else word


def _trimmed(fact: Fact) -> str:
    """A value without what is none: verbs and attributes at the ends of a name, and values that are words."""
    if _group_of(fact.value) in VALUES:
        return ""
    if fact.kind != "name":
        return fact.value
    words = fact.value.split()
    while words and _is_plain(words[0]):
        del words[0]
    while words and _is_plain(words[-1]):
        del words[-1]
    return " ".join(words) if len(words) > 1 else ""


def _is_plain(word: str) -> bool:
    return word.lower() in DEMANDING_VERBS or _group_of(word) in CONCEPTS


def _group_of(word: str) -> str | None:
    match = TOKEN.fullmatch(word)
    return match.lastgroup if match else None


def _is_name(match: re.Match[str]) -> bool:
    """A capital within a sentence begins a name."""
    before = match.string[: match.start()].rstrip()
    return match[0][0].isupper() and bool(before) and before[-1] not in _ENDS


def _stem(word: str) -> str:
    return _SUFFIX.sub("", _bare(word)) if len(word) > 3 else word


def _bare(word: str) -> str:
    """A word without what makes it a possessive."""
    return word.removesuffix("'s").removesuffix("\u2019s")


# --- which rules are in force: the newest where one takes the place of another ---

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
    texts: set[str] = set()
    for rule in sorted(rules, key=lambda rule: -rule.position)[:MOST_COMPARED]:
        if rule.sentence.text in texts:
            continue
        texts.add(rule.sentence.text)
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
    firm: list[Rule] = []
    for rule, _ in standing.all():
        sentence = rule.sentence
        strengths = [old.sentence.strength for old, newer in replaced if newer is rule]
        strength = max([sentence.strength, *strengths])
        is_as_firm = strength == sentence.strength
        firm.append(rule if is_as_firm else replace(rule, sentence=Sentence(sentence.text, strength)))
    return firm, replaced


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

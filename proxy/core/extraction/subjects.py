"""What a sentence is about: its words, values apart, and what it says of which attribute."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from proxy.core.extraction.facts import Fact, facts_in
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
    told = _TITLE.sub("", sentence)
    facts = {_trimmed(fact): _KIND.get(fact.kind, fact.kind) for fact in facts_in(told)}
    facts.pop("", None)
    plain = told
    for value in sorted(facts, key=lambda value: -len(value)):
        plain = plain.replace(value, " ; ")
    reading = _Reading(plain)
    values = facts.keys() | reading.values
    kinds = {*facts.values(), *reading.kinds}
    copula = COPULA.search(plain)
    head = _Reading(plain[: copula.start()].rpartition(",")[2]) if copula else None
    words = frozenset(reading.words)
    return Subject(
        words,
        words & ATTRIBUTES,
        reading.before,
        frozenset(values),
        frozenset(kinds),
        frozenset() if head is None or head.values else frozenset(head.words),
        bool(STATES.search(told)),
        bool(NEGATION.search(told)),
        bool(CHANGES.search(told)),
    )


class _Reading:
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
            self._letter(match)
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

    def _letter(self, match: re.Match[str]) -> None:
        """Scripts without spaces are read in pairs of letters."""
        if match.start() == self._end:
            self.words.append(match.string[match.start() - 1 : match.end()])
        self._end, self._previous = match.end(), ""


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

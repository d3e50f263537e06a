"""The subject of a sentence: its words, its values, the attributes they are set for, and whether it forbids.

Two sentences are compared by their subjects alone. A subject has words, not meaning; what it misses must
never make one rule look like the withdrawal of another.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from proxy.core.extraction.facts import Fact, facts_in
from proxy.core.extraction.reading import untitled
from proxy.core.lazy import cached_for_short_texts
from proxy.core.text.lexicon import rules
from proxy.core.text.lexicon import words as lexicon
from proxy.core.text.lexicon.concepts import (
    ATTRIBUTES,
    CONCEPTS,
    FITTING,
    SCOPES,
    VALUES,
    kind_of_token,
    tokens_in,
)

_REMEMBERED = 4_096
"""Number of subjects that a process caches."""
_WORDS = 1 << 12
"""Number of words of which it caches the stems."""
_SUFFIX = re.compile(r"(?:(?<=([bgkmnprt]))\1(?:ing|ed)|ing|ed|es|(?<!s)s|en|e)$")
"""An ending, and the second of two letters before it: `plan`, `planned`."""
_STOP = lexicon.FUNCTION_WORDS | lexicon.MODAL_WORDS | lexicon.STATE_WORDS
_STOP_IN_ACTS = (_STOP | lexicon.LIGHT_WORDS) - lexicon.PREPOSITIONS
_PLAIN = lexicon.DEMANDING_VERBS | lexicon.FUNCTION_WORDS
_KIND = {"amount": "quantity", "number": "quantity", "error": "code", "id": "code", "file": "path"}
"""Kinds of facts that are treated as another kind."""
_COMPOUND = re.compile(rf"(\w{{3,}}?)s?({lexicon.GERMAN_COMPOUNDS})")
_FIRST_MARK = 0xE000
"""First of the private-use characters that replace values while the words of a text are read."""
_ENDS = ".!?:;\u2026\u2013\u2014\"'“«(¡¿"
_GRAMMAR = re.compile(f"[{lexicon.HIRAGANA}的了吧呢请請把被在都也就还還再又能会會用]")
"""Characters of scripts without spaces that do not tell what a sentence is about."""
_POLARITY = rules.WITHDRAWS, rules.PERMITS, rules.NEGATION, rules.COMMANDS, rules.CHANGES, rules.AGAIN
"""Wordings that tell whether something is demanded, forbidden or allowed, and since when."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a sentence is about, and whether it forbids, demands or withdraws."""

    words: frozenset[str]
    """The words of the sentence without its values; a concept's words are replaced by the concept's name."""
    attributes: frozenset[str]
    """The words that name an attribute, which has one value at a time."""
    things: frozenset[str]
    """The words without attributes, and without those that most demands have in common."""
    act: frozenset[str]
    """What is demanded, forbidden or allowed: the words without those that tell which of these it is."""
    before: Mapping[str, str]
    """For each word the one before it, if that is a word too."""
    of: frozenset[str]
    """The words after "of" and "for", which tell the owner."""
    values: Mapping[str, frozenset[str]]
    """The values by kind."""
    about: frozenset[str]
    """The values before "is": they tell what the sentence is about, not what it sets."""
    head: frozenset[str]
    """The words before "is", if the sentence says what or where something is."""
    is_one: bool
    """Whether ``head`` is a single thing, with one value at a time: *the* log, what a value is used as."""
    uses: bool
    """Whether the sentence says what to use."""
    forbids: bool
    commands: bool
    permits: bool
    withdraws: bool
    tells_change: bool
    replaces: bool
    """Whether the sentence says explicitly that one value replaces another, and does not only mention it."""
    limits: bool
    """Whether the sentence sets an amount or a deadline; its value is then no object, even if negated."""

    def is_like(self, other: "Subject", part: float) -> bool:
        """Whether the sentences share at least the fraction ``part`` of the words of the one with fewer."""
        least = min(len(self.words), len(other.words))
        common = self.words & other.words
        return len(common) >= part * least and (least > 1 or self.words == other.words)

    def contrasts(self, other: "Subject") -> bool:
        """Whether the sentences are about different things of one kind: *unit* tests and *smoke* tests."""
        scopes, others = self.words & SCOPES, other.words & SCOPES
        if scopes and others and not scopes & others:
            return True
        if self.of and other.of and not (self.of & other.words or other.of & self.words):
            return True
        return any(
            self.before.get(word, "") not in ("", other.before.get(word, ""), *other.words)
            and other.before.get(word, "") not in ("", *self.words)
            for word in self.words & other.words
        )

    def differing(self, other: "Subject") -> frozenset[str]:
        """Return the kinds of which both sentences set values, but no common value."""
        about = frozenset[str]() if self.replaces else self.about | other.about
        found = list[str]()
        for kind, own in self.values.items():
            values, others = own, other.values.get(kind, about)
            if self.replaces:
                values = values - others  # "8081 instead of 8080"
            if about:
                values, others = values - about, others - about
            if values and others and values.isdisjoint(others):
                found.append(kind)
        return frozenset(found)

    def fitting(self, other: "Subject") -> frozenset[str]:
        """Return the kinds of values that fit an attribute that both sentences name."""
        both = self.attributes & other.attributes
        return frozenset([kind for name in both for kind in FITTING.get(name, ())] if both else ())


@lru_cache(_REMEMBERED)
def subject_of(sentence: str) -> Subject:
    """Return what a sentence is about."""
    text = untitled(sentence)
    facts = {_trimmed(fact): _KIND.get(fact.kind, fact.kind) for fact in facts_in(text)}
    facts.pop("", None)
    longest_first = sorted(facts, key=lambda value: -len(value))
    marks, plain = {chr(_FIRST_MARK + place): value for place, value in enumerate(longest_first)}, text
    for mark, value in marks.items():
        plain = plain.replace(value, f" {mark} ")
    words, named, is_one, head, act = _frame_of(plain)
    values = {kind: {*written} for kind, written in words.values.items()}
    for value, kind in facts.items():
        values.setdefault(kind, set()).add(value)
    about = {marks[each] for each in named if each in marks}.union(*head.values.values())
    if values.keys() == {"name"} == {facts.get(value, "name") for value in about}:
        head, about = _Words(""), set[str]()  # names who has a duty, in either order: "he is", "is he"
    content = frozenset(words.words)
    forbids = rules.NEGATION.search(text) is not None
    if forbids:  # few sentences come so far
        bare = rules.DOUBLE_NEGATION.sub(" ", rules.NEGATED_DEMAND.sub(" ", text))
        forbids = rules.NEGATION.search(bare) is not None
    withdraws = rules.WITHDRAWS.search(text) is not None
    if withdraws:
        withdraws = not rules.NEGATION.search(rules.RULE_NOUNS.sub(" ", rules.WITHDRAWS.sub(" ", text)))
    is_deadline = "deadline" in content and "date" in values and "quantity" not in values
    return Subject(
        words=content,
        attributes=content & ATTRIBUTES,
        things=content - ATTRIBUTES - _UNTELLING,
        act=act,
        before=words.before,
        of=frozenset(words.of),
        values={kind: frozenset(named) for kind, named in values.items()},
        about=frozenset(about),
        head=frozenset(head.words),
        is_one=is_one and bool(head.words),
        uses=bool(rules.USES.search(text)),
        forbids=forbids and not withdraws,
        commands=not forbids and bool(rules.COMMANDS.search(text)),
        permits=not forbids and bool(rules.PERMITS.search(text)) and not rules.RELIEF.search(text),
        withdraws=withdraws,
        tells_change=bool(rules.CHANGES.search(text)),
        replaces=any(
            rules.REPLACES.search(clause) and not rules.MENTIONS.search(clause)
            for clause in rules.CLAUSE.findall(text)
        ),
        limits=("limit" in content and (is_deadline or "quantity" in values))
        or (is_deadline and bool(head.words)),
    )


class _Frame(NamedTuple):
    """What a sentence says apart from its values: that of others with other values is the same."""

    words: "_Words"
    named: str
    is_one: bool
    head: "_Words"
    act: frozenset[str]


@cached_for_short_texts(_REMEMBERED)
def _frame_of(plain: str) -> _Frame:
    named, is_one = _named(plain)
    head = _Words("" if rules.NEGATION.search(named) else named)
    return _Frame(_Words(plain), named, is_one, head, _act_of(plain))


class _Words:
    """The words of a text in their order, and the values that are written as words."""

    def __init__(self, text: str) -> None:
        self.words: list[str] = []
        self.before: dict[str, str] = {}
        self.values: dict[str, set[str]] = {}
        self.of: set[str] = set()
        self._previous = ""
        self._is_of = False
        self._end = -1
        is_german = bool(lexicon.GERMAN.search(text))
        tokens = tokens_in(text)
        has_style = "style" in [kind for kind, _, _ in tokens]
        for kind, start, end in tokens:
            word = text[start:end].lower()
            if kind == "letter":
                self._letter(text, start)
            elif kind in CONCEPTS:
                self._word(kind)
            elif kind in VALUES and (kind != "tone" or has_style):
                self._value(kind, word)
            elif (not word.isalpha() and any(map(str.isdigit, word))) or (
                not is_german and _is_name(text, start, end)
            ):
                self._value("name" if word.isalpha() else "", word)
            elif stems := _stems(word):
                for stem in stems:
                    self._word(stem, is_verb=word in lexicon.DEMANDING_VERBS)
            else:
                self._previous = ""
                self._is_of |= word in lexicon.OF

    def _letter(self, text: str, start: int) -> None:
        """Read a letter of a script without spaces.

        Two adjacent letters count as a word; a run of letters counts as the word before the next word.
        """
        letter, follows = text[start], start == self._end
        if follows:
            self.words.append(text[start - 1 : start + 1])
        self._end = start + 1
        if letter in lexicon.LINKING:
            return
        self._previous = "" if _GRAMMAR.match(letter) else (self._previous if follows else "") + letter

    def _value(self, kind: str, text: str) -> None:
        if kind:
            self.values.setdefault(kind, set()).add(text)
        self._previous, self._is_of = "", False

    def _word(self, word: str, *, is_verb: bool = False) -> None:
        self.words.append(word)
        if self._previous:
            self.before.setdefault(word, self._previous)
        if self._is_of:
            self.of.add(word)
            self._is_of = False
        self._previous = "" if is_verb else word


def _named(text: str) -> tuple[str, bool]:
    """Return the name of the thing that a sentence defines, and whether that is a single thing.

    A sentence defines what or where a thing is, or what value to use as the thing; otherwise the name is "".
    """
    if used := rules.USES_AS.search(text):
        return used["name"], True
    lies, copula = rules.LIES.search(text), rules.COPULA.search(text)
    if lies and not (copula and copula.start() < lies.start()):
        return text[: lies.start()].rpartition(",")[2], True
    named = text[: copula.start()].rpartition(",")[2] if copula else ""
    return named, bool(rules.ARTICLE.match(named))


def _act_of(text: str) -> frozenset[str]:
    """Return the words of what a sentence demands, forbids or allows, without those that say which."""
    if rules.WITHDRAWS.search(text):
        text = rules.RULE_NOUNS.sub(" ; ", text)
    for pattern in _POLARITY:
        text = pattern.sub(" ; ", text)
    found: set[str] = set()
    for kind, start, end in tokens_in(text):
        word = text[start:end].lower()
        if kind in CONCEPTS:
            found.add(kind)
        elif kind == "letter":
            if not _GRAMMAR.match(word):
                found.add(word)
        elif kind == "word" and _bare(word) not in _STOP_IN_ACTS:
            found.add(_stem(word))
        elif kind in VALUES:
            found.add(word)
    return frozenset(found)


def _trimmed(fact: Fact) -> str:
    """Return a fact's value; a name is returned without verbs and attributes at its ends.

    Returns "" for a name of which a single word or none is left, and for a value that is written as words,
    because :class:`_Words` finds that.
    """
    if kind_of_token(fact.value) in VALUES:
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
    return word.lower() in _PLAIN or kind_of_token(word) in CONCEPTS


def _is_name(text: str, start: int, end: int) -> bool:
    """Whether a word is capitalised within a sentence, and not all in capitals like API or URL."""
    word = text[start:end]
    if not word[0].isupper() or word.isupper():
        return False
    before = text[:start].rstrip()
    return bool(before) and before[-1] not in _ENDS


@cached_for_short_texts(_WORDS)
def _stems(word: str) -> tuple[str, ...]:
    """Return the stem of a lower-case word, both of a compound, and none of a word that says little."""
    if _bare(word) in _STOP or len(word) < 2:
        return ()
    if compound := _COMPOUND.fullmatch(word):
        return _stem(compound[1]), kind_of_token(compound[2]) or compound[2]
    return (_stem(word),)


@cached_for_short_texts(_WORDS)
def _stem(word: str) -> str:
    """Return a word without its endings, so that all forms have one stem: `open`, `opens`, `opened`."""
    word = _bare(f"{word[:-3]}y" if word.endswith("ies") else word)
    while len(word) > 3 and (shorter := _SUFFIX.sub("", word)) != word:
        word = shorter
    return word.removesuffix("e") if len(word) == 3 else word


def _bare(word: str) -> str:
    """Return a word without a possessive "'s"."""
    return word.removesuffix("'s").removesuffix("\u2019s")


_UNTELLING = frozenset(map(_stem, lexicon.DEMANDING_VERBS | lexicon.LIGHT_WORDS | lexicon.REPLACING_WORDS))

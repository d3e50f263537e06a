"""The subject of a sentence: its words, its values, the attributes they are set for, and whether it forbids.

Two sentences are compared by their subjects alone. A subject has words, not meaning; what it misses must
never make one rule look like the withdrawal of another.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from proxy.core.extraction.facts import Fact, facts_in
from proxy.core.extraction.reading import untitled
from proxy.core.text.lexicon import rules
from proxy.core.text.lexicon import words as lexicon
from proxy.core.text.lexicon.concepts import ATTRIBUTES, CONCEPTS, FITTING, SCOPES, TOKEN, VALUES

_REMEMBERED = 4_096
"""Number of subjects that a process caches."""
_SUFFIX = re.compile(r"(?:(?<=([bgkmnprt]))\1(?:ing|ed)|ing|ed|es|(?<!s)s|en|e)$")
"""An ending, and the second of two letters before it: `plan`, `planned`."""
_STOP = lexicon.FUNCTION_WORDS | lexicon.MODAL_WORDS | lexicon.STATE_WORDS
_STOP_IN_ACTS = (_STOP | lexicon.LIGHT_WORDS) - lexicon.PREPOSITIONS
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
    """Whether the sentence says explicitly that one value replaces another."""

    @property
    def limits(self) -> bool:
        """Whether the sentence sets an amount or a deadline; its value is then no object, even if negated."""
        if "quantity" in self.values:
            return "limit" in self.words
        is_deadline = "deadline" in self.attributes and "date" in self.values
        return is_deadline and ("limit" in self.words or bool(self.head))

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
        return frozenset(
            kind
            for kind in self.values.keys() & other.values.keys()
            if self.values[kind] - about
            and other.values[kind] - about
            and not (self.values[kind] & other.values[kind]) - about
        )

    def fitting(self, other: "Subject") -> frozenset[str]:
        """Return the kinds of values that fit an attribute that both sentences name."""
        both = self.attributes & other.attributes
        return frozenset(kind for name in both for kind in FITTING.get(name, ()))


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
    words = _Words(plain)
    for value, kind in facts.items():
        words.values.setdefault(kind, set()).add(value)
    named, is_one = _named(plain)
    head = _Words("" if rules.NEGATION.search(named) else named)
    about = {marks[each] for each in named if each in marks}.union(*head.values.values())
    if words.values.keys() == {"name"} == {facts.get(value, "name") for value in about}:
        head, about = _Words(""), set[str]()  # names who has a duty, in either order: "he is", "is he"
    content = frozenset(words.words)
    forbids = rules.NEGATION.search(text) is not None
    if forbids:  # few sentences come so far
        bare = rules.DOUBLE_NEGATION.sub(" ", rules.NEGATED_DEMAND.sub(" ", text))
        forbids = rules.NEGATION.search(bare) is not None
    withdraws = rules.WITHDRAWS.search(text) is not None
    if withdraws:
        withdraws = not rules.NEGATION.search(rules.RULE_NOUNS.sub(" ", rules.WITHDRAWS.sub(" ", text)))
    return Subject(
        words=content,
        attributes=content & ATTRIBUTES,
        things=content - ATTRIBUTES - _UNTELLING,
        act=_act_of(plain),
        before=words.before,
        of=frozenset(words.of),
        values={kind: frozenset(values) for kind, values in words.values.items()},
        about=frozenset(about),
        head=frozenset(head.words),
        is_one=is_one and bool(head.words),
        uses=bool(rules.USES.search(text)),
        forbids=forbids and not withdraws,
        commands=not forbids and bool(rules.COMMANDS.search(text)),
        permits=not forbids and bool(rules.PERMITS.search(text)) and not rules.RELIEF.search(text),
        withdraws=withdraws,
        tells_change=bool(rules.CHANGES.search(text)),
        replaces=bool(rules.REPLACES.search(text)),
    )


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
        matches = list(TOKEN.finditer(text))
        has_style = any(match.lastgroup == "style" for match in matches)
        for match in matches:
            kind, word = match.lastgroup or "word", match[0].lower()
            if kind == "letter":
                self._letter(match)
            elif kind in CONCEPTS:
                self._word(kind)
            elif kind in VALUES and (kind != "tone" or has_style):
                self._value(kind, word)
            elif any(map(str.isdigit, word)) or (not is_german and _is_name(match)):
                self._value("name" if word.isalpha() else "", word)
            elif _bare(word) in _STOP or len(word) < 2:
                self._previous = ""
                self._is_of |= word in lexicon.OF
            elif compound := _COMPOUND.fullmatch(word):
                self._word(_stem(compound[1]))
                self._word(_group_of(compound[2]) or compound[2])
            else:
                self._word(_stem(word), is_verb=word in lexicon.DEMANDING_VERBS)

    def _letter(self, match: re.Match[str]) -> None:
        """Read a letter of a script without spaces.

        Two adjacent letters count as a word; a run of letters counts as the word before the next word.
        """
        letter, follows = match[0], match.start() == self._end
        if follows:
            self.words.append(match.string[match.start() - 1 : match.end()])
        self._end = match.end()
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
    for match in TOKEN.finditer(text):
        word, kind = match[0].lower(), match.lastgroup or "word"
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
    lower = word.lower()
    return lower in lexicon.DEMANDING_VERBS or lower in lexicon.FUNCTION_WORDS or _group_of(word) in CONCEPTS


def _group_of(word: str) -> str | None:
    match = TOKEN.fullmatch(word)
    return match.lastgroup if match else None


def _is_name(match: re.Match[str]) -> bool:
    """Whether a word is capitalised within a sentence, and not all in capitals like API or URL."""
    before = match.string[: match.start()].rstrip()
    return match[0][0].isupper() and not match[0].isupper() and bool(before) and before[-1] not in _ENDS


def _stem(word: str) -> str:
    """Return a word without its endings, so that all forms have one stem: `open`, `opens`, `opened`."""
    word = _bare(f"{word[:-3]}y" if word.endswith("ies") else word)
    while len(word) > 3 and (shorter := _SUFFIX.sub("", word)) != word:
        word = shorter
    return word.removesuffix("e") if len(word) == 3 else word


def _bare(word: str) -> str:
    """Return a word without a possessive "'s"."""
    return word.removesuffix("'s").removesuffix("\u2019s")


_UNTELLING = frozenset(map(_stem, lexicon.DEMANDING_VERBS | lexicon.LIGHT_WORDS))

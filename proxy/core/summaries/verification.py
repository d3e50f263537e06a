"""Whether a summary may be believed: checked by code against its source, word by word where words are exact.

Refused is what a model makes up or turns around: numbers, paths, ids, URLs and addresses that the source
lacks, rules of a user told as their opposite, orders that no user gave. How a thing is written does not
matter (`1,000` or `1000`, quotes, markdown, case), so that an honest summary is not refused.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from proxy.core.extraction.facts import LONGEST, facts_in
from proxy.core.extraction.reading import strength_of
from proxy.core.text.lexicon.rules import (
    ASSENT,
    CLAIM,
    CLAUSE_END,
    CONSTRAINTS_HEADING,
    NEGATED_DEMAND,
    NEGATION,
    NEXT_CLAUSE,
    NOTHING_STATED,
    RELIEF,
    TAKEN_BACK,
)
from proxy.core.text.lexicon.words import LISTING, ROUNDING
from proxy.core.text.numbers import all_numbers, is_decimal, numbers_in
from proxy.core.text.words import sentences_in, share, words_of

UNFOUNDED, TURNED, ASCRIBED = "unfounded", "turned_around", "ascribed"
"""What is wrong with a summary; the first names something exact that its source lacks."""


@dataclass(frozen=True)
class Evidence:
    """What a summary was made from."""

    text: str
    user_text: str
    """What users said in it, and what earlier summaries, checked themselves, said that they did."""
    user_rules: "UserRules | None" = None
    """Of users in all of the gap, where this is a piece of it: their rules hold there too."""

    @cached_property
    def flat(self) -> str:
        """The source as runs of letters and of digits."""
        plain = _flat(self.text)
        return plain + _flat(_ESCAPE.sub(" ", self.text)) if "\\" in self.text else plain

    @cached_property
    def numbers(self) -> frozenset[str]:
        return all_numbers(_normal(self.text))

    @cached_property
    def sizes(self) -> list[Decimal]:
        """The numbers that one may have been rounded from."""
        return [Decimal(each) for each in self.numbers if is_decimal(each)]


def fault_in(summary: str, evidence: Evidence) -> str | None:
    """What is wrong with a summary, as a word for the metric; None where nothing is."""
    if next(unfounded(summary, evidence), None) is not None:
        return UNFOUNDED
    plain = _EMPHASIS.sub("", summary)
    rules = evidence.user_rules or UserRules(evidence.user_text)
    if turned_around(plain, rules, evidence.text) is not None:
        return TURNED
    return None if _has_users_words(plain, evidence) else ASCRIBED


# --- what a summary names, and its source lacks ---

_NOT_WORD_FOR_WORD = frozenset({"name", "quoted", "text", "date", "time", "amount", "phone", "number"})
"""Kinds that are checked by their numbers, if at all."""
_RUN = re.compile(r"[0-9]+|[a-z\u00df-\u024f]+|[^\W\d_a-z\u00df-\u024f]+")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|[nrtbf\"/\\])")
_LIST_MARK = re.compile(r"^\s*(?:\(?\d{1,2}[.)]|[-*•])\s+", re.MULTILINE)
_MARKDOWN = re.compile(r"\*+|`+|(?<!\w)_{1,2}(?=\w)(?![A-Za-z0-9]*_)|\[\d{1,2}\]|^#+ ", re.MULTILINE)
_EMPHASIS = re.compile(r"\*+|`+|(?<!\w)__|__(?!\w)")
_COUNTED = re.compile(
    r"\d[\d.,]*(?:-[a-z]{2,}(?:-[a-z]+)*|st|nd|rd|th|er|ère|e|º|ª|x|s|h|d|w|m|y|ms|min|hrs?|am|pm|px"
    r"|pt|p|k|K|M|B)"
)
"""A number and what is counted, written as one: `3rd`, `10-minute`."""
_PLAIN_WORDS = re.compile(r"[A-Z]{2,}|[A-Za-z]?[a-z]+(?:-[a-z]+)+|[A-Za-z]+\.[A-Z][a-z]+")
"""Words that only look exact: capitals, `state-of-the-art`, a missing space after a full stop."""
_BARE_PATH = re.compile(r"[A-Za-z]+(?:/[A-Za-z]+)+")
_HASH = re.compile(r"[0-9a-f]{7,}")
_LONG_WORD = re.compile(rf"(?<!\S)[!-~]{{{LONGEST + 1},}}(?!\S)")
_ROUNDED = re.compile(rf"(?:{ROUNDING})\s*[$€£¥]?\s*$", re.IGNORECASE)
_ROUNDING = Decimal("0.05")
_SEPARATOR = re.compile(LISTING)
_MOST_LISTED = 20


def unfounded(summary: str, evidence: Evidence) -> Iterator[str]:
    """The exact things of a summary that its source lacks."""
    text = _MARKDOWN.sub(" ", _LIST_MARK.sub("", _normal(summary)))
    yield from (word for word in _LONG_WORD.findall(text) if _flat(word) not in evidence.flat)
    rest = _LONG_WORD.sub(" ", text)
    for fact in sorted(facts_in(text), key=lambda fact: -len(fact.value)):
        if fact.kind in _NOT_WORD_FOR_WORD or _COUNTED.fullmatch(fact.value):
            continue
        rest = rest.replace(fact.value, " ")
        value = _flat(fact.value)
        if _HASH.fullmatch(fact.value):
            value = value.rstrip()  # what goes on behind it may be left out
        if value in evidence.flat or _PLAIN_WORDS.fullmatch(fact.value):
            continue
        is_words = fact.kind == "path" and _BARE_PATH.fullmatch(fact.value)
        if not (is_words and all(f" {word} " in evidence.flat for word in value.split())):
            yield fact.value
    yield from _unfounded_numbers(rest, evidence)


def _unfounded_numbers(text: str, evidence: Evidence) -> Iterator[str]:
    for number in numbers_in(text):
        if number.readings & evidence.numbers:
            continue
        before, after = text[: number.start], text[number.end :].partition("\n")[0]
        is_rounded = any(  # from one that the source has
            abs(size - each) <= each * _ROUNDING and _significant(size) > _significant(each)
            for each in (map(Decimal, filter(is_decimal, number.readings)))
            for size in (evidence.sizes if _ROUNDED.search(before[-24:]) else ())
        )
        listed = re.search(r"[:(]([^:()]*)", after)  # it may say how many: `3 files: a, b and c`
        count = sum(bool(each.strip()) for each in _SEPARATOR.split(listed[1])) if listed else 0
        is_count = 2 <= count <= _MOST_LISTED and str(count) in number.readings
        if not (is_rounded or is_count):
            yield text[number.start : number.end]


def _significant(number: Decimal) -> int:
    return len(f"{number:f}".replace(".", "").strip("0"))


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def _flat(text: str) -> str:
    """A text as its runs of letters and digits, a space around each: what must be the same to be the same."""
    return f" {' '.join(_RUN.findall(_normal(text).casefold()))} "


# --- what it says that users said ---
# Words of a tool can be told as a user's order; carried on in a note they would be obeyed. So a claim that
# the user asked, approved or confirmed something needs the user's words: those in quotation marks word for
# word, of others enough. A bare assent ("yes, do it") covers what the source speaks of.

_QUOTED = re.compile(r"[\"“«「『]([^\"“”«»「」『』\n]{3,200})[\"”»」』]")
_AGREED_SHARE, _ASKED_SHARE = 0.5, 0.34
"""Of a claim's words: how many must be the user's."""


def _has_users_words(summary: str, evidence: Evidence) -> bool:
    """Whether all that ``summary`` says of the user has the user's words."""
    of_users = evidence.user_text
    users, squeezed = words_of(of_users), _squeezed(of_users)
    for claim, is_assent in _claims(summary):
        quotes = _QUOTED.findall(claim)
        words = words_of(_QUOTED.sub(" ", claim))
        if not all(_squeezed(quote) in squeezed for quote in quotes):
            return False
        if quotes or (not words and of_users.strip()):
            continue
        if is_assent and ASSENT.search(of_users) and share(words, words_of(evidence.text)) >= _AGREED_SHARE:
            continue
        if share(words, users) < (_AGREED_SHARE if is_assent else _ASKED_SHARE):
            return False
    return True


def _claims(summary: str) -> Iterator[tuple[str, bool]]:
    """What a summary says of the user, each with whether it is of an assent."""
    for match in CLAIM.finditer(summary):
        claim = " ".join(filter(None, match.groups()))
        yield NEXT_CLAUSE.split(claim, maxsplit=1)[0], str(match.lastgroup).startswith("agreed")
    is_listed = False
    listed: list[str] = []
    for line in summary.splitlines():
        heading = CONSTRAINTS_HEADING.match(line)
        if heading:
            is_listed = not heading["rest"]
            listed += sentences_in(heading["rest"] or "")
        elif is_listed and (not line.strip() or line.strip().strip("*#_ ").endswith(":")):
            is_listed = not line.strip() and not listed
        elif is_listed:
            listed += sentences_in(line)
    yield from ((item, False) for item in listed if not NOTHING_STATED.match(item))


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()


# --- what it turns around: "do not deploy" must not become "may deploy" ---
# What code can say soundly: a binding sentence of a user is negated, and a sentence of the summary has its
# words and no negation of any kind; or the other way round. Where the source itself says both, so may it.

_ONE_IN = 5
"""Of so many words of a rule, a sentence that speaks of the same lacks one at most."""
_LEAST_WORDS = 2
_BINDING, _FIRM = 2, 3


@dataclass(frozen=True, slots=True)
class _Rule:
    place: int
    text: str
    words: frozenset[str]
    is_negated: bool


class UserRules:
    """What users laid down, read once however many summaries are held against it.

    Found by what a sentence says: a long conversation has thousands of sentences and dozens of summaries.
    """

    def __init__(self, user_text: str) -> None:
        self._sentences = sentences_in(user_text)

    def about(self, sentence: str, *, is_negated: bool) -> Iterator[_Rule]:
        """Those that forbid, or those that demand, and of which ``sentence`` speaks."""
        found = words_of(sentence)
        near = (rule for word in found for rule in self._by_word[is_negated].get(word, ()))
        return (rule for rule in near if _is_about(rule.words, found))

    @cached_property
    def sides(self) -> "_Sides":
        """All that they said, for and against."""
        return _Sides(self._sentences)

    @cached_property
    def _by_word(self) -> Mapping[bool, Mapping[str, Sequence[_Rule]]]:
        """The rules, each under its rarest words: a sentence that speaks of the same has one of them."""
        rules: dict[tuple[frozenset[str], bool], _Rule] = {}  # those of the same words count once
        for place, sentence in enumerate(dict.fromkeys(self._sentences)):
            strength = strength_of(sentence)
            if strength < _BINDING:
                continue
            bare = NEGATED_DEMAND.sub(" ", sentence)
            is_negated = bool(NEGATION.search(bare))
            words = words_of(NEGATION.sub(" ", bare))
            if strength >= (_BINDING if is_negated else _FIRM) and len(words) >= _LEAST_WORDS:
                rules.setdefault((words, is_negated), _Rule(place, sentence, words, is_negated))
        found: dict[bool, dict[str, list[_Rule]]] = {True: {}, False: {}}
        often = Counter((word, rule.is_negated) for rule in rules.values() for word in rule.words)
        for rule in rules.values():
            rarest = sorted(rule.words, key=lambda word: (often[word, rule.is_negated], word))
            for word in rarest[: _lacking(rule.words) + 1]:
                found[rule.is_negated].setdefault(word, []).append(rule)
        return found


class _Sides:
    """Sentences by their words, those with a negation apart from those without."""

    def __init__(self, sentences: Iterable[str]) -> None:
        self._with: dict[bool, dict[str, list[frozenset[str]]]] = {True: {}, False: {}}
        read = {(words_of(each), bool(NEGATION.search(NEGATED_DEMAND.sub(" ", each)))) for each in sentences}
        for words, is_negated in read:
            for word in words:
                self._with[is_negated].setdefault(word, []).append(words)

    def has_opposite(self, rule: _Rule) -> bool:
        """Whether a sentence on the other side speaks of the same."""
        found = self._with[not rule.is_negated]
        rarest = sorted((found.get(word, ()) for word in rule.words), key=len)[: _lacking(rule.words) + 1]
        return any(_is_about(rule.words, each) for near in rarest for each in near)


def turned_around(summary: str, rules: UserRules, source: str) -> str | None:
    """The first sentence of a user that ``summary``, which was made from ``source``, turns around."""
    claims: list[str] = []
    heading = ""
    for line in summary.splitlines():  # sentences under a heading with it: `Never: deploy on Fridays`
        plain = line.strip().strip("*#_ ")
        if not plain or plain.endswith((":", "\uff1a")):
            heading = plain
        else:
            claims += (f"{heading} {each}".strip() for each in sentences_in(plain))
    turned: set[_Rule] = set()
    for claim in claims:
        if not (NEGATION.search(claim) or RELIEF.search(claim)):
            turned.update(rules.about(claim, is_negated=True))
        for clause in filter(TAKEN_BACK.search, CLAUSE_END.split(claim)):
            turned.update(rules.about(clause, is_negated=False))
    if not turned:
        return None
    # Where the source has the opposite too, the newer may have taken the place of the older.
    sides = (rules.sides, _Sides(sentences_in(source)))
    plain_ones = (rule for rule in turned if not any(side.has_opposite(rule) for side in sides))
    first = min(plain_ones, key=lambda rule: rule.place, default=None)
    return first.text if first else None


def _is_about(words: frozenset[str], found: frozenset[str]) -> bool:
    return len(words - found) <= _lacking(words)


def _lacking(words: frozenset[str]) -> int:
    return len(words) // _ONE_IN

"""Check by code whether a summary is faithful to its source.

A summary is refused if the model made something up or reversed it: numbers, paths, ids, URLs and addresses
that the source lacks, user rules turned into their opposite, orders that no user gave. Notation does not
matter (`1,000` or `1000`, quotes, markdown, case), so that a faithful summary is not refused.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from proxy.core.extraction.facts import facts_in
from proxy.core.extraction.kinds import LONGEST
from proxy.core.extraction.reading import BINDS, OUTRIGHT, strength_of
from proxy.core.lazy import lazy
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
"""Faults of a summary: it names something exact that its source lacks; it reverses a user's rule; it
ascribes something to a user who did not say it."""


@dataclass(frozen=True)
class Evidence:
    """What a summary was made from."""

    text: str
    user_text: str
    """What users said in it, including what earlier, already checked summaries say that users said."""
    user_rules: "UserRules | None" = None
    """The users' rules in the whole gap, if this is a piece of it: they apply to the piece too."""

    @lazy
    def flat(self) -> str:
        """The source as runs of letters and of digits, separated by spaces."""
        plain = _flat(self.text)
        return plain + _flat(_ESCAPE.sub(" ", self.text)) if "\\" in self.text else plain

    @lazy
    def numbers(self) -> frozenset[str]:
        return all_numbers(_normal(self.text))

    @lazy
    def sizes(self) -> list[Decimal]:
        """The source's decimal numbers, from which a number in the summary may have been rounded."""
        return [Decimal(each) for each in self.numbers if is_decimal(each)]


def fault_in(summary: str, evidence: Evidence) -> str | None:
    """Return the fault of a summary as a metric label; None if it has none."""
    if next(unfounded(summary, evidence), None) is not None:
        return UNFOUNDED
    plain = _EMPHASIS.sub("", summary)
    rules = evidence.user_rules or UserRules(evidence.user_text)
    if turned_around(plain, rules, evidence.text) is not None:
        return TURNED
    return None if _has_users_words(plain, evidence) else ASCRIBED


# --- exact values in a summary that its source lacks ---

_NOT_WORD_FOR_WORD = frozenset({"name", "quoted", "text", "date", "time", "amount", "phone", "number"})
"""Kinds of facts that are not compared literally: only their numbers are checked, if any."""
_RUN = re.compile(r"[0-9]+|[a-z\u00df-\u024f]+|[^\W\d_a-z\u00df-\u024f]+")
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|[nrtbf\"/\\])")
_LIST_MARK = re.compile(r"^[^\S\n]*(?:\(?\d{1,2}[.)]|[-*•])\s+", re.MULTILINE)
_MARKDOWN = re.compile(r"\*+|`+|(?<!\w)_{1,2}(?=\w)(?![A-Za-z0-9]*_)|\[\d{1,2}\]|^#+ ", re.MULTILINE)
_EMPHASIS = re.compile(r"\*+|`+|(?<!\w)__|__(?!\w)")
_COUNTED = re.compile(
    r"\d[\d.,]*(?:-[a-z]{2,}(?:-[a-z]+)*|st|nd|rd|th|er|ère|e|º|ª|x|s|h|d|w|m|y|ms|min|hrs?|am|pm|px"
    r"|pt|p|k|K|M|B)"
)
"""A number written together with its unit: `3rd`, `10-minute`."""
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
    """Yield the exact values of a summary that its source lacks."""
    text = _MARKDOWN.sub(" ", _LIST_MARK.sub("", _normal(summary)))
    yield from (word for word in _LONG_WORD.findall(text) if _flat(word) not in evidence.flat)
    rest = _LONG_WORD.sub(" ", text)
    for fact in sorted(facts_in(text), key=lambda fact: -len(fact.value)):
        if fact.kind in _NOT_WORD_FOR_WORD or _COUNTED.fullmatch(fact.value):
            continue
        rest = rest.replace(fact.value, " ")
        value = _flat(fact.value)
        if _HASH.fullmatch(fact.value):
            value = value.rstrip()  # a hash may be shortened
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
    """Return a text's runs of letters and digits with a space around each, for comparison."""
    return f" {' '.join(_RUN.findall(_normal(text).casefold()))} "


# --- what a summary ascribes to users ---
# A summary can present a tool's words as a user's order, which a model would obey when it reads the note. So
# a claim that the user asked, approved or confirmed something needs the user's words: quotations literally,
# and of other words a sufficient share. A bare assent ("yes, do it") covers what the source speaks of.

_QUOTED = re.compile(r"[\"“«「『]([^\"“”«»「」『』\n]{3,200})[\"”»」』]")
_AGREED_SHARE, _ASKED_SHARE = 0.5, 0.34
"""Shares of a claim's words that must be the user's."""


def _has_users_words(summary: str, evidence: Evidence) -> bool:
    """Whether all claims of ``summary`` about the user are backed by the user's words."""
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
    """Yield a summary's claims about the user, each with whether it claims an assent."""
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


# --- reversed rules: "do not deploy" must not become "may deploy" ---
# What code can detect reliably: a binding sentence of a user is negated, and a sentence of the summary has
# its words without any negation; or the other way round. If the source says both, the summary may too.

_ONE_IN = 5
"""A sentence on the same subject as a rule lacks at most one in this many of the rule's words."""
_LEAST_WORDS = 2


@dataclass(frozen=True, slots=True)
class _Rule:
    text: str
    words: frozenset[str]
    is_negated: bool


class UserRules:
    """The users' rules, read once and used to check any number of summaries."""

    def __init__(self, user_text: str) -> None:
        self._sentences = sentences_in(user_text)

    @lazy
    def binding(self) -> list[_Rule]:
        """What users demand or forbid, in the order in which they said it; the same words count once."""
        rules: dict[tuple[frozenset[str], bool], _Rule] = {}
        for sentence in dict.fromkeys(self._sentences):
            strength = strength_of(sentence)
            if strength < BINDS:
                continue
            bare = NEGATED_DEMAND.sub(" ", sentence)
            is_negated = bool(NEGATION.search(bare))
            words = words_of(NEGATION.sub(" ", bare))
            if strength >= (BINDS if is_negated else OUTRIGHT) and len(words) >= _LEAST_WORDS:
                rules.setdefault((words, is_negated), _Rule(sentence, words, is_negated))
        return [*rules.values()]

    @lazy
    def said(self) -> set[tuple[frozenset[str], bool]]:
        return _said_in(self._sentences)


def _said_in(sentences: Iterable[str]) -> set[tuple[frozenset[str], bool]]:
    """Return the words of sentences, each with whether it is negated."""
    return {(words_of(each), bool(NEGATION.search(NEGATED_DEMAND.sub(" ", each)))) for each in sentences}


def turned_around(summary: str, rules: UserRules, source: str) -> str | None:
    """Return the first user rule that ``summary``, made from ``source``, reverses; None if there is none."""
    claims: list[str] = []
    heading = ""
    for line in summary.splitlines():  # sentences under a heading with it: `Never: deploy on Fridays`
        plain = line.strip().strip("*#_ ")
        if not plain or plain.endswith((":", "\uff1a")):
            heading = plain
        else:
            claims += (f"{heading} {each}".strip() for each in sentences_in(plain))
    allowed = [words_of(each) for each in claims if not (NEGATION.search(each) or RELIEF.search(each))]
    clauses = (clause for claim in claims for clause in CLAUSE_END.split(claim))
    taken_back = [words_of(clause) for clause in clauses if TAKEN_BACK.search(clause)]
    turned = [
        rule
        for rule in rules.binding
        if any(_is_about(rule, words) for words in (allowed if rule.is_negated else taken_back))
    ]
    if not turned:
        return None
    # If the source has the opposite too, a newer rule may have replaced the older one.
    said = rules.said | _said_in(sentences_in(source))
    for rule in turned:
        if not any(_is_about(rule, words) for words, is_negated in said if is_negated != rule.is_negated):
            return rule.text
    return None


def _is_about(rule: _Rule, words: frozenset[str]) -> bool:
    """Whether a sentence of these words is on the same subject as a rule."""
    return len(rule.words - words) <= len(rule.words) // _ONE_IN

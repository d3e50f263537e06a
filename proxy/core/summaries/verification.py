"""Check by code whether a summary is faithful to its source.

A summary is refused if the model made something up or reversed it: numbers, paths, ids, URLs, addresses and
names that the source lacks, numbers with another unit than it has there, user rules turned into their
opposite, orders that no user gave and decisions that none made. Notation does not matter (`1,000` or `1000`,
quotes, markdown, case), so that a faithful summary is not refused.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from proxy.core.extraction.facts import facts_in
from proxy.core.extraction.kinds import LONGEST
from proxy.core.lazy import lazy
from proxy.core.summaries.reversals import UserRules, turned_around
from proxy.core.text.lexicon.rules import (
    ASSENT,
    CLAIM,
    CONSTRAINTS_HEADING,
    NEXT_CLAUSE,
    NOTHING_STATED,
)
from proxy.core.text.lexicon.words import GERMAN, LISTING, MONTHS, NO_NAMES, ROUNDING, UNSPACED
from proxy.core.text.numbers import Number, all_numbers, is_decimal, measured_in, numbers_in, spelt_in
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
    user_rules: UserRules | None = None
    """The users' rules in the whole gap, if this is a piece of it: they apply to the piece too."""

    @lazy
    def flat(self) -> str:
        """The source as runs of letters and of digits, separated by spaces."""
        plain = _flat(self.text)
        return plain + _flat(_ESCAPE.sub(" ", self.text)) if "\\" in self.text else plain

    @lazy
    def words(self) -> frozenset[str]:
        return words_of(self.text)

    @lazy
    def numbers(self) -> frozenset[str]:
        return all_numbers(_normal(self.text))

    @lazy
    def _measured(self) -> list[Number]:
        return [*measured_in(_normal(self.text))]

    @lazy
    def measures(self) -> Mapping[str, set[str]]:
        """By reading, what the numbers of the source measure."""
        found: dict[str, set[str]] = {}
        for number in self._measured:
            for reading in number.readings if number.measure else ():
                found.setdefault(reading, set()).update(number.measure)
        return found

    @lazy
    def counts(self) -> Mapping[str, set[str]]:
        """By the stem of what is counted, the readings of the numbers before it."""
        found: dict[str, set[str]] = {}
        text = _normal(self.text)
        for number in self._measured:
            for stem in _counted_at(text, number.end):
                found.setdefault(stem, set()).update(number.readings)
        return found

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
_JOINED = re.compile(
    r"(?i:arxiv:)?(\d{4}\.\d{4,5}|[a-z.-]+/\d{7})(?:(v)(\d+))?"
    r"|([^@]*/[^@:]*)(:)(\w[\w.-]*)|([^@]+)(@sha\d{3}:)([\da-f]+)"
)
"""What a summary may have joined: `quay/site` with the tag `main`, or the second version of a paper."""
_HASH = re.compile(r"[0-9a-f]{7,}")
_LONG_WORD = re.compile(rf"(?<!\S)[!-~]{{{LONGEST + 1},}}(?!\S)")
_ROUNDED = re.compile(rf"(?:{ROUNDING})\s*[$€£¥]?\s*$", re.IGNORECASE)
_ROUNDING = Decimal("0.05")
_SEPARATOR = re.compile(LISTING)
_MOST_LISTED = 20
_FOLLOWING = re.compile(r"(?<=[^\W_][ ,]) ?(\w{2,})")
"""A word that does not begin a sentence."""
_CAPITAL = re.compile(r"(?<!\S)\W?[A-Z]")
_LABEL = re.compile(
    r"^[^\S\n]*#.*$|^[^\w\n]*[\w'\u2019]+(?:[ /&-][\w'\u2019]+){0,4}[^\w\n]{0,3}:[^\w\n]{0,3}(?=\s)",
    re.MULTILINE,
)
"""A heading, and what stands before a list or a sentence: `Key Decisions:`."""
_NO_NAMES = frozenset(" ".join(MONTHS).lower().split()) | NO_NAMES
_COUNTED_WORD = re.compile(rf"[ \u00a0]?([^\W\d_{UNSPACED}]{{3,}}|[^\W\d_]{{1,3}})")


def unfounded(summary: str, evidence: Evidence) -> Iterator[str]:
    """Yield the exact values of a summary that its source lacks."""
    plain = _LIST_MARK.sub("", _normal(summary))
    text = _MARKDOWN.sub(" ", plain)
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
        if is_words and all(f" {word} " in evidence.flat for word in value.split()):
            continue
        if not (fact.kind == "code" and _is_joined(fact.value, evidence)):
            yield fact.value
    yield from _unfounded_numbers(rest, evidence)
    for line in _MARKDOWN.sub(" ", _LABEL.sub("", plain)).splitlines():
        names = [name for name in unknown_names(line, evidence.words) if name.istitle()]
        is_title = 2 * len(_CAPITAL.findall(line)) > len(line.split())
        yield from (name for name in names if not is_title and _flat(name).strip() not in evidence.flat)


def _is_joined(code: str, evidence: Evidence) -> bool:
    """Whether a code joins what the source has apart: an image and its tag, a paper and its version.

    Where the source joins the first of the two with something else, it must not be joined with this.
    """
    match = _JOINED.fullmatch(code)
    parts = [*filter(None, match.groups())] if match else [code]
    if _flat("".join(parts)) in evidence.flat:
        return True
    first, mark, second = parts if len(parts) > 1 else ("", "", "")
    is_other = re.search(rf"{re.escape(first + mark)}\w", evidence.text) is not None
    return bool(mark) and not is_other and all(_flat(part) in evidence.flat for part in (first, second))


def unknown_names(sentence: str, known: frozenset[str]) -> Iterator[str]:
    """Yield the names within a sentence that are not among the ``known`` words.

    A name is a word with a capital that does not begin the sentence. In German all nouns have one, so that
    names cannot be told.
    """
    if GERMAN.search(sentence):
        return
    for word in _FOLLOWING.findall(sentence):
        if word[0].isupper() and word.lower() not in _NO_NAMES and not words_of(word) <= known:
            yield word


def _unfounded_numbers(text: str, evidence: Evidence) -> Iterator[str]:
    for number in spelt_in(text):
        stems = _counted_at(text, number.end)
        counts = set[str]().union(*(evidence.counts.get(stem, ()) for stem in stems))
        is_another = bool(counts) and counts.isdisjoint(number.readings)
        is_another = is_another and not number.readings & evidence.numbers
        if is_another or _measures_another(number, evidence):
            yield text[number.start : number.end]
    for number in numbers_in(text):
        if number.readings & evidence.numbers:
            if _measures_another(number, evidence):
                yield text[number.start : number.end]
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


def _measures_another(number: Number, evidence: Evidence) -> bool:
    """Whether the source has a number with another unit of the same kind alone: dollars, and no euros."""
    said = set[str]().union(*(evidence.measures.get(each, ()) for each in number.readings))
    kinds = {_kind_of(measure) for measure in said - number.measure} - set(
        map(_kind_of, said & number.measure)
    )
    return any(_kind_of(measure) in kinds for measure in number.measure)


def _kind_of(measure: str) -> str:
    return measure.partition(":")[0]


def _counted_at(text: str, end: int) -> frozenset[str]:
    """The stem of the word behind a number, which it counts."""
    word = _COUNTED_WORD.match(text, end)
    return words_of(word[1]) if word else frozenset()


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
    for claim, kind in _claims(summary):
        quotes = _QUOTED.findall(claim)
        words = words_of(_QUOTED.sub(" ", claim))
        if not all(_squeezed(quote) in squeezed for quote in quotes):
            return False
        if quotes or (not words and of_users.strip()):
            continue
        is_assent = kind != "asked" and ASSENT.search(of_users)
        if is_assent and share(words, evidence.words) >= _AGREED_SHARE:
            continue
        if share(words, users) < (_AGREED_SHARE if kind == "agreed" else _ASKED_SHARE):
            return False
    return True


def _claims(summary: str) -> Iterator[tuple[str, str]]:
    """Yield a summary's claims about the user, each with what it claims: asked, agreed or decided."""
    for match in CLAIM.finditer(summary):
        claim = " ".join(filter(None, match.groups()))
        yield NEXT_CLAUSE.split(claim, maxsplit=1)[0], str(match.lastgroup).partition("_")[0]
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
    yield from ((item, "asked") for item in listed if not NOTHING_STATED.match(item))


def _squeezed(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).casefold()

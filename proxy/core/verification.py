"""Whether a summary may be believed: checked by code against its source, word by word where words are exact.

Refused is what a model makes up or turns around: numbers, paths, ids, URLs and addresses that the source
lacks, rules of a user told as their opposite, orders that no user gave. How a thing is written does not
matter (`1,000` or `1000`, quotes, markdown, case), so that an honest summary is not refused.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

from proxy.core.attribution import ascribed
from proxy.core.ledger.facts import Fact, facts_in
from proxy.core.ledger.tokens import LONGEST
from proxy.core.numbers import Number, known_numbers, numbers_in
from proxy.core.polarity import LaidDown, turned_around

UNFOUNDED, TURNED, ASCRIBED = "unfounded", "turned_around", "ascribed"
"""What is wrong with a summary; the first names something exact that its source lacks."""

_NUMERIC = frozenset({"date", "time", "amount", "phone", "number"})
_UNCHECKED = frozenset({"name", "quoted", "text"})
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
_ROUNDED = re.compile(
    r"(?:about|around|approximately|approx\.?|roughly|nearly|almost|over|under|more than|less than"
    r"|some|circa|ca\."
    r"|etwa|ungefähr|rund|fast|über|unos|unas|aproximadamente|casi|más de|environ|presque|plus de"
    r"|près de|約|约|大约|大約|およそ|近く|~|≈|>|<|≥|≤)\s*[$€£¥]?\s*$",
    re.IGNORECASE,
)
_ROUNDING = Decimal("0.05")
_SEPARATOR = re.compile(r",| and | und | y | et |、|和|と|;")
_MOST_LISTED = 20


@dataclass(frozen=True)
class Evidence:
    """What a summary was made from."""

    told: str
    """All of it."""
    said: str
    """What users said in it, and what earlier summaries, checked themselves, said that they did."""
    laid_down: LaidDown | None = None
    """What users said in all of the gap, where this is a piece of it: their rules hold there too."""

    @cached_property
    def flat(self) -> str:
        """The source as runs of letters and of digits."""
        plain = flat(self.told)
        return plain + flat(_ESCAPE.sub(" ", self.told)) if "\\" in self.told else plain

    @cached_property
    def numbers(self) -> frozenset[str]:
        """Every number in it."""
        return known_numbers(_normal(self.told))

    @cached_property
    def sizes(self) -> list[Decimal]:
        """The numbers that one may have been rounded from."""
        return [Decimal(each) for each in self.numbers if each.count(".") <= 1 and "," not in each]


def fault_in(summary: str, evidence: Evidence) -> str | None:
    """What is wrong with a summary, as a word for the metric; None where nothing is."""
    if next(unfounded(summary, evidence), None) is not None:
        return UNFOUNDED
    plain = _EMPHASIS.sub("", summary)
    laid_down = evidence.laid_down or LaidDown(evidence.said)
    if turned_around(plain, laid_down, evidence.told) is not None:
        return TURNED
    return ASCRIBED if ascribed(plain, evidence.said, evidence.told) is not None else None


def unfounded(summary: str, evidence: Evidence) -> Iterator[str]:
    """The exact things of a summary that its source lacks."""
    text = _MARKDOWN.sub(" ", _LIST_MARK.sub("", _normal(summary)))
    yield from (word for word in _LONG_WORD.findall(text) if flat(word) not in evidence.flat)
    rest = _LONG_WORD.sub(" ", text)
    for fact in sorted(facts_in(text), key=lambda fact: -len(fact.value)):
        if fact.kind in _UNCHECKED or fact.kind in _NUMERIC or _COUNTED.fullmatch(fact.value):
            continue
        rest = rest.replace(fact.value, " ")
        if not _is_founded(fact, evidence):
            yield fact.value
    for number in numbers_in(rest):
        if not _is_known(number, rest, evidence):
            yield rest[number.start : number.end]


def _is_founded(fact: Fact, evidence: Evidence) -> bool:
    value = flat(fact.value).rstrip() if _HASH.fullmatch(fact.value) else flat(fact.value)
    if value in evidence.flat or _PLAIN_WORDS.fullmatch(fact.value):
        return True
    if fact.kind == "path" and _BARE_PATH.fullmatch(fact.value):
        return all(f" {word} " in evidence.flat for word in value.split())
    return False


def _is_known(number: Number, text: str, evidence: Evidence) -> bool:
    if number.readings & evidence.numbers:
        return True
    before, after = text[: number.start], text[number.end :].partition("\n")[0]
    if _ROUNDED.search(before[-24:]) and any(_is_near(each, evidence) for each in number.readings):
        return True
    return any(_counts(reading, after) for reading in number.readings)


def _is_near(reading: str, evidence: Evidence) -> bool:
    """Whether the source has a number that may have been rounded to this one."""
    if reading.count(".") > 1 or "," in reading:
        return False
    rounded = Decimal(reading)
    digits = _significant(rounded)
    near = (each for each in evidence.sizes if abs(each - rounded) <= rounded * _ROUNDING)
    return any(_significant(each) > digits for each in near)


def _significant(number: Decimal) -> int:
    return len(f"{number:f}".replace(".", "").strip("0"))


def _counts(reading: str, after: str) -> bool:
    """Whether a number tells how many things are listed right after it: `3 files: a, b and c`."""
    if not reading.isdigit() or not 2 <= int(reading[:3]) <= _MOST_LISTED:
        return False
    listed = re.search(r"[:(]([^:()]*)", after)
    return listed is not None and len(list(filter(str.strip, _SEPARATOR.split(listed[1])))) == int(reading)


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text)


def flat(text: str) -> str:
    """A text as its runs of letters and digits, a space around each: what must be the same to be the same."""
    return f" {' '.join(_RUN.findall(_normal(text).casefold()))} "

"""Finds the values of numbers in a text, however they are written.

`1,000`, `1 000` and `1000` are the same number, and so are `12k` and `12,000`; `1.500` is ambiguous and read
both ways. A reading is a decimal in its shortest form, so readings can be compared as text.

What a number measures is found beside it: its unit, its currency, or the half of the day of a time. Of a time
without one (`8:30`) it is not known, and of one after 12 it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache

from proxy.core.text.lexicon.measures import (
    AFTERNOON,
    AFTERNOON_BEFORE,
    CURRENCY_BEFORE,
    HOURS,
    MEASURES,
    MORNING,
    MORNING_BEFORE,
)
from proxy.core.text.lexicon.words import COUNTS, HAN_NUMERALS, MONTHS, NUMERALS, SCALES

_NUMBER = re.compile(
    r"(?<![\d.,])\d{1,3}(?:[ \u00a0\u202f'\u2019_]\d{3})+(?:[.,]\d+)?(?!\d)"
    r"|(?:(?<!\d:)|(?!00(?!\d)))(?:(?<!\d:0)|(?!0(?!\d)))\d+(?:[.,]\d+)*",
    re.ASCII,
)
"""A number in digits; the minutes of a full hour are none."""
_SCALE = re.compile("|".join(f"({written})" for _, written in SCALES))
_BY_COMMA = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_BY_POINT = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?")
_BY_SPACE = re.compile(r"[ \u00a0\u202f'\u2019_]")
_HAN_SCALES = "千万萬億亿"
_LONGEST = 40
"""Largest number of characters of a number that is scaled; a longer one is left as it is."""
_TIME = re.compile(
    rf"(?:(?P<morning>{MORNING_BEFORE})|(?P<afternoon>{AFTERNOON_BEFORE}))? ?"
    r"(?<![\d.,:])(?P<hour>[01]?\d|2[0-3])(?!\d)(?P<minutes>:[0-5]\d(?!\d)(?::[0-5]\d)?)?"
    rf"(?P<word> ?(?:{HOURS}))?(?: ?[0-5]\d(?!\d))?"
    rf"(?: ?(?:(?P<am>(?:{MORNING})\b)|(?P<pm>(?:{AFTERNOON})\b)))?",
    re.IGNORECASE,
)
_MORNING, _AFTERNOON = frozenset({"half:am"}), frozenset({"half:pm"})
_WORDINGS = [each for units in MEASURES.values() for each in units.values()]
_MEASURE = re.compile(
    rf"[ \u00a0\u202f-]?(?P<unit>(?:{'|'.join(spaced for spaced, _ in _WORDINGS)})(?![^\W_])"
    rf"|{'|'.join(unspaced for _, unspaced in _WORDINGS)})",
    re.IGNORECASE,
)
_CURRENCY = re.compile(rf"(?P<currency>{CURRENCY_BEFORE}) ?$")
_LONGEST_CURRENCY = 5
"""Characters before a number in which its currency is looked for."""
_UNITS = {
    f"{name}:{unit}": re.compile("|".join(words), re.IGNORECASE)
    for name, units in MEASURES.items()
    for unit, words in units.items()
}
_HAN = "".join(HAN_NUMERALS)
_SPELT_NUMBER = re.compile(
    rf"\b(?:{COUNTS})\b|(?<![第{_HAN}])[{_HAN}](?![{_HAN}点點月日号號]|[千万萬億亿])", re.IGNORECASE
)
_LETTERS = re.compile(r"[^\W\d_]+")


_SPELT: dict[str, set[str]] = {}
"""The values of number words and months; `sept` is French for seven, and a month."""
for _value, _words in [*NUMERALS.items(), *((str(place), names) for place, names in enumerate(MONTHS, 1))]:
    for _word in _words.lower().split():
        _SPELT.setdefault(_word, set()).add(_value)


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text, from ``start`` up to but not including ``end``."""

    start: int
    end: int
    readings: frozenset[str]
    measure: frozenset[str] = frozenset()
    """What it may measure, as `kind:unit`; empty where nothing beside it says so."""


def numbers_in(text: str) -> Iterator[Number]:
    """All numbers of a text that are written in digits."""
    halves = {time.start: time.measure for time in _times_in(text)}
    last: Number | None = None
    for match in _NUMBER.finditer(text):
        readings, end = _scaled(text, match.end(), frozenset(_plain(match[0])))
        measure = halves.get(match.start(), frozenset()) | _measure_at(text, match.start(), end)
        number = Number(match.start(), end, readings, measure)
        if last is not None and last.end == number.start and text[last.end - 1] in _HAN_SCALES:
            sums = (Decimal(one) + Decimal(other) for one in last.readings for other in readings)
            number = Number(last.start, end, frozenset(_canonical(f"{each:f}") for each in sums), measure)
        elif last is not None:
            yield last
        last = number
    if last is not None:
        yield last


def spelt_in(text: str) -> Iterator[Number]:
    """The numbers from two on that a text has as words, and that say how many."""
    for match in _SPELT_NUMBER.finditer(text):
        word = match[0].lower()
        readings = frozenset(_SPELT.get(word) or {HAN_NUMERALS[word]})
        if readings.isdisjoint("1"):
            yield Number(match.start(), match.end(), readings, _measure_at(text, match.start(), match.end()))


def measured_in(text: str) -> Iterator[Number]:
    """The numbers of a text, in digits and in words, each time also as another clock tells it."""
    yield from numbers_in(text)
    yield from spelt_in(text)
    yield from _times_in(text)


def _scaled(text: str, end: int, readings: frozenset[str]) -> tuple[frozenset[str], int]:
    """The readings of a number that ends at ``end``, with the scale that may follow, and where that ends."""
    scale = _SCALE.match(text, end)
    if scale is None or scale.lastindex is None:
        return readings, end
    power, written = SCALES[scale.lastindex - 1]
    scaled = frozenset(
        _canonical(f"{Decimal(each).scaleb(power):f}") if len(each) <= _LONGEST and is_decimal(each) else each
        for each in readings
    )
    is_unit = written[0] in "MB"  # metres, bytes
    return scaled | readings if is_unit else scaled, scale.end()


def _times_in(text: str) -> Iterator[Number]:
    """The times of a text that are written with minutes, a word for the hour, or a half of the day.

    The readings of each are its hours: 14:30 is half past two.
    """
    for match in _TIME.finditer(text):
        is_marked = match["minutes"] or match["word"]
        is_morning = match["am"] or (is_marked and match["morning"])
        is_afternoon = match["pm"] or (is_marked and match["afternoon"])
        if not (is_marked or is_morning or is_afternoon):
            continue
        hour = int(match["hour"])
        is_morning, is_afternoon = is_morning or hour == 0, is_afternoon or hour > 12
        measure = _MORNING if is_morning else _AFTERNOON if is_afternoon else frozenset[str]()
        hours = {hour, (hour + 11) % 12 + 1} if is_marked or measure else {hour}
        if measure:
            hours.add(hour % 12 + (0 if is_morning else 12))
        elif match["minutes"]:
            hours.add((hour + 12) % 24)
        yield Number(match.start("hour"), match.end("hour"), frozenset(map(str, hours)), measure)


def _measure_at(text: str, start: int, end: int) -> frozenset[str]:
    """What a number from ``start`` to ``end`` may measure: by the unit behind it and the currency before."""
    unit = _MEASURE.match(text, end)
    found = _measures_of(unit["unit"]) if unit else frozenset[str]()
    currency = _CURRENCY.search(text[max(start - _LONGEST_CURRENCY, 0) : start])
    return found | _measures_of(currency["currency"]) if currency else found


@lru_cache(1024)
def _measures_of(wording: str) -> frozenset[str]:
    return frozenset(measure for measure, pattern in _UNITS.items() if pattern.fullmatch(wording))


def all_numbers(text: str) -> frozenset[str]:
    """The readings of all numbers in a text, in digits or in words; months count as numbers."""
    found = {reading for number in numbers_in(text) for reading in number.readings}
    found |= {
        _canonical(part)
        for reading in found
        if not is_decimal(reading)  # a date, a version
        for part in re.split(r"[.,]", reading)
    }
    found |= {value for word in _LETTERS.findall(text.lower()) for value in _SPELT.get(word, ())}
    found |= {HAN_NUMERALS[each] for each in HAN_NUMERALS.keys() & set(text)}
    return frozenset(found.union(*(time.readings for time in _times_in(text))))


def _plain(digits: str) -> Iterator[str]:
    """The readings of a number without a scale."""
    digits = _BY_SPACE.sub("", digits)
    if _BY_COMMA.fullmatch(digits):
        yield _canonical(digits.replace(",", ""))
    elif _BY_POINT.fullmatch(digits):
        yield _canonical(digits.replace(".", "").replace(",", "."))
        if digits.count(".") == 1 and "," not in digits:
            yield _canonical(digits)
    elif digits.count(",") + digits.count(".") > 1:
        yield digits  # a version, an address, a list: itself
    else:
        yield _canonical(digits.replace(",", "."))


def is_decimal(reading: str) -> bool:
    """Whether a reading is a decimal number, and not a date or a version."""
    return reading.count(".") <= 1 and "," not in reading


def _canonical(digits: str) -> str:
    whole, _, fraction = digits.partition(".")
    fraction = fraction.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")

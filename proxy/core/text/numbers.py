"""Finds the values of numbers in a text, however they are written.

`1,000`, `1 000` and `1000` are the same number, and so are `12k` and `12,000`; `1.500` is ambiguous and read
both ways. A reading is a decimal in its shortest form, so readings can be compared as text.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from proxy.core.text.lexicon.words import HAN_NUMERALS, MONTHS, NUMERALS, SCALES

_NUMBER = re.compile(
    r"(?<![\d.,])\d{1,3}(?:[ \u00a0\u202f'\u2019_]\d{3})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,]\d+)*", re.ASCII
)
_SCALE = re.compile("|".join(f"({written})" for _, written in SCALES))
_BY_COMMA = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_BY_POINT = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?")
_BY_SPACE = re.compile(r"[ \u00a0\u202f'\u2019_]")
_LONGEST = 40
"""Largest number of characters of a number that is scaled; a longer one is left as it is."""
_CLOCK = re.compile(r"(?<!\d)([01]?\d|2[0-3]):[0-5]\d")
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


def numbers_in(text: str) -> Iterator[Number]:
    """All numbers of a text that are written in digits."""
    for match in _NUMBER.finditer(text):
        readings = frozenset(_plain(match[0]))
        scale = _SCALE.match(text, match.end())
        if scale is not None and scale.lastindex is not None:
            power, written = SCALES[scale.lastindex - 1]
            scaled = frozenset(
                _canonical(f"{Decimal(each).scaleb(power):f}")
                if len(each) <= _LONGEST and is_decimal(each)
                else each
                for each in readings
            )
            is_unit = written[0] in "MB"  # metres, bytes
            readings = scaled | readings if is_unit else scaled
        yield Number(match.start(), match.end(), readings)


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
    for match in _CLOCK.finditer(text):  # 14:30 is half past two
        hour = int(match[1])
        found |= {str(hour), str((hour + 11) % 12 + 1), str((hour + 12) % 24)}
    return frozenset(found)


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

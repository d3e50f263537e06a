"""Numbers in prose: what each one says, however it is written.

`1,000`, `1 000` and `1000` are the same number, and so are `12k` and `12,000`; `1.500` is read both ways,
because nobody can tell. A reading is a decimal in its shortest form, so readings compare as text.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

_NUMBER = re.compile(
    r"(?<![\d.,])\d{1,3}(?:[ \u00a0\u202f'\u2019_]\d{3})+(?:[.,]\d+)?(?!\d)|\d+(?:[.,]\d+)*", re.ASCII
)
_SCALE = re.compile(
    r"(?P<k>[kK](?![A-Za-z])|千)|(?P<m>M(?![A-Za-z])|百万)|(?P<b>B(?![A-Za-z]))|(?P<w>[万萬])|(?P<y>[億亿])"
    r"| ?(?i:(?P<K>thousand|tausend|mille|mil)|(?P<L>millions?|millionen|millones|mill[oó]n|mio|mn)"
    r"|(?P<O>billions?|bn|milliarden?|milliards?))\b",
)
_SCALES: Mapping[str, int] = {
    "k": 3,
    "K": 3,
    "m": 6,
    "L": 6,
    "b": 9,
    "O": 9,
    "w": 4,
    "y": 8,
}
_UNITS = frozenset("mb")
"""Scales whose letter is as often a unit (metres, bytes)."""
_BY_COMMA = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_BY_POINT = re.compile(r"\d{1,3}(?:\.\d{3})+(?:,\d+)?")
_BY_SPACE = re.compile(r"[ \u00a0\u202f'\u2019_]")
_LONGEST = 40
"""Digits of a number that is calculated with; a longer one is itself."""
_CLOCK = re.compile(r"(?<!\d)([01]?\d|2[0-3]):[0-5]\d")
_SPELT: Mapping[str, str] = {
    "1": "one first once ein eins eine erste einmal uno una primero primera un une premier première "
    "jan january "
    "januar enero janvier",
    "2": "two second twice both pair zwei beide zweite zweimal dos ambos segundo segunda deux deuxième feb "
    "february februar febrero février",
    "3": "three third drei dritte tres tercero tercer trois troisième mar march märz marzo mars",
    "4": "four fourth vier vierte cuatro cuarto quatre quatrième apr april abril avril",
    "5": "five fifth fünf fünfte cinco quinto cinq cinquième may mai mayo",
    "6": "six sixth sechs sechste seis sexto sixième jun june juni junio juin",
    "7": "seven seventh sieben siebte siete séptimo sept septième jul july juli julio juillet",
    "8": "eight eighth acht achte ocho octavo huit huitième aug august agosto août",
    "9": "nine ninth neun neunte nueve noveno neuf neuvième sep september septiembre septembre",
    "10": "ten tenth zehn zehnte diez décimo dix dixième oct october oktober octubre octobre",
    "11": "eleven elf onze nov november noviembre novembre",
    "12": "twelve dozen zwölf dutzend doce docena douze douzaine dec december dezember diciembre décembre",
    "20": "twenty zwanzig veinte vingt",
    "30": "thirty dreißig treinta trente",
    "50": "half fifty hälfte fünfzig mitad cincuenta moitié cinquante",
    "100": "hundred hundert cien ciento cent",
    "1000": "thousand tausend mil mille",
}
_WORDS = {word: value for value, words in _SPELT.items() for word in words.split()}
_WORD = re.compile(r"[^\W\d_]+")
_HAN = dict(zip("一二三四五六七八九十两兩百", "1 2 3 4 5 6 7 8 9 10 2 2 100".split(), strict=True))


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text, ``start`` up to and without ``end``."""

    start: int
    end: int
    readings: frozenset[str]


def numbers_in(text: str) -> Iterator[Number]:
    """Every number that is written in digits."""
    for match in _NUMBER.finditer(text):
        scale = _SCALE.match(text, match.end())
        kind = scale.lastgroup if scale else None
        readings = set(_plain(match[0])) if kind is None or kind in _UNITS else set[str]()
        if kind is not None:
            readings |= {_scaled(each, _SCALES[kind]) for each in _plain(match[0])}
        yield Number(match.start(), match.end(), frozenset(readings))


def known_numbers(text: str) -> frozenset[str]:
    """The readings of every number that a text tells, in digits or in words; months count as numbers."""
    known = {reading for number in numbers_in(text) for reading in number.readings}
    known |= {_canonical(part) for reading in set(known) for part in _parts(reading)}
    known |= {_WORDS[word] for word in _WORD.findall(text.lower()) if word in _WORDS}
    known |= {_HAN[each] for each in _HAN.keys() & set(text)}
    for match in _CLOCK.finditer(text):  # 14:30 is half past two
        hour = int(match[1])
        known |= {str(hour), str((hour + 11) % 12 + 1), str((hour + 12) % 24)}
    return frozenset(known)


def _plain(digits: str) -> Iterator[str]:
    """What a number without a scale says."""
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


def _parts(reading: str) -> list[str]:
    """The numbers of what is no single number, such as a date or a version."""
    return re.split(r"[.,]", reading) if "," in reading or reading.count(".") > 1 else []


def _canonical(digits: str) -> str:
    whole, _, fraction = digits.partition(".")
    fraction = fraction.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{fraction}" if fraction else "")


def _scaled(reading: str, power: int) -> str:
    if len(reading) > _LONGEST or reading.count(".") > 1 or "," in reading:
        return reading
    return _canonical(f"{Decimal(reading).scaleb(power):f}")

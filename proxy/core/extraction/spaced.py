"""Dates, amounts and phone numbers that are written with spaces, or in a script without any.

Each pattern begins with a set of characters, so that a search skips to them; lookbehinds come after it.
"""

import re
from collections.abc import Iterator, Sequence

from proxy.core.text.lexicon.words import CURRENCIES, MONTHS, UNITS

_MONTHS = [name for names in MONTHS for name in names.split()]
_UNSPACED_DATE = r"|(?<=\d)(?:\d{1,3}年\d{1,2}|\d?)月\d{1,2}日"
_UNSPACED_AMOUNT = (
    r"|(?<=\d)(?<![\w.,].)[\d,.]{0,20} ?人民币"
    r"|(?<=\d)(?<![\d.,].)[\d,.]{0,20}[万千億亿]?(?:[円元]|ドル|ユーロ|美元|欧元)"
)
_PHONE = (
    r"[+(\d](?<![\w.].)(?:(?<=\+)\(?\d{2,4}|(?<=\()\d{2,4}|(?<=\d)\d{1,3})\)?"
    r"(?:[ -]\(?\d{2,4}\)?){2,4}(?![\w.])"
)
_DATED = re.compile(r"\b(?:19|20)\d\d-\d\d-\d\d\b|\b\d\d-\d\d-(?:19|20)\d\d\b")
"""A date in what has the form of a phone number."""


def _date(months: Sequence[str], unspaced: str) -> str:
    """Dates with the name of a month, before or after the day; ``unspaced`` are alternatives without one."""
    after = {name[0]: "|".join(each[1:] for each in months if each[0] == name[0]) for name in months}
    from_month = "|".join(f"(?<={initial})(?:{rest})" for initial, rest in after.items())
    return (
        rf"[\d{''.join(after)}](?:(?<!\w.)(?:"
        rf"(?:{from_month})\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?\b"
        rf"|(?:(?<=[0-3])\d?|(?<=\d))\.?(?: de| of)? (?:{'|'.join(months)})(?:(?: de|,)? \d{{4}})?\b)"
        rf"{unspaced})"
    )


def _amount(signs: str, unspaced: str) -> str:
    """Numbers with a currency or a unit; ``unspaced`` are alternatives without a space."""
    return (
        rf"[{signs}\d](?:(?<=[{signs}]) ?\d[\d,.]{{0,20}}\d(?: (?:million|billion|thousand))?"
        rf"|(?<=\d)(?<![\w.,].)[\d,.]{{0,20}} ?(?:{CURRENCIES}|(?<= )(?:{UNITS})\b){unspaced})"
    )


_GRAMMARS = (
    ("date", re.compile(_date(_MONTHS, _UNSPACED_DATE))),
    ("amount", re.compile(_amount("$€£¥₹", _UNSPACED_AMOUNT))),
    ("phone", re.compile(_PHONE)),
)
_IN_ASCII = (
    ("date", re.compile(_date([*filter(str.isascii, _MONTHS)], ""), re.ASCII)),
    ("amount", re.compile(_amount("$", ""), re.ASCII)),
    ("phone", re.compile(_PHONE, re.ASCII)),
)
"""The same for a text in ASCII, as most are: they have less to look for, and take half the time."""


def spaced_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the words of each date, amount and phone number in a text, kind by kind."""
    for kind, pattern in _IN_ASCII if text.isascii() else _GRAMMARS:
        for match in pattern.finditer(text):
            if kind != "phone" or not _DATED.search(match[0]):
                yield kind, match[0]

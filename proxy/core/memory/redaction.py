"""Redact secrets before anything is remembered: keys, tokens, passwords and card numbers, by their shapes.

In doubt something is treated as a secret: a redaction costs little, and a memory is kept for long.
"""

import re

from proxy.core.text.lexicon.remembering import (
    BELONGS_TO,
    IS_NOW,
    IS_SET_TO,
    IS_UNSPACED,
    SECRETS,
    SECRETS_PERHAPS,
)
from proxy.core.text.words import words_of

BLOT = "[redacted]"
_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]*(?:KEY|CERTIFICATE)[A-Z0-9 ]*-----.*?(?:-----END [^-]*-----|\Z)", re.DOTALL
)
_TOKEN = re.compile(
    r"(?<![\w-])(?:sk|pk|rk|ak|whsec|hf|npm|pypi|dop_v1|dckr_pat|glpat|gh[oprsu]|github_pat|xox[a-z]|lin_api|sntrys"
    r"|shpat|gsk|xai|r8|pat|key|api|tok|token|secret)[-_](?=[\w-]*\d)[\w-]{12,}"
    r"|(?<!\w)(?:AKIA|ASIA|AIza|ya29\.|EAAC|SG\.)[\w.-]{12,}"
    r"|(?<![\w-])eyJ[\w-]{5,}\.[\w-]{4,}(?:\.[\w-]*)?"
    r"|(?i:\b(?:bearer|basic) )(?=[\w.~+/=-]*\d)[\w.~+/=-]{12,}"
    r"|(?<![\w+/.-])(?=[\w+-]*[a-z])(?=[\w+-]*[A-Z])(?=(?:[\w+-]*\d){4})[A-Za-z\d+_-]{32,}={0,2}(?![\w/.])"
)
"""Tokens with the prefixes of known services, and long strings that mix characters as only random ones do."""
_USERINFO = re.compile(r"(?<=://)[^\s/@:]*:[^\s/@]+(?=@)")
_QUOTED = "|".join(
    rf"{left}([^{right}\n]{{1,200}}){right}" for left, right in ('""', "''", "``", "“”", "„“", "«»", "「」")
)
_CLOSE, _OPEN = r"[\\\"'`*]{0,4}", r"[\\\"'`*“„«「]{0,4}"
_REST = (
    rf"(?:\*{{0,2}}(?:{_QUOTED})|{_OPEN}(?=\S)((?:[^\n.!?;\"”»」。\uff01\uff1f]|[.!?;](?=[^\s\"]))+)(?<!\s))"
)
"""All of a value that is said to be one: what is in quotes, else the rest of the sentence or of the line."""
_WORD = rf"(?:\*{{0,2}}(?:{_QUOTED})|{_OPEN}([^\s\"'`”»」。]+))"
_MADE_WORD = (
    rf"(?={_OPEN}(?:\d{{4,}}(?![\w%])|(?=\S{{0,60}}?\d)(?=\S{{0,60}}?[^\W\d_])[^\s\"'`]{{5,}})){_WORD}"
)
"""A word that looks like a value: one with letters and digits, or a number of four digits or more."""
_CLAUSE = rf"(?<!s)\s{{1,3}}(?:{BELONGS_TO})(?:\s{{1,3}}(?:[^\s,;:=.!?]|[:=.](?=\S)){{1,60}}){{0,6}}?"
_NAMED = re.compile(
    rf"(?:{SECRETS}){_CLOSE}(?:"
    rf"(?:{IS_NOW})?\s*[:=\uff1a]\s*{_REST}"
    rf"|(?:{IS_NOW}\s+|{IS_UNSPACED}\s*){_WORD}"
    rf"|{_CLAUSE}(?:(?:{IS_NOW})?\s*[:=\uff1a]\s+{_REST}|{IS_NOW}\s+(?:\*{{0,2}}(?:{_QUOTED})|{_MADE_WORD}))"
    rf"|(?:['\u2019]s|(?<!s){IS_SET_TO}|(?<!s))\s+{_MADE_WORD})"
    rf"|(?:{SECRETS_PERHAPS}){_CLOSE}(?:(?:{_CLAUSE})?(?:{IS_NOW}\s+|\s*[:=\uff1a]\s*)"
    rf"|{IS_UNSPACED}\s*|['\u2019]s\s+){_MADE_WORD}",
    re.IGNORECASE,
)
"""A secret by its name, with a group for each form of its value: all that is said after a colon, one word
after "is". After a clause, or with nothing between, only what looks like a value; and not after a plural:
tokens are counted more often than told."""
_DIGITS = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])")
_CARD_LENGTHS = range(13, 20)


def redacted(text: str) -> str:
    """Return the text with :data:`BLOT` in place of each secret."""
    text = _USERINFO.sub(BLOT, _BLOCK.sub(BLOT, text))
    return _NAMED.sub(_named, _DIGITS.sub(_card, _TOKEN.sub(BLOT, text)))


def is_blotted_out(text: str) -> bool:
    """Whether the text has nothing but redactions."""
    return BLOT in text and not words_of(text.replace(BLOT, " "))


def _named(match: re.Match[str]) -> str:
    """Blot out the value that a name stands before: the only group that matched."""
    start, end = (place - match.start() for place in match.span(match.lastindex or 0))
    return match[0][:start] + BLOT + match[0][end:]


def _card(match: re.Match[str]) -> str:
    """Blot out digits with the length of a card number and a valid checksum (Luhn, ISO/IEC 7812-1)."""
    digits = re.sub(r"\D", "", match[0])
    doubled = [int(each) * 2 for each in digits[-2::-2]]
    total = sum(map(int, digits[-1::-2])) + sum(each - 9 * (each > 9) for each in doubled)
    is_card = len(digits) in _CARD_LENGTHS and total % 10 == 0 and len(set(digits)) > 1
    return BLOT if is_card else match[0]

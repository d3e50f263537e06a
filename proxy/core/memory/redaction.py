"""Redact secrets before anything is remembered: keys, tokens, passwords and card numbers, by their shapes.

In doubt something is treated as a secret: a redaction costs little, and a memory is kept for long.
"""

import re

from proxy.core.text.lexicon.remembering import SECRETS
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
_NAMED = re.compile(
    rf"(?P<name>{SECRETS})(?P<is>[\"'`*]{{0,3}}(?:\s*[:=\uff1a]\s*|\s*(?:は|是|为|為)\s*|\s+(?:is|was|ist|lautet|es|est)(?:\s+now)?\s*:?\s+)"
    r"[\"'`*“«「]{0,3})(?P<secret>[^\s\"'`”»」。]+)",
    re.IGNORECASE,
)
_DIGITS = re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])")
_CARD_LENGTHS = range(13, 20)


def redacted(text: str) -> str:
    """Return the text with :data:`BLOT` in place of each secret."""
    text = _USERINFO.sub(BLOT, _BLOCK.sub(BLOT, text))
    text = _NAMED.sub(rf"\g<name>\g<is>{BLOT}", text)
    return _DIGITS.sub(_card, _TOKEN.sub(BLOT, text))


def is_blotted_out(text: str) -> bool:
    """Whether the text has nothing but redactions."""
    return BLOT in text and not words_of(text.replace(BLOT, " "))


def _card(match: re.Match[str]) -> str:
    """Blot out digits with the length of a card number and a valid checksum (Luhn, ISO/IEC 7812-1)."""
    digits = re.sub(r"\D", "", match[0])
    doubled = [int(each) * 2 for each in digits[-2::-2]]
    total = sum(map(int, digits[-1::-2])) + sum(each - 9 * (each > 9) for each in doubled)
    is_card = len(digits) in _CARD_LENGTHS and total % 10 == 0 and len(set(digits)) > 1
    return BLOT if is_card else match[0]

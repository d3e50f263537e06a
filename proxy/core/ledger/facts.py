"""Exact things in a message: found in its text, and in the JSON that tools take and give.

A fact under a key keeps the key, because `reservation_id: NO6JO3` says more than the code alone. What an
object says of itself (a status, a balance) remembers which object that was, so that a newer value of the same
thing can take its place.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from proxy.core.jsonvalue import loads
from proxy.core.ledger.tokens import LONGEST, kind_of

MOST_CHARACTERS = 48_000
"""Characters of one text that are read: three quarters from its beginning, one from its end."""
MOST_FACTS = 1_000
"""Facts of one message."""
_SHORT = 60
"""Characters of a value that can stand as a whole."""
_FEW_WORDS = 5
_DEEPEST = 12

_URL = re.compile(r"(?:https?|ftp|wss?|s3|gs|git|ssh|postgres(?:ql)?|redis)://[^\s<>\"'`)\]}|\\]+")
_WORD = re.compile(
    r"(?:[$€£¥₹#@~]|\.{1,2}/|/)?[A-Za-z0-9À-ɏ_](?:[A-Za-z0-9À-ɏ_./\\:@$€£¥₹%+,~-]|[=>~]=(?=\d))*"
)
_MONTH = (
    r"(?:Jan(?:uary|vier)?|Feb(?:ruary|ruar)?|Mar(?:ch|z)?|Apr(?:il)?|Mai|May|June?|Juni|July?|Juli|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Okt(?:ober)?|Nov(?:ember)?|Dec(?:ember)?|Dez(?:ember)?|enero|febrero|marzo"
    r"|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre|janvier|février|mars|avril|mai|juin"
    r"|juillet|août|septembre|octobre|novembre|décembre|März|Januar|Februar)"
)
_SPACED: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "date",
        re.compile(
            rf"\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?\b"
            rf"|\b\d{{1,2}}\.?(?: de| of)? {_MONTH}(?:(?: de|,)? \d{{4}})?\b"
            r"|(?:\d{2,4}年)?\d{1,2}月\d{1,2}日"
        ),
    ),
    (
        "amount",
        re.compile(
            r"[$€£¥₹] ?\d[\d,.]{0,20}\d(?: (?:million|billion|thousand))?"
            r"|(?<![\w.,])\d[\d,.]{0,20} ?(?:USD|EUR|GBP|JPY|CNY|CHF|dollars?|euros?|pounds|yen|人民币)"
            r"|(?<![\d.,])\d[\d,.]{0,20}[万千億亿]?[円元]"
            r"|(?<![\w.,])\d[\d,.]{0,20} (?:ms|seconds|minutes|hours|days|weeks|months|years"
            r"|GB|MB|KB|TB|kg|km|cm|mm"
            r"|percent|Prozent|Stunden|Tage|Euro|días|horas|jours|heures)\b"
        ),
    ),
    ("phone", re.compile(r"(?<![\w.])\+?\(?\d{2,4}\)?(?:[ -]\(?\d{2,4}\)?){2,4}(?![\w.])")),
)
NAME = re.compile(r"\b[A-ZÀ-Þ][a-zß-ÿ]+(?:[ -](?:(?:de|van|von|der|la|le|del) )?[A-ZÀ-Þ][a-zß-ÿ]+){1,3}\b")
_QUOTED = re.compile(
    r"(?<!\w)[\"“«「『]([^\"“”«»「」『』\n]{2,60})[\"”»」』](?!\w)|(?<!\w)'([^'\n]{4,60})'(?!\w)"
)
_PAIR = re.compile(r"^[ \t>*+-]*([A-Za-z][\w .-]{1,30}?)[ \t]*[:=][ \t]+(\S[^\n]{0,59})$", re.MULTILINE)
LABELS = re.compile(
    r"(?:^|_|-)(?:id|ids|number|no|num|code|key|token|ref|reference|sku|uuid|hash|sha|slug|handle)$",
    re.IGNORECASE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Fact:
    """One exact thing."""

    kind: str
    value: str
    key: str = ""
    """What the source calls it, if it stood under a key."""
    thing: str = ""
    """Of what it is told, where another value of the same key may replace it; empty for things themselves."""


def facts_in(text: str) -> list[Fact]:
    """The exact things in prose, logs and programs, each once, in the order of their first mention."""
    read = bounded(text)
    found: dict[str, Fact] = {}
    for match in _URL.finditer(read):
        _add(found, "url", match[0].rstrip(".,;:!?"))
    read = _URL.sub(" ", read)
    for kind, pattern in _SPACED:
        for match in pattern.finditer(read):
            _add(found, kind_of(match[0]) or kind, match[0])
    for match in _WORD.finditer(read):
        for word in _pieces(match[0]):
            kind = kind_of(word)
            if kind is not None:
                _add(found, kind, word)
    for match in NAME.finditer(read):
        _add(found, "name", match[0])
    return list(found.values())[:MOST_FACTS]


def quotes_in(text: str) -> list[Fact]:
    """What stands in quotation marks."""
    found = (match[1] or match[2] for match in _QUOTED.finditer(bounded(text)))
    return [Fact("quoted", each) for each in found if each.strip() == each and not _CONTROL.search(each)]


def bounded(text: str) -> str:
    """As much of a text as is read."""
    if len(text) <= MOST_CHARACTERS:
        return text
    tail = MOST_CHARACTERS // 4
    return f"{text[: MOST_CHARACTERS - tail]}\n{text[-tail:]}"


def _add(found: dict[str, Fact], kind: str, value: str) -> None:
    if value not in found and len(value) <= LONGEST and not _CONTROL.search(value):
        found[value] = Fact(kind, value)


def _pieces(word: str) -> Iterator[str]:
    """A word without what only stands beside it; both sides of a colon, but for times and drives."""
    stripped = word.rstrip(".,:;-+@$~\\").rstrip("/") if word != "/" else word
    if ":" in stripped and kind_of(stripped) is None:
        for part in stripped.split(":"):
            yield part.strip(".,-/") if not part.startswith(("/", "./", "../")) else part.rstrip(".,-/")
    elif "," in stripped and kind_of(stripped) is None:
        yield from (part for part in stripped.split(",") if part)
    else:
        yield stripped


def leaves_of(text: str, thing: str) -> list[Fact] | None:
    """The facts of a text that is JSON; None where it is not.

    ``thing`` names what the text is about (a tool and its arguments) where its objects have no names.
    """
    start = text.lstrip()[:1]
    if start not in ("{", "[") or len(text) > 8 * MOST_CHARACTERS:
        return None
    try:
        value = loads(text)
    except ValueError:
        return None
    found: dict[tuple[str, str], Fact] = {}
    for fact in _walk(value, "", thing, _DEEPEST):
        found.setdefault((fact.key, fact.value), fact)
        if len(found) >= MOST_FACTS:
            break
    return list(found.values())


def _walk(value: object, key: str, thing: str, deeper: int) -> Iterator[Fact]:
    if deeper == 0:
        return
    if isinstance(value, Mapping):
        yield from _of_object(cast("Mapping[str, object]", value), key, thing, deeper)
    elif isinstance(value, str):
        yield from _of_text(value, key, thing)
    elif isinstance(value, Sequence):
        for each in cast("Sequence[object]", value):
            yield from _walk(each, key, thing, deeper - 1)
    elif value is not None and not isinstance(value, bool):
        yield from _of_number(str(value), key, thing)


def _of_object(members: Mapping[str, object], key: str, thing: str, deeper: int) -> Iterator[Fact]:
    named = _name_of(members) or thing
    for member, value in members.items():
        if kind_of(member) in ("code", "id", "number", "email", "path", "file"):
            yield Fact(kind_of(member) or "code", member, key)
            yield from _walk(value, key, member, deeper - 1)
        else:
            yield from _walk(value, member, named, deeper - 1)


def _name_of(members: Mapping[str, object]) -> str:
    """What an object calls itself: the value of its first member whose name says that it is an id."""
    for member, value in members.items():
        if isinstance(value, str | int) and not isinstance(value, bool) and LABELS.search(member):
            return f"{member}={value}"
    return ""


def _of_number(value: str, key: str, thing: str) -> Iterator[Fact]:
    if LABELS.search(key):
        yield Fact("id", value, key)
    elif len(value) > 1 and len(value) <= _SHORT:
        yield Fact("number", value, key, f"{thing}\0{key}")


def _of_text(value: str, key: str, thing: str) -> Iterator[Fact]:
    text = value.strip()
    if not text or _CONTROL.search(text) or len(text) > _SHORT:
        if (
            len(text) > _SHORT
            and " " not in text[:LONGEST]
            and len(text) <= LONGEST
            and not _CONTROL.search(text)
        ):
            yield Fact(kind_of(text) or "id", text, key)
            return
        nested = leaves_of(text, thing)
        yield from facts_in(text) if nested is None else nested
        return
    kind = kind_of(text) if " " not in text else None
    if kind is not None or LABELS.search(key):
        is_state = kind in ("number", "amount", "date", "time", "version")
        yield Fact(kind or "id", text, key, f"{thing}\0{key}" if is_state else "")
    elif len(text.split()) <= _FEW_WORDS:
        yield Fact("text", text, key, f"{thing}\0{key}")
        yield from (fact for fact in facts_in(text) if fact.value != text)
    else:
        yield from facts_in(text)


def pairs_in(text: str, thing: str) -> list[Fact]:
    """`key: value` and `key = value`, each on a line of its own, where the value is exact."""
    found: list[Fact] = []
    for match in _PAIR.finditer(bounded(text)):
        key, value = match[1].strip(), match[2].strip().strip("\"'`,;")
        kind = kind_of(value) if " " not in value else None
        if kind is not None:
            found.append(Fact(kind, value, key, f"{thing}\0{key.lower()}"))
    return found

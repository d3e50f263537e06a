"""Finds exact facts in a message: in its text, and in the JSON of tool calls and results.

A fact under a key keeps the key, because `reservation_id: NO6JO3` says more than the code alone. A property
of an object (a status, a balance) records which object it belongs to, so that a newer value can replace it.
"""

import re
from itertools import filterfalse
from typing import cast

import msgspec

from proxy.core.extraction.kinds import DOI, LETTERS, LONGEST, NO_NAMES, kind_of, spaced_in
from proxy.core.extraction.outlines import definitions_in
from proxy.core.formats.json import loads_writable
from proxy.core.lazy import cached_for_short_texts
from proxy.core.text.lexicon.words import OPENINGS

MOST_CHARACTERS = 48_000
"""Characters of one text that are read: three quarters from its beginning, one from its end."""
MOST_FACTS = 1_000
"""Largest number of facts of one text."""
_SHORT = 60
"""Largest length in characters of a value that can be a fact as a whole."""
_FEW_WORDS = 5
_STATES = frozenset({"number", "amount", "date", "time", "version"})
"""Kinds of values under a key that newer ones replace; others tell one object from another."""
_DEEPEST = 12

_URL = re.compile(
    r"(?:https?|ftp|wss?|s3|gs|git|ssh|postgres(?:ql)?|redis)://(?:[^\s<>\"'`()\]}|\\]|\([^\s<>\"'`()\]}|\\]*\)?)+"
)
_DOI = re.compile(DOI)
_WITHIN = rf"[{LETTERS}./\\:@$€£¥₹%+,~-]*"
_BRACKETED = r"(?<=[/\\])[\[(]{1,2}[\w.-]+[\])]{1,2}[/\\]"
"""A directory in brackets, as web frameworks name those of parameters and groups: `app/[id]/page.tsx`."""
_OTHER_SCRIPT = rf"(?<=[/\\])(?![{LETTERS}])\w[\w-]*(?=[/\\.\s\"'`)\]>|]|$)"
"""A name in another script within a path: `src/設定.json`. As words may follow it without a space, it has to
end before a character that no name has."""
# Each pattern begins with a set of characters, so that a search skips to them; lookbehinds come after it.
_WORD = re.compile(
    rf"[{LETTERS}$€£¥₹#@~./](?:(?<=[{LETTERS}])(?<!\\[nrt])"
    rf"|(?:(?<=[$€£¥₹#@~])|(?:(?<=/)(?!(?<=</)[\w:.-]+>)|(?<=[@~])/|(?<=\.)\.?/(?:\.\./){{0,12}})\.?)[{LETTERS}]"
    rf"|(?<=\.)(?<![\w.)\]].)(?=[\w-]+[./]\w))"  # a hidden directory, or a hidden file with an extension
    rf"{_WITHIN}(?:(?:{_BRACKETED}|{_OTHER_SCRIPT}){_WITHIN})*(?:[=>~]=(?=\d){_WITHIN})*\(?"
)
_ESCAPED = re.compile(r"(?:\\[nrt])+")
_COLON = re.compile(r":(?![\\/])|(?<!^[A-Za-z]):")
"""A colon that is not the one of a drive."""
_COLOUR = re.compile(r"\x1b\[[\d;]*m")
"""How programs colour what a terminal shows."""
_DIGIT = re.compile(r"\d")
NAME = re.compile(
    r"[A-ZÀ-Þ](?<!\w.)[a-zß-ÿ]+(?:[ -](?:(?:de|van|von|der|la|le|del) )?[A-ZÀ-Þ][a-zß-ÿ]+){1,3}\b"
)
_QUOTED = re.compile(
    r"[\"“«「『'](?<!\w.)(?:(?<!')([^\"“”«»「」『』\n]{2,60})[\"”»」』]|(?<=')([^'\n]{4,60})')(?!\w)"
)
_PAIR = re.compile(
    r"^[ \t>*+-]*(\"?)([A-Za-z][\w .-]{1,30}?)\1[ \t]*[:=][ \t]+(\S[^\n]{0,59})$", re.MULTILINE
)
_LABELS = re.compile(
    r"(?:^|_|-)(?:id|ids|number|no|num|code|key|token|ref|reference|sku|uuid|hash|sha|slug|handle)$",
    re.IGNORECASE,
)
_IMPORT = re.compile(r"\bfrom ([\w.]+) import\b|\bimport ([\w.]+)[ \t;]*$", re.MULTILINE)
"""Names that are modules, also where they look like files: `django.db`."""
_TAG = r"</?[A-Za-z][\w:-]*(?:\s[^<>]*|/)?>"
_MARKUP = re.compile(rf"(?=.*(?:</|/>|=)){_TAG}(?:.*{_TAG})?", re.DOTALL)
"""Elements. A lone `<none>` is none, but what programs write where a value is missing."""
_ELEMENT = re.compile(r"<([A-Za-z][\w:-]*)>([^<>]*)</\1>")
"""An element without attributes around one text, which is the value."""
_DIFFED = re.compile(r"^(?:diff --git|---|\+\+\+) [ab]/(?:(.*) b/)?", re.MULTILINE)
"""How a diff begins to name files: with `a/` for the old and `b/` for the new, which are no directories."""
_MEMORY = re.compile(
    # Arguments of a frame in Go, offsets behind the number of a line, what a signal says, Python's objects.
    r"[ (#:](?:(?<=[\w)\]]\()\{*0x[\da-fx?,.{} _]*\)(?=\n[ \t]+\S+:\d)|(?<=\d )\+0x[\da-f]+$"
    r"|(?<= )code=0x[\da-f]+ addr=0x[\da-f]+ pc=0x[\da-f]+\]|(?<= )at 0x[\da-fA-F]{6,16}(?=>)"
    # The frames of debuggers and sanitizers, and of Rust.
    r"|(?<=#)\d{1,4} {1,4}0x[\da-f]+ in (?=[^\s(]{1,200}(?: [(/]|\())|(?<=\d:) {2,40}0x[\da-f]{9,16} - )",
    re.MULTILINE,
)
"""Addresses in memory, where nothing else can stand: each run has others, while a device keeps its own."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Fact(msgspec.Struct, frozen=True, gc=False):
    """One exact fact."""

    kind: str
    value: str
    key: str = ""
    """The key that it had in its source, if any."""
    thing: str = ""
    """The object and key that it is the state of, so that a newer value replaces it; else empty."""


def facts_of(text: str, thing: str) -> list[Fact]:
    """All facts in a text: the leaves, if it is JSON; else the values under keys, then all others.

    ``thing`` names what the text is about (a tool and its arguments) where nothing in it does.
    """
    leaves = leaves_of(text, thing)
    if leaves is not None:
        return leaves
    # Pairs are written as `key: value` or `key = value` on a line of their own.
    pairs: list[Fact] = []
    for match in _PAIR.finditer(bounded(text)) if ":" in text or "=" in text else ():
        key, value = match[2].strip(), match[3].partition("</")[0].strip().strip("\"'`,;")
        kind = kind_of(value) if " " not in value else None
        if kind is not None and not NO_NAMES.fullmatch(key):
            # A key in quotation marks is a member of an object, of which nothing else is known.
            is_state = not match[1] or (thing and kind in _STATES)
            pairs.append(Fact(kind, value, key, _shared(f"{thing}\0{key.lower()}") if is_state else ""))
    things = _things_in(text)
    if not pairs:
        return things
    paired = {fact.value for fact in pairs}
    return [*pairs, *(fact for fact in things if fact.value not in paired)]


def facts_in(text: str) -> list[Fact]:
    """The facts in prose, logs and programs, each once."""
    return _with_facts_in({}, bounded(text))


def _things_in(text: str) -> list[Fact]:
    """The facts of a text that may be source code: the names that it defines, then all others."""
    text = bounded(text)
    defined = {name: Fact(kind, name) for kind, name in definitions_in(text) if len(name) <= LONGEST}
    return _with_facts_in(defined, text)


def _with_facts_in(found: dict[str, Fact], text: str) -> list[Fact]:
    """The facts found, followed by others in a text."""
    text = _DIFFED.sub(r"\1 ", text) if " a/" in text or " b/" in text else text
    text = _MEMORY.sub(" ", text) if "0x" in text else text
    # No fact spans lines, so repeated lines add nothing.
    lines = dict.fromkeys(text.splitlines())
    numbered = "\n".join([lines.pop(each) or each for each in [*filter(_DIGIT.search, lines)]])
    read = _without_urls(found, "\n".join(lines))
    values, others = spaced_in(_without_urls(found, numbered)) if numbered else ((), "")
    for kind, words in values:
        _add(found, kind, words)
    read = f"{others}\n{read}" if others else read
    for written in filterfalse(_FACTLESS.__contains__, dict.fromkeys(_WORD.findall(read))):
        for fact in _exact_in_word(written):
            found.setdefault(fact.value, fact)
    for match in _IMPORT.finditer(read) if "import" in read else ():
        module = match[1] or match[2]
        if module in found and found[module].kind == "file":
            found[module] = Fact("member", module)
    for name in map(_without_opening, NAME.findall(read)) if not read.islower() else ():
        if not name.isalpha():
            _add(found, "name", name)
    return list(found.values())[:MOST_FACTS]


def _without_urls(found: dict[str, Fact], text: str) -> str:
    """The rest of a text whose URLs and DOIs, which have signs that no word has, are put among the facts."""
    for kind, mark, pattern in (("url", "://", _URL), ("code", "10.", _DOI)):
        if mark in text:
            for match in pattern.finditer(text):
                _add(found, kind, match[0].rstrip(".,;:!?"))
            text = pattern.sub(" ", text)
    return text


def _without_opening(words: str) -> str:
    """Capitalised words without those that begin a sentence: "Joanna Berg" of "Hey Joanna Berg"."""
    first, _, rest = words.partition(" ")
    return _without_opening(rest) if rest and first.lower() in OPENINGS else words


def quotes_in(text: str) -> list[Fact]:
    """The texts in quotation marks, as facts."""
    found = (match[1] or match[2] for match in _QUOTED.finditer(bounded(text)))
    return [Fact("quoted", each) for each in found if each.strip() == each and not _CONTROL.search(each)]


def bounded(text: str, most: int = MOST_CHARACTERS) -> str:
    """The part of a text that is read, without a terminal's colours."""
    text = _COLOUR.sub("", text) if "\x1b" in text else text
    if len(text) <= most:
        return text
    tail = most // 4
    return f"{text[: most - tail]}\n{text[-tail:]}"


def _add(found: dict[str, Fact], kind: str, value: str) -> None:
    if value not in found and len(value) <= LONGEST and not _CONTROL.search(value):
        found[value] = Fact(kind, value)


_FACTLESS: set[str] = set()
"""Words without facts. Texts mostly consist of such words, so they are passed over all at once."""
_MOST_FACTLESS = 1 << 15


@cached_for_short_texts(1 << 15, longest=LONGEST)
def _exact_in_word(written: str) -> tuple[Fact, ...]:
    """The facts in one written word."""
    pieces, is_called = [written], written.endswith("(")
    if not written.isalnum():
        # Without punctuation around it; split at escaped line breaks, unless a drive's backslashes look so.
        word = written.rstrip("(.,:;-+@$~\\").rstrip("/") if written != "/" else written
        is_glued = "\\" in word and word[1:2] != ":" and ("/" in word or kind_of(word) is None)
        pieces = [piece for each in (_ESCAPED.split(word) if is_glued else [word]) for piece in _split(each)]
    kinds = ((kind_of(piece), piece) for piece in pieces)
    # What is called is a method: `boats.map(`.
    found = tuple(
        [
            Fact("member" if is_called and kind == "file" else kind, piece)
            for kind, piece in kinds
            if kind is not None
        ]
    )
    if not found and len(written) <= LONGEST:
        if len(_FACTLESS) >= _MOST_FACTLESS:
            _FACTLESS.clear()
        _FACTLESS.add(written)
    return found


def _split(word: str) -> list[str]:
    """A word, split at colons and commas unless the whole is a fact."""
    if ":" in word and kind_of(word) is None:
        return [
            part.rstrip(".,-/") if part.startswith(("/", ".")) else part.strip(".,-/")
            for part in _COLON.split(word)
        ]
    if "," in word and kind_of(word) is None:
        return [part for part in word.split(",") if part]
    return [word]


def leaves_of(text: str, thing: str) -> list[Fact] | None:
    """The facts of a text that is JSON; None where it is not.

    ``thing`` names what the text is about (a tool and its arguments) where its objects have no names.
    """
    start = text.lstrip()[:1]
    if start not in ("{", "[") or len(text) > 8 * MOST_CHARACTERS:
        return None
    try:
        value = loads_writable(text)
    except ValueError:
        return None
    found: dict[str, Fact] = {}
    _walk(found, value, "", thing, _DEEPEST)
    return list(found.values())[:MOST_FACTS]


def _walk(found: dict[str, Fact], value: object, key: str, thing: str, deeper: int) -> None:
    """Collect the facts of a JSON value; a value found before keeps its first key."""
    if deeper == 0 or len(found) >= MOST_FACTS:
        return
    if isinstance(value, str):
        _add_text(found, value, key, thing)
    elif isinstance(value, dict):
        _walk_object(found, cast("dict[str, object]", value), key, thing, deeper)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            if len(found) >= MOST_FACTS:
                break
            _walk(found, each, key, thing, deeper - 1)
    elif value is not None and not isinstance(value, bool) and (written := str(value)) not in found:
        if _is_label(key):
            found[written] = Fact("id", written, key)
        elif 1 < len(written) <= _SHORT:
            found[written] = Fact("number", written, key, _shared(f"{thing}\0{key}"))


def _walk_object(
    found: dict[str, Fact], members: dict[str, object], key: str, thing: str, deeper: int
) -> None:
    # An object is named by its first member whose name marks an id.
    labels = (
        f"{member}={each}"
        for member, each in members.items()
        if _is_label(member) and isinstance(each, str | int) and not isinstance(each, bool)
    )
    named = next(labels, thing)
    for member, each in members.items():
        kind = kind_of(member)
        if kind in ("code", "id", "number", "email", "path", "file"):
            found.setdefault(member, Fact(kind, member, key))
            _walk(found, each, key, member, deeper - 1)
        else:
            _walk(found, each, member, named, deeper - 1)


@cached_for_short_texts(1 << 12)
def _is_label(key: str) -> bool:
    """Whether values under a key are identifiers."""
    return _LABELS.search(key) is not None


def _add_text(found: dict[str, Fact], value: str, key: str, thing: str) -> None:
    """Collect the facts of a string under a key: the string itself, if it is short, and those within it."""
    element = _ELEMENT.fullmatch(value.strip())
    text = element[2].strip() if element else value.strip()
    is_word = " " not in text
    is_one_thing = not (_CONTROL.search(text) or _MARKUP.fullmatch(text))
    if not text or len(text) > _SHORT or not is_one_thing:
        if is_word and _SHORT < len(text) <= LONGEST and is_one_thing:
            found.setdefault(text, Fact(kind_of(text) or "id", text, key))
            return
        nested = leaves_of(text, thing)
        for fact in _things_in(text) if nested is None else nested:
            found.setdefault(fact.value, fact)
        return
    kind = kind_of(text) if is_word else None
    if kind is not None or _is_label(key):
        if text not in found:
            found[text] = Fact(kind or "id", text, key, _shared(f"{thing}\0{key}") if kind in _STATES else "")
        return
    within = _facts_in_short(text)
    if text not in found and len(text.split()) <= _FEW_WORDS:
        found[text] = Fact("text", text, key, _shared(f"{thing}\0{key}"))
    for fact in within:
        found.setdefault(fact.value, fact)


@cached_for_short_texts(1 << 12)
def _facts_in_short(text: str) -> tuple[Fact, ...]:
    return tuple(facts_in(text))


@cached_for_short_texts(1 << 12)
def _shared(name: str) -> str:
    """The same name; remembered, so that all messages share one string."""
    return name

"""The kinds of facts by their form: of a single word, and of what is written with spaces."""

import re
from collections.abc import Sequence

from proxy.core.lazy import cached_for_short_texts
from proxy.core.text.lexicon.patterns import any_at_once
from proxy.core.text.lexicon.words import (
    CLOCKS,
    CURRENCIES,
    CURRENCY_CODES,
    ERAS,
    FUNCTION_WORDS,
    LIGHT_WORDS,
    MAGNITUDES,
    MONTHS,
    UNIT_SIGNS,
    UNITS,
    UNSPACED_CURRENCIES,
    UNSPACED_UNITS,
    ZONES,
)

LETTERS = r"A-Za-z0-9À-ɏͰ-Ͽ_"
"""What words of scripts with spaces consist of, to be put into a character class."""

# --- a single word: a path, a code, a date, a name in code, or none ---

LONGEST = 120
"""Largest length of a fact in characters."""
_SHORTEST = 3

_EXTENSIONS = frozenset(
    "bat bib bin bz2 c cc cfg cjs class cnf conf cpp crt cs csproj css csv cts dart db diff doc docx env exe "
    "f90 gif go gz h h5ad hcl hpp htm html icns ico in ini ipynb iso jar java jl jpeg jpg js json jsonc "
    "jsonl jsx key kt kts lean less lock log lua m map md mdx mjs mk mov mp3 mp4 mts nix npy npz o odt onnx "
    "parquet patch pdf pem php pkl pl plist png po ppt pptx prisma proto ps1 pt py pyc pyi pyx r rar rb rs "
    "rst rtf s sass scala scss sh sln so sol sql sqlite svelte svg swift tar tex tf tfvars tgz toml ts tsv "
    "tsx ttf txt vue wasm wav webp woff xls xlsx xml yaml yml zig zip zsh".split()
)
_FILES = "|".join(sorted(_EXTENSIONS))
_FLAGS = re.compile(r"-{1,2}[A-Za-z][\w-]*")
_NUMBER = re.compile(r"\d{4,}(?:,\d)?|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d{1,3}(?:\.\d{3})+,\d+|\d+[.,]\d{2,}")
"""With a point or a comma before the decimals."""
_OF_DOI = r"A-Za-z0-9._;:/-"
DOI = (
    rf"10\.(?<![A-Za-z0-9_./$€£¥₹+,-]10\.)\d{{4,9}}/(?![A-Za-z0-9]{{1,4}}[.;:]*(?![({_OF_DOI}]))"
    rf"(?:[{_OF_DOI}]|\([{_OF_DOI}]*\))++"
)
"""The identifier of a publication; no price or fraction, as `10.2500/kg`."""
_OWN_GRAMMARS = (
    ("email", r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[^\W\d][\w-]*"),
    ("id", r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    ("date", r"\d{4}-\d{1,2}-\d{1,2}(?:T\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"),
    ("date", r"\d{4}/\d{1,2}/\d{1,2}|\d{1,2}/\d{1,2}/\d{2,4}|\d{1,2}\.\d{1,2}\.\d{4}"),
    ("time", r"\d{1,2}:\d{2}(?::\d{2})?(?:[.,]\d+)?(?:Z|[+-]\d{2}:?\d{2}|[ap]m|[AP]M)?"),
    ("amount", r"[$€£¥₹]\d[\d,.]*(?:[kKmMbB]|bn)?"),
    ("amount", rf"\d[\d,.]*(?:[$€£¥₹%]|{UNIT_SIGNS})"),
    ("version", r"[\w.-]+(?:==|>=|~=|@)v?\d+(?:\.\d+)+[\w.+-]*|v\d+(?:\.\d+)+[\w.+-]*"),
    ("version", r"\d+\.\d+\.\d+[\w.+-]*"),
    ("id", r"0x[0-9a-fA-F]{2,}|(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,64}"),
    ("code", rf"{DOI}|(?i:arxiv):(?:\d{{4}}\.\d{{4,5}}|[a-z.-]+/\d{{7}})(?:v\d+)?|\d{{4}}\.\d{{4,5}}v\d+"),
    ("number", _NUMBER.pattern),
)
_OWN = re.compile("|".join(f"({pattern})" for _, pattern in _OWN_GRAMMARS))
_ADDRESS = re.compile(
    # An image and its tag or its digest; no line of a file, or of a package, on a host.
    rf"(?!.*\.(?i:{_FILES}):)(?:localhost|(?:[\w-]+\.)+[a-z]{{2,}})(?::\d{{2,5}})?(?:/[\w.-]+)+:(?!\d+$)\w[\w.-]*"
    r"|(?:[\w.-]+(?::\d{2,5})?/)*[\w.-]+(?::\w[\w.-]*)?@sha\d{3}:[\da-f]{32,}"
    # A host and a port, which is no line of a file; a network; the addresses of IPv6 and of hardware.
    rf"|(?:[\w.+-]+@)?(?!.*\.(?i:{_FILES}):)(?:localhost|(?:[\w-]+\.)+[A-Za-z][\w-]*"
    r"|(?:\d{1,3}\.){3}\d{1,3}|(?=[\w-]*\d)[a-z][a-z0-9]*(?:-[a-z0-9]+)+):\d{2,5}(?:/[\w./~-]*)?"
    r"|(?:\d{1,3}\.){3}\d{1,3}/\d{1,2}|[\w.+-]+@[\w.-]+:[\w~][\w./~-]*"
    r"|(?=.*\d)(?:(?:[\da-fA-F]{1,4}:){5,7}|(?=.*::)(?:[\da-fA-F]{0,4}:){2,7})[\da-fA-F]{1,4}"
)
_WINDOWS = re.compile(r"[A-Za-z]:[\\/][\w.\\/@+() -]+|\\\\[\w.\\-]+")
_ERROR = re.compile(
    r"[A-Z]\w*(?:Error|Exception|Warning|Fault)|E[A-Z]{4,}|(?:[A-Z]+_)*ERR(?:OR)?_\w+|E-?\d{3,5}"
)
_CODE = re.compile(r"#?(?=[\w-]*\d)(?=[\w-]*[A-Za-zÀ-ɏ])\w+(?:[-_]\w+)*")
_SNAKE = re.compile(r"_*[A-Za-z]\w*_\w+")
_CAMEL = re.compile(r"_*[a-z]+[A-Z]\w*|_*[A-Z]+[a-z0-9]+[A-Z]\w*")
_CAPITALS = re.compile(r"[A-Z]{2,}(?:-[A-Z0-9]+)+|[A-Z]{5,}")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_LITTLE = FUNCTION_WORDS | LIGHT_WORDS
"""Words that are no name in capitals, and of which none follows a dot but at a sentence's beginning."""
_KEBAB = re.compile(r"[A-Za-z]\w*(?:-\w+){2,}")
NO_NAMES = re.compile(r"[-dlcbps]?(?:[r-][w-][xsStT-]){3}\S?|__[a-z]+__|L\d{1,6}(?:-L?\d{1,6})?")
"""Words that occur in every listing and program: file modes, a language's own names, numbers of lines."""
_NUMERIC = re.compile(r"[\d.,%]+")
_ABBREVIATION = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]?\.?")


@cached_for_short_texts(1 << 15)
def kind_of(word: str) -> str | None:
    """The kind of fact that a word without white space is; None where it is none."""
    if word.isalpha() and (word.islower() or word.istitle()):
        return None
    if not _SHORTEST <= len(word) <= LONGEST or _FLAGS.fullmatch(word) or NO_NAMES.fullmatch(word):
        return None
    if word.isascii() and word.isdigit():
        return "number" if _NUMBER.fullmatch(word) else None
    own = _OWN.fullmatch(word)
    if own is not None and own.lastindex is not None:
        return _OWN_GRAMMARS[own.lastindex - 1][0]
    if (":" in word or "/" in word) and _ADDRESS.fullmatch(word):
        return "code"
    return _place(word) or _written_in_code(word)


def _place(word: str) -> str | None:
    """Paths and file names."""
    if ("\\" in word or word[1:3] == ":/") and _WINDOWS.fullmatch(word):
        return "path"
    if "/" not in word:
        stem, dot, extension = word.rpartition(".")
        is_name = dot and stem and ":" not in stem and not _ABBREVIATION.fullmatch(word)
        return "file" if is_name and extension.lower() in _EXTENSIONS else None
    # Slashes may separate directories, or words as in `and/or`.
    segments = [segment for segment in word.split("/") if segment]
    if ":" in word or not segments or not any(any(map(str.isalnum, segment)) for segment in segments):
        return None
    if word[0] in "/~." or len(segments) > 2:
        return None if all(_NUMERIC.fullmatch(segment) for segment in segments) else "path"
    has_signs = any(any(not each.isalpha() for each in segment) for segment in segments)
    is_path = has_signs and not any(_NUMERIC.fullmatch(segments[at]) for at in (0, -1))
    return "path" if is_path else None


def _written_in_code(word: str) -> str | None:
    """Codes, and names of things in programs."""
    if _ERROR.fullmatch(word):
        return "error"
    if _SNAKE.fullmatch(word):
        return "code" if any(map(str.isdigit, word)) else "symbol"
    if len(word) > _SHORTEST and _CODE.fullmatch(word):
        return "code"
    if _CAPITALS.fullmatch(word) and word.lower() not in _LITTLE:
        return "code"
    if _CAMEL.fullmatch(word) or _KEBAB.fullmatch(word):
        return "symbol"
    if _DOTTED.fullmatch(word) and not _ABBREVIATION.fullmatch(word):
        last = word.rpartition(".")[2]
        return None if last.istitle() and last.lower() in _LITTLE else "member"
    return None


# --- values written with spaces, with signs that no word has, or in a script without spaces ---
#
# What goes on is never told in part, for a shortened number looks like an exact one. So repetitions are
# possessive, and no value begins or ends within a longer one.
# Each pattern begins with a set of characters, so that a search skips to them; lookbehinds come after it.

_SIGNS = "€£¥₹₩₽₺₪฿₫₴₦"
"""Signs of currencies, without that of ASCII."""
_TO = "\u2013\u2014~〜\uff5e-"
"""Characters between the ends of a range."""
_BEGIN = rf"(?<![{LETTERS}./\\@#&].)(?<!\d[,:'\u2019\u00d7{_TO}].)(?<![{LETTERS})\]]-.)"
_END = rf"(?![{LETTERS}]|[.,:'\u2019]\d|[-./\\][{LETTERS}])"
_WORD_END = rf"(?![{LETTERS}])"
_SPACE = "[ \u00a0\u202f]"
# A number, and a range of them, without its first digit, which the set has matched.
_PLAIN = r"\d*+(?:[.,'\u2019/]\d++)*+"
_NUMBERS = (
    rf"(?:(?<!0)\d{{0,2}}+(?:{_SPACE}\d{{3}}(?!\d))++(?:[.,]\d++)?+|{_PLAIN})"
    rf"(?:[{_TO}][$£€]?\d{_PLAIN})?+"
)
_PER = r"(?:[²³]|/[^\W\d_]{1,9})*+"
_OF_WHAT = rf"(?:{any_at_once(f'{CURRENCIES}|{UNIT_SIGNS}|{UNITS}')}){_WORD_END}"
_MEASURE = (
    rf"(?:[kKmM](?={_SPACE}?(?:{CURRENCIES}|[{_SIGNS}])))?+{_SPACE}?"
    rf"(?:[{_SIGNS}$%‰℃](?!\d)|°[CF]?+|(?:{any_at_once(MAGNITUDES)}){_WORD_END}"
    rf"(?: (?:de |d['\u2019]|of )?{_OF_WHAT}| ?[{_SIGNS}])?+"
    rf"|{_OF_WHAT}){_PER}{_END}"
)
_PRICE = rf"(?: ?(?:{MAGNITUDES}|{CURRENCIES}){_WORD_END}|[kKmMbB]{_WORD_END}|bn)?+{_PER}{_END}"
_GROUPED = (
    rf"(?<!0)\d{{0,2}}+(?: \d{{3}}(?!\d))++,\d{{1,2}}(?!\d){_END}"
    rf"|\d{{0,2}}+(?:['\u2019\u00a0\u202f]\d{{3}}(?!\d))++(?:[.,]\d++)?+{_END}"
)
"""Numbers in groups that only their decimals, or their separators, tell from several numbers."""
_IN_ZONE = (
    rf" ?(?:(?:{ZONES})(?:[+-]\d{{1,2}}(?::?\d\d)?)?|\((?:{ZONES})(?:[+-]\d{{1,2}})?\)|[+-]\d\d:?\d\d(?!\d))"
)
_TIME = (
    rf"\d?+(?:[:.]\d\d){{0,2}}+(?:[{_TO}]\d\d?(?:[:.]\d\d)?)?+ ?(?:{CLOCKS}){_WORD_END}(?:{_IN_ZONE})?{_END}"
    rf"|\d?+(?::\d\d){{1,2}}+(?:[.,]\d++)?+(?:[{_TO}]\d\d?:\d\d(?:{_IN_ZONE})?|{_IN_ZONE}){_END}"
    rf"|\d?+ h \d\d{_END}"
)
_GROUPS = r"(?:[ \u00a0-]?\(\d{1,5}\)[ -]?\d++|[ \u00a0-]\d++)"
_IBAN = (
    r"\d [A-Z\d]{4}(?: (?=[A-Z]*\d)[A-Z\d]{4}){1,7}+"
    rf"(?: (?=[A-Z]*\d)[A-Z\d]{{1,3}}{_WORD_END})?+{_WORD_END}"
)
_FEWEST, _MOST, _MOST_GROUPS = 7, 15, 6
"""Digits that a phone number has, and groups of them."""
_BLOCK = 4
"""Digits in a block of a card's or an account's number."""
_SCALES = "百千万萬億亿兆"
_SCALED = rf"\d*+(?:[.,]\d++)*+(?:[{_SCALES}]++(?:\d++(?:[.,]\d++)*+)?+)*+"
_DAYS = rf"\d{{1,2}}(?:[日号號]?[至{_TO}]\d{{1,2}})?[日号號]"


_Grammar = tuple[Sequence[str], re.Pattern[str]]
"""The kinds of the groups of a pattern, and the pattern."""


def _dates(months: Sequence[str]) -> tuple[str, str]:
    """Dates with the name of a month: those with the month first, and those with the day first."""
    year, nth = r"\d{4}(?!\d)", r"(?:st|nd|rd|th|er|º)?+"
    after = {name[0]: "|".join(each[1:] for each in months if each[0] == name[0]) for name in months}
    names = "|".join(f"(?<={initial})(?:{rest})" for initial, rest in after.items())
    day = rf"\d{{1,2}}(?!\d){nth}(?:[{_TO}]\d{{1,2}}(?!\d){nth})?+"
    from_day = (
        rf"(?:(?<=[0-3])\d)?{nth}(?:[{_TO}]\d{{1,2}}{nth})?\.?(?: de| of)? "
        rf"(?:{any_at_once('|'.join(months))}){_WORD_END}(?:(?: de|,)? {year})?+{_END}"
    )
    return rf"(?<![{LETTERS}].)(?:{names})\.? (?:{day}(?:,? {year})?+|(?:de )?{year}){_END}", from_day


def _values(months: Sequence[str], signs: str, unspaced: Sequence[tuple[str, str]] = ()) -> _Grammar:
    """What values a text has whose names of months and signs of currencies are these."""
    from_month, from_day = _dates(months)
    codes = rf"(?<=[A-Z{_SPACE[1:]}.)(?:(?<=(?:{CURRENCY_CODES}).)|(?<=(?:{CURRENCY_CODES}){_SPACE}.))"
    of_digit = (
        ("amount", f"{codes}{_NUMBERS}{_PRICE}"),
        ("id", rf"(?<=[A-Z]{{2}}.){_IBAN}"),
        *((kind, rf"(?<![.,].)(?<!\d[:{_TO}].)(?:{pattern})") for kind, pattern in unspaced),
    )
    of_word = (
        ("date", from_day),
        ("time", _TIME),
        ("amount", _NUMBERS + _MEASURE),
        ("number", _GROUPED),
        ("phone", rf"(?<!\d .)(?!\d{{3}}-\d\d-\d\d)\d{{0,5}}+{_GROUPS}++{_END}"),
    )
    others = (
        ("date", from_month),
        ("amount", rf"(?<=[{signs}])(?<!\d.){_SPACE}?\d{_NUMBERS}{_PRICE}"),
        ("phone", rf"(?<=\+)(?<![{LETTERS}+].)\d++{_GROUPS}*+{_END}"),
        ("phone", rf"(?<=\()(?<![{LETTERS}].)\d{{1,5}}\)[ -]?\d++{_GROUPS}*+{_END}"),
    )
    first = "".join(dict.fromkeys(name[0] for name in months))
    digit, word, other = ("|".join(f"({each})" for _, each in part) for part in (of_digit, of_word, others))
    pattern = rf"[\d+({signs}{first}](?:(?<=\d)(?<!\d.)(?:{digit}|{_BEGIN}(?:{word}))|(?<!\d)(?:{other}))"
    ascii_only = re.ASCII if signs.isascii() else re.NOFLAG
    return [kind for kind, _ in (*of_digit, *of_word, *others)], re.compile(pattern, ascii_only)


_GRAMMAR = _values(
    [name for names in MONTHS for name in names.split()],
    "$" + _SIGNS,
    (
        ("date", rf"\d{{0,3}}年\d{{1,2}}月(?:{_DAYS})?|\d?月{_DAYS}"),
        ("time", r"\d?(?::\d\d)?[時时点點](?:\d{1,2}分|半)?"),
        ("amount", rf"{_SCALED}(?:[至{_TO}]\d{_SCALED})?+ ?(?:{UNSPACED_CURRENCIES}|{UNSPACED_UNITS})"),
        ("amount", rf"(?=[\d.,]*[{_SCALES}]){_SCALED}(?:[至{_TO}]\d{_SCALED})?+"),
    ),
)
_IN_ASCII = _values([name for names in MONTHS for name in names.split() if name.isascii()], "$")
"""The same for a text in ASCII, as most are: they have less to look for, and take half the time."""
_BEFORE = {
    "date": re.compile(rf"(?:{ERAS})\Z"),
    "id": re.compile(rf"(?<![{LETTERS}])[A-Z]{{2}}\Z"),
    "amount": re.compile(
        rf"(?:(?<![{LETTERS})\]])[-\u2212+±])?(?:(?<![{LETTERS}])(?:(?:{CURRENCY_CODES}){_SPACE}?|[A-Z]{{1,2}}))?"
        rf"(?:(?<![{LETTERS})\]])[-\u2212+±])?\Z"
    ),
}
"""What belongs to a value and stands before the character that it is found by: signs, a currency, an era."""
_LONGEST_BEFORE = 8
_DATED = re.compile(r"(?<!\d)(?:\d{4}-\d\d-\d\d|\d\d-\d\d-\d{4})(?!\d)")
"""A date in what has the form of a phone number."""
_DIGITS = re.compile(r"\d+")
_LAST_GROUP = re.compile(r"(?<!\d)\d++\)?$")
_THOUSANDS = re.compile(r"[1-9]\d{0,2}(?:[ \u00a0]\d{3})*[ \u00a0]000")


def spaced_in(text: str) -> tuple[list[tuple[str, str]], str]:
    """The kinds and the words of all dates, times, amounts and phone numbers in a text, and what is left."""
    found, left, at, copied = list[tuple[str, str]](), list[str](), 0, 0
    kinds, pattern = _IN_ASCII if text.isascii() else _GRAMMAR
    while match := pattern.search(text, at):
        kind, value, start = kinds[(match.lastindex or 1) - 1], match[0], match.start()
        at = match.end()
        if kind == "phone":
            kind = _kind_of_groups(value)
            last = _LAST_GROUP.search(value)
            if not kind and last and last.start():
                at = start + last.start()  # which may begin another value: `200 12 ms`
        elif kind in _BEFORE:
            before = _BEFORE[kind].search(text, max(start - _LONGEST_BEFORE, 0), start)
            value = f"{before[0]}{value}" if before else value
        if kind and len(value) >= _SHORTEST:
            found.append((kind, value))
            left += text[copied:start], " "
            copied = at
    return found, "".join([*left, text[copied:]])


def _kind_of_groups(value: str) -> str:
    """The kind of groups of digits: a phone number, or another number in blocks; "" for other numbers."""
    groups = _DIGITS.findall(value)
    digits = sum(map(len, groups))
    if value.startswith("+"):
        return "phone" if _FEWEST <= digits <= _MOST else ""
    if _THOUSANDS.fullmatch(value):
        return "number"
    if digits < _FEWEST or len(groups) > _MOST_GROUPS or _DATED.search(value):
        return ""
    if digits > _MOST:
        return "id" if {len(group) for group in groups} == {_BLOCK} else ""
    is_phone = len(groups) > 2 or value[0] in "0("
    return "phone" if is_phone and all(len(group) > 1 for group in groups[1:]) else ""

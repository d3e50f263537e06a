"""The kinds of facts by their form: of a single word, and of what is written with spaces."""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from proxy.core.text.lexicon.words import CURRENCIES, FUNCTION_WORDS, LIGHT_WORDS, MONTHS, UNITS

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
_FLAGS = re.compile(r"-{1,2}[A-Za-z][\w-]*")
_NUMBER = re.compile(r"\d{4,}|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d{2,}")
_OWN_GRAMMARS = (
    ("email", r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[^\W\d][\w-]*"),
    ("id", r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"),
    ("date", r"\d{4}-\d{1,2}-\d{1,2}(?:T\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"),
    ("date", r"\d{4}/\d{1,2}/\d{1,2}|\d{1,2}/\d{1,2}/\d{2,4}|\d{1,2}\.\d{1,2}\.\d{4}"),
    ("time", r"\d{1,2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[ap]m|[AP]M)?"),
    ("amount", r"[$€£¥₹]\d[\d,.]*(?:[kKmMbB]|bn)?"),
    ("amount", r"\d[\d,.]*(?:[$€£¥₹%]|[kKMGTm]?i?B|ms|kg|km|cm|mm|mb|gb|px|k?Hz|k?W)"),
    ("version", r"[\w.-]+(?:==|>=|~=|@)v?\d+(?:\.\d+)+[\w.-]*|v\d+(?:\.\d+)+[\w.-]*|\d+\.\d+\.\d+[\w.-]*"),
    ("id", r"0x[0-9a-fA-F]{2,}|(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,64}"),
    ("number", _NUMBER.pattern),
)
_OWN = re.compile("|".join(f"({pattern})" for _, pattern in _OWN_GRAMMARS))
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


@lru_cache(maxsize=1 << 15)
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


# --- dates, amounts and phone numbers that are written with spaces, or in a script without any ---
#
# Each pattern begins with a set of characters, so that a search skips to them; lookbehinds come after it.

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

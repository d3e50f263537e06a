"""What kind of exact thing a word is: a path, a code, a date, a name in code, or nothing in particular.

General shapes only. Whatever is typed again letter by letter has one of them; prose has not.
"""

import re
from functools import lru_cache

LONGEST = 120
"""Characters of one exact thing."""
_SHORTEST = 3

_EXTENSIONS = frozenset(
    "bat bib bin bz2 c cc cfg class cnf conf cpp crt cs css csv dart db diff doc docx env exe f90 gif "
    "go gz h hpp htm html icns ico in ini ipynb iso jar java jl jpeg jpg js json jsonl jsx key kt lean "
    "less lock log lua m map md mjs mk mov mp3 mp4 npy npz o odt onnx parquet patch pdf pem php pkl pl "
    "plist png po ppt pptx proto ps1 pt py pyc pyi pyx r rar rb rs rst rtf s sass scala scss sh so sql "
    "sqlite svg swift tar tex tf tgz toml ts tsv tsx ttf txt vue wasm wav webp woff xls xlsx xml yaml "
    "yml zip zsh".split()
)
_FLAGS = re.compile(r"-{1,2}[A-Za-z][\w-]*")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DATE = re.compile(
    r"\d{4}-\d{1,2}-\d{1,2}(?:T\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
    r"|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}/\d{1,2}/\d{2,4}|\d{1,2}\.\d{1,2}\.\d{4}"
)
_TIME = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?(?:\.\d+)?(?:Z|[ap]m|[AP]M)?")
_AMOUNT = re.compile(
    r"[$€£¥₹]\d[\d,.]*(?:[kKmMbB]|bn)?|\d[\d,.]*(?:[$€£¥₹%]|[kKMGTm]?i?B|ms|kg|km|cm|mm|mb|gb|px|k?Hz|k?W)"
)
_VERSION = re.compile(
    r"[\w.-]+(?:==|>=|~=|@)v?\d+(?:\.\d+)+[\w.-]*|v\d+(?:\.\d+)+[\w.-]*|\d+\.\d+\.\d+[\w.-]*"
)
_HEX = re.compile(r"0x[0-9a-fA-F]{2,}|(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7,64}")
_NUMBER = re.compile(r"\d{4,}|\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d{2,}")
_WINDOWS = re.compile(r"[A-Za-z]:\\[\w.\\ -]+|\\\\[\w.\\-]+")
_ERROR = re.compile(
    r"[A-Z]\w*(?:Error|Exception|Warning|Fault)|E[A-Z]{4,}|(?:[A-Z]+_)*ERR(?:OR)?_\w+|E-?\d{3,5}"
)
_CODE = re.compile(r"#?(?=[\w-]*\d)(?=[\w-]*[A-Za-zÀ-ɏ])\w+(?:[-_]\w+)*")
_SNAKE = re.compile(r"_*[A-Za-z]\w*_\w+")
_CAMEL = re.compile(r"_*[a-z]+[A-Z]\w*|_*[A-Z]+[a-z0-9]+[A-Z]\w*")
_CAPITALS = re.compile(r"[A-Z]{2,}(?:-[A-Z0-9]+)+|[A-Z]{5,}")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_KEBAB = re.compile(r"[A-Za-z]\w*(?:-\w+){2,}")
_NUMERIC = re.compile(r"[\d.,%]+")
_ABBREVIATION = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]?\.?")


@lru_cache(maxsize=1 << 15)
def kind_of(word: str) -> str | None:
    """The kind of a word without white space; None where it is nothing exact."""
    if not _SHORTEST <= len(word) <= LONGEST or _FLAGS.fullmatch(word):
        return None
    return _written_once(word) or _place(word) or _written_in_code(word)


def _written_once(word: str) -> str | None:
    """Kinds that have a grammar of their own."""
    if word.isalpha() and (word.islower() or word.istitle()):
        return None
    for kind, pattern in (
        ("email", _EMAIL),
        ("id", _UUID),
        ("date", _DATE),
        ("time", _TIME),
        ("amount", _AMOUNT),
        ("version", _VERSION),
        ("id", _HEX),
        ("number", _NUMBER),
    ):
        if pattern.fullmatch(word):
            return kind
    return None


def _place(word: str) -> str | None:
    """Paths and file names."""
    if "\\" in word and _WINDOWS.fullmatch(word):
        return "path"
    if "/" in word:
        return "path" if _is_path(word) else None
    stem, dot, extension = word.rpartition(".")
    if dot and stem and extension.lower() in _EXTENSIONS and not _ABBREVIATION.fullmatch(word):
        return "file"
    return None


def _is_path(word: str) -> bool:
    """Whether slashes part directories, and not words as in `and/or`."""
    segments = [segment for segment in word.split("/") if segment]
    if ":" in word or not segments or not any(any(map(str.isalnum, segment)) for segment in segments):
        return False
    if word[0] in "/~." or len(segments) > 2:
        return not all(_NUMERIC.fullmatch(segment) for segment in segments)
    has_signs = any(any(not each.isalpha() for each in segment) for segment in segments)
    return has_signs and not any(_NUMERIC.fullmatch(segments[at]) for at in (0, -1))


def _written_in_code(word: str) -> str | None:
    """Codes, and names of things in programs."""
    if word.isalpha() and (word.islower() or word.istitle()):
        return None
    if _ERROR.fullmatch(word):
        return "error"
    if _SNAKE.fullmatch(word):
        return "code" if any(map(str.isdigit, word)) else "symbol"
    if len(word) > _SHORTEST and _CODE.fullmatch(word):
        return "code"
    if _CAPITALS.fullmatch(word):
        return "code"
    if _CAMEL.fullmatch(word) or _KEBAB.fullmatch(word):
        return "symbol"
    if _DOTTED.fullmatch(word) and not _ABBREVIATION.fullmatch(word):
        return "member"
    return None

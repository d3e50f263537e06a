"""A text's sentences and words, its language, what of it an index finds, and as much as so many bytes hold.

Not grammar: words are cut to what their forms share, and of Japanese and Chinese pairs of characters count,
those of kanji, hanzi and katakana. That is enough to see whether two sentences tell of the same.
"""

import re
import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from proxy.core.text.lexicon.words import (
    CLAIM_PAIRS,
    CLAIM_WORDS,
    EVERYDAY_WORDS,
    FUNCTION_WORDS,
    HAN,
    HIRAGANA,
    KATAKANA,
    LIGHT_WORDS,
    MODAL_WORDS,
    PAIRED,
    UNSPACED,
    WORDS_OF_OCCASION,
)

_REMEMBERED, _REMEMBERED_LENGTH = 4_096, 512
"""Texts whose words a process remembers, and characters of each at most."""
_STEM = 5
"""Characters of a word that count: `deploy`, `deploying` and `deployment` are one."""
_END = re.compile(r"(?<=[.!?;…])[\"”»)\]]*\s+|(?<=[。\uff01\uff1f\uff1b])|\n+")
_STEM_WORD = re.compile(rf"[0-9]+|[^\W\d_{UNSPACED}]+|[{PAIRED}]{{2,}}")
_IS_PAIRED = re.compile(f"[{PAIRED}]")
_SUFFIX = re.compile(r"(?:ions?|ings?|ments?|ies|ied|ed|es|s|en|er|ez|ir|ar|y|e)$")
_DOUBLED = re.compile(r"([^\d])\1$")
"""As in `shipped`, without its ending."""
_STOP = FUNCTION_WORDS | LIGHT_WORDS | MODAL_WORDS | CLAIM_WORDS
_STOP_IN_QUESTIONS = FUNCTION_WORDS | LIGHT_WORDS | WORDS_OF_OCCASION


def words_of(text: str) -> frozenset[str]:
    """The words that carry content, cut to their stems."""
    return (_words_of_sentence if len(text) <= _REMEMBERED_LENGTH else _words_of)(text)


def _words_of(sentence: str) -> frozenset[str]:
    found: set[str] = set()
    for word in _STEM_WORD.findall(unicodedata.normalize("NFKC", sentence).lower()):
        if _IS_PAIRED.match(word):
            found.update(word[at : at + 2] for at in range(len(word) - 1))
        elif word not in _STOP and (len(word) > 1 or word.isdigit()):
            stem = _SUFFIX.sub("", word) if len(word) > 4 else word.rstrip("sd") or word
            found.add(_DOUBLED.sub(r"\1", stem)[:_STEM])
    return frozenset(found - CLAIM_PAIRS)


_words_of_sentence = lru_cache(_REMEMBERED)(_words_of)


def sentences_in(text: str) -> list[str]:
    """The sentences of a text, each line at least one."""
    return [each.strip() for each in _END.split(text) if each.strip()]


def first_sentences(text: str, fits: Callable[[str], bool]) -> str:
    """As many of a text's sentences, from the first on, as ``fits`` takes together; the text if it may."""
    if fits(text):
        return text
    ends = [match.end() for match in _END.finditer(text)]
    count = bisect_left(ends, x=True, key=lambda end: not fits(text[:end].rstrip()))
    return text[: ends[count - 1]].rstrip() if count else ""


def share(wanted: frozenset[str], found: frozenset[str]) -> float:
    """How many of the ``wanted`` words are there: 0 to 1."""
    return len(wanted & found) / len(wanted) if wanted else 0.0


# --- texts cut to a number of UTF-8 bytes, never inside a code point; and to a line that people are shown ---


_MARK = "…"
_MARK_SIZE = len(_MARK.encode())
_CONTINUED, _CONTINUATION = 0xC0, 0x80
"""RFC 3629: the bytes within a code point are 10xxxxxx."""


def size(text: str) -> int:
    """Bytes of a text in UTF-8; a lone surrogate, which JSON may hold, counts three."""
    return len(text.encode(errors="surrogatepass"))


def head_of(text: str, most: int) -> str:
    """The text's beginning in at most so many bytes, a mark where something is missing; else the text."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= most:
        return text
    end = most - _MARK_SIZE
    while end > 0 and data[end] & _CONTINUED == _CONTINUATION:
        end -= 1
    return data[:end].decode(errors="surrogatepass").rstrip() + _MARK if end >= 0 else ""


def tail_of(text: str, most: int) -> str:
    """The text's end in at most so many bytes, a mark where something is missing; else the text."""
    data = text.encode(errors="surrogatepass")
    if len(data) <= most:
        return text
    start = len(data) - most + _MARK_SIZE
    while start < len(data) and data[start] & _CONTINUED == _CONTINUATION:
        start += 1
    return _MARK + data[start:].decode(errors="surrogatepass").lstrip() if most >= _MARK_SIZE else ""


def one_line(text: str, most: int = 60) -> str:
    """The text's beginning in at most so many characters, as one line of printable ones.

    Content comes from clients: control characters would reach a terminal.
    """
    whole = text.lstrip()
    beginning = " ".join(whole[: 8 * most].split())
    line = "".join(character if character.isprintable() else " " for character in beginning)
    return line if len(line) <= most and len(whole) <= 8 * most else line[: most - 1] + _MARK


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """What each of several texts gets of ``room``: small ones all they need, the others as much each."""
    given = [0] * len(sizes)
    waiting = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for place, index in enumerate(waiting):
        given[index] = min(sizes[index], room // (len(waiting) - place))
        room -= given[index]
    return given


# --- the words of a question, and a text as an index reads it: it breaks texts at white space ---


MOST_TERMS = 64
_CHARACTER = re.compile(f"([{UNSPACED}])")
_RUN = re.compile(rf"[{UNSPACED}]+|[^\W{UNSPACED}]+")
_CHUNK = re.compile(r"\w+(?:[-_./:@#]\w+)*")


def spaced(text: str) -> str:
    """A text as an index reads it: characters of scripts without spaces stand apart."""
    return _CHARACTER.sub(r" \1 ", unicodedata.normalize("NFKC", text))


def terms_of(query: str) -> list[str]:
    """What to look for, any of it; a term of several words is looked for as it stands."""
    chunks: list[str] = _CHUNK.findall(unicodedata.normalize("NFKC", query).lower())
    found = list(dict.fromkeys(term for chunk in chunks for term in _terms_in(chunk)))
    telling = [term for term in found if term not in _STOP_IN_QUESTIONS]
    return (telling or found)[:MOST_TERMS]


def _terms_in(chunk: str) -> Iterator[str]:
    """The words of a chunk; and, where it looks like an identifier, the whole of it."""
    runs: list[str] = _RUN.findall(chunk)
    for run in runs:
        if not _CHARACTER.match(run):
            yield run
        else:
            yield from (" ".join(run[at : at + 2]) for at in range(max(len(run) - 1, 1)))
    if len(runs) > 1 and any(each.isdigit() for each in chunk) and not _CHARACTER.search(chunk):
        yield " ".join(runs)


# --- which of six languages a text is in, well enough to write a one-line note in it ---


_KANA = re.compile(f"[{HIRAGANA}{KATAKANA}]")
_HAN = re.compile(f"[{HAN}]")
_LETTERS = re.compile(r"[^\W\d_]+")
_LANGUAGES: defaultdict[str, list[str]] = defaultdict(list)
"""Of each everyday word, those that it speaks for."""
for _name, _words in EVERYDAY_WORDS.items():
    for _word in _words:
        _LANGUAGES[_word].append(_name)
_SAMPLE = 4_000
"""Characters that are looked at."""


def language_of(text: str) -> str:
    """``en``, ``ja``, ``zh``, ``de``, ``es`` or ``fr``; English where nothing speaks for another."""
    return _language_of(text[:_SAMPLE])


@lru_cache(64)
def _language_of(sample: str) -> str:
    if _KANA.search(sample):
        return "ja"
    words = _LETTERS.findall(sample.lower())
    if len(_HAN.findall(sample)) > len(sample) / 10:
        return "zh"
    votes = Counter(name for word in words for name in _LANGUAGES.get(word, ()))
    best = max(EVERYDAY_WORDS, key=votes.__getitem__)
    return best if votes[best] > votes["en"] else "en"

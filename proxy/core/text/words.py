"""Sentences, words and language of a text.

There is no grammar here: words are cut to stems, and Japanese and Chinese count as pairs of characters (of
kanji, hanzi and katakana). That is enough to see whether two sentences are about the same thing.
"""

import re
import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from functools import lru_cache

from proxy.core.lazy import cached_for_short_texts
from proxy.core.text.lexicon import words as lexicon

_REMEMBERED = 4_096
"""Number of texts whose words a process caches, and of words whose stems it does."""
_STEM = 5
"""Leading characters of a word that count: `deploy`, `deploying` and `deployment` are the same."""
_END = re.compile(r"(?<=[.!?;…])[\"”»)\]]*\s+|(?<=[。\uff01\uff1f\uff1b])|\n+")
_STEM_WORD = re.compile(rf"[0-9]+|[^\W\d_{lexicon.UNSPACED}]+|[{lexicon.PAIRED}]{{2,}}")
_IS_PAIRED = re.compile(f"[{lexicon.PAIRED}]")
_ZEROS = str.maketrans("123456789", "0" * 9)
_SUFFIX = re.compile(r"(?:ions?|ings?|ments?|ies|ied|ed|es|s|en|er|ez|ir|ar|y|e)$")
_DOUBLED = re.compile(r"([^\d])\1$")
"""A doubled last letter, as in `shipped` without its ending."""
_STOP = lexicon.FUNCTION_WORDS | lexicon.LIGHT_WORDS | lexicon.MODAL_WORDS | lexicon.CLAIM_WORDS


def shape_of(text: str) -> str:
    """The text with each ASCII digit as a zero, so that texts which differ only in numbers are equal."""
    return text.translate(_ZEROS)


@cached_for_short_texts(_REMEMBERED, longest=512)
def words_of(text: str) -> frozenset[str]:
    """The content words of a text, cut to their stems."""
    found: set[str] = set()
    for word in _STEM_WORD.findall(unicodedata.normalize("NFKC", text).lower()):
        if _IS_PAIRED.match(word):
            found.update(word[at : at + 2] for at in range(len(word) - 1))
        elif word not in _STOP and (len(word) > 1 or word.isdigit()):
            found.add(_stem_of(word))
    return frozenset(found - lexicon.CLAIM_PAIRS)


@cached_for_short_texts(_REMEMBERED, longest=40)
def _stem_of(word: str) -> str:
    """The stem of a word; cached, since most words of a text were in others before it."""
    stem = _SUFFIX.sub("", word) if len(word) > 4 else word.rstrip("sd") or word
    return _DOUBLED.sub(r"\1", stem)[:_STEM]


def sentences_in(text: str) -> list[str]:
    """The sentences of a text; a line end also ends a sentence."""
    return [each.strip() for each in _END.split(text) if each.strip()]


def first_sentences(text: str, fits: Callable[[str], bool]) -> str:
    """As many leading sentences of a text as ``fits`` accepts together; the whole text if it fits."""
    if fits(text):
        return text
    ends = [match.end() for match in _END.finditer(text)]
    count = bisect_left(ends, x=True, key=lambda end: not fits(text[:end].rstrip()))
    return text[: ends[count - 1]].rstrip() if count else ""


def share(wanted: frozenset[str], found: frozenset[str]) -> float:
    """Share of the ``wanted`` words that are among the ``found`` ones: 0 to 1."""
    return len(wanted & found) / len(wanted) if wanted else 0.0


# --- which of six languages a text is in, accurate enough to choose the language of a one-line note ---


_KANA = re.compile(f"[{lexicon.HIRAGANA}{lexicon.KATAKANA}]")
_HAN = re.compile(f"[{lexicon.HAN}]")
_LETTERS = re.compile(r"[^\W\d_]+")
_LANGUAGES: defaultdict[str, list[str]] = defaultdict(list)
"""For each everyday word, the languages that it indicates."""
for _name, _words in lexicon.EVERYDAY_WORDS.items():
    for _word in _words:
        _LANGUAGES[_word].append(_name)
_SAMPLE = 4_000
"""Number of leading characters that are examined."""


def language_of(text: str) -> str:
    """``en``, ``ja``, ``zh``, ``de``, ``es`` or ``fr``; English where nothing indicates another."""
    return _indicated(text[:_SAMPLE]) or "en"


def common_language(texts: Iterable[str]) -> str:
    """The language that most texts indicate, however long each is; of several that of the first text."""
    found = Counter(language for text in texts if (language := _indicated(text[:_SAMPLE])))
    return max(found, key=found.__getitem__, default="en")


@lru_cache(64)
def _indicated(sample: str) -> str:
    """The language of a text; "" where nothing indicates one."""
    kana, han = len(_KANA.findall(sample)), len(_HAN.findall(sample))
    words = _LETTERS.findall(sample.lower())
    votes = Counter(name for word in words for name in _LANGUAGES.get(word, ()))
    if 2 * (kana + han) > votes.total():  # a few such characters in a long text are a name, or a quotation
        return "ja" if 10 * kana > han else "zh"
    if not votes:
        return ""
    best = max(lexicon.EVERYDAY_WORDS, key=votes.__getitem__)
    return best if votes[best] > votes["en"] else "en"

"""Counts tokens with o200k_base: exact for the models that use it, an estimate for others.

Any str can be counted without an error, including lone surrogates and texts that look like special tokens.
Large texts are counted off the event loop (law 7): tiktoken releases the GIL while it encodes.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
from binascii import a2b_base64
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from threading import Lock

import tiktoken

from proxy.errors import OperatorError

_OFF_THE_LOOP = 32 * 1024
"""Total characters above which counting moves to a thread: 2 ms of prose, 5 ms of one unbroken run."""

_SHORT, _LONG = 256, 16 * 1024
"""Characters below which a text's count is cached: a plan is counted at several turns, mostly unchanged."""
_THREADS = 2  # counting is CPU work: more threads would only take cores from the loops


class VocabularyError(OperatorError):
    """The tokenizer's own file is damaged or missing."""


class TiktokenCounter:
    """The TokenCounter port over tiktoken. Counters of one process share one vocabulary."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tokens")
        self._loading = Lock()

    def count(self, text: str) -> int:
        """Number of tokens of `text`. Loads the vocabulary if `ready` has not (0.5 s; VocabularyError)."""
        size = len(text)
        count = _count_short if size < _SHORT else _count_long if size < _LONG else _count
        return count(self._encoding, text)

    async def count_all(self, texts: Sequence[str]) -> list[int]:
        if sum(map(len, texts)) <= _OFF_THE_LOOP:
            return self._count_all(texts)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._count_all, texts)

    async def ready(self) -> None:
        """Load the vocabulary in a thread, once. Raises VocabularyError when the shipped file is damaged."""
        await asyncio.get_running_loop().run_in_executor(self._threads, lambda: self._encoding)

    def _count_all(self, texts: Sequence[str]) -> list[int]:
        encoding = self._encoding
        return [_count(encoding, text) for text in texts]

    @cached_property
    def _encoding(self) -> tiktoken.Encoding:
        with self._loading:
            return o200k_base()


def _count(encoding: tiktoken.Encoding, text: str) -> int:
    if len(text) < _RUN:  # in one piece
        return len(encoding.encode_ordinary(text))
    return sum(len(encoding.encode_ordinary(piece)) for piece in pieces(text))


_count_short = lru_cache(8_192)(_count)
_count_long = lru_cache(512)(_count)


# --- pieces ---

# tiktoken's merge is slow in one unbroken run (1 MB of one letter: half a second), and its regular expression
# overflows the stack on a million spaces, a panic that is not even an Exception. Limiting the size of what it
# gets avoids both. Every cut of an ordinary text falls where the encoding's own pattern has a boundary, so
# the counts of the pieces add up exactly to that of the whole text.

PIECE = 64 * 1024
"""Largest number of characters given to the encoder at once."""
_RUN = 1024
"""An aligned stretch of so many characters of one kind is its own piece: no run twice as long is left."""

_SEARCH = 4096  # characters before the end of a piece in which a boundary to cut at is searched

# The kinds of character that o200k's pattern gathers into one pretoken: signs, letters with their marks,
# white space (digits come in threes). Unicode blocks stand in for properties, which Python's `re` lacks:
# where they differ, a run is only cut needlessly, or not cut.
_SIGNS = (
    r"\x00-\x08\x0e-\x1b!-/:-@\[-`{-\xa9\xab-\xb4"
    r"\u2000-\u2bff\u3000-\u303f\ufe30-\ufe6f\uff00-\uff0f\U0001f000-\U0001faff"
)
_ONE_KIND = re.compile(rf"[{_SIGNS}]+|[^\s\d{_SIGNS}]+|\s+")

# Nothing in o200k's pattern reaches over a space that follows a non-space, nor over a line end that follows a
# letter or digit. Greedy, so that the last such place in the searched stretch is found.
_LAST_BOUNDARY = re.compile(r".*(?:(?<=\S)(?= )|(?<=[^\W_])(?=\n))", re.DOTALL)


def pieces(text: str, size: int = PIECE, run: int = _RUN) -> Iterator[str]:
    """Split all of `text`, in order, into pieces of at most `size` characters without long unbroken runs.

    Each stretch of `run` characters is read only up to its first change of kind, so ordinary text costs
    little.
    """
    start = 0
    for at in range(0, len(text) - run + 1, run):
        if _ONE_KIND.fullmatch(text, at, at + run):
            yield from _sized(text, start, at, size)
            yield text[at : at + run]
            start = at + run
    yield from _sized(text, start, len(text), size)


def _sized(text: str, start: int, end: int, size: int) -> Iterator[str]:
    while end - start > size:
        limit = start + size
        found = _LAST_BOUNDARY.match(text, max(start + 1, limit - _SEARCH), limit)
        cut = found.end() if found else limit  # within a word, if no boundary of the encoding is near
        yield text[start:cut]
        start = cut
    if start < end:
        yield text[start:end]


# --- the encoding ---

# `tiktoken.get_encoding` downloads its vocabularies, but a proxy must start without a network. The pattern
# and the special tokens are data of the encoding, published in tiktoken's `tiktoken_ext/openai_public.py`.
# Origin and licence of the file: LICENSE, beside it.

_FILE = "o200k_base.tiktoken.gz"
_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
_SPECIAL_TOKENS = {"<|endoftext|>": 199_999, "<|endofprompt|>": 200_018}
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_PATTERN = "|".join(
    (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _CONTRACTION,
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _CONTRACTION,
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)


@cache
def o200k_base() -> tiktoken.Encoding:
    """The encoding, loaded once per process: about 0.5 s the first time, and 46 MB of memory.

    Raises VocabularyError when the shipped file is not the published one.
    """
    ranks = ranks_of(files(__name__).joinpath(_FILE).read_bytes())
    encoding = tiktoken.Encoding(
        "o200k_base", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens=_SPECIAL_TOKENS
    )
    ranks.clear()  # frees 27 MB: the encoding has its own copy
    return encoding


def ranks_of(compressed: bytes) -> dict[bytes, int]:
    """Read the ranks of tokens from lines of `base64 rank`. Raises VocabularyError for a damaged file."""
    content = gzip.decompress(compressed)
    if (found := hashlib.sha256(content).hexdigest()) != _SHA256:
        raise VocabularyError(f"{_FILE} is damaged (SHA-256 {found}, not {_SHA256}): reinstall")
    lines = (line.split() for line in content.splitlines())
    return {a2b_base64(token): int(rank) for token, rank in lines}

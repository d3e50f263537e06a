"""Counts tokens with o200k_base: exact for the models that use it, near for others (core/calibration.py).

Keeps FAULTS 13 and 14: any str counts, lone surrogates and the spelling of special tokens included, and none
raises. Large work leaves the event loop (law 7): tiktoken releases the GIL while it encodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Lock

import tiktoken

from proxy.adapters.tiktoken.pieces import RUN, pieces
from proxy.adapters.tiktoken.vocabulary import o200k_base

OFF_THE_LOOP = 32 * 1024
"""Characters together above which counting moves to a thread: 2 ms of prose, 5 ms of one unbroken run."""

_SHORT, _LONG = 256, 16 * 1024
"""Characters of texts whose counts are kept: a plan is weighed at several turns, and most of it stays."""
_THREADS = 2  # counting is CPU work: more threads would only take cores from the loops


class TiktokenCounter:
    """The TokenCounter port over tiktoken. Counters of one process share one vocabulary."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tokens")
        self._loading = Lock()

    def count(self, text: str) -> int:
        """Tokens of `text`. Loads the vocabulary if `ready` has not (0.5 s, raises VocabularyError)."""
        size = len(text)
        count = _count_short if size < _SHORT else _count_long if size < _LONG else _count
        return count(self._encoding(), text)

    async def count_all(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text; in a thread when they are large together."""
        if sum(map(len, texts)) <= OFF_THE_LOOP:
            return self._count_all(texts)
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._count_all, texts)

    async def ready(self) -> None:
        """Load the vocabulary in a thread, once. Raises VocabularyError when the shipped file is damaged."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._encoding)

    def _count_all(self, texts: Sequence[str]) -> list[int]:
        encoding = self._encoding()
        return [_count(encoding, text) for text in texts]

    def _encoding(self) -> tiktoken.Encoding:
        with self._loading:
            return o200k_base()


def _count(encoding: tiktoken.Encoding, text: str) -> int:
    if len(text) < RUN:  # in one piece
        return len(encoding.encode_ordinary(text))
    return sum(len(encoding.encode_ordinary(piece)) for piece in pieces(text))


_count_short = lru_cache(8_192)(_count)
_count_long = lru_cache(512)(_count)

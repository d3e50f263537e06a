"""Recall, carried out: a call of the tool is answered out of the request's own chain.

A pure function of what the request brought and of the plan in force (:mod:`proxy.core.recall`), but for the
order of what is found by meaning. Keeps law 7 (never in the way): whatever fails here, and whatever takes too
long, costs the search its better half, never the answer.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from proxy.core.plan import Plan
from proxy.core.recall.answer import found_text, overview_text, range_text
from proxy.core.recall.fusion import fused
from proxy.core.recall.passages import Piece, best_of
from proxy.core.recall.reach import Reach
from proxy.core.recall.tool import NAME, USAGE, Unclear, Wanted, read_arguments
from proxy.core.recall.vectors import Unreadable, Vector, nearest
from proxy.core.recall.words import spaced, terms_of
from proxy.engine.case import Case
from proxy.engine.embeddings import Embeddings
from proxy.errors import SearchUnavailable, UnabridgedError
from proxy.lru import Lru, Memory
from proxy.ports import Passage, Search, TokenCounter
from proxy.telemetry import Metrics, log_fault

_RANKED = 100
"""Passages that each half of a search puts in order."""
_BY_MEANING = 4_096
"""Pieces that are searched by meaning; of more, the newest."""
_PART = 4
"""An answer takes this part of the budget at most, so that it does not force out what it stands beside."""
_SEARCH_SECONDS = 3.0
MEANING_SECONDS = 5.0
_PIECE_BYTES = 200
"""What a piece is reckoned at: its places, not its text."""


@dataclass(frozen=True)
class Recall:
    """Answers calls of the tool. ``meaning_seconds`` bounds what embeddings may take in one call."""

    search: Search
    counter: TokenCounter
    embeddings: Embeddings
    metrics: Metrics
    memory: Memory
    meaning_seconds: float = MEANING_SECONDS

    @cached_property
    def pieces(self) -> Lru[bytes, Sequence[Piece]]:
        """The pieces of messages, for all requests of this process."""
        return Lru(self.memory, _weight)

    def of(self, case: Case, plan: Plan) -> Recaller:
        """An answerer for one request."""
        return Recaller(self, case, Reach(case.chain, plan, case.policy, self.pieces))


@dataclass(frozen=True)
class Recaller:
    """Answers the calls of one request's answer."""

    recall: Recall
    case: Case
    reach: Reach
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_ours(self) -> bool:
        """No client knows the tool."""
        return True

    def holds(self, tool: str) -> bool:
        """Whether a call of ``tool`` is ours to answer."""
        return tool == NAME

    def passes(self, tool: str, arguments: str) -> None:
        """What the client's own tools do changes nothing here."""

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        """The result of a call, at most ``room`` counted tokens; None for a tool that is not ours."""
        if not self.holds(tool):
            return None
        async with self._lock:  # what is read of the chain is read once
            text, by = await self._answer(arguments, room)
        self.recall.metrics.recalls.labels(by=by).inc()
        return text

    async def _answer(self, arguments: str, room: int) -> tuple[str, str]:
        count, room = self.recall.counter.count, min(room, self.case.budget.limit // _PART)
        try:
            wanted = read_arguments(arguments)
        except Unclear as unclear:
            return str(unclear), "unclear"
        if not wanted.query and wanted.first is None and wanted.last is None:
            return await asyncio.to_thread(overview_text, self.reach, count, room), "range"
        if not wanted.query:
            return await asyncio.to_thread(range_text, self.reach, wanted, count, room), "range"
        try:
            hits, by = await self.find(wanted)
        except (SearchUnavailable, TimeoutError) as error:
            log_fault("recall could not search", error)
            return f"What was left out cannot be searched now, but read by number. {USAGE}", "failed"
        return await asyncio.to_thread(found_text, self.reach, hits, count, room), by

    async def find(self, wanted: Wanted) -> tuple[list[range], str]:
        """The best passages, as ranges of the reach's pieces, and by what they were found.

        Raises SearchUnavailable and TimeoutError.
        """
        windows = await asyncio.to_thread(self._windows, wanted)
        by_words = await self._by_words(windows, wanted.query)
        by_meaning = await self._by_meaning(windows, wanted.query)
        if by_meaning is None:
            return best_of(windows, by_words), "words"
        return best_of(windows, fused(by_words, by_meaning)), "meaning"

    def _windows(self, wanted: Wanted) -> list[range]:
        """The passages that are searched: all, or those of the messages that are asked about."""
        pieces, reach = self.reach.pieces, self.reach
        first, last = wanted.first or 1, wanted.last or len(reach.chain)
        return [
            window
            for window in reach.windows
            if first <= pieces[window.stop - 1].position + 1 and pieces[window.start].position + 1 <= last
        ]

    async def _by_words(self, windows: Sequence[range], query: str) -> list[int]:
        passages = [Passage(self.reach.key(window), partial(self._read, window)) for window in windows]
        async with asyncio.timeout(_SEARCH_SECONDS):
            return await self.recall.search.search(self._shelf, passages, terms_of(query), _RANKED)

    def _read(self, window: range) -> str:
        """A passage as an index reads it."""
        return spaced(self.reach.text(window))

    @property
    def _shelf(self) -> str:
        """One for each line of a session's plans, so that what was searched once is found there again."""
        key = self.case.key
        named = f"{key.tag}\0{key.sid}\0{self.case.lane}\0{self.case.policy.digest}"
        return hashlib.sha256(named.encode(errors="surrogatepass")).hexdigest()

    async def _by_meaning(self, windows: Sequence[range], query: str) -> list[int] | None:
        """None where there are no embeddings, or none in time."""
        model = self.case.policy.recall.embeddings
        if not model or not windows:
            return None
        pieces = sorted({piece for window in windows for piece in window})[-_BY_MEANING:]
        try:
            async with asyncio.timeout(self.recall.meaning_seconds):
                asked, *vectors = await self._embed(model, query, pieces)
            by_piece = dict(zip(pieces, vectors, strict=True))
            return await asyncio.to_thread(nearest, asked, by_piece, windows, _RANKED)
        except (Unreadable, TimeoutError, UnabridgedError) as error:
            log_fault("recall went on by words alone", error)
            return None

    async def _embed(self, model: str, query: str, pieces: Sequence[int]) -> list[Vector]:
        texts = await asyncio.to_thread(lambda: [self.reach.told(piece) for piece in pieces])
        ask, case = self.recall.embeddings, self.case
        return await ask.vectors(case.tenant, case.credentials, model, [query, *texts])


def _weight(pieces: Sequence[Piece]) -> int:
    return _PIECE_BYTES * len(pieces)

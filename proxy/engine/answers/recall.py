"""Recall, carried out: a call of the tool is answered out of the request's own chain.

A pure function of what the request brought and of the plan in force (:mod:`proxy.core.recall`), but for the
order of what a plug-in's search finds. Keeps law 7 (never in the way): where that fails or takes too long,
the search is by words, and where that fails the model may still read by number.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from proxy.cache import Lru, Memory
from proxy.core.planning.plan import Plan
from proxy.core.policy.values import SEARCHES
from proxy.core.recall.passages import Piece, Reach, best_of
from proxy.core.recall.tool import (
    NAME,
    USAGE,
    Unclear,
    Wanted,
    found_text,
    overview_text,
    range_text,
    read_arguments,
)
from proxy.engine.flow import Request
from proxy.errors import SearchUnavailable, StoreUnavailable
from proxy.ports import Passage, Search, TokenCounter
from proxy.telemetry import Metrics, log_fault

_RANKED = 100
"""Passages that a search puts in order."""
_PART = 4
"""An answer takes this part of the budget at most, so that it does not force out what it stands beside."""
_UNBOUNDED = 2_000
"""Counted tokens of an answer that may be about other sessions, where no budget bounds it."""
_SEARCH_SECONDS = 3.0
_PIECE_BYTES = 200
"""What a piece is reckoned at: its places, not its text."""


@dataclass(frozen=True)
class Recall:
    """Answers calls of the tool. ``plugin_seconds`` bounds what a plug-in's search may take in one call."""

    search: Search
    counter: TokenCounter
    metrics: Metrics
    memory: Memory
    plugin_seconds: float = 5.0
    remembered: Callable[[Request, str, int], Awaitable[str]] | None = None
    """Tells what other sessions have left of what is asked, in so many counted tokens."""

    @cached_property
    def pieces(self) -> Lru[bytes, Sequence[Piece]]:
        """The pieces of messages, for all requests of this process."""
        return Lru(self.memory, lambda pieces: _PIECE_BYTES * len(pieces))

    def of(self, request: Request, plan: Plan) -> Recaller:
        return Recaller(self, request, Reach(request.chain, plan, request.incoming.policy, self.pieces))


@dataclass(frozen=True)
class Recaller:
    """Answers the calls of one request's answer."""

    recall: Recall
    request: Request
    reach: Reach
    found: set[int] = field(default_factory=set[int])
    """Positions of the messages that it was asked for, or that answered best."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_ours(self) -> bool:
        """No client knows the tool."""
        return True

    def holds(self, tool: str) -> bool:
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
        count, budget = self.recall.counter.count, self.request.budget
        part = budget.limit // _PART
        if budget.tokens is None and self.request.incoming.policy.memory.enabled:
            part = max(part, _UNBOUNDED)
        room = min(room, part)
        try:
            wanted = read_arguments(arguments)
        except Unclear as unclear:
            return str(unclear), "unclear"
        remembered = await self._remembered(wanted, room // 2)
        if remembered:
            room -= count(remembered)
        text, by = await self._from_here(wanted, room)
        if remembered and not self.reach.positions:
            text = ""  # nothing of this conversation is left out
        return "\n".join(filter(None, [remembered, text])), by

    async def _remembered(self, wanted: Wanted, room: int) -> str:
        """What other sessions tell of what is asked, in at most ``room`` counted tokens."""
        remembered = self.recall.remembered
        if remembered is None or not (wanted.query and self.request.incoming.policy.memory.enabled):
            return ""
        try:
            async with asyncio.timeout(_SEARCH_SECONDS):
                return await remembered(self.request, wanted.query, room)
        except (SearchUnavailable, StoreUnavailable, TimeoutError) as error:
            log_fault("what is remembered could not be searched", error)
            return ""

    async def _from_here(self, wanted: Wanted, room: int) -> tuple[str, str]:
        """What this conversation's own messages that were left out tell."""
        count = self.recall.counter.count
        if not wanted.query and wanted.first is None and wanted.last is None:
            return await asyncio.to_thread(overview_text, self.reach, count, room), "range"
        if not wanted.query:
            first, last = wanted.first or 1, wanted.last or len(self.reach.chain)
            self.found.update(place for place in self.reach.positions if first <= place + 1 <= last)
            return await asyncio.to_thread(range_text, self.reach, wanted, count, room), "range"
        try:
            hits, by = await self.find(wanted)
        except (SearchUnavailable, TimeoutError) as error:
            log_fault("recall could not search", error)
            return f"What was left out cannot be searched now, but read by number. {USAGE}", "failed"
        self.found.update(self.reach.pieces[each].position for each in (hits[0] if hits else ()))
        return await asyncio.to_thread(found_text, self.reach, hits, count, room), by

    async def find(self, wanted: Wanted) -> tuple[list[range], str]:
        """The best passages, as ranges of the reach's pieces, and by what they were found.

        Raises SearchUnavailable and TimeoutError.
        """
        windows = await asyncio.to_thread(self._windows, wanted)
        key, policy = self.request.session.key, self.request.incoming.policy
        # One for each line of a session's plans, so that what was searched once is found there again.
        named = f"{key.tag}\0{key.sid}\0{self.request.session.lane.id}\0{policy.digest}"
        shelf = hashlib.sha256(named.encode(errors="surrogatepass")).hexdigest()
        passages = [Passage(self.reach.key(each), partial(self.reach.text, each)) for each in windows]
        of_search, chosen = (shelf, passages, wanted.query, _RANKED), policy.recall.search
        if chosen != "words":
            try:
                async with asyncio.timeout(self.recall.plugin_seconds):
                    return best_of(windows, await SEARCHES[chosen].search(*of_search)), chosen
            except Exception as error:  # noqa: BLE001 - whatever a stranger's search raises or answers
                log_fault("recall went on by words", error)
        async with asyncio.timeout(_SEARCH_SECONDS):
            return best_of(windows, await self.recall.search.search(*of_search)), "words"

    def _windows(self, wanted: Wanted) -> list[range]:
        """The passages that are searched: all, or those of the messages that are asked about."""
        pieces, reach = self.reach.pieces, self.reach
        first, last = wanted.first or 1, wanted.last or len(reach.chain)
        return [
            window
            for window in reach.windows
            if first <= pieces[window.stop - 1].position + 1 and pieces[window.start].position + 1 <= last
        ]

"""Recall: answer calls of the recall tool from the request's own chain.

The result depends only on the request and the plan in force (:mod:`proxy.core.recall`), except for the order
in which a plug-in's search ranks passages. Keeps law 7 (never in the way): where a plug-in fails or takes too
long, the search is by words, and where that fails the model may still read messages by number.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

from proxy.cache import CacheMemory, Lru
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
from proxy.engine.background import is_being_cancelled
from proxy.engine.flow import Request
from proxy.errors import SearchUnavailable, StoreUnavailable
from proxy.ports import Passage, Search, TokenCounter
from proxy.telemetry import Metrics, log_fault, log_warning

_RANKED = 100
"""Most passages that a search ranks."""
_PART = 4
"""An answer takes at most one fourth of the budget, so that it does not force out other messages."""
_UNBOUNDED = 2_000
"""Most counted tokens of an answer that may be about other sessions, where no budget bounds it."""
_SEARCH_SECONDS = 3.0
_PIECE_BYTES = 200
"""Estimated bytes of a piece: its positions, not its text."""


@dataclass(frozen=True)
class Recall:
    """Makes the answerers of recall calls. ``plugin_seconds`` limits a plug-in's search in one call."""

    search: Search
    counter: TokenCounter
    metrics: Metrics
    memory: CacheMemory
    plugin_seconds: float = 5.0
    remembered: Callable[[Request, str, int], Awaitable[str]] | None = None
    """Returns what other sessions remember about a query, in at most so many counted tokens."""

    @cached_property
    def pieces(self) -> Lru[bytes, Sequence[Piece]]:
        """The pieces of messages, cached for all requests of this process."""
        return Lru(self.memory, lambda pieces: _PIECE_BYTES * len(pieces))

    def of(self, request: Request, plan: Plan) -> Recaller:
        return Recaller(self, request, Reach(request.chain, plan, request.incoming.policy, self.pieces))


@dataclass(frozen=True)
class Recaller:
    """Answers the recall calls of one request's answer."""

    recall: Recall
    request: Request
    reach: Reach
    found: set[int] = field(default_factory=set[int])
    """Positions of the messages that were asked for, or that matched best."""
    is_own_tool: bool = True
    """No client knows the tool."""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def may_answer(self, tool: str) -> bool:
        return tool == NAME

    def observe_client_call(self, tool: str, arguments: str) -> None:
        """Ignore calls of the client's own tools: they change nothing here."""

    async def answer(self, tool: str, arguments: str, room: int) -> str | None:
        """Return a call's result of at most ``room`` counted tokens; None for a tool that is not ours."""
        if not self.may_answer(tool):
            return None
        budget, by = self.request.budget, "unclear"
        part = budget.limit // _PART
        if budget.tokens is None and self.request.incoming.policy.memory.enabled:
            part = max(part, _UNBOUNDED)
        room = min(room, part)
        async with self._lock:  # so that the chain is read only once
            try:
                wanted = read_arguments(arguments)
            except Unclear as unclear:
                text = str(unclear)
            else:
                remembered = await self._remembered(wanted, room // 2)
                if remembered:
                    room -= self.recall.counter.count(remembered)
                text, by = await self._from_here(wanted, room)
                if remembered and not self.reach.positions:
                    text = ""  # nothing of this conversation was cut
                text = "\n".join(filter(None, [remembered, text]))
        self.recall.metrics.recalls.labels(by=by).inc()
        return text

    async def _remembered(self, wanted: Wanted, room: int) -> str:
        """Return what other sessions remember about the query, in at most ``room`` counted tokens."""
        remembered = self.recall.remembered
        if remembered is None or not (wanted.query and self.request.incoming.policy.memory.enabled):
            return ""
        try:
            async with asyncio.timeout(_SEARCH_SECONDS):
                return await remembered(self.request, wanted.query, room)
        except (StoreUnavailable, TimeoutError) as error:
            log_warning("what is remembered could not be searched", code=type(error).__name__)
        except SearchUnavailable as error:
            log_fault("what is remembered could not be searched", error)
        return ""

    async def _from_here(self, wanted: Wanted, room: int) -> tuple[str, str]:
        """Return what was cut from this conversation, as asked for, and how it was found."""
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
        """Return the best passages, as ranges of the reach's pieces, and the search that found them.

        Raises SearchUnavailable and TimeoutError.
        """
        reach, first, last = self.reach, wanted.first or 1, wanted.last or len(self.reach.chain)

        def asked_about() -> list[range]:
            """All passages, or those of the messages that are asked about."""
            pieces = reach.pieces
            return [
                window
                for window in reach.windows
                if first <= pieces[window.stop - 1].position + 1 and pieces[window.start].position + 1 <= last
            ]

        windows = await asyncio.to_thread(asked_about)
        key, policy = self.request.session.key, self.request.incoming.policy
        # One shelf for each lane and policy of a session, so that a later search finds what was indexed
        # before.
        named = f"{key.tag}\0{key.sid}\0{self.request.session.lane.id}\0{policy.digest}"
        shelf = hashlib.sha256(named.encode(errors="surrogatepass")).hexdigest()
        passages = [Passage(reach.key(each), partial(reach.text, each)) for each in windows]
        of_search, chosen = (shelf, passages, wanted.query, _RANKED), policy.recall.search
        if chosen != "words":
            try:
                async with asyncio.timeout(self.recall.plugin_seconds):
                    return best_of(windows, await SEARCHES[chosen].search(*of_search)), chosen
            except (Exception, asyncio.CancelledError) as error:  # a plug-in may raise or return anything
                if is_being_cancelled():
                    raise
                log_fault(f"the search {chosen} failed: recall went on by words", error)
        async with asyncio.timeout(_SEARCH_SECONDS):
            return best_of(windows, await self.recall.search.search(*of_search)), "words"

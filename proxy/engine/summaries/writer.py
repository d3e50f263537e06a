"""Write one summary, stored under its address, by one worker at a time.

If an answer is not true to the source, the model is asked once more, and then an extract made by code takes
its place. Of a running summary each long answer is condensed by itself and kept, so that it continues where
it was interrupted. What others have written is not paid for again.
"""

import asyncio
import sys
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from proxy.cache import CacheMemory, Lru
from proxy.core.dialects.answers import Answer
from proxy.core.planning.exchanges import RunningSummary
from proxy.core.summaries.extractive import extractive_summary
from proxy.core.summaries.prompt import (
    Limit,
    Refused,
    Untrue,
    ask_for_summary,
    judge,
    longest,
    text_of,
    truncated,
)
from proxy.core.summaries.source import Piece, answer_piece, record_piece
from proxy.core.summaries.verification import Evidence
from proxy.engine.background import Lease
from proxy.engine.foreground import Foreground
from proxy.engine.summaries.cached_view import PromptCache
from proxy.engine.summaries.compactors import Compacting, CompactorJob
from proxy.engine.summaries.job import Job
from proxy.errors import StoreUnavailable
from proxy.ports import SessionKey, SummaryStore, TokenCounter
from proxy.telemetry import Metrics

T = TypeVar("T")

_GLANCES = (0.1, 2.0)
"""Seconds between two checks for another worker's text: the first, and the longest."""
_MOST_GLANCES = 60
_MOST_ANSWERS = 16
"""Long answers of a running summary that are condensed; of more, the newest."""


class _Elsewhere(Exception):  # noqa: N818 - no error: it is being written
    """Another worker is writing the text."""


class SummaryLease(Lease):
    """The right to write one summary: the others wait for its text. Without a store each worker writes."""

    def __init__(self, store: SummaryStore, key: SessionKey, address: str) -> None:
        super().__init__(partial(store.claim, key, address), partial(store.release, key, address))
        self._store, self._key, self._address = store, key, address

    async def take(self) -> bool:
        """Take it; return False while another worker has it."""
        try:
            return await super().take()
        except StoreUnavailable:
            self.token = ""
            return True

    async def keep(self, text: str, ttl: float) -> bool:
        """Store the text unless another worker has taken over; return False if one has."""
        self.end()
        try:
            return await self._store.keep_summary(self._key, self._address, text, ttl, self.token)
        except StoreUnavailable:
            return True  # it is in this process, and in the note once an epoch begins


class Writer:
    """Writes summaries, and caches those that are written."""

    def __init__(
        self,
        prompt_cache: PromptCache,
        store: SummaryStore,
        counter: TokenCounter,
        foreground: Foreground,
        metrics: Metrics,
        memory: CacheMemory,
    ) -> None:
        self._asking, self._prompt_cache = prompt_cache.asking, prompt_cache
        self._compacting = Compacting(self._asking, store, counter)
        self._store = store
        self._count = counter.count
        self._foreground = foreground
        self._metrics = metrics
        self.texts: Lru[str, str] = Lru(memory, sys.getsizeof)

    async def write(self, job: Job, hurry: asyncio.Event) -> None:
        """Write the text for a gap; ``hurry`` is set once a request waits for it.

        Raises Refused, Unanswered, TimeoutError and UnabridgedError where there is none.
        """
        text = await self._compacted(job, hurry)
        if text is None and job.record is not None:
            text = await self._recorded(job, job.record, hurry)
            # Without the store it is in this process, and in the note once an epoch begins.
            with suppress(StoreUnavailable):
                await self._store.keep_summary(job.key, job.address, text, job.ttl)
        elif text is None:
            if not job.source.piece.blocks:
                raise Refused("empty")  # nothing of the gap may be summarised
            text = await self._piece(job, job.source.piece, job.limit, hurry)
        self.texts.put(job.address, text)

    async def recall(self, key: SessionKey, addresses: Collection[str]) -> dict[str, str]:
        """Return those of these summaries that this process, another worker or an earlier one has written."""
        known = {each: text for each in addresses if (text := self.texts.get(each)) is not None}
        missing = [each for each in addresses if each not in known]
        if missing:
            with suppress(StoreUnavailable):  # then they are written again, or the gap gets its notice
                for address, text in (await self._store.summaries(key, missing)).items():
                    known[address] = text
                    self.texts.put(address, text)
        return known

    async def _recorded(self, job: Job, record: RunningSummary, hurry: asyncio.Event) -> str:
        """Return a record with its long answers condensed one by one; if still too long, rewrite all of it.

        Code shortens what the model did not. Raises Refused if the model shortened nothing.
        """
        condensed, refused = dict[str, str](), Refused("empty")
        limit = Limit.of_bytes(record.rules.answer_to)
        for answer in record.long_answers[-_MOST_ANSWERS:]:
            try:
                condensed[answer] = await self._piece(job, answer_piece(answer, job.room), limit, hurry)
            except Refused as refusal:
                refused = refusal
        if not record.fits(condensed):
            limit = Limit.of_bytes(record.most, is_whole=True)
            try:
                return await self._piece(job, record_piece(record, condensed, job.room), limit, hurry)
            except Refused as refusal:
                refused = refusal
        if not condensed:
            raise refused
        return record.text(condensed)

    async def _piece(self, job: Job, piece: Piece, limit: Limit, hurry: asyncio.Event) -> str:
        """Return a piece's summary: found, written, or awaited where another worker writes it."""
        address = job.address_of(piece, limit)
        glance, longest_glance = _GLANCES
        for _ in range(_MOST_GLANCES):
            found = await self._found(job, address)
            if found is not None:
                return found
            try:
                return await self._written(job, piece, limit, address, hurry)
            except _Elsewhere:
                await asyncio.sleep(glance)
                glance = min(2 * glance, longest_glance)
        raise TimeoutError

    async def _found(self, job: Job, address: str) -> str | None:
        return (await self.recall(job.key, [address])).get(address)

    async def _written(self, job: Job, piece: Piece, limit: Limit, address: str, hurry: asyncio.Event) -> str:
        """Ask the model, once more if its first answer is unusable; raises _Elsewhere."""
        text = await self._reread(job, address, hurry)
        rules = job.rules
        ask = ask_for_summary(piece.text, job.source.language, limit, rules.temperature, rules.prompt)
        is_last = not rules.temperature  # at temperature 0 the answer would be the same
        while text is None:
            call = partial(self._asking.answer, job.caller, ask)
            judged = partial(self._judged, job, piece, limit, is_last=is_last)
            text = await self._leased(job, address, call, judged, hurry)
            is_last = True
        return text

    async def _judged(
        self, job: Job, piece: Piece, limit: Limit, answer: Answer, *, is_last: bool
    ) -> str | None:
        """Return the text for the note; None where the model may be asked again. Raises Refused."""
        count = self._count
        try:
            return await self._believed(answer, limit, lambda: piece.evidence(job.source.user_rules))
        except Untrue as fault:
            self._tell(str(fault))
            if not is_last:
                return None
            if job.record is not None:
                raise
            language, most = job.source.language, min(limit.tokens, longest(count(piece.text)))
            extract = await asyncio.to_thread(extractive_summary, piece.by_role, most, count, language)
            if not extract:
                raise Refused("empty") from None
            extract = truncated(extract, limit, count)
            self._tell("digest")
            return extract
        except Refused:
            if is_last:
                raise
            return None

    async def _believed(self, answer: Answer, limit: Limit, evidence: Callable[[], Evidence]) -> str:
        """Return the answer's text if it may stand in the note. Raises Refused."""
        text, count = text_of(answer, self._asking.dialect), self._count
        return await asyncio.to_thread(lambda: judge(text, limit, evidence(), count))

    async def _reread(self, job: Job, address: str, hurry: asyncio.Event) -> str | None:
        """Ask for the summary after the messages sent last; None where the gap is to be read afresh."""
        cached = self._prompt_cache
        if cached.question(job.caller, job.address) is None:
            return None

        async def call() -> tuple[Answer, Piece] | None:
            question = cached.question(job.caller, job.address)
            if question is None:  # it waited too long, or was evicted
                return None
            return await cached.answer(job.caller, question), question.cut_part

        async def judged(got: tuple[Answer, Piece] | None) -> str | None:
            try:
                text = None if got is None else await self._believed(got[0], job.limit, got[1].evidence)
            except Refused:
                self._tell("not_reused")
                return None
            if text is not None:
                self._tell("reused")
            return text

        return await self._leased(job, address, call, judged, hurry)

    async def _compacted(self, job: Job, hurry: asyncio.Event) -> str | None:
        """Return a compactor's text for the gap; None where none has taken it, or its text is unusable."""
        if not isinstance(job, CompactorJob):
            return None

        async def judged(text: str | None) -> str | None:
            self._tell("not_compacted" if text is None else "compacted")
            return text

        try:
            call = partial(self._compacting.text, job)
            return await self._leased(job, job.address, call, judged, hurry)
        except _Elsewhere:
            return await self._found(job, job.address)  # else the built-in way waits for it

    async def _leased(
        self,
        job: Job,
        address: str,
        call: Callable[[], Coroutine[Any, Any, T]],
        judged: Callable[[T], Coroutine[Any, Any, str | None]],
        hurry: asyncio.Event,
    ) -> str | None:
        """Make a call when it holds up no user and no other worker writes the same; store the judged text.

        Returns None where the text is unusable. Where another worker has taken over and written one, theirs
        counts. Raises _Elsewhere.
        """

        async def under_lease() -> tuple[T, SummaryLease]:
            lease = SummaryLease(self._store, job.key, address)
            if not await lease.take():
                raise _Elsewhere
            try:
                is_written = await self._found(job, address) is not None  # written while we took the lease
                got = None if is_written else (await call(), lease)
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError):
                    self._tell("interrupted")
                await lease.give_up()
                raise
            if got is None:
                await lease.give_up()
                raise _Elsewhere
            return got

        got, lease = await self._foreground.run(under_lease, job.caller.headers, hurry)
        try:
            text = await judged(got)
            if text is None:
                return None
            if not await lease.keep(text, job.ttl):
                text = await self._found(job, address) or text
            self.texts.put(address, text)
            return text
        finally:
            await lease.give_up()

    def _tell(self, result: str) -> None:
        self._metrics.summaries.labels(result=result).inc()

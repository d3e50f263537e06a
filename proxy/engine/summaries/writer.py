"""Writing one summary: piece by piece, each kept under its content address, by one worker at a time.

What is not true is asked for once more, then one made by code stands in its place. Finished pieces stay,
so a summary that was cut off goes on where it stopped, and what others have written is not paid for again.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from proxy.cache import Lru, Memory
from proxy.core.dialects.answers import Answer
from proxy.core.planning.running_summary import RunningSummary
from proxy.core.summaries.extractive import EARLIER, extractive_summary
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
from proxy.core.summaries.source import MOST_PIECES, Block, Piece, answer_piece, record_piece
from proxy.core.summaries.verification import Evidence
from proxy.engine.foreground import Foreground
from proxy.engine.summaries.cached_view import PromptCache
from proxy.engine.summaries.compactors import Compacting, Job
from proxy.engine.summaries.leases import Lease, take
from proxy.errors import StoreUnavailable
from proxy.ports import SummaryStore, TokenCounter
from proxy.telemetry import Metrics

T = TypeVar("T")

_GLANCES = (0.1, 2.0)
"""Seconds between two looks for what another worker writes: the first, and the longest."""
_MOST_GLANCES = 60


class _Elsewhere(Exception):  # noqa: N818 - no error: it is being written
    """Another worker writes it."""


@dataclass(frozen=True)
class _Leased(Generic[T]):
    """What was had while a lease was held, which is held still."""

    outcome: T
    lease: Lease


class Writer:
    """Writes summaries, and knows those that are written."""

    def __init__(
        self,
        prompt_cache: PromptCache,
        store: SummaryStore,
        counter: TokenCounter,
        foreground: Foreground,
        metrics: Metrics,
        memory: Memory,
    ) -> None:
        self._asking, self._prompt_cache = prompt_cache.asking, prompt_cache
        self._compacting = Compacting(self._asking, store, counter)
        self._store = store
        self._counter = counter
        self._foreground = foreground
        self._metrics = metrics
        self.texts: Lru[str, str] = Lru(memory, sys.getsizeof)
        """By content address."""

    def accepted(self, job: Job) -> Job:
        """The job as it waits for its turn: what it is asked for behind is held as memory has room."""
        if job.cached is None:
            return job
        self._prompt_cache.put(job.address, job.cached)
        return replace(job, cached=None)

    def let_go(self, job: Job) -> None:
        """Hold nothing for a job any more."""
        self._prompt_cache.drop(job.address)

    async def write(self, job: Job, hurry: asyncio.Event) -> str:
        """The text for a gap; ``hurry`` is set once a request waits for it.

        Raises Refused, Unanswered, TimeoutError and UnabridgedError where there is none.
        """
        text = await self._compacted(job, hurry)
        if text is None and job.record is not None:
            text = await self._recorded(job, job.record, hurry)
        elif text is None:
            text = await self._summarised(job, hurry)
        self.texts.put(job.address, text)
        if job.is_one_call or await self._found(job, job.address) is not None:
            return text  # it is kept where its only piece is
        try:
            await self._store.keep_summary(job.key, job.address, text, job.ttl)
        except StoreUnavailable:
            return text  # it is in this process, and in the note once an epoch begins
        return text

    async def _summarised(self, job: Job, hurry: asyncio.Event) -> str:
        if not job.pieces:
            raise Refused("empty")  # nothing of the gap may be told
        texts = [await self._piece(job, piece, job.piece_limit, hurry) for piece in job.source.pieces]
        text, count = "\n".join(texts), self._counter.count
        if not job.rebuilds or job.limit.fits(text, count):
            return truncated(text, job.limit, count)
        joined = Piece(tuple(Block(EARLIER, each) for each in texts))
        return await self._piece(job, joined, job.limit, hurry)

    async def _recorded(self, job: Job, record: RunningSummary, hurry: asyncio.Event) -> str:
        """A record with its long answers condensed, one by one, and where it is too long all of it rewritten.

        Code shortens what the model did not. Raises Refused where that is all.
        """
        condensed, refused = dict[str, str](), Refused("empty")
        limit = Limit.of_bytes(record.rules.answer_to)
        for answer in record.long_answers[-MOST_PIECES:]:
            try:
                condensed[answer] = await self._piece(job, answer_piece(answer, job.room), limit, hurry)
            except Refused as refusal:
                refused = refusal
        if not record.fits(condensed):
            limit, piece = (
                Limit.of_bytes(record.most, is_whole=True),
                record_piece(record, condensed, job.room),
            )
            try:
                return await self._piece(job, piece, limit, hurry)
            except Refused as refusal:
                refused = refusal
        if not condensed:
            raise refused
        return record.text(condensed)

    async def _piece(self, job: Job, piece: Piece, limit: Limit, hurry: asyncio.Event) -> str:
        """A piece's summary: found, written, or waited for where another worker writes it."""
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
        text = self.texts.get(address)
        if text is None:
            try:
                text = (await self._store.summaries(job.key, [address])).get(address)
            except StoreUnavailable:
                return None
            if text is not None:
                self.texts.put(address, text)
        return text

    async def _written(self, job: Job, piece: Piece, limit: Limit, address: str, hurry: asyncio.Event) -> str:
        """Ask the model, once more where its answer will not do; raises _Elsewhere."""
        reread = await self._reread(job, address, hurry)
        if reread is not None:
            return reread
        rules = job.rules
        ask = ask_for_summary(piece.text, job.source.language, limit, rules.temperature, rules.prompt)

        async def call() -> Answer:
            return await self._asking.answer(job.caller, ask)

        is_last = not rules.temperature  # it would say the same again
        while True:
            got = await self._alone(job, address, call, hurry)
            async with got.lease:
                text = await self._judged(job, piece, limit, got.outcome, is_last=is_last)
                if text is not None:
                    return await self._stored(job, address, text, got.lease)
            is_last = True

    async def _reread(self, job: Job, address: str, hurry: asyncio.Event) -> str | None:
        """The summary, asked for behind what was sent last; None where it is to be read afresh."""
        cached = self._prompt_cache
        if cached.question(job.caller, job.address) is None:
            return None

        async def call() -> tuple[Answer, Piece] | None:
            question = cached.question(job.caller, job.address)
            if question is None:  # it has waited for others too long, or memory had no room
                return None
            return await cached.answer(job.caller, question), question.cut_part

        got = await self._alone(job, address, call, hurry)
        async with got.lease:
            if got.outcome is None:
                return None
            answer, cut_part = got.outcome
            try:
                text = await self._believed(answer, job.limit, cut_part.evidence)
            except Refused:
                self._count("not_reused")
                return None
            self._count("reused")
            return await self._stored(job, address, text, got.lease)

    async def _believed(self, answer: Answer, limit: Limit, evidence: Callable[[], Evidence]) -> str:
        """What may stand in the note. Raises Refused."""
        text, count = text_of(answer, self._asking.wire), self._counter.count
        return await asyncio.to_thread(lambda: judge(text, limit, evidence(), count))

    async def _judged(
        self, job: Job, piece: Piece, limit: Limit, answer: Answer, *, is_last: bool
    ) -> str | None:
        """What may stand in the note; None where the model may be asked again. Raises Refused."""
        count = self._counter.count
        try:
            return await self._believed(answer, limit, lambda: piece.evidence(job.source.user_rules))
        except Untrue as fault:
            self._count(str(fault))
            if not is_last:
                return None
            if job.record is not None:
                raise
            language, most = job.source.language, min(limit.tokens, longest(count(piece.text)))
            extract = await asyncio.to_thread(
                lambda: extractive_summary(piece.by_role, most, count, language)
            )
            if not extract:
                raise Refused("empty") from None
            extract = truncated(extract, limit, count)
            self._count("digest")
            return extract
        except Refused:
            if is_last:
                raise
            return None

    async def _compacted(self, job: Job, hurry: asyncio.Event) -> str | None:
        """What a compactor makes of the gap; None where none has taken it, or its text will not do."""
        compaction = job.compaction
        if compaction is None:
            return None

        async def call() -> str | None:
            return await self._compacting.text(job, compaction)

        try:
            got = await self._alone(job, job.address, call, hurry)
        except _Elsewhere:
            return await self._found(job, job.address)  # or the built-in way waits for it
        async with got.lease:
            if got.outcome is None:
                self._count("not_compacted")
                return None
            self._count("compacted")
            return await self._stored(job, job.address, got.outcome, got.lease)

    async def _stored(self, job: Job, address: str, text: str, lease: Lease) -> str:
        """Keep a text; where another worker has taken over and written, theirs counts."""
        if not await lease.keep(text, job.ttl):
            text = await self._found(job, address) or text
        self.texts.put(address, text)
        return text

    async def _alone(
        self, job: Job, address: str, call: Callable[[], Coroutine[Any, Any, T]], hurry: asyncio.Event
    ) -> _Leased[T]:
        """Call when no user is held up by it and no other worker writes the same. Raises _Elsewhere."""

        async def leased() -> _Leased[T]:
            lease = await take(self._store, job.key, address)
            if lease is None:
                raise _Elsewhere
            try:
                is_written = await self._found(job, address) is not None  # while we reached for the lease
                got = None if is_written else _Leased(await call(), lease)
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError):
                    self._count("interrupted")
                await lease.give_up()
                raise
            if got is None:
                await lease.give_up()
                raise _Elsewhere
            return got

        return await self._foreground.run(leased, hurry)

    def _count(self, result: str) -> None:
        self._metrics.summaries.labels(result=result).inc()

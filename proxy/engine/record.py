"""After the answer: what the turn leaves in the store, and what it teaches about the model.

Keeps law 5 (nothing is lost): the write comes after the client has its answer and is not stopped by its
leaving; one that fails is healed by the next body. What is written, :mod:`proxy.engine.turns` says.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from proxy.core.completion import Answer
from proxy.core.records import HiddenCalls, Turn
from proxy.engine.background import Background
from proxy.engine.backlog import Backlog, Unwritten
from proxy.engine.collector import Collector
from proxy.engine.exchange import Prepared
from proxy.engine.models import Models
from proxy.engine.recognition import Recognition
from proxy.engine.turns import PlacedAnswer, place, turn_of
from proxy.errors import StoreUnavailable
from proxy.ports import Clock, Recorded, SessionKey, SessionStore, TokenCounter
from proxy.telemetry import Metrics, log_warning

_DAY = 86_400.0


@dataclass(frozen=True)
class Recorder:
    """Writes turns down."""

    recognition: Recognition
    background: Background
    store: SessionStore
    counter: TokenCounter
    models: Models
    clock: Clock
    metrics: Metrics
    backlog: Backlog
    patience: float
    """Seconds for which the client of an appended turn waits until its turn is stored."""
    writing: defaultdict[SessionKey, set[asyncio.Task[bool]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    """What this process is writing, by session."""

    def begin(self, prepared: Prepared, collector: Collector) -> asyncio.Task[bool]:
        """Record a turn whose answer is over, or was cut off, without keeping anybody waiting.

        The answer's place is known at once: a quick client sends it back before the store has it. What is
        begun once is not begun again. The task tells whether the turn is in the store.
        """
        if prepared.recording is not None:
            return prepared.recording
        answer, key = collector.answer(), prepared.recognised.key
        placed = place(prepared, answer)
        prepared.answer = placed.hash if placed is not None else b""
        if placed is not None and prepared.recognised.is_headerless:
            self.recognition.answered(key, placed.hash)
        task = prepared.recording = self.background.run(self._record(prepared, answer, placed))
        self.writing[key].add(task)
        return task

    async def announce(self, prepared: Prepared) -> None:
        """Write what a turn appends before it is answered: its client keeps nothing (law 5).

        It also tells a retry of this turn from one of the turn before. Raises StoreUnavailable.
        """
        known = prepared.recognised.found.known
        turn = await self._turn(prepared, None, known)
        recorded = await self.store.record(prepared.recognised.key, turn, self._ttl(prepared))
        if recorded is not Recorded.KEPT:
            raise StoreUnavailable("The session has gone on from elsewhere.")
        prepared.is_announced = True

    async def forget(self, key: SessionKey) -> None:
        """The session is being deleted: what could not be written of it will not be."""
        await self.written(key)
        await self.backlog.forget(key)

    async def written(self, key: SessionKey) -> None:
        """Wait until what this process is writing of a session is written."""
        if key in self.writing:
            await asyncio.wait(tuple(self.writing[key]))

    async def acknowledged(self, prepared: Prepared, collector: Collector) -> bool:
        """Record an appended turn; False where its client must be told that it is not in the store.

        That is so where the store has not confirmed the answer in time, and where there was none that can be
        kept, unless the answer itself has said that something is wrong.
        """
        task = self.begin(prepared, collector)
        done, _ = await asyncio.wait({task}, timeout=self.patience)
        answer = collector.answer()
        if not answer.complete and (collector.is_truncated or answer.error is not None):
            return True
        return bool(done) and task.exception() is None and task.result()

    async def _record(self, prepared: Prepared, answer: Answer, placed: PlacedAnswer | None) -> bool:
        key = prepared.recognised.key
        try:
            self._learn(prepared, answer)
            hashes, known = prepared.case.chain.hashes, prepared.recognised.found.known
            known = hashes[-1] if prepared.is_announced and hashes else known
            recorded = await self._write(prepared, await self._turn(prepared, placed, known))
        except BaseException:  # a fault of ours, which the log tells
            self._lose(key)
            raise
        finally:
            self._ended(key, prepared.recording)
        return recorded is Recorded.KEPT and placed is not None and placed.is_complete

    def _ended(self, key: SessionKey, task: asyncio.Task[bool] | None) -> None:
        here = self.writing[key]
        here.discard(task)
        if not here:
            del self.writing[key]

    def _learn(self, prepared: Prepared, answer: Answer) -> None:
        """What the answer's usage says of the model, and what the turn adds to the metrics."""
        case, sent, usage, real = prepared.case, prepared.sent_tokens, answer.usage, prepared.budget.real
        if answer.complete and answer.choices == 1 and not _is_of_several(prepared):
            self.models.of(case.tenant, case.model).learn_usage(sent, usage)
        self.metrics.tokens_received.inc(real(case.counted))
        self.metrics.tokens_sent.inc(real(sent))
        if usage is not None and usage.cached_tokens:
            self.metrics.cached_tokens.inc(usage.cached_tokens)

    async def _write(self, prepared: Prepared, turn: Turn) -> Recorded | None:
        """Write a turn; None where the store cannot, which is said, and mended later if it can be."""
        key, ttl = prepared.recognised.key, self._ttl(prepared)
        recorded: Recorded | None = None
        try:
            recorded = await self.store.record(key, turn, ttl)
        except StoreUnavailable as error:
            log_warning("a turn could not be written", code=error.code)
            if prepared.appended is None:
                self.backlog.add(Unwritten(key, turn, ttl, frozenset(prepared.case.chain.hashes)))
        if recorded is not Recorded.KEPT:
            self._lose(key)
        return recorded

    async def keep_hidden(self, prepared: Prepared, hidden: HiddenCalls) -> bool:
        """Write down what stands upstream for an answer; False where that is not done in time.

        This process knows it all the same.
        """
        key, begins = prepared.recognised.key, prepared.recognised.found.session is None
        self.recognition.hide(key, hidden)
        task = self.background.run(self._keep_hidden(key, hidden, self._ttl(prepared), begins=begins))
        done, _ = await asyncio.wait({task}, timeout=self.patience)
        return bool(done) and task.exception() is None and task.result()

    async def _keep_hidden(self, key: SessionKey, hidden: HiddenCalls, ttl: float, *, begins: bool) -> bool:
        try:
            return await self.store.keep_hidden(key, hidden, ttl, begins=begins)
        except StoreUnavailable as error:
            log_warning("what stands upstream for an answer could not be written", code=error.code)
            return False

    def _lose(self, key: SessionKey) -> None:
        self.recognition.mark_lost(key)
        self.metrics.lost_turns.inc()

    def _ttl(self, prepared: Prepared) -> float:
        """A session without a header that was seen for one turn lives a day."""
        ttl = prepared.policy.store.ttl
        is_first = prepared.recognised.is_headerless and prepared.recognised.found.session is None
        return min(ttl, _DAY) if is_first else ttl

    async def _turn(self, prepared: Prepared, placed: PlacedAnswer | None, known: bytes | None) -> Turn:
        tokens = 0
        if placed is not None:
            (tokens,) = await self.counter.count_all([placed.content.countable()])
        return turn_of(prepared, placed, tokens, known, self.clock.now())


def _is_of_several(prepared: Prepared) -> bool:
    """Whether the usage is that of several requests."""
    return prepared.rounds is not None and prepared.rounds.count > 0

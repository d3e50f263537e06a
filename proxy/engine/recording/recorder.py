"""After the answer: what the turn leaves in the store, and what it teaches about the model.

Keeps law 5 (nothing is lost): the write comes after the client has its answer and is not stopped by its
leaving; one that fails is healed by the next body. What is written, :mod:`proxy.engine.recording.turns` says.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from proxy.core.conversation.records import HiddenCalls, Turn
from proxy.core.dialects.answers import Answer
from proxy.engine.background import Background
from proxy.engine.flow import Exchange
from proxy.engine.intake.reader import PIECE
from proxy.engine.models.models import Models
from proxy.engine.recording.backlog import Backlog, Unwritten
from proxy.engine.recording.collector import Collector
from proxy.engine.recording.turns import ChainedAnswer, chained, turn_of
from proxy.engine.sessions.recognition import Recognition
from proxy.errors import StoreUnavailable
from proxy.ports import Clock, Recorded, SessionKey, TokenCounter, TurnStore
from proxy.telemetry import Metrics, log_warning

_DAY = 86_400.0
UNREAD = "answer-unread"
"""How it is said that an answer, or some of it, could not be read."""


@dataclass(frozen=True)
class Recorder:
    """Writes turns down."""

    recognition: Recognition
    background: Background
    store: TurnStore
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

    def begin(self, exchange: Exchange, collector: Collector) -> asyncio.Task[bool]:
        """Record a turn whose answer is over, or was cut off, without keeping anybody waiting.

        The answer's place is known at once: a quick client sends it back before the store has it. What is
        begun once is not begun again. The task tells whether the turn is in the store.
        """
        if exchange.recording is not None:
            return exchange.recording
        answer, session = collector.answer(), exchange.request.session
        if answer.is_odd:
            exchange.degraded.append(UNREAD)
        answered = chained(exchange, answer)
        exchange.answer = answered.hash if answered is not None else b""
        if answered is not None and session.is_headerless:
            identity, history = answered.message.identity, exchange.history
            answered.joint = self.recognition.answered(session, history, answered.hash, identity)
        task = exchange.recording = self.background.run(self._record(exchange, answer, answered))
        self.writing[session.key].add(task)
        return task

    async def announce(self, exchange: Exchange) -> None:
        """Write what a turn appends before it is answered: its client keeps nothing (law 5).

        It also tells a retry of this turn from one of the turn before. Raises StoreUnavailable.
        """
        session = exchange.request.session
        turn = await self._turn(exchange, None, session.found.known)
        recorded = await self.store.record(session.key, turn, self._ttl(exchange))
        if recorded is not Recorded.KEPT:
            raise StoreUnavailable("The session has gone on from elsewhere.")
        exchange.is_announced = True

    async def forget(self, key: SessionKey) -> None:
        """The session is being deleted: what could not be written of it will not be."""
        await self.written(key)
        await self.backlog.forget(key)

    async def written(self, key: SessionKey) -> None:
        """Wait until what this process is writing of a session is written."""
        if key in self.writing:
            await asyncio.wait(tuple(self.writing[key]))

    async def acknowledged(self, exchange: Exchange, collector: Collector) -> bool:
        """Record an appended turn; False where its client must be told that it is not in the store.

        That is so where the store has not confirmed the answer in time, and where there was none that can be
        kept, unless the answer itself has said that something is wrong.
        """
        task = self.begin(exchange, collector)
        done, _ = await asyncio.wait({task}, timeout=self.patience)
        answer = collector.answer()
        if not answer.complete and (collector.is_truncated or answer.error is not None):
            return True
        return bool(done) and task.exception() is None and task.result()

    async def _record(self, exchange: Exchange, answer: Answer, answered: ChainedAnswer | None) -> bool:
        key = exchange.request.session.key
        try:
            self._learn(exchange, answer)
            hashes, known = exchange.request.chain.hashes, exchange.request.session.found.known
            known = hashes[-1] if exchange.is_announced and hashes else known
            recorded = await self._write(exchange, await self._turn(exchange, answered, known))
        except BaseException:  # a fault of ours, which the log tells
            self._lose(exchange)
            raise
        finally:
            self.writing[key].discard(exchange.recording)
            if not self.writing[key]:
                del self.writing[key]
        return recorded is Recorded.KEPT and answered is not None and answered.answer.complete

    def _learn(self, exchange: Exchange, answer: Answer) -> None:
        """What the answer's usage says of the model, and what the turn adds to the metrics."""
        request, usage = exchange.request, answer.usage
        is_of_several = exchange.rounds is not None and exchange.rounds.count > 0
        if answer.complete and answer.choices == 1 and not is_of_several:
            growth = request.session.cached.growth_of(request.model.name)
            self.models.learn_usage(request.model, growth, exchange.sent_tokens, usage)
        self.metrics.tokens_received.inc(exchange.full)
        self.metrics.tokens_sent.inc(exchange.sent)
        if usage is not None and usage.cached_tokens:
            self.metrics.cached_tokens.inc(usage.cached_tokens)

    async def _write(self, exchange: Exchange, turn: Turn) -> Recorded | None:
        """Write a turn; None where the store cannot, which is said, and mended later if it can be."""
        request, ttl = exchange.request, self._ttl(exchange)
        key, cached = request.session.key, request.session.cached
        recorded: Recorded | None = None
        try:
            recorded = await self.store.record(key, turn, ttl)
        except StoreUnavailable as error:
            log_warning("a turn could not be written", code=error.code)
            if exchange.incoming.appended is None:
                self.backlog.add(Unwritten(key, turn, ttl, frozenset(request.chain.hashes)))
        if recorded is Recorded.KEPT:
            if cached.lookup is not None:
                cached.learn_turn(request.lane, turn, ttl)
                self.recognition.cache.keep(key, cached)
        else:
            cached.lookup = None
            self._lose(exchange)
        return recorded

    async def keep_hidden(self, exchange: Exchange, hidden: HiddenCalls) -> bool:
        """Write down what stands upstream for an answer; False where that is not done in time.

        This process knows it all the same.
        """
        session = exchange.request.session
        key, begins, ttl = session.key, session.found.session is None, self._ttl(exchange)
        session.cached.hide(hidden)
        self.recognition.cache.keep(key, session.cached)

        async def keep() -> bool:
            try:
                return await self.store.keep_hidden(key, hidden, ttl, begins=begins)
            except StoreUnavailable as error:
                log_warning("what stands upstream for an answer could not be written", code=error.code)
                return False

        task = self.background.run(keep())
        done, _ = await asyncio.wait({task}, timeout=self.patience)
        return bool(done) and task.exception() is None and task.result()

    def _lose(self, exchange: Exchange) -> None:
        session = exchange.request.session
        session.cached.is_turn_lost = True
        self.recognition.cache.keep(session.key, session.cached)
        self.metrics.lost_turns.inc()

    def _ttl(self, exchange: Exchange) -> float:
        """A session without a header that was seen for one turn lives a day."""
        ttl, session = exchange.request.policy.store.ttl, exchange.request.session
        is_first = session.is_headerless and session.found.session is None
        return min(ttl, _DAY) if is_first else ttl

    async def _turn(self, exchange: Exchange, answered: ChainedAnswer | None, known: bytes | None) -> Turn:
        tokens = 0
        if answered is not None:
            (tokens,) = await self.counter.count_all([answered.content.countable()])
        now = self.clock.now()
        if known is None and len(exchange.request.chain) > PIECE:  # met in the middle of its life
            return await asyncio.to_thread(turn_of, exchange, answered, tokens, known, now)
        return turn_of(exchange, answered, tokens, known, now)

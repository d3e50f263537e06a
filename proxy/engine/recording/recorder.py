"""Record a turn after its answer: store its messages, and learn about the model.

Keeps law 5 (nothing is lost): the write comes after the client has its answer and goes on if the client
leaves; a failed write is healed by the next body. The client's new messages and our answer become nodes of
the session's tree, named by their chain hashes, so that writing a turn twice has no further effect.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec.structs import replace

from proxy.core.budget.budget import MESSAGE_TOKENS
from proxy.core.conversation.messages import Message, next_hash, read_message
from proxy.core.conversation.records import HiddenCalls, Joint, Node, Session, Turn
from proxy.core.dialects.answers import Answer, Reply
from proxy.core.dialects.dialect import Content
from proxy.core.economics.bill import Bill
from proxy.core.planning.plan import EMPTY
from proxy.core.text.cutting import one_line
from proxy.engine.background import Background
from proxy.engine.flow import Exchange, reserve_of
from proxy.engine.intake.history import Appended
from proxy.engine.intake.naming import readable
from proxy.engine.intake.reader import MESSAGES_AT_ONCE
from proxy.engine.models.models import Models
from proxy.engine.recording.backlog import Backlog, Unwritten
from proxy.engine.recording.collector import Collector
from proxy.engine.recording.turn_bill import bill_of, bill_of_hidden
from proxy.engine.sessions.recognition import Recognition
from proxy.engine.sessions.suffixes import Suffixes
from proxy.engine.tool_rounds import Rounds
from proxy.errors import HistoryNotSaved, StoreUnavailable, UpstreamInvalidResponse
from proxy.ports import Clock, Recorded, SessionKey, TokenCounter, TurnStore
from proxy.telemetry import Metrics, log_fault, log_warning
from proxy.tracing import current

_FIRST_WORDS = 80
"""Characters that are kept of a session's first user message."""
UNREAD = "answer-unread"
"""The degradation reported where an answer, or some of it, could not be read."""
_OVERTAKEN = "The turn was answered, but not saved: another request has continued the session. Send it again."


class ChainedAnswer(msgspec.Struct):
    """An answer with its place in the chain."""

    hash: bytes
    raw: bytes
    content: Content
    message: Message
    answer: Answer
    joint: Joint | None = None


@dataclass(frozen=True)
class Recorder:
    """Writes turns to the store."""

    recognition: Recognition
    suffixes: Suffixes
    background: Background
    store: TurnStore
    counter: TokenCounter
    models: Models
    clock: Clock
    metrics: Metrics
    backlog: Backlog
    save_timeout: float
    """Longest that the client of an appended turn waits for its turn to be stored, in seconds."""
    add_bill: Callable[[str, Bill, SessionKey, float], None]
    """Called with a model, a bill, a session and that session's ttl (seconds); it must not block."""
    on_recorded: Sequence[Callable[[Exchange, Turn], None]]
    """Called after a turn was written that may be remembered, or of which something was cut.

    None of them may block.
    """
    writing: defaultdict[SessionKey, set[asyncio.Task[Recorded | None]]] = field(
        default_factory=lambda: defaultdict(set)
    )
    """The writes that are running in this process, by session."""

    def begin(self, exchange: Exchange, collector: Collector) -> asyncio.Task[Recorded | None]:
        """Start to record a turn whose answer is over or was cut off, without making anybody wait.

        The answer's chain hash is known at once, since a quick client sends the answer back before it is
        stored. A second call returns the first call's task. Its result is None where the store is away.
        """
        if exchange.recording is not None:
            return exchange.recording
        answer, session = collector.answer(), exchange.request.session
        if answer.is_malformed:
            exchange.degraded.append(UNREAD)
        if (trace := current()) is not None:
            trace.answered(answer)
        answered = None
        if answer.message is not None and answer.choices == 1:  # of several, the client keeps one
            content, history = exchange.request.chain.dialect.read(answer.message), exchange.request.history
            message = read_message(content)
            exchange.answer = own = next_hash(history.tip, message.identity)
            answered = ChainedAnswer(own, answer.message, content, message, answer)
            if session.is_headerless:
                answered.joint = self.recognition.remember_answer(session, history, message, own)
        task = exchange.recording = self.background.run(self._record(exchange, answer, answered))
        self.writing[session.key].add(task)
        return task

    async def announce(self, exchange: Exchange) -> None:
        """Write a turn's new messages before it is answered, for a client that keeps no history (law 5).

        This also distinguishes a retry of this turn from one of the turn before. Raises StoreUnavailable.
        """
        session = exchange.request.session
        turn = await self._turn(exchange, None)
        recorded = await self.store.record(session.key, turn, exchange.request.ttl)
        if recorded is not Recorded.KEPT:
            raise StoreUnavailable("The session has gone on from elsewhere.")
        session.cached.created = session.cached.created or turn.session.created
        exchange.is_announced = True

    async def forget(self, key: SessionKey) -> None:
        """Drop a session's unwritten turns, because it is being deleted."""
        await self.wait_written(key)
        await self.backlog.forget(key)

    async def wait_written(self, key: SessionKey) -> None:
        """Wait until this process's running writes of a session have ended."""
        if key in self.writing:
            await asyncio.wait(tuple(self.writing[key]))

    async def wait_saved(self, exchange: Exchange, collector: Collector) -> None:
        """Record an appended turn. Raises HistoryNotSaved where its client must be told that it is lost.

        That is so where the store has not confirmed the answer in time, and where some of the answer could
        not be read, unless the answer itself has reported an error. Raises UpstreamInvalidResponse for an
        answer without a message.
        """
        task = self.begin(exchange, collector)
        done, _ = await asyncio.wait({task}, timeout=self.save_timeout)
        answer = collector.answer()
        if not answer.complete and (collector.is_truncated or answer.error is not None):
            return
        recorded = task.result() if done and task.exception() is None else None
        if recorded is Recorded.MOVED:
            raise HistoryNotSaved(_OVERTAKEN)
        if answer.message is None and not collector.has_given_up:
            raise UpstreamInvalidResponse("it has no message")
        if recorded is not Recorded.KEPT or not (exchange.answer and answer.complete):
            raise HistoryNotSaved

    async def _record(
        self, exchange: Exchange, answer: Answer, answered: ChainedAnswer | None
    ) -> Recorded | None:
        request, session, usage = exchange.request, exchange.request.session, answer.usage
        key, is_of_several = session.key, exchange.rounds is not None and exchange.rounds.count > 0
        try:
            if answer.complete and answer.choices == 1 and not is_of_several:
                growth, media_tokens = session.lane.growth, request.media_tokens
                self.models.learn_usage(request.model, growth, exchange.counted_tokens, usage, media_tokens)
            elif exchange.may_be_refused and answer.error is not None and not is_of_several:
                self._learn_window(exchange, answer)
            turn = await self._turn(exchange, answered)
            ttl = exchange.request.ttl
            self._bill(exchange, answer, turn, ttl)
            return await self._write(exchange, turn, ttl)
        except BaseException:  # a fault of ours, which is logged
            self._lose(exchange)
            raise
        finally:
            self.writing[key].discard(exchange.recording)
            if not self.writing[key]:
                del self.writing[key]

    def _learn_window(self, exchange: Exchange, answer: Answer) -> None:
        """Learn from an answer that was a refusal for length, though nothing but its end told so."""
        request = exchange.request
        dialect, said = request.chain.dialect, answer.message or b""
        if dialect.read(said).countable() or dialect.holds_reasoning(said):
            return  # it was answered, and ran out of room
        overflow = dialect.refusal(
            HTTPStatus.OK, b'{"error":%b}' % (answer.error or b"null"), exchange.body
        ).overflow
        if overflow is not None:
            reserve = reserve_of(request.history, request.incoming.policy) or 0
            self.models.learn_refusal(request.model, exchange.counted_tokens, reserve, overflow)

    def _bill(self, exchange: Exchange, answer: Answer, turn: Turn, ttl: float) -> None:
        if answer.message is None and answer.usage is None:
            return  # nothing was answered
        request, rounds = exchange.request, exchange.rounds
        if rounds is not None and rounds.is_refused:
            self.bill_unanswered(exchange, rounds)
            return
        counted = turn.nodes[-1].tokens if turn.nodes and turn.nodes[-1].answer else None
        try:
            bill = bill_of(exchange, answer.usage, counted)
            view, is_shadow = bill.sent - bill.shadow_cut, request.incoming.is_shadow
            self.metrics.count_tokens(bill.received, view, bill.cached, is_shadow=is_shadow)
            self.add_bill(request.model.name, bill, request.session.key, ttl)
        except Exception as error:  # noqa: BLE001 - law 5: a turn is kept, whatever is wrong with its bill
            log_fault("a turn could not be billed", error)

    def bill_unanswered(self, exchange: Exchange, rounds: Rounds) -> None:
        """Bill hidden requests after which one failed: the client got an error, and no turn is recorded."""
        request = exchange.request
        try:
            bill = bill_of_hidden(request, rounds, rounds.total_usage, rounds.count - rounds.refused)
            self.add_bill(request.model.name, bill, request.session.key, exchange.request.ttl)
        except Exception as error:  # noqa: BLE001 - the client gets the error that the upstream gave
            log_fault("hidden requests could not be billed", error)

    async def _write(self, exchange: Exchange, turn: Turn, ttl: float) -> Recorded | None:
        """Write a turn; None if the store is away.

        That is logged, and the turn is written later if possible.
        """
        request = exchange.request
        key, cached = request.session.key, request.session.cached
        recorded: Recorded | None = None
        try:
            recorded = await self.store.record(key, turn, ttl)
        except StoreUnavailable as error:
            log_warning("a turn could not be written", code=error.code)
            if request.incoming.appended is None:
                chain, tells, body = frozenset(request.chain.hashes), None, 0
                if request.home is not None:  # what was said is to be remembered, even if late
                    tells, body = partial(self._notify, exchange), len(request.incoming.body)
                self.backlog.add(Unwritten(key, turn, ttl, chain, tells, body))
        if recorded is Recorded.KEPT:
            cached.created = cached.created or turn.session.created
            if cached.lookup is not None:
                cached.learn_turn(request.session.lane.id, turn, ttl)
                self.recognition.cache.keep(key, cached)
            if request.home is not None or exchange.decision.plan != EMPTY:
                self._notify(exchange, turn)
        else:
            if recorded is not None:
                log_warning("a turn could not be written", code=recorded.value, session=request.session.id)
            cached.lookup = None
            self._lose(exchange)
        return recorded

    def _notify(self, exchange: Exchange, turn: Turn) -> None:
        for after in self.on_recorded:
            after(exchange, turn)

    async def keep_hidden(self, exchange: Exchange, hidden: HiddenCalls) -> bool:
        """Store the upstream messages of an answer; return False if that is not done in time.

        This process knows them in either case.
        """
        session = exchange.request.session
        key, begins, ttl = session.key, session.is_new, exchange.request.ttl
        session.cached.hide(hidden)
        self.recognition.cache.keep(key, session.cached)

        async def keep() -> bool:
            try:
                return await self.store.keep_hidden(key, hidden, ttl, begins=begins)
            except StoreUnavailable as error:
                log_warning("the hidden calls of an answer could not be written", code=error.code)
                return False

        task = self.background.run(keep())
        done, _ = await asyncio.wait({task}, timeout=self.save_timeout)
        return bool(done) and task.exception() is None and task.result()

    def _lose(self, exchange: Exchange) -> None:
        session = exchange.request.session
        if exchange.request.incoming.appended is None:  # else no history of the client brings it back
            session.cached.is_turn_lost = True
        self.recognition.cache.keep(session.key, session.cached)
        self.metrics.lost_turns.inc()

    async def _turn(self, exchange: Exchange, answered: ChainedAnswer | None) -> Turn:
        request, tokens = exchange.request, 0
        session, history, hashes = request.session, request.history, request.chain.hashes
        known = hashes[-1] if exchange.is_announced and hashes else session.found.known
        if answered is not None:
            (tokens,) = await self.counter.count_all([answered.content.countable()])
        make = partial(_turn_of, exchange, answered, tokens, known, self.clock.now())
        # Of a conversation that is first seen in the middle of its life, all messages are new.
        is_long = known is None and len(hashes) > MESSAGES_AT_ONCE
        turn = await asyncio.to_thread(make) if is_long else make()
        if request.incoming.appended is not None:
            return turn
        caller, answer = request.incoming.envelope.caller, answered.message if answered is not None else None
        return replace(turn, suffixes=self.suffixes.of_turn(caller, session, history, answer))


# --- a turn as it is stored ---


def _turn_of(
    exchange: Exchange, answered: ChainedAnswer | None, tokens: int, known: bytes | None, now: float
) -> Turn:
    """Return the turn of a request and its answer, if there is one, of so many counted ``tokens``.

    ``known`` is the deepest of its messages that the store has; ``now`` is in seconds since 1970.
    """
    request = exchange.request
    history, session, home = request.history, request.session, request.home
    appended = request.incoming.appended
    first = history.hashes.last_place(known) + 1 if known is not None else 0
    hashes, raws = history.hashes.after(first), history.raws.after(first)
    sizes = request.chain.tokens.after(first)
    # The memory scope and the speaker of the messages; empty where they may not be remembered.
    scope, person = ("", "") if home is None else (home.scope.tag, home.person)
    node = partial(Node, at=now, scope=scope, person=person)
    begins = history.suffix.length + first
    parents = (known if known is not None and first else history.root, *hashes)
    nodes = [
        node(hash=own, parent=parent, raw=raw, tokens=size, sequence=place)
        for place, (own, parent, raw, size) in enumerate(
            zip(hashes, parents, raws, sizes, strict=False), begins
        )
    ]
    if answered is not None:
        answer = node(
            hash=answered.hash,
            parent=history.tip,
            raw=answered.raw,
            tokens=MESSAGE_TOKENS + tokens,
            sequence=begins + len(nodes),
            answer=True,
            complete=answered.answer.complete,
            reply=_reply(appended, answered.answer) if appended is not None else None,
        )
        nodes.append(answer)
    return Turn(
        session=_session_after(exchange, answered, now),
        nodes=tuple(nodes),
        advances_tip=answered is not None and answered.answer.complete,
        headerless=session.is_headerless,
        begun_at=appended.begun_at if appended else None,
        joint=answered.joint if answered is not None else None,
        is_joined=session.is_joined,
        may_have_ended=session.may_have_ended,
    )


def _reply(appended: Appended, answer: Answer) -> Reply | None:
    """Return the record from which a retry of the turn is answered; None where the turn had no key."""
    if not appended.retry_key:
        return None
    return Reply(
        key=appended.retry_key,
        after=appended.after,
        id=answer.id or "",
        model=answer.model or "",
        finish_reason=answer.finish_reason or "stop",
        usage=answer.usage,
    )


def _session_after(exchange: Exchange, answered: ChainedAnswer | None, now: float) -> Session:
    decision, request = exchange.decision, exchange.request
    budget, session, chain = request.budget, request.session, request.chain
    appended = request.incoming.appended
    before = session.found.session
    if before is not None and before.tip and session.is_detached and appended is None:
        return replace(before, updated=now)  # a separate branch, such as a request for a title
    began_with = before.began_with if before else ""
    if before is None:
        began_with = one_line(request.history.first_words, _FIRST_WORDS)
    is_final = answered is not None and answered.answer.complete and not answered.message.calls
    newest: dict[str, Any] = {}
    if appended is not None and chain.hashes and chain.hashes[-1] != appended.after:
        # Distinguishes a retry of an appended turn from a new one.
        newest = {
            "newest_from": appended.after,
            "newest_to": chain.hashes[-1],
            "newest_key": appended.retry_key,
        }
    return Session(
        name=before.name if before else readable(session.name),
        tenant=session.tenant,
        former=before.former if before else (),
        created=before.created if before else session.cached.begin_anew(now),
        updated=now,
        began_with=began_with,
        tip=answered.hash if answered is not None else b"",
        head=request.history.head,
        dialect=chain.dialect.name,
        lane=request.session.lane.id,
        model=request.model.name,
        policy=request.incoming.policy.name,
        chosen_by=request.incoming.chosen_by,
        is_shadow=request.incoming.is_shadow,
        stage=decision.stage.value,
        tokens=exchange.sent_tokens,
        full_tokens=exchange.full_tokens,
        budget=budget.tokens or 0,
        window=budget.window.tokens or 0,
        window_from=budget.window.source.value,
        ratio=budget.ratio,
        head_tokens=budget.head,
        tool_tokens=budget.tool,
        exchanges=request.history.suffix.exchanges + request.history.exchanges + is_final,
        lacking=decision.lacking,
        forked_at=before.forked_at if before else b"",
        **newest,
    )

"""Clients that send only what is new: the stored history of the session's tip goes before it.

Never an answer without its history: where it cannot be read, the client is told so. What is sent again is
told from what is said again: "yes" twice is two turns, a retried "yes" is one.
"""

import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from msgspec.structs import replace

from proxy.cache import Lru, Memory
from proxy.core.conversation.extension import Extension, take_extension
from proxy.core.conversation.messages import Message, chain_of, head_length, root
from proxy.core.conversation.records import Node, Session, way_to
from proxy.core.dialects.dialect import Body, Dialect
from proxy.engine.append.turn_queue import TURN, TurnQueue
from proxy.engine.flow import Exchange, Incoming
from proxy.engine.intake.history import Appended
from proxy.engine.intake.naming import Headers
from proxy.engine.intake.reader import Reader
from proxy.engine.recording.collector import Collector
from proxy.engine.recording.recorder import Recorder
from proxy.errors import (
    HistoryUnavailable,
    IdempotencyKeyReused,
    SessionExpired,
    SessionRequired,
    StoreUnavailable,
    UnsupportedValue,
)
from proxy.ports import NAMED, MessageStore, SessionKey, Stored

# --- histories of sessions as the store has them, each read once ---


_NODE_BYTES = 512
"""What a message is reckoned at beside its bytes."""
_TURNS = 64
"""How many of the newest turns are known by their keys."""


class StoredHistory:
    """A session and its messages, and the way to one of them."""

    def __init__(self, stored: Stored) -> None:
        self.session = stored.session
        self.was_here = stored.was_here
        self.mark = stored.mark
        self.nodes = stored.nodes
        """Every message by chain hash."""
        self._ends = b""
        """Chain hash of the last message of the way."""
        self._begun = b""
        """Chain hash before the first."""
        self._way = bytearray()
        """Its messages, with commas between them."""
        self.weight = 0
        """Bytes that it is reckoned at."""
        self._replies: dict[str, Node] = {}
        """Complete answers by the keys of their turns."""
        self._learn(stored.nodes)

    def take(self, stored: Stored) -> None:
        """Go on to what is stored now, of which the messages are new."""
        self.session, self.mark = stored.session, stored.mark
        self.nodes.update(stored.nodes)
        self._learn(stored.nodes)

    def _learn(self, nodes: Mapping[bytes, Node]) -> None:
        for node in nodes.values():
            self.weight += _NODE_BYTES + 2 * len(node.raw)
            if node.reply is not None and node.complete:
                before = self._replies.get(node.reply.key, node)
                self._replies[node.reply.key] = max(before, node, key=lambda each: each.sequence)

    def answer_to(self, key: str, since: float) -> Node | None:
        """The answer to the turn with a key, if it is one of the newest, and was given ``since`` then."""
        answer = self._replies.get(key)
        if answer is None or answer.at < since or self.session is None:
            return None
        last, turns = self.session.tip, 0
        while turns < _TURNS and (node := self.nodes.get(last)) is not None:
            if last in (answer.hash, answer.parent):
                return answer
            last, turns = node.parent, turns + node.answer
        return None

    def way(self, last: bytes) -> tuple[bytes, bytearray]:
        """h₀, and the messages from the first to the one of this chain hash, with commas between them.

        No messages where that is h₀, or empty. Raises HistoryUnavailable where messages are missing.
        """
        if last not in self.nodes:
            start = next((node.parent for node in self.nodes.values() if not node.sequence), root())
            if last not in (b"", start):
                raise HistoryUnavailable
            return start, bytearray()
        new = way_to(self.nodes, last, after={self._ends})
        if new and new[0].parent != self._ends:
            if new[0].sequence:
                raise HistoryUnavailable
            self._begun, self._way = new[0].parent, bytearray()
        for node in new:
            self._way += b"," + node.raw if self._way else node.raw
        self._ends = last
        return self._begun, self._way


class StoredHistories:
    """Reads histories, and remembers those used last."""

    def __init__(self, store: MessageStore, memory: Memory) -> None:
        self._store = store
        self._known: Lru[SessionKey, StoredHistory] = Lru(memory, lambda known: known.weight)

    async def read(self, key: SessionKey) -> StoredHistory:
        """A session's history as it is now. Raises StoreUnavailable."""
        known = self._known.get(key)
        self._known.drop(key)  # nobody else goes on from it meanwhile
        stored = await self._store.history(key, known.mark if known else None)
        if known is not None and stored.is_news:
            known.take(stored)
        else:
            known = StoredHistory(stored)
        if known.mark is not None:
            self._known.put(key, known)
        return known


# --- turns ---


_IDEMPOTENCY_KEY = b"idempotency-key"
_RETRY_COUNT = b"x-stainless-retry-count"
_DOUBT = 300.0
"""Seconds for which a turn that could not be confirmed stands before the next one of its session."""
_REMEMBERED = 86_400.0
"""Seconds for which a turn is known by its Idempotency-Key."""


class StoredAnswer(msgspec.Struct, frozen=True):
    """The stored answer to a turn that was sent again."""

    body: bytes
    is_stream: bool


class Appends:
    """Reads histories for turns that come without, one turn of a session after the other."""

    def __init__(
        self,
        wire: Dialect,
        store: MessageStore,
        reader: Reader,
        recorder: Recorder,
        queue: TurnQueue,
        memory: Memory,
    ) -> None:
        self._wire = wire
        self._store = store
        self._histories = StoredHistories(store, memory)
        self._reader = reader
        self._recorder = recorder
        self._queue = queue
        self._unsaved: dict[SessionKey, bytes] = {}
        """Answers whose clients were told that they are not saved, until the store knows."""

    @asynccontextmanager
    async def turn(self, incoming: Incoming) -> AsyncGenerator[Incoming | StoredAnswer]:
        """The request with its history before it, or the answer that it has already.

        Entered when it is this turn's turn in its session. Raises the errors of a request that cannot be
        read, SessionRequired, SessionExpired, SessionBusy, IdempotencyKeyReused and HistoryUnavailable.
        """
        body, extension = take_extension(self._wire.read_body(incoming.body, incoming.policy.limits.messages))
        caller = incoming.envelope.caller
        if caller.key is None:
            raise SessionRequired
        if body.wants_several:
            raise UnsupportedValue("Append mode answers with one choice: `n` must be 1.", param="n")
        key, rules = caller.key, incoming.policy.append

        try:
            async with self._queue.place(
                key, TURN, wait=rules.wait, queue=rules.queue, finished=partial(self._settle, key)
            ):
                await self._recorder.written(key)
                stored = await self._histories.read(key)
                if stored.session is None and await self._recorder.recognition.moved(caller, key.tag):
                    stored = await self._histories.read(key)
                answer = await self._stored_answer(body, key, stored, incoming.envelope.headers)
                yield answer or self._complete(incoming, body, extension, key, stored)
        except StoreUnavailable as error:
            raise HistoryUnavailable from error

    async def acknowledged(self, exchange: Exchange, collector: Collector) -> bool:
        """Wait until a turn is stored; False where that fails: its client is told, and may send it again."""
        is_saved = await self._recorder.acknowledged(exchange, collector)
        if not is_saved and exchange.answer:
            self._unsaved[exchange.request.session.key] = exchange.answer
        return is_saved

    async def _settle(self, key: SessionKey) -> None:
        """End a turn: the next one waits until it is written, or known to be in doubt."""
        await self._recorder.written(key)
        answer = self._unsaved.pop(key, None)
        if answer is not None:
            await self._queue.insist(lambda: self._store.mark_unsaved(key, answer), _DOUBT)

    async def _stored_answer(
        self, body: Body, key: SessionKey, stored: StoredHistory, headers: Headers
    ) -> StoredAnswer | None:
        """The stored answer to the same turn, known by its key. Raises IdempotencyKeyReused."""
        since = self._recorder.clock.now() - _REMEMBERED
        answer = stored.answer_to(_retry_key(headers), since)
        if answer is None or answer.reply is None:
            return None
        messages = self._reader.messages(body.messages)
        new = messages[head_length([message.role for message in messages]) :]
        if _ends_at(new, answer.reply.after) != answer.parent:
            raise IdempotencyKeyReused
        if stored.session is not None and stored.session.unsaved == answer.hash:
            await self._store.mark_unsaved(key, b"")  # its client is told now
        is_stream = body.is_streamed
        content = self._wire.stored_answer(
            answer.raw,
            answer.reply,
            name=answer.hash.hex()[:24],
            created=answer.at,
            stream=is_stream,
            with_usage=body.wants_usage,
        )
        return StoredAnswer(content, is_stream)

    def _complete(
        self, incoming: Incoming, body: Body, extension: Extension, key: SessionKey, stored: StoredHistory
    ) -> Incoming:
        session, arrived = stored.session, self._recorder.clock.monotonic()
        retry_key = _retry_key(incoming.envelope.headers)
        messages = self._reader.messages(body.messages)
        head = head_length([message.role for message in messages])
        pins, inject = extension.pins_from_end(head), extension.inject
        if session is None:
            if stored.was_here or key.sid != NAMED:
                raise SessionExpired
            begun = Appended(root(), b"", root(), retry_key, pins, inject)
            return replace(incoming, body=body.raw, arrived=arrived, appended=begun)
        if _is_retry(session, stored.nodes, messages[head:], incoming.envelope.headers):
            after = session.newest_from
        else:
            after = self._tip(session, stored.nodes, messages[head:])
        start, content = stored.way(after)
        leading = body.messages[:head] or session.head
        whole = body.with_messages([*leading, *([content] if content else ()), *body.messages[head:]])
        appended = Appended(start, session.tip, after or start, retry_key, pins, inject)
        return replace(incoming, body=whole, arrived=arrived, appended=appended)

    def _tip(self, session: Session, nodes: Mapping[bytes, Node], new: Sequence[Message]) -> bytes:
        """The message that a new turn follows: the latest completed turn's answer, if there is any.

        Calls in it that the new messages do not answer keep the results that an unanswered turn has brought
        (law 2: a call is never parted from its results).
        """
        last, tip = session.tip, nodes.get(session.tip)
        calls = {*self._reader.messages([tip.raw])[0].calls} if tip else set[str]()
        if calls and session.newest_from == last and all(calls.isdisjoint(each.answers) for each in new):
            for node in way_to(nodes, session.newest_to, after={last}):
                if calls.isdisjoint(self._reader.messages([node.raw])[0].answers):
                    break
                last = node.hash
        return last


def _is_retry(
    session: Session, nodes: Mapping[bytes, Node], new: Sequence[Message], headers: Headers
) -> bool:
    """Whether the newest turn is sent again: the same messages, and no answer that reached the client."""
    if not new or _ends_at(new, session.newest_from) != session.newest_to:
        return False
    tip = nodes.get(session.tip)
    is_answered = tip is not None and tip.parent == session.newest_to
    if not is_answered or session.unsaved == session.tip:
        return True
    retry_key = _retry_key(headers)
    if retry_key and session.newest_key:
        return retry_key == session.newest_key
    count = headers.get(_RETRY_COUNT, b"").strip()
    return count.isdigit() and int(count[:9]) > 0


def _ends_at(new: Sequence[Message], after: bytes) -> bytes:
    return chain_of((message.identity for message in new), after)[-1] if new else after


def _retry_key(headers: Headers) -> str:
    key = headers.get(_IDEMPOTENCY_KEY, b"").strip()
    return hashlib.sha256(key).hexdigest()[:32] if key else ""

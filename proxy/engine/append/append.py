"""Append mode: a client sends only new messages, and the session's stored history is put before them.

No answer is given without the history: where it cannot be read, the client gets an error. Retries are told
apart from repeated words: "yes" twice is two turns, a retried "yes" is one.
"""

import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from proxy.cache import CacheMemory, Lru
from proxy.core.conversation.extension import Extension, take_extension
from proxy.core.conversation.messages import Message, chain_hashes, head_length, root_hash
from proxy.core.conversation.records import Node, Session, path_to
from proxy.core.dialects.dialect import Body, Dialect
from proxy.engine.append.turn_queue import TURN, TurnQueue
from proxy.engine.flow import Exchange, Incoming
from proxy.engine.intake.history import Appended
from proxy.engine.intake.naming import Headers
from proxy.engine.intake.reader import Reader
from proxy.engine.recording.collector import Collector
from proxy.engine.recording.recorder import Recorder
from proxy.errors import (
    HistoryNotSaved,
    HistoryUnavailable,
    IdempotencyKeyReused,
    SessionBusy,
    SessionExpired,
    SessionRequired,
    StoreUnavailable,
    UnsupportedValue,
)
from proxy.ports import NAMED, MessageStore, SessionKey, Stored

# --- stored histories of sessions, each read once ---


_NODE_BYTES = 512
"""Estimated bytes of a message, beside its text."""
_TURNS = 64
"""Number of newest turns whose answers are found by their keys."""


class StoredHistory:
    """A session and its messages, and the path to one of them."""

    def __init__(self, stored: Stored, dialect: Dialect) -> None:
        self._dialect = dialect
        self.session = stored.session
        self.was_here = stored.was_here
        self.mark = stored.mark
        self.nodes = stored.nodes
        """All messages by chain hash."""
        self._path_end = b""
        """Chain hash of the last message of the path."""
        self._path_root = b""
        """Chain hash before the first message of the path."""
        self._path = bytearray()
        """The messages of the path, with commas between them."""
        self.weight = 0
        """Estimated bytes of the entry."""
        self._replies: dict[str, Node] = {}
        """Complete answers by the retry keys of their turns."""
        self._learn(stored.nodes)

    def update(self, stored: Stored) -> bool:
        """Update to what is stored now; ``stored`` has only the new messages. Return whether none is missing.

        One is where the store has lost messages that were read here, and others were written in their place:
        a mark only counts.
        """
        self.session, self.mark = stored.session, stored.mark
        self.nodes.update(stored.nodes)
        self._learn(stored.nodes)
        before = {node.parent for node in stored.nodes.values() if node.sequence}
        tip = stored.session.tip if stored.session else b""
        return before | ({tip} if tip else set()) <= self.nodes.keys()

    def _learn(self, nodes: Mapping[bytes, Node]) -> None:
        for node in nodes.values():
            self.weight += _NODE_BYTES + 2 * len(node.raw)
            if node.reply is not None and node.complete:
                before = self._replies.get(node.reply.key, node)
                self._replies[node.reply.key] = max(before, node, key=lambda each: each.sequence)

    def answer_to(self, key: str, since: float) -> Node | None:
        """Return the answer to the turn with a key, if it is a recent turn's and not before ``since``."""
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
        """Return h₀, and the messages from the first to the one with this hash, with commas between them.

        There are no messages if the hash is h₀ or empty. Raises HistoryUnavailable where messages are
        missing.
        """
        if last not in self.nodes:
            start = next((node.parent for node in self.nodes.values() if not node.sequence), root_hash())
            if last not in (b"", start):
                raise HistoryUnavailable
            return start, bytearray()
        new = path_to(self.nodes, last, after={self._path_end})
        if new and new[0].parent != self._path_end:
            if new[0].sequence:
                raise HistoryUnavailable
            self._path_root, self._path = new[0].parent, bytearray()
        for node in new:
            raw = self._dialect.sent_back(node.raw) if node.answer else node.raw
            self._path += b"," + raw if self._path else raw
        self._path_end = last
        return self._path_root, self._path


class StoredHistories:
    """Reads stored histories, and caches those used last."""

    def __init__(self, store: MessageStore, dialect: Dialect, memory: CacheMemory) -> None:
        self._store = store
        self._dialect = dialect
        self._known: Lru[SessionKey, StoredHistory] = Lru(memory, lambda known: known.weight)

    async def read(self, key: SessionKey) -> StoredHistory:
        """Return a session's history as it is stored now. Raises StoreUnavailable."""
        known = self._known.get(key)
        self._known.drop(key)  # so that nobody else updates it at the same time
        stored = await self._store.history(key, known.mark if known else None)
        if known is None or not stored.is_news:
            known = StoredHistory(stored, self._dialect)
        elif not known.update(stored):
            known = StoredHistory(await self._store.history(key), self._dialect)
        if known.mark is not None:
            self._known.put(key, known)
        return known


# --- turns ---


_IDEMPOTENCY_KEY = b"idempotency-key"
_RETRY_COUNT = b"x-stainless-retry-count"
_DOUBT = 300.0
"""Seconds for which a turn that could not be confirmed holds up the next turn of its session."""
_REMEMBERED = 86_400.0
"""Seconds for which a turn is found by its Idempotency-Key."""
_PAUSED = "This session is paused: send the turn again once it is resumed."


class StoredAnswer(msgspec.Struct, frozen=True):
    """The stored answer to a turn that was sent again."""

    body: bytes
    is_stream: bool


class Appends:
    """Completes turns that come without their history, one turn of a session after the other."""

    def __init__(
        self,
        dialect: Dialect,
        store: MessageStore,
        reader: Reader,
        recorder: Recorder,
        queue: TurnQueue,
        memory: CacheMemory,
    ) -> None:
        self._dialect = dialect
        self._store = store
        self._histories = StoredHistories(store, dialect, memory)
        self._reader = reader
        self._recorder = recorder
        self._queue = queue
        self._unsaved: dict[SessionKey, bytes] = {}
        """Answers whose clients were told that they are not saved, until the store has marked them."""

    @asynccontextmanager
    async def turn(self, incoming: Incoming) -> AsyncGenerator[Incoming | StoredAnswer]:
        """Yield the request with its history put before it, or the stored answer if it is a retry.

        Waits until the session's earlier turns are over. Raises the errors of a request that cannot be read,
        SessionRequired, SessionExpired, SessionBusy, IdempotencyKeyReused and HistoryUnavailable.
        """
        body, extension = take_extension(
            self._dialect.read_body(incoming.body, incoming.policy.limits.messages)
        )
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
                await self._recorder.wait_written(key)
                stored = await self._histories.read(key)
                if stored.session is None and await self._recorder.recognition.move_former(caller, key.tag):
                    stored = await self._histories.read(key)
                is_known_here = self._recorder.recognition.cache.of(key).created > 0
                if stored.session is None and not stored.was_here and is_known_here:
                    await self._store.mark_ended(key)  # lost: no worker is to begin it without its history
                    raise SessionExpired
                answer = await self._stored_answer(body, key, stored, incoming.envelope.headers)
                yield answer or self._complete(incoming, body, extension, key, stored)
        except SessionBusy as error:
            with suppress(StoreUnavailable):
                session = await self._store.session(key)
                if session is not None and session.blocked == "paused":
                    raise SessionBusy(_PAUSED) from error
            raise
        except StoreUnavailable as error:
            raise HistoryUnavailable from error

    async def wait_saved(self, exchange: Exchange, collector: Collector) -> None:
        """Wait until a turn is stored; its client may send it again if that fails.

        Raises HistoryNotSaved, and UpstreamInvalidResponse for an answer without a message.
        """
        try:
            await self._recorder.wait_saved(exchange, collector)
        except HistoryNotSaved:
            if exchange.answer:
                self._unsaved[exchange.request.session.key] = exchange.answer
            raise

    async def _settle(self, key: SessionKey) -> None:
        """End a turn: the next one waits until this one is written, or known to be in doubt."""
        await self._recorder.wait_written(key)
        answer = self._unsaved.pop(key, None)
        if answer is not None:
            await self._queue.insist(lambda: self._store.mark_unsaved(key, answer), _DOUBT)

    async def _stored_answer(
        self, body: Body, key: SessionKey, stored: StoredHistory, headers: Headers
    ) -> StoredAnswer | None:
        """Return the stored answer to the same turn, found by its key. Raises IdempotencyKeyReused."""
        since = self._recorder.clock.now() - _REMEMBERED
        answer = stored.answer_to(_retry_key(headers), since)
        if answer is None or answer.reply is None:
            return None
        messages = self._reader.messages(body.messages)
        new = messages[head_length([message.role for message in messages]) :]
        if _ends_at(new, answer.reply.after) != answer.parent:
            raise IdempotencyKeyReused
        if stored.session is not None and stored.session.unsaved == answer.hash:
            await self._store.mark_unsaved(key, b"")  # its client gets it now
        is_stream = body.is_streamed
        content = self._dialect.stored_answer(
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
            begun = Appended(root_hash(), b"", root_hash(), retry_key, pins, inject)
            return replace(incoming, body=body.raw, arrived=arrived, appended=begun)
        if session.tip and session.tip not in stored.nodes:
            raise SessionExpired  # its messages are gone, as where the store evicts keys
        if self._is_retry(session, stored.nodes, messages[head:], incoming.envelope.headers):
            after = session.newest_from
        else:
            after = self._tip(session, stored.nodes, messages[head:])
        start, content = stored.way(after)
        leading = body.messages[:head] or session.head
        whole = body.with_messages([*leading, *([content] if content else ()), *body.messages[head:]])
        appended = Appended(start, session.tip, after or start, retry_key, pins, inject)
        return replace(incoming, body=whole, arrived=arrived, appended=appended)

    def _is_retry(
        self, session: Session, nodes: Mapping[bytes, Node], new: Sequence[Message], headers: Headers
    ) -> bool:
        """Whether this is a retry of the newest turn: the same messages, and its answer not received.

        Results of calls that its answer does not make again can be nothing else: those calls are answered.
        """
        if not new or _ends_at(new, session.newest_from) != session.newest_to:
            return False
        tip = nodes.get(session.tip)
        if tip is None or tip.parent != session.newest_to or session.unsaved == session.tip:
            return True
        calls = self._calls_of(tip)
        if all(each.result_of and calls.isdisjoint(each.result_of) for each in new):
            return True
        retry_key = _retry_key(headers)
        if retry_key and session.newest_key:
            return retry_key == session.newest_key
        count = headers.get(_RETRY_COUNT, b"").strip()
        return count.isdigit() and int(count[:9]) > 0

    def _tip(self, session: Session, nodes: Mapping[bytes, Node], new: Sequence[Message]) -> bytes:
        """Return the message that a new turn follows: the latest completed turn's answer, if there is any.

        Where its calls are not answered by the new messages, the results that an unanswered turn has brought
        are kept (law 2: a call is never parted from its results).
        """
        last, tip = session.tip, nodes.get(session.tip)
        calls = self._calls_of(tip) if tip else set[str]()
        if calls and session.newest_from == last and all(calls.isdisjoint(each.result_of) for each in new):
            for node in path_to(nodes, session.newest_to, after={last}):
                if calls.isdisjoint(self._reader.messages([node.raw])[0].result_of):
                    break
                last = node.hash
        return last

    def _calls_of(self, answer: Node) -> set[str]:
        return {*self._reader.messages([answer.raw])[0].calls}


def _ends_at(new: Sequence[Message], after: bytes) -> bytes:
    return chain_hashes((message.identity for message in new), after)[-1] if new else after


def _retry_key(headers: Headers) -> str:
    key = headers.get(_IDEMPOTENCY_KEY, b"").strip()
    return hashlib.sha256(key).hexdigest()[:32] if key else ""

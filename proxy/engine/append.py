"""Clients that send only what is new: the stored history of the session's tip goes before it (DESIGN 3).

Never an answer without its history: where it cannot be read, the client is told so. What is sent again is
told from what is said again: "yes" twice is two turns, a retried "yes" is one.
"""

import hashlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from msgspec.structs import replace

from proxy.core.body import Body, read_body
from proxy.core.extension import Extension, take_extension
from proxy.core.identity import chain_of, read_message, root
from proxy.core.messages import Content, Message, head_length
from proxy.core.policy import Policy
from proxy.core.records import Node, Session
from proxy.core.tree import way_to
from proxy.engine.collector import Collector
from proxy.engine.exchange import Appended, Incoming, Prepared
from proxy.engine.history import Reader
from proxy.engine.line import TURN, Line
from proxy.engine.naming import NAMED, Headers
from proxy.engine.record import Recorder
from proxy.engine.stored import StoredHistories, StoredHistory
from proxy.errors import (
    HistoryUnavailable,
    SessionExpired,
    SessionRequired,
    StoreUnavailable,
    UnsupportedValue,
)
from proxy.lru import Memory
from proxy.ports import SessionKey, SessionStore

_IDEMPOTENCY_KEY = b"idempotency-key"
_RETRY_COUNT = b"x-stainless-retry-count"
_DOUBT = 300.0
"""Seconds for which a turn that could not be confirmed stands before the next one of its session."""


class Appends:
    """Reads histories for turns that come without, one turn of a session after the other.

    Where workers do not share their store (``is_shared``) no history is whole, and none is read.
    """

    def __init__(
        self,
        store: SessionStore,
        reader: Reader,
        recorder: Recorder,
        line: Line,
        memory: Memory,
        *,
        is_shared: bool = True,
    ) -> None:
        self._store = store
        self._histories = StoredHistories(store, memory)
        self._reader = reader
        self._recorder = recorder
        self._line = line
        self._is_shared = is_shared
        self._unsaved: dict[SessionKey, bytes] = {}
        """Answers whose clients were told that they are not saved, until the store knows."""

    @asynccontextmanager
    async def turn(self, incoming: Incoming, policy: Policy) -> AsyncGenerator[tuple[Incoming, Appended]]:
        """The request with its history before it. Entered when it is this turn's turn in its session.

        Raises the errors of a request that cannot be read, SessionRequired, SessionExpired, SessionBusy and
        HistoryUnavailable.
        """
        body, extension = take_extension(read_body(incoming.body, policy.limits.messages))
        caller = incoming.envelope.caller
        if caller.key is None:
            raise SessionRequired
        if not self._is_shared:
            raise HistoryUnavailable("Each worker has a store of its own: name one that they share.")
        choices = body.get("n")
        if isinstance(choices, int) and choices > 1:
            raise UnsupportedValue("Append mode answers with one choice: `n` must be 1.", param="n")
        key, rules = caller.key, policy.append

        try:
            async with self._line.place(
                key, TURN, wait=rules.wait, queue=rules.queue, finished=partial(self._settle, key)
            ):
                await self._recorder.written(key)
                stored = await self._histories.read(key)
                if stored.session is None and await self._recorder.recognition.moved(caller, key.tag):
                    stored = await self._histories.read(key)
                yield self._complete(incoming, body, extension, key, stored)
        except StoreUnavailable as error:
            raise HistoryUnavailable from error

    async def acknowledged(self, prepared: Prepared, collector: Collector) -> bool:
        """Wait until a turn is stored; False where that fails: its client is told, and may send it again."""
        is_saved = await self._recorder.acknowledged(prepared, collector)
        if not is_saved and prepared.answer:
            self._unsaved[prepared.recognised.key] = prepared.answer
        return is_saved

    async def _settle(self, key: SessionKey) -> None:
        """End a turn: the next one waits until it is written, or known to be in doubt."""
        await self._recorder.written(key)
        answer = self._unsaved.pop(key, None)
        if answer is not None:
            await self._line.insist(lambda: self._store.mark_unsaved(key, answer), _DOUBT)

    def _complete(
        self, incoming: Incoming, body: Body, extension: Extension, key: SessionKey, stored: StoredHistory
    ) -> tuple[Incoming, Appended]:
        """The request with its history before it."""
        session = stored.session
        retry_key = _retry_key(incoming.envelope.headers)
        messages = self._reader.messages(body.messages)
        head = head_length([message.role for message in messages])
        pins, inject = extension.pins_from_end(head), extension.inject
        if session is None:
            if stored.was_here or key.sid != NAMED:
                raise SessionExpired
            return replace(incoming, body=body.raw), Appended(root(), b"", root(), retry_key, pins, inject)
        if _is_retry(session, stored.nodes, messages[head:], incoming.envelope.headers):
            after = session.newest_from
        else:
            after = _tip(session, stored.nodes, messages[head:])
        start, told = stored.way(after)
        leading = body.messages[:head] or session.head
        whole = body.with_messages([*leading, *([told] if told else ()), *body.messages[head:]])
        appended = Appended(start, session.tip, after or start, retry_key, pins, inject)
        return replace(incoming, body=whole), appended


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
    return _is_retried(headers)


def _tip(session: Session, nodes: Mapping[bytes, Node], new: Sequence[Message]) -> bytes:
    """The message that a new turn follows: the latest completed turn's answer, if there is any.

    Calls in it that the new messages do not answer keep the results that an unanswered turn has brought
    (law 2: a call is never parted from its results).
    """
    tip = nodes.get(session.tip)
    calls = read_message(Content.of(tip.raw)).calls if tip else ()
    last = session.tip
    if calls and session.newest_from == last and not any(message.answers in calls for message in new):
        for node in way_to(nodes, session.newest_to, after={last}):
            if read_message(Content.of(node.raw)).answers not in calls:
                break
            last = node.hash
    return last


def _ends_at(new: Sequence[Message], after: bytes) -> bytes:
    return chain_of((message.identity for message in new), after)[-1] if new else b""


def _is_retried(headers: Headers) -> bool:
    count = headers.get(_RETRY_COUNT, b"").strip()
    return count.isdigit() and int(count[:9]) > 0


def _retry_key(headers: Headers) -> str:
    key = headers.get(_IDEMPOTENCY_KEY, b"").strip()
    return hashlib.sha256(key).hexdigest()[:32] if key else ""

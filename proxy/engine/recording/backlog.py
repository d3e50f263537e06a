"""Keep turns that could not be written until they can be: an outage of the store costs no turn.

The client's next body also heals a lost turn, but not one that it edits or regenerates, nor one that another
worker answers. Waiting turns are lost with the process; if they exceed the limit, the oldest are dropped at
once. The store takes none of a session that has ended meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.conversation.records import Turn
from proxy.errors import StoreUnavailable
from proxy.ports import Recorded, SessionKey, SessionStore, UnreadableRecord
from proxy.telemetry import log_fault, log_warning


@dataclass(frozen=True)
class Unwritten:
    """A turn that is not in the store."""

    key: SessionKey
    turn: Turn
    ttl: float
    """Seconds."""
    chain: AbstractSet[bytes]
    """Chain hashes of the turn's request. It moves the session's tip only from one of these: any other is
    later."""
    tells: Callable[[Turn], None] | None = None
    """Called with the turn once it is written."""
    body: int = 0
    """Bytes of the request, if ``tells`` keeps it."""

    @property
    def size(self) -> int:
        """Bytes of the turn's messages, and of the request where it is kept."""
        return self.body + sum(len(node.raw) for node in self.turn.nodes)


_TRIES = 8
"""Sessions refused in one pass after which the store is assumed to be away for all."""


class Backlog:
    """At most ``limit`` bytes of turns, in order by session, retried every ``pause`` seconds."""

    def __init__(self, store: SessionStore, pause: float, limit: int = 64 * 2**20) -> None:
        self._store = store
        self._pause = pause
        self._limit = limit
        self._waiting: dict[SessionKey, deque[Unwritten]] = {}
        self._size = 0
        self._lock = asyncio.Lock()
        """Held while a turn is being written."""
        self._writing: asyncio.Task[None] | None = None

    def add(self, unwritten: Unwritten) -> None:
        self._waiting.setdefault(unwritten.key, deque()).append(unwritten)
        self._size += unwritten.size
        while self._size > self._limit:
            self._drop(next(iter(self._waiting)))
            log_warning("a turn is lost: too many wait for the store", bytes=self._limit)
        if self._writing is None or self._writing.done():

            async def write_all() -> None:
                while self._waiting:
                    await asyncio.sleep(self._pause)
                    await self._write_what_waits()

            self._writing = asyncio.create_task(write_all())

    async def check(self) -> None:
        """Raise StoreUnavailable if turns wait because the store takes no writes, as far as it tells."""
        if self._waiting:
            await self._store.ping()

    async def forget(self, key: SessionKey) -> None:
        """Drop a session's turns; none of them is being written when this returns."""
        async with self._lock:
            self._size -= sum(late.size for late in self._waiting.pop(key, ()))

    def _drop(self, key: SessionKey) -> None:
        self._size -= self._waiting[key].popleft().size
        if not self._waiting[key]:
            del self._waiting[key]

    async def _write_what_waits(self) -> None:
        """Try each session once; a session that is refused goes to the end, so that it holds up no other."""
        refused = 0
        for _ in range(len(self._waiting)):
            if refused == _TRIES or not self._waiting:
                return
            key = next(iter(self._waiting))
            try:
                await self._write_session(key)
            except StoreUnavailable:
                refused += 1
                if key in self._waiting:
                    self._waiting[key] = self._waiting.pop(key)

    async def _write_session(self, key: SessionKey) -> None:
        while key in self._waiting:
            async with self._lock:
                if key not in self._waiting:  # it was deleted in the meantime
                    return
                oldest = self._waiting[key][0]
                turn = replace(oldest.turn, is_late=True)
                try:
                    session = await self._store.session(key)
                except UnreadableRecord:  # its tip is unknown
                    turn, session = replace(turn, advances_tip=False), None
                if session is not None and session.tip and session.tip not in oldest.chain:
                    turn = replace(turn, session=session, advances_tip=False)
                recorded = await self._store.record(key, turn, oldest.ttl)
                is_kept = recorded is Recorded.KEPT
                words = "a turn was written late" if is_kept else "a late turn could not be written"
                log_warning(words, result=recorded.value)
                if key in self._waiting and self._waiting[key][0] is oldest:
                    self._drop(key)
            if is_kept and oldest.tells is not None:
                try:
                    oldest.tells(turn)
                except Exception as error:  # noqa: BLE001 - the turn is written, and others wait
                    log_fault("what follows a turn that was written late has failed", error)

    async def aclose(self) -> None:
        """Try once more, then give up the turns that are left."""
        if self._writing is not None:
            self._writing.cancel()
        await self._write_what_waits()

"""Schedule the reading of threads: note each turn, and read a thread after enough exchanges or a rest.

Keeps law 7 (never in the way): all of it runs in the background, and a failure affects memory only. Which
threads are to be read is known in this process only; after a crash the daily run finds those that were noted.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple

from proxy.core.conversation.records import Turn
from proxy.core.memory.lifecycle import is_crowded
from proxy.core.memory.records import About, Scope, ScopeKind
from proxy.engine.background import Background
from proxy.engine.flow import Exchange, Request
from proxy.engine.intake.homes import MemoryHome
from proxy.engine.memory.maintenance import Maintenance, ScopeMaintenance
from proxy.engine.memory.model import ModelAccess, logged_failure
from proxy.engine.memory.writer import MemoryWriter
from proxy.errors import StoreUnavailable
from proxy.ports import MemoryStore, SessionKey, UnreadableRecord
from proxy.telemetry import log_warning

_MOST = 10_000
"""Most threads that this process tracks; beyond that, those whose last turn is oldest are dropped."""
_AT_A_TIME = 8
"""Most threads read at the same time; the others wait without a lease, and without their lines in memory."""
_AGAIN = 30.0
"""At most so many seconds after a turn could not be noted, it is tried again."""
_TRIES = 3
"""Most times that a thread is read again, after 2, 4 and 8 times the rest: the model failed, another process
was reading it, or something was forgotten meanwhile."""
_Name = tuple[SessionKey, Scope]
"""A session and the scope of its memory, since a later turn of it may name another scope."""


class _Noting(NamedTuple):
    """What is noted of a turn; no words of it, since this may wait for the store."""

    name: _Name
    home: MemoryHome
    access: ModelAccess
    about: About
    at: float
    """The time of the turn."""
    exchanges: int
    is_first: bool
    """Whether the session had no turn before it."""
    ttl: float | None


@dataclass
class _Thread:
    """A thread that had turns in this process."""

    home: MemoryHome
    access: ModelAccess
    exchanges: int = 0
    read: int = 0
    """Number of exchanges when its last reading began."""
    resting: asyncio.TimerHandle | None = None
    reading: asyncio.Task[None] | None = None
    has_news: bool = True
    """Whether it had a turn since its last reading began, or has to be read again."""
    tries: int = 0
    """Number of readings since its last turn that came to nothing."""

    @property
    def is_being_read(self) -> bool:
        """Whether this process is reading it now."""
        return self.reading is not None and not self.reading.done()

    @property
    def is_due(self) -> bool:
        """Whether it had so many exchanges since its last reading began that it is to be read."""
        return self.exchanges - self.read >= self.access.policy.memory.every


@dataclass(frozen=True)
class MemoryScheduler:
    """Notes turns, and has threads read, at the latest after ``rest`` seconds without a turn."""

    store: MemoryStore
    writer: MemoryWriter
    daily: Maintenance
    background: Background
    rest: float
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_A_TIME))
    _threads: OrderedDict[_Name, _Thread] = field(default_factory=OrderedDict[_Name, _Thread])
    _unnoted: OrderedDict[_Name, _Noting] = field(default_factory=OrderedDict[_Name, _Noting])
    """The newest turns of threads of which the store could not take a note; tried again until it does."""

    @property
    def held(self) -> int:
        """Number of threads that are to be read, or may be."""
        return len(self._threads)

    def turn_recorded(self, exchange: Exchange, turn: Turn) -> None:
        """Note a recorded turn in the background; its answer may have broken off.

        A turn off the session's main line, such as a request for a title, is ignored.
        """
        request, at = exchange.request, turn.session.updated
        home = request.home
        if home is not None and exchange.answer and turn.session.tip == exchange.answer:
            noting = _Noting(
                name=(request.session.key, home.scope),
                home=home,
                access=ModelAccess(request.summary_caller, request.incoming.policy),
                about=_about(home, request, at),
                at=at,
                exchanges=turn.session.exchanges,
                is_first=request.session.found.session is None,
                ttl=request.ttl if home.scope.kind is ScopeKind.THREAD else None,  # others outlive sessions
            )
            self.background.run(self._noted(noting))

    async def _noted(self, noting: _Noting, *, is_late: bool = False) -> None:
        session, scope = noting.name
        try:
            if is_late and await self._is_forgotten(noting):
                return
            if noting.home.former:  # move the scopes before anything is written under their new names
                await self.writer.scopes.of_home(noting.home)
            await self.store.note(scope, session, noting.at, noting.about, noting.ttl)
            thread = self._threads.get(noting.name)
            if thread is None:
                known = None if noting.is_first else await self.store.thread(scope, session)
                thread = _Thread(noting.home, noting.access, read=known.exchanges if known else 0)
        except StoreUnavailable as error:
            is_passing = not isinstance(error, UnreadableRecord)
            if not (is_late and is_passing):
                log_warning("a turn could not be noted to be remembered", code=error.code)
            if is_passing:
                self._note_later(noting)
            return
        self._unnoted.pop(noting.name, None)
        thread.home, thread.access = noting.home, noting.access
        thread.exchanges = max(thread.exchanges, noting.exchanges) if is_late else noting.exchanges
        thread.has_news, thread.tries = True, 0
        thread.read = min(thread.read, thread.exchanges)
        self._keep(noting.name, thread)
        if thread.is_due and not thread.is_being_read:
            self._begin(session, thread)
        self._let_rest(noting.name, thread)
        self.daily.met(noting.home, noting.access)

    async def _is_forgotten(self, noting: _Noting) -> bool:
        """Whether the session was deleted, or forgotten, since its turn could not be noted."""
        session, scope = noting.name
        if not await self.writer.sources.living([session]):
            return True
        return not noting.is_first and await self.store.thread(scope, session) is None

    def _note_later(self, noting: _Noting) -> None:
        """Try again in a while, since a session that has no later turn would never be remembered."""
        earlier = self._unnoted.get(noting.name)
        if earlier is not None:  # which of the two is newer depends on when each failed
            newest = max(earlier, noting, key=lambda each: each.at)
            noting = newest._replace(is_first=earlier.is_first or noting.is_first)
        if not self._unnoted:
            asyncio.get_running_loop().call_later(min(self.rest, _AGAIN), self._note_again)
        self._unnoted[noting.name] = noting
        self._unnoted.move_to_end(noting.name)
        if len(self._unnoted) > _MOST:
            self._unnoted.popitem(last=False)

    def _note_again(self) -> None:
        waiting = [*self._unnoted.values()]
        self._unnoted.clear()

        async def note() -> None:
            for noting in waiting:
                if self._unnoted:  # the store is away still, or again
                    self._note_later(noting)
                else:
                    await self._noted(noting, is_late=True)

        self.background.run(note(), is_needed=False)

    def _keep(self, name: _Name, thread: _Thread) -> None:
        if thread.resting is not None:
            thread.resting.cancel()
            thread.resting = None
        self._threads[name] = thread
        self._threads.move_to_end(name)
        if len(self._threads) > _MOST:
            _, oldest = self._threads.popitem(last=False)
            if oldest.resting is not None:
                oldest.resting.cancel()

    def _let_rest(self, name: _Name, thread: _Thread) -> None:
        def rested() -> None:
            held = self._threads.get(name)
            if held is not None and held.is_being_read:
                self._let_rest(name, held)
            elif held is not None:
                del self._threads[name]
                if held.has_news:
                    self._begin(name[0], held)

        rest = self.rest * 2**thread.tries
        thread.resting = asyncio.get_running_loop().call_later(rest, rested)

    def _begin(self, session: SessionKey, thread: _Thread) -> None:
        """Start reading a thread that was noted; if the process ends before that, the daily run reads it."""

        async def read() -> None:
            while True:
                thread.read, thread.has_news = thread.exchanges, False
                is_read = await self.read(session, thread.home, thread.access)
                if not is_read and thread.tries < _TRIES:
                    thread.tries += 1
                    name = session, thread.home.scope
                    if name not in self._threads:
                        self._keep(name, thread)
                        self._let_rest(name, thread)
                    self._threads[name].has_news = True
                if not (is_read and thread.is_due):  # else enough was said meanwhile to read it again
                    return

        thread.reading = self.background.run(read(), is_needed=False)

    async def read(self, session: SessionKey, home: MemoryHome, access: ModelAccess) -> bool:
        """Read a thread, then do what is due in its home: write its texts, archive items.

        Returns False if it has to be read again.
        """
        is_read = False
        async with self._room:
            with logged_failure("a thread was not read to be remembered"):
                is_new = await self.writer.thread(home, session, access)
                is_read = is_new is not None
                if not is_new:
                    return is_read
                copy, rules = await self.writer.scopes.remembered(home.scope), access.policy.memory
                if copy.about is not None and copy.about.runs >= rules.channel_every:
                    await self.writer.channel(home, access)
                if is_crowded(len(copy.items), rules):
                    await ScopeMaintenance(self.writer, home.scope, rules).put_away(access)
        return is_read

    def close(self) -> None:
        """Cancel all scheduled readings, and give up turns that could not be noted."""
        self._unnoted.clear()
        while self._threads:
            _, thread = self._threads.popitem()
            if thread.resting is not None:
                thread.resting.cancel()


def _about(home: MemoryHome, request: Request, at: float) -> About:
    """Make the record about a home from a request in it, whose turn has this time."""
    incoming = request.incoming
    return About(
        tenant=home.tenant,
        name=home.name,
        workspace=home.workspace.tag if home.workspace else "",
        workspace_name=incoming.envelope.workspace if home.workspace else "",
        former=next(iter(home.former), ""),  # servers that still have the old secret may write there
        policy=incoming.policy.name,
        model=request.model.name,
        since=at,
    )

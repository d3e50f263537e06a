"""Schedule the reading of threads: note each turn, and read a thread after enough exchanges or a rest.

Keeps law 7 (never in the way): all of it runs in the background, and a failure affects memory only. Pending
work is known in this process only; after a crash the daily run finds it.
"""

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field

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
from proxy.ports import MemoryStore, SessionKey
from proxy.telemetry import log_warning

_MOST = 10_000
"""Most threads that this process tracks; beyond that, those whose last turn is oldest are dropped."""
_AT_A_TIME = 8
"""Most threads read at the same time; the others wait without a lease, and without their lines in memory."""
_Name = tuple[SessionKey, Scope]
"""A session and the scope of its memory, since a later turn of it may name another scope."""


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
    """Whether it had a turn since its last reading began."""

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

    @property
    def held(self) -> int:
        """Number of threads that are to be read, or may be."""
        return len(self._threads)

    def after(self, exchange: Exchange, turn: Turn) -> None:
        """Note a recorded turn in the background; its answer may have broken off.

        A turn off the session's main line, such as a request for a title, is ignored.
        """
        home = exchange.request.home
        if home is not None and exchange.answer and turn.session.tip == exchange.answer:
            self.background.run(self._noted(home, exchange.request, turn))

    async def _noted(self, home: MemoryHome, request: Request, turn: Turn) -> None:
        policy, session = request.incoming.policy, request.session.key
        name, at = (session, home.scope), turn.session.updated
        access, thread = ModelAccess(request.summary_caller, policy), self._threads.get(name)
        try:
            if home.former:  # move the scopes before anything is written under their new names
                await self.writer.scopes.of_home(home)
            ttl = request.ttl if home.scope.kind is ScopeKind.THREAD else None  # others outlive sessions
            await self.store.note(home.scope, session, at, _about(home, request, at), ttl)
            if thread is None:
                is_new = request.session.found.session is None
                known = None if is_new else await self.store.thread(home.scope, session)
                thread = _Thread(home, access, read=known.exchanges if known else 0)
        except StoreUnavailable as error:
            log_warning("a turn could not be noted to be remembered", code=error.code)
            return
        thread.home, thread.access, thread.exchanges = home, access, turn.session.exchanges
        thread.has_news = True
        thread.read = min(thread.read, thread.exchanges)
        self._keep(name, thread)
        if thread.is_due and not thread.is_being_read:
            self._begin(session, thread)
        self._let_rest(name, thread)
        self.daily.met(home, access)

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

        thread.resting = asyncio.get_running_loop().call_later(self.rest, rested)

    def _begin(self, session: SessionKey, thread: _Thread) -> None:
        """Start reading a thread; if the process ends before that, the daily run reads it."""

        async def read() -> None:
            while True:
                thread.read, thread.has_news = thread.exchanges, False
                await self.read(session, thread.home, thread.access)
                if not thread.is_due:  # else enough was said meanwhile to read it again
                    return

        thread.reading = self.background.run(read(), is_needed=False)

    async def read(self, session: SessionKey, home: MemoryHome, access: ModelAccess) -> None:
        """Read a thread, then do what is due in its home: write its texts, archive items."""
        async with self._room:
            with logged_failure("a thread was not read to be remembered"):
                if not await self.writer.thread(home, session, access):
                    return
                copy, rules = await self.writer.scopes.remembered(home.scope), access.policy.memory
                if copy.about is not None and copy.about.runs >= rules.channel_every:
                    await self.writer.channel(home, access)
                if is_crowded(len(copy.items), rules):
                    await ScopeMaintenance(self.writer, home.scope, rules).put_away(access)

    def close(self) -> None:
        """Cancel all scheduled readings."""
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
        policy=incoming.policy.name,
        model=request.model.name,
        since=at,
    )

"""The MemoryStore port in this process: its data ends with the process, and no other worker sees it.

It is bounded: the scopes that were noted or changed longest ago are dropped first.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile

from msgspec.structs import replace

from proxy.adapters.stores.stored_session import Leases
from proxy.core.memory.records import (
    About,
    Archived,
    Event,
    EventKind,
    Item,
    Scope,
    Texts,
    Thread,
    add_event,
)
from proxy.ports import Changes, Clock, ScopeSnapshot, SessionKey
from proxy.ports.memory_store import DELETED_LOG_LIFE, DELETED_LOGS, LATE, LOGGED, LOGS, THREADS, TOMBSTONES


@dataclass(slots=True)
class _StoredScope:
    scope: Scope
    version: int
    floor: int
    """A reader whose version is older than this reads all items again."""
    expires: float = math.inf
    """By the monotonic clock."""
    about: About | None = None
    texts: Texts = field(default_factory=Texts)
    items: dict[str, Item] = field(default_factory=dict[str, Item])
    changed: dict[str, int] = field(default_factory=dict[str, int])
    """The version at which each item changed, oldest first."""
    gone: dict[str, int] = field(default_factory=dict[str, int])
    """The version at which each deleted item was deleted, oldest first."""
    archive: dict[str, Archived] = field(default_factory=dict[str, Archived])
    logs: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]])
    """Logs of existing items by item id; the log with the newest event comes last."""
    deleted_logs: dict[str, list[Event]] = field(default_factory=dict[str, list[Event]])
    """Logs of deleted items, in the same order."""
    threads: dict[SessionKey, Thread] = field(default_factory=dict[SessionKey, Thread])

    def write(self, changes: Changes, version: int) -> None:
        self.version = version
        self.about = changes.about or self.about
        self.texts = changes.texts or self.texts
        for name, item in changes.items.items():
            was_there = self.changed.pop(name, None) is not None
            if item is not None:
                self.items[name] = item
                self.changed[name] = version
                self.gone.pop(name, None)
            elif was_there:
                del self.items[name]
                self.gone[name] = version
        while len(self.gone) > TOMBSTONES:
            self.floor = self.gone.pop(next(iter(self.gone)))
        for name, archived in changes.archive.items():
            if archived is not None:
                self.archive[name] = archived
            else:
                self.archive.pop(name, None)
        self._write_logs(changes.events)
        for session, thread in changes.threads.items():
            if thread is not None:
                self.write_thread(session, thread)
            else:
                self.threads.pop(session, None)

    def _write_logs(self, events: Sequence[Event]) -> None:
        for event in events:
            log = self.logs.pop(event.item, None) or self.deleted_logs.pop(event.item, [])
            add_event(log, event)
            del log[1 : 1 + max(0, len(log) - LOGGED)]
            (self.deleted_logs if event.kind is EventKind.DELETE else self.logs)[event.item] = log
        before = max((event.at for event in events), default=0.0) - DELETED_LOG_LIFE
        for item in [item for item, log in self.deleted_logs.items() if log[-1].at <= before]:
            del self.deleted_logs[item]
        for logs, most in ((self.logs, LOGS), (self.deleted_logs, DELETED_LOGS)):
            while len(logs) > most:
                del logs[next(iter(logs))]

    def write_thread(self, session: SessionKey, thread: Thread) -> None:
        """Store the record of a session. Its time of the last turn never goes back."""
        before = self.threads.get(session)
        updated = max(thread.updated, before.updated) if before else thread.updated
        self.threads[session] = replace(thread, updated=updated)
        if len(self.threads) > THREADS:
            del self.threads[min(self.threads, key=lambda each: self.threads[each].updated)]

    def since(self, version: int) -> Mapping[str, Item | None] | None:
        """Return the items that changed after this version; None if that is not known."""
        if not self.floor <= version <= self.version:
            return None
        entries = (reversed(self.changed.items()), reversed(self.gone.items()))
        news = (name for each in entries for name, _ in takewhile(lambda entry: entry[1] > version, each))
        return {name: self.items.get(name) for name in news}


class InProcessMemories:
    """Holds at most ``most`` scopes. The methods are documented at the port."""

    def __init__(self, clock: Clock, most: int = 1_000) -> None:
        self._clock = clock
        self._most = most
        self._scopes: OrderedDict[str, _StoredScope] = OrderedDict()
        """By tag, in the order of their last notes or changes, oldest first."""
        self._versions = count(1)
        self._leases = Leases(clock)

    async def remembered(self, scope: Scope, since: int = 0) -> ScopeSnapshot:
        stored = self._read(scope)
        news = stored.since(since) if since else None
        items = dict(stored.items) if news is None else news
        return ScopeSnapshot(stored.version, stored.about, stored.texts, items, is_whole=news is None)

    async def note(
        self, scope: Scope, thread: SessionKey, at: float, about: About, ttl: float | None = None
    ) -> None:
        stored = self._renewed(scope, ttl)
        if stored.about is None:
            stored.about, stored.version = about, next(self._versions)
        known = stored.threads.get(thread)
        if known is not None and at < known.updated:
            at = known.updated + LATE
        stored.write_thread(thread, replace(known, updated=at) if known else Thread(updated=at))

    async def change(self, scope: Scope, changes: Changes, seen: int) -> int:
        if self._read(scope).version != seen:
            return 0
        stored = self._renewed(scope)
        stored.write(changes, next(self._versions))
        return stored.version

    async def archive(self, scope: Scope) -> Mapping[str, Archived]:
        return dict(self._read(scope).archive)

    async def log(self, scope: Scope, item: str) -> Sequence[Event]:
        stored = self._read(scope)
        return tuple(stored.logs.get(item) or stored.deleted_logs.get(item, ()))

    async def thread(self, scope: Scope, session: SessionKey) -> Thread | None:
        return self._read(scope).threads.get(session)

    async def threads(self, scope: Scope, most: int) -> Mapping[SessionKey, Thread]:
        threads = self._read(scope).threads.items()
        return dict(sorted(threads, key=lambda entry: entry[1].updated, reverse=True)[:most])

    async def channels(self, workspace: Scope) -> Sequence[Scope]:
        return [each.scope for each in self._living() if each.about and each.about.workspace == workspace.tag]

    async def workspace_of(self, channel: Scope) -> str:
        about = self._read(channel).about
        return about.workspace if about else ""

    async def scopes(self, most: int) -> Sequence[Scope]:
        return [each.scope for each in self._living()][:most]

    async def forget(self, scope: Scope) -> bool:
        return self._scopes.pop(scope.tag, None) is not None

    async def unlist(self, scope: Scope) -> None:
        """Do nothing: only what is stored here is listed."""

    async def move(self, former: str, scope: Scope, tenant: str, workspace: str = "") -> bool:
        """Do nothing: memories end with the process, and secrets change only when it is restarted."""
        return False

    async def claim_work(
        self, scope: Scope, work: str, token: str, lease: float, *, longest: float = 0.0
    ) -> bool:
        return self._leases.take((scope.tag, work), token, lease)

    async def release_work(self, scope: Scope, work: str, token: str) -> None:
        self._leases.give_up((scope.tag, work), token)

    def _live(self, scope: Scope) -> _StoredScope | None:
        stored = self._scopes.get(scope.tag)
        if stored is not None and stored.expires <= self._clock.monotonic():
            del self._scopes[scope.tag]
            return None
        return stored

    def _read(self, scope: Scope) -> _StoredScope:
        """Return the scope for reading; an empty one if it does not exist."""
        return self._live(scope) or _StoredScope(scope, version=0, floor=0)

    def _living(self) -> list[_StoredScope]:
        """Return the scopes that have not expired, last noted or changed first."""
        now = self._clock.monotonic()
        return [each for each in reversed(self._scopes.values()) if each.expires > now]

    def _renewed(self, scope: Scope, ttl: float | None = None) -> _StoredScope:
        """Return the scope, created if necessary; a ``ttl`` sets its lifetime from now (seconds)."""
        stored = self._live(scope)
        if stored is None:
            version = next(self._versions)
            stored = self._scopes[scope.tag] = _StoredScope(scope, version, version)
        if ttl is not None:
            stored.expires = self._clock.monotonic() + ttl
        self._scopes.move_to_end(scope.tag)
        while len(self._scopes) > self._most:
            self._scopes.popitem(last=False)
        return stored

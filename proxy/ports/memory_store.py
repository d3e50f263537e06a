"""Where memories are kept: what is asked of a store, and what it answers."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from proxy.core.memory.records import About, Archived, Event, Item, Scope, Texts, Thread
from proxy.ports.session_store import SessionKey

# --- what bounds a scope, beside the capacity for items ---

TOMBSTONES: Final = 100
"""Deleted items of which it is known that they are gone; who last read before that reads all."""
LOGGED: Final = 100
"""Events in an item's log: the first one, and the newest."""
LOGS: Final = 20_000
"""Items whose logs are kept: those to which something happened last;"""
DELETED_LOGS: Final = 1_000
"""and of those that were deleted, the newest,"""
DELETED_LOG_LIFE: Final = 30 * 86_400.0
"""for so many seconds after the deletion, by the times of events."""
THREADS: Final = 2_000
"""Sessions of which a scope remembers: those with the newest turns."""


class ScopeSnapshot(NamedTuple):
    """A scope at one moment. What is damaged, or written by a newer release, is left out of its items."""

    version: int
    """Another, higher one with each change, and after the scope was forgotten; 0 where there is none."""
    about: About | None
    texts: Texts
    items: Mapping[str, Item | None]
    """By id, those that changed since the version that was asked about; None: it is gone."""
    is_whole: bool
    """Whether the items are all there are, whatever was asked about."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What is written to a scope in one step. What is empty, or None, stays as it is."""

    about: About | None = None
    texts: Texts | None = None
    items: Mapping[str, Item | None] = {}
    """None deletes."""
    archive: Mapping[str, Archived | None] = {}
    """By the id of the archived record; None deletes."""
    events: Sequence[Event] = ()
    threads: Mapping[SessionKey, Thread | None] = {}


class MemoryStore(Protocol):
    """Memories by scope. Raises :class:`proxy.errors.StoreUnavailable` as a session store does.

    All keys of a scope lie in one slot of a cluster. They live until they are forgotten, but for those of a
    thread's own scope, which live as long (seconds) as the ``ttl`` of the last change.
    """

    async def remembered(self, scope: Scope, since: int = 0) -> ScopeSnapshot:
        """The scope, with the items that changed after version ``since``: one round trip."""
        ...

    async def note(
        self, scope: Scope, thread: SessionKey, at: float, about: About, ttl: float | None = None
    ) -> None:
        """A session has had a turn. Its scope begins to be there, where it was not; its version stays.

        What is known ``about`` the scope is kept where nothing is.
        """
        ...

    async def change(self, scope: Scope, changes: Changes, seen: int, ttl: float | None = None) -> int:
        """Write all of it in one step, if the scope still has version ``seen``; the new version.

        0 where it has another one, and nothing was written. Repeated after a lost reply it answers 0 as well,
        and who asked reads again. A step holds the store up: whoever changes more than some hundred items
        takes several.
        """
        ...

    async def archive(self, scope: Scope) -> Mapping[str, Archived]:
        """All archived items, by the id of the record."""
        ...

    async def log(self, scope: Scope, item: str) -> Sequence[Event]:
        """What became of an item, oldest first. Score updates that follow each other are one event."""
        ...

    async def thread(self, scope: Scope, session: SessionKey) -> Thread | None:
        """What the scope knows of one session."""
        ...

    async def threads(self, scope: Scope, most: int) -> Mapping[SessionKey, Thread]:
        """The sessions that the scope remembers of, at most so many, those with the newest turns first."""
        ...

    async def channels(self, workspace: Scope) -> Sequence[Scope]:
        """The channels that name this workspace as theirs."""
        ...

    async def scopes(self, most: int) -> Sequence[Scope]:
        """The scopes that were changed last, newest first; one among them may have ended since."""
        ...

    async def forget(self, scope: Scope) -> bool:
        """Delete every key of a scope; whether there was one. Work that is under way writes nothing more."""
        ...

    async def move(self, former: str, scope: Scope, tenant: str, workspace: str = "") -> bool:
        """Take what lies under the tag ``former`` to ``scope``, as of this tenant and workspace (its tag).

        Whether there was anything. A scope that has begun under its new name stays as it is.
        """
        ...

    async def claim_work(self, scope: Scope, work: str, token: str, lease: float) -> bool:
        """Take or renew the lease (seconds) on a piece of work, such as the daily run of a day.

        While it lasts nobody else gets it.
        """
        ...

    async def release_work(self, scope: Scope, work: str, token: str) -> None:
        """Give up a lease, if it is still held."""
        ...

"""The port of the memory store: its protocol, and the values it takes and returns."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, Protocol

import msgspec

from proxy.core.memory.records import About, Archived, Event, Item, Scope, Texts, Thread
from proxy.ports.session_store import SessionKey

# --- limits of a scope, besides its capacity for items ---

TOMBSTONES: Final = 100
"""How many deletions are remembered. A reader whose version is older than these reads all items again."""
LOGGED: Final = 100
"""Events kept in an item's log: the first one and the newest."""
LOGS: Final = 20_000
"""How many existing items have their logs kept: those with the newest events."""
DELETED_LOGS: Final = 1_000
"""How many deleted items have their logs kept: those deleted last."""
DELETED_LOG_LIFE: Final = 30 * 86_400.0
"""Seconds for which the log of a deleted item is kept; the next event of the scope after that drops it."""
THREADS: Final = 2_000
"""How many sessions a scope keeps a record of: those with the newest turns."""
LATE: Final = 0.001
"""Seconds by which a turn that is noted after a later one moves the time of its session's last turn on."""


class ScopeSnapshot(NamedTuple):
    """A scope at one moment. Items that are damaged, or written by a newer release, are left out."""

    version: int
    """Increases with each change, also across the deletion of a scope; 0 if the scope does not exist.

    None is given twice, even if the store has lost its newest changes.
    """
    about: About | None
    texts: Texts
    items: Mapping[str, Item | None]
    """By id, the items that changed since the version asked for; None for a deleted item."""
    is_whole: bool
    """Whether ``items`` holds all items of the scope, not only the changed ones."""


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """A set of changes to a scope, written in one atomic step. Empty or None fields change nothing."""

    about: About | None = None
    texts: Texts | None = None
    items: Mapping[str, Item | None] = {}
    """By item id; None deletes the item."""
    archive: Mapping[str, Archived | None] = {}
    """By the id of the archived record; None deletes the record."""
    events: Sequence[Event] = ()
    threads: Mapping[SessionKey, Thread | None] = {}


class MemoryStore(Protocol):
    """Memories by scope. Raises :class:`proxy.errors.StoreUnavailable` as a session store does.

    All keys of a scope lie in one slot of a cluster. A scope lives until it is forgotten, except the own
    scope of a thread: that one expires ``ttl`` seconds after the last turn, as the session does.
    """

    async def remembered(self, scope: Scope, since: int = 0) -> ScopeSnapshot:
        """Return the scope with the items that changed after version ``since``, in one round trip."""
        ...

    async def note(
        self, scope: Scope, thread: SessionKey, at: float, about: About, ttl: float | None = None
    ) -> None:
        """Record that a session had a turn at time ``at``. Creates the scope if needed.

        The time of its last turn increases also if this turn was earlier, so that everybody sees the news.
        ``about`` is stored only if the scope has none yet; only then does the scope get another version.
        With a ``ttl`` the scope expires that many seconds from now.
        """
        ...

    async def change(self, scope: Scope, changes: Changes, seen: int) -> int:
        """Write ``changes`` in one atomic step if the scope still has version ``seen``; it lives no longer.

        Returns the new version, or 0 if the scope has another version and nothing was written. A call
        repeated after a lost reply returns 0 too; the caller then reads the scope again. The step blocks the
        store: to change more than some hundred items, make several calls.
        """
        ...

    async def archive(self, scope: Scope) -> Mapping[str, Archived]:
        """Return all archived items by the id of the record."""
        ...

    async def log(self, scope: Scope, item: str) -> Sequence[Event]:
        """Return the log of an item, oldest event first. Consecutive score updates form one event."""
        ...

    async def thread(self, scope: Scope, session: SessionKey) -> Thread | None:
        """Return the scope's record of one session."""
        ...

    async def threads(self, scope: Scope, most: int) -> Mapping[SessionKey, Thread]:
        """Return the scope's records of at most ``most`` sessions, those with the newest turns first."""
        ...

    async def channels(self, workspace: Scope) -> Sequence[Scope]:
        """Return the scopes of the channels that belong to this workspace."""
        ...

    async def workspace_of(self, channel: Scope) -> str:
        """Return the tag of a channel's workspace, also if the channel cannot be read; empty without one."""
        ...

    async def scopes(self, most: int) -> Sequence[Scope]:
        """Return at most ``most`` scopes, last changed first. Some of them may have ended since."""
        ...

    async def forget(self, scope: Scope) -> bool:
        """Delete every key of a scope; return whether it existed. Work under way can then not write to it."""
        ...

    async def unlist(self, scope: Scope) -> None:
        """Take a scope off the list if nothing is stored of it, and it was not noted in the last hour.

        It is still listed if a part of the store was away when it was forgotten, or was to be written.
        """
        ...

    async def move(self, former: str, scope: Scope, tenant: str, workspace: str = "") -> bool:
        """Move the scope stored under the tag ``former`` to ``scope``; return whether there was one.

        ``tenant`` and ``workspace`` (a tag) replace those of its record. A scope that already exists under
        its new name stays as it is.
        """
        ...

    async def claim_work(
        self, scope: Scope, work: str, token: str, lease: float, *, longest: float = 0.0
    ) -> bool:
        """Take or renew a lease of ``lease`` seconds on a piece of work, such as the daily run of a day.

        Returns whether ``token`` holds it. Until the lease ends no other token can take it. ``longest`` is
        the longest that anybody may hold it, in seconds: one that ends much later was taken by a clock that
        was set back since.
        """
        ...

    async def release_work(self, scope: Scope, work: str, token: str) -> None:
        """Give up the lease on a piece of work if ``token`` still holds it."""
        ...

"""Cached copies of recently used memories, and changes to them with optimistic locking.

A copy is updated by asking the store for what has changed since its version. A change is decided on a copy
and written only if the store still has that version; otherwise it is decided again.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial

import msgspec

from proxy.cache import CacheMemory, Lru
from proxy.core.memory.lifecycle import content_of
from proxy.core.memory.records import About, Event, Item, Scope, ScopeKind, Texts, day_of
from proxy.engine.intake.homes import MemoryHome
from proxy.errors import StoreUnavailable
from proxy.ports import Changes, MemoryStore, Passage, ScopeSnapshot, UnreadableRecord

_RACES = 8
"""Most attempts at a change when others change the same scope."""
_ITEM_BYTES, _SCOPE_BYTES, _UNMERGED_BYTES = 1_300, 4_096, 500
"""Estimated bytes of an item apart from its words, with its search index; of a scope without items; and of
what it notes of a session that its texts have not taken in."""


class CachedScope(msgspec.Struct, frozen=True, dict=True):  # dict=True for the cached properties
    """A scope at one version."""

    version: int = 0
    about: About | None = None
    texts: Texts = Texts()
    items: Mapping[str, Item] = {}
    items_weight: int = 0
    """Estimated bytes of its items."""

    @property
    def weight(self) -> int:
        """Estimated bytes of the whole copy."""
        texts = sys.getsizeof(self.texts.long) + sys.getsizeof(self.texts.short)
        unmerged = len(self.about.unmerged) if self.about else 0
        return _SCOPE_BYTES + _UNMERGED_BYTES * unmerged + texts + self.items_weight

    @property
    def readable_about(self) -> About | None:
        """Its record about itself; None if nothing is stored. Raises UnreadableRecord if it is damaged."""
        if self.about is None and self.version:
            raise UnreadableRecord
        return self.about

    def tags(self, scope: Scope) -> frozenset[str]:
        """The tags of messages that were said in this scope, also of those said under an old secret."""
        former = self.about.former if self.about else ""
        return frozenset(filter(None, (scope.tag, former)))

    def after(self, news: ScopeSnapshot) -> "CachedScope":
        """Return the copy with a snapshot of newer changes applied."""
        items = {} if news.is_whole else dict(self.items)
        weight = 0 if news.is_whole else self.items_weight
        for name, item in news.items.items():
            weight += _weight(item) - _weight(items.pop(name, None))
            if item is not None:
                items[name] = item
        return CachedScope(news.version, news.about, news.texts, items, weight)

    def about_unless_forgotten(self, before: "CachedScope") -> About | None:
        """Return its record about itself; None if it, or something of it, was forgotten since ``before``."""
        if self.about is None or before.about is None:
            return None
        return self.about if self.about.since == before.about.since else None

    @cached_property
    def active(self) -> Sequence[Item]:
        """The items that are not superseded, by session, in the order in which they were said."""
        active = [item for item in self.items.values() if not item.superseded_by]
        return sorted(active, key=lambda item: (item.source.session, item.source.at, item.id))

    @cached_property
    def windows(self) -> Sequence[Sequence[Item]]:
        """The units of a search: each item with its neighbours, which share more words with a question."""
        windows, active = list[Sequence[Item]](), self.active
        for place, item in enumerate(active):
            beside = (*active[max(place - 1, 0) : place], *active[place + 1 : place + 2])
            windows.append([item, *(each for each in beside if each.source.session == item.source.session)])
        return windows

    @cached_property
    def passages(self) -> Sequence[Passage]:
        """The text of each window: like lines of a session, each with its day and its speaker."""

        def text(window: Sequence[Item]) -> str:
            lines = ((day_of(item.source.at), item.source.name, content_of(item)) for item in window)
            return "\n".join(f"{day} {name}: {content}" for day, name, content in lines)

        return [
            Passage(" ".join(item.id for item in window).encode(), partial(text, window))
            for window in self.windows
        ]

    def changes(
        self, names: Iterable[str], change: Callable[[Item], tuple[Item, Event | None]]
    ) -> Changes | None:
        """Return what ``change`` does to the items with these ids; None if it changes none of them."""
        found = [change(item) for item in filter(None, map(self.items.get, names))]
        items = {item.id: item for item, event in found if event is not None}
        return Changes(items=items, events=[event for _, event in found if event]) if items else None


def _weight(item: Item | None) -> int:
    if item is None:
        return 0
    messages = sum(map(sys.getsizeof, item.source.messages))
    return _ITEM_BYTES + sum(map(sys.getsizeof, (item.text, item.source.passage, item.used_by))) + messages


Deciding = Callable[[CachedScope], Changes | None]
"""Decides the changes to a scope; None for no change. Called in a thread, and again after a race."""


class ScopeCache:
    """Reads and changes memories. Raises StoreUnavailable as the store does."""

    def __init__(self, store: MemoryStore, memory: CacheMemory) -> None:
        self.store = store
        self._copies: Lru[str, CachedScope] = Lru(memory, lambda copy: copy.weight)

    async def remembered(self, scope: Scope) -> CachedScope:
        """Return a scope as it is now, with one request to the store."""
        held = self._copies.get(scope.tag) or CachedScope()
        news = await self.store.remembered(scope, held.version)
        if not news.version:
            self._copies.drop(scope.tag)
            return CachedScope(about=news.about)
        if news.version == held.version:
            return held
        copy = held.after(news)
        self._copies.put(scope.tag, copy)
        return copy

    async def of_home(self, home: MemoryHome) -> list[CachedScope]:
        """Return the scopes of a home, its own first; missing ones are moved from the old secret's names."""
        copies = [await self.remembered(scope) for scope in home.scopes]
        workspace = home.workspace.tag if home.workspace else ""
        for place, (scope, former) in enumerate(zip(home.scopes, home.former, strict=False)):
            above = workspace if scope.kind is ScopeKind.CHANNEL else ""
            if not copies[place].version:
                await self.store.move(former, scope, home.tenant, above)
                copies[place] = await self.remembered(scope)  # whichever worker moved it
        return copies

    async def change(self, scope: Scope, decide: Deciding) -> CachedScope:
        """Change a scope as ``decide`` says; return the scope after that. Raises StoreUnavailable.

        A scope that has no record about itself, as after it was forgotten, stays as it is unless the changes
        bring one: nobody could list what is written there.
        """
        for _ in range(_RACES):
            copy = await self.remembered(scope)
            changes = await asyncio.to_thread(decide, copy)
            if changes is None or (copy.about is None and changes.about is None):
                return copy
            if await self.store.change(scope, changes, copy.version):
                return await self.remembered(scope)
        raise StoreUnavailable("A memory is changed by others all the time.")

    def forget(self, scope: Scope) -> None:
        """Drop the copy of a scope that was forgotten."""
        self._copies.drop(scope.tag)

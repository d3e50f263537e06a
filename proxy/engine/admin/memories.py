"""The admin API's operations on memories: list, search and restore; forgetting is a module of its own.

Keeps law 6 (isolated): a client reaches the scopes that its own key names, and no others.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from proxy.core.memory.lifecycle import reborn
from proxy.core.memory.records import About, Archived, Event, Item, Scope, ScopeKind
from proxy.core.memory.utterances import Utterance
from proxy.core.policy.policy import Policy
from proxy.engine.intake.homes import MemoryHome
from proxy.engine.memory.reader import MemoryReader, SearchedScope, SearchResult
from proxy.engine.memory.scope_cache import CachedScope, ScopeCache
from proxy.errors import NotFound, NothingToChange, SearchUnavailable, Unavailable
from proxy.ports import Changes, Clock, Passage, Search, UnreadableRecord

_SEARCHED = 1_000
"""How many scopes, last changed first, are searched for items."""
ItemState = Literal["remembered", "superseded", "archived"]


class ItemDetails(NamedTuple):
    """An item of a scope, active or archived."""

    scope_details: "ScopeDetails"
    """Its scope."""
    item: Item
    archived: Archived | None = None

    @property
    def id(self) -> str:
        """The item's id in the admin API; it includes the scope."""
        return f"{self.scope_details.scope.kind}.{self.scope_details.scope.tag}.{self.item.id}"

    @property
    def state(self) -> ItemState:
        """Whether the item is used in answers and briefings, and if not, why."""
        if self.archived is not None:
            return "archived"
        return "superseded" if self.item.superseded_by else "remembered"

    @property
    def text(self) -> str:
        """The item's current text; of an archived item the compressed summary."""
        return self.item.text if self.archived is None else self.archived.compressed_summary

    @property
    def passage(self) -> Passage:
        """The text under which a search finds the item."""
        return Passage(f"{self.id} {self.state}".encode(), lambda: f"{self.text}\n{self.item.source.passage}")


class ScopeDetails(NamedTuple):
    """A scope with its items and its archive."""

    scope: Scope
    copy: CachedScope
    about: About
    archive: Mapping[str, Archived]

    @property
    def id(self) -> str:
        """The scope's id in the admin API; it includes the tenant."""
        return f"{self.about.tenant}.{self.scope.kind}.{self.scope.tag}"

    @property
    def entries(self) -> Sequence[ItemDetails]:
        """All its items, the archived ones last."""
        items = [ItemDetails(self, item) for item in self.copy.items.values()]
        gone = (ItemDetails(self, each.item, each) for each in self.archive.values())
        return [*items, *gone]


class UnreadScope(NamedTuple):
    """A scope that cannot be read: by its id it can be forgotten all the same."""

    scope: Scope
    reason: str
    """Why, as :attr:`UnreadableRecord.reason` says it."""

    @property
    def id(self) -> str:
        """The scope's id in the admin API; its tenant stands in the record that cannot be read."""
        return f"unknown.{self.scope.kind}.{self.scope.tag}"


class ScopeList(NamedTuple):
    """The scopes that can be read, and those that cannot."""

    scopes: Sequence[ScopeDetails]
    unread: Sequence[UnreadScope] = ()


class Listing(NamedTuple):
    """A list of memories for people to read."""

    scopes: Sequence[ScopeDetails]
    items: Sequence[ItemDetails]
    said: Sequence[Utterance]
    """Utterances in sessions that match the query."""
    unread: Sequence[UnreadScope] = ()
    """The scopes that belong here and are left out."""


@dataclass(frozen=True)
class MemoryAdmin:
    """Reads and changes memories for people. Every method raises StoreUnavailable."""

    scopes: ScopeCache
    search: Search
    reading: MemoryReader
    clock: Clock
    policies: Callable[[str], Policy]
    """Returns a policy by its name; the default policy if there is none of that name."""

    # --- reading ---

    async def scope(self, name: str) -> ScopeDetails:
        """Return a scope by its id. Raises NotFound."""
        found = await self.read_scope(scope_of(name))
        if found is None or found.id != name:
            raise NotFound("There is no such memory.")
        return found

    async def newest(self, most: int) -> ScopeList:
        """Return the scopes changed last: ``most`` of them, but at least as many as a search covers."""
        return await self.all(max(most, _SEARCHED))

    async def all(self, most: int) -> ScopeList:
        """Return the scopes changed last, at most ``most``; one that cannot be read hides no other."""
        kept, unread = list[ScopeDetails](), list[UnreadScope]()
        for scope in await self.scopes.store.scopes(most):
            try:
                found = await self.read_scope(scope)
            except UnreadableRecord as error:
                unread.append(UnreadScope(scope, error.reason))
            else:
                kept += [found] if found is not None else []
        return ScopeList(kept, unread)

    async def read_scope(self, scope: Scope) -> ScopeDetails | None:
        """Return a scope; None if there is none, or nothing is known about it."""
        copy = await self.scopes.remembered(scope)
        about = copy.readable_about
        return ScopeDetails(scope, copy, about, await self.scopes.store.archive(scope)) if about else None

    def listed(self, kept: Sequence[ScopeDetails], most: int) -> Sequence[ItemDetails]:
        """Return the newest items of these scopes, at most ``most``."""
        entries = [entry for each in kept for entry in each.entries]
        return sorted(entries, key=lambda entry: (entry.item.created_at, entry.id))[::-1][:most]

    async def found(self, name: str, query: str, most: int, every: ScopeList | None = None) -> Listing:
        """Search the scope with the id ``name``, or if that is empty all scopes, as a recall does.

        After the items that a recall finds come superseded and archived ones, which can be restored. Without
        a ``query`` the newest items are returned. ``every`` is the result of :meth:`newest` if the caller has
        it. Raises NotFound, and Unavailable if search is not available.
        """
        among = ScopeList([await self.scope(name)]) if name else every or await self.newest(most)
        kept, unread = [*among.scopes], [*among.unread]
        if not query:
            return Listing(kept, self.listed(kept, most), (), unread)
        searched = [
            SearchedScope(each.scope, each.copy, self.policies(each.about.policy), has_sessions=True)
            for each in kept
        ]
        if name and (workspace := kept[0].about.workspace):  # a recall in a channel covers its workspace too
            above = None
            with suppress(UnreadableRecord):
                above = await self.read_scope(Scope(ScopeKind.WORKSPACE, workspace))
            kept += [above] if above else []
            searched += [SearchedScope(above.scope, above.copy, searched[0].policy)] if above else []
        entries = {(each.scope, entry.item.id): entry for each in kept for entry in each.entries}
        others = [entry for entry in entries.values() if entry.state != "remembered"]
        try:
            found = await self.reading.search(searched, query) if searched else SearchResult((), {})
            passages, shelf = [entry.passage for entry in others], f"put away {name}"
            hits = await self.search.search(shelf, passages, query, most)
        except SearchUnavailable as error:
            raise Unavailable("What is remembered cannot be searched here.") from error
        items = [entries[scope, item.id] for scope, item in found.items]
        items = [*items, *(others[hit] for hit in hits)][:most]
        meant = {entry.scope_details.scope for entry in items}
        shown = kept[:1] if name else [each for each in kept if each.scope in meant]
        return Listing(shown, items, [*found.said.values()][:most], unread)

    async def item(self, name: str) -> ItemDetails:
        """Return an item by its id; if it is only in the archive, its latest record. Raises NotFound."""
        kind, tag, wanted = _parts(name)
        kept = await self.read_scope(_scope(kind, tag))
        found = [entry for entry in (kept.entries if kept else ()) if entry.item.id == wanted]
        if not found:
            raise NotFound("There is no such item.")
        return min(found, key=lambda entry: -entry.archived.compressed_at if entry.archived else -1e12)

    async def log(self, name: str) -> Sequence[Event]:
        """Return the log of an item, oldest event first, also of a forgotten item. Raises NotFound."""
        kind, tag, wanted = _parts(name)
        events = await self.scopes.store.log(_scope(kind, tag), wanted)
        if not events:
            raise NotFound("There is no such item.")
        return events

    # --- changing ---

    async def restorable(self, name: str) -> ItemDetails:
        """Return an item if it can be restored. Raises NotFound, and NothingToChange if it is active."""
        entry = await self.item(name)
        if entry.state == "remembered":
            raise NothingToChange("The item is remembered as it is.")
        return entry

    async def restore(self, name: str) -> ItemDetails:
        """Restore an item that was archived or superseded. Raises NotFound and NothingToChange."""
        now = self.clock.now()
        while True:
            entry = await self.restorable(name)
            kept, record = entry.scope_details, entry.archived
            item, event = reborn((entry if record is None else record).item, now)
            gone = {record.id: None} if record is not None else {}
            changes = Changes(items={item.id: item}, archive=gone, events=[event])
            # At another version the item or its record may be forgotten: then both are read again.
            decide = partial(_at, kept.copy.version, changes)
            after = await self.scopes.change(kept.scope, decide)
            found = after.items.get(item.id)  # it may have been used since
            if found is not None and not found.superseded_by:
                return ItemDetails(kept, found)

    # --- a client's own memory ---

    async def own(self, homes: Sequence[MemoryHome]) -> list[ScopeDetails]:
        """Return those of these homes that exist as scopes."""
        for home in homes:
            await self.scopes.of_home(home)  # moves what stands under an old secret's name
        kept = [await self.read_scope(home.scope) for home in homes]
        return [each for each in kept if each is not None]


def _at(version: int, changes: Changes, copy: CachedScope) -> Changes | None:
    """Return the changes to a scope that still has this version; None for any other."""
    return changes if copy.version == version else None


def _parts(name: str) -> tuple[str, str, str]:
    """Split an id into its three parts. Raises NotFound."""
    parts = name.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isalnum() for part in parts):
        raise NotFound("There is nothing of this id.")
    return parts[0], parts[1], parts[2]


def scope_of(name: str) -> Scope:
    """Return the scope that has this id. Raises NotFound if it can be none."""
    _, kind, tag = _parts(name)
    return _scope(kind, tag)


def _scope(kind: str, tag: str) -> Scope:
    try:
        return Scope(ScopeKind(kind), tag)
    except ValueError:
        raise NotFound("There is nothing of this id.") from None

"""The admin API's operations on memories: list, search, restore and forget.

Keeps law 6 (isolated): a client reaches the scopes that its own key names, and no others. Forgetting removes
every trace from the memory; conversations, and the briefings at their start, belong to the sessions and stay.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from msgspec.structs import replace

from proxy.core.memory.lifecycle import reborn, restored
from proxy.core.memory.records import (
    About,
    Archived,
    Event,
    EventKind,
    Item,
    Scope,
    ScopeKind,
    Thread,
    event_of,
)
from proxy.core.memory.texts import without
from proxy.core.memory.utterances import Utterance
from proxy.core.policy.policy import Policy
from proxy.engine.intake.homes import MemoryHome
from proxy.engine.intake.naming import Naming
from proxy.engine.memory.reader import MemoryReader, SearchedScope, SearchResult
from proxy.engine.memory.scope_cache import CachedScope, ScopeCache
from proxy.errors import (
    InvalidPolicy,
    InvalidType,
    NotFound,
    NothingToChange,
    SearchUnavailable,
    Unavailable,
)
from proxy.ports import Changes, Clock, Passage, Search, SessionKey
from proxy.ports.memory_store import THREADS

_SEARCHED = 1_000
"""How many scopes, last changed first, are searched for items."""
_EVERY_SCOPE = 100_000
"""How many scopes are searched for a session or a person that is to be forgotten."""
_STEP = 100
"""How many items are written in one step."""
State = Literal["remembered", "superseded", "archived"]


class ItemDetails(NamedTuple):
    """An item of a scope, active or archived."""

    scope: Scope
    about: About
    item: Item
    archived: Archived | None = None

    @property
    def id(self) -> str:
        """The item's id in the admin API; it includes the scope."""
        return f"{self.scope.kind}.{self.scope.tag}.{self.item.id}"

    @property
    def state(self) -> State:
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
    def tags(self) -> frozenset[str]:
        """The tags by which messages are recognised as said in this scope."""
        return frozenset([self.scope.tag])

    @property
    def entries(self) -> Sequence[ItemDetails]:
        """All its items, the archived ones last."""
        items = [ItemDetails(self.scope, self.about, item) for item in self.copy.items.values()]
        gone = (ItemDetails(self.scope, self.about, each.item, each) for each in self.archive.values())
        return [*items, *gone]


class ForgetPreview(NamedTuple):
    """What forgetting an item would delete."""

    entry: ItemDetails
    lines: Sequence[str]
    """Lines that would be deleted from the texts of its scope and of the sessions in it."""
    passages: int
    """How many other items would stay but lose the passage that they came from."""


class Listing(NamedTuple):
    """A list of memories for people to read."""

    scopes: Sequence[ScopeDetails]
    items: Sequence[ItemDetails]
    said: Sequence[Utterance]
    """Utterances in sessions that match the query."""


@dataclass(frozen=True)
class MemoryAdmin:
    """Reads and changes memories for people. Every method raises StoreUnavailable."""

    scopes: ScopeCache
    search: Search
    reading: MemoryReader
    clock: Clock
    policies: Callable[[str], Policy]
    """Returns a policy by its name; raises InvalidPolicy if there is none of that name."""
    naming: Naming

    # --- reading ---

    async def scope(self, name: str) -> ScopeDetails:
        """Return a scope by its id. Raises NotFound."""
        tenant, kind, tag = _parts(name)
        found = await self._kept(_scope(kind, tag))
        if found is None or found.about.tenant != tenant:
            raise NotFound("There is no such memory.")
        return found

    async def newest(self, most: int) -> list[ScopeDetails]:
        """Return the scopes changed last: ``most`` of them, but at least as many as a search covers."""
        return await self._all(max(most, _SEARCHED))

    async def _all(self, most: int) -> list[ScopeDetails]:
        kept = [await self._kept(scope) for scope in await self.scopes.store.scopes(most)]
        return [each for each in kept if each is not None]

    async def _kept(self, scope: Scope) -> ScopeDetails | None:
        copy = await self.scopes.remembered(scope)
        if copy.about is None:
            return None
        return ScopeDetails(scope, copy, copy.about, await self.scopes.store.archive(scope))

    def listed(self, kept: Sequence[ScopeDetails], most: int) -> Sequence[ItemDetails]:
        """Return the newest items of these scopes, at most ``most``."""
        entries = [entry for each in kept for entry in each.entries]
        return sorted(entries, key=lambda entry: (entry.item.created_at, entry.id))[::-1][:most]

    async def found(
        self, name: str, query: str, most: int, every: Sequence[ScopeDetails] | None = None
    ) -> Listing:
        """Search the scope with the id ``name``, or if that is empty all scopes, as a recall does.

        After the items that a recall finds come superseded and archived ones, which can be restored. Without
        a ``query`` the newest items are returned. ``every`` is the result of :meth:`newest` if the caller has
        it. Raises NotFound, and Unavailable if search is not available.
        """
        kept = [await self.scope(name)] if name else [*(every or await self.newest(most))]
        if not query:
            return Listing(kept, self.listed(kept, most), ())
        searched = [
            SearchedScope(each.scope, each.copy, self._policy(each.about), each.tags) for each in kept
        ]
        if name and (workspace := kept[0].about.workspace):  # a recall in a channel covers its workspace too
            above = await self._kept(Scope(ScopeKind.WORKSPACE, workspace))
            kept += [above] if above else []
            searched += [SearchedScope(above.scope, above.copy, searched[0].policy)] if above else []
        entries = {(entry.scope, entry.item.id): entry for each in kept for entry in each.entries}
        others = [entry for entry in entries.values() if entry.state != "remembered"]
        try:
            found = await self.reading.search(searched, query) if searched else SearchResult((), {})
            passages, shelf = [entry.passage for entry in others], f"put away {name}"
            hits = await self.search.search(shelf, passages, query, most)
        except SearchUnavailable as error:
            raise Unavailable("What is remembered cannot be searched here.") from error
        items = [entries[scope, item.id] for scope, item in found.items]
        items = [*items, *(others[hit] for hit in hits)][:most]
        meant = {entry.scope for entry in items}
        shown = kept[:1] if name else [each for each in kept if each.scope in meant]
        return Listing(shown, items, [*found.said.values()][:most])

    async def item(self, name: str) -> ItemDetails:
        """Return an item by its id; if it is only in the archive, its latest record. Raises NotFound."""
        kind, tag, wanted = _parts(name)
        kept = await self._kept(_scope(kind, tag))
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
        entry, now = await self.restorable(name), self.clock.now()
        record = entry.archived
        item, event = reborn(entry.item, now) if record is None else restored(record, now)
        gone = {record.id: None} if record is not None else {}
        changes = Changes(items={item.id: item}, archive=gone, events=[event])
        await self.scopes.change(entry.scope, lambda _: changes, self._ttl(entry.scope, entry.about))
        return ItemDetails(entry.scope, entry.about, item)

    async def forget(self, name: str) -> ItemDetails:
        """Forget an item, and the lines of texts that mention it. Raises NotFound."""
        entry, kept, entries = await self._same(name)
        await self._forget(kept, entries)
        return entry

    async def forget_scope(self, scope: Scope) -> bool:
        """Forget a scope; return whether it existed."""
        was_there = await self.scopes.store.forget(scope)
        self.scopes.forget(scope)
        return was_there

    async def forget_own_scope(self, key: SessionKey, tenant: str) -> bool:
        """Forget a session's own scope; return whether it existed."""
        return await self.forget_scope(self.naming.scope(ScopeKind.THREAD, tenant, key.tag, key.sid))

    async def forget_session(self, key: SessionKey, tenant: str) -> int:
        """Forget what was learned from a session, in every scope; return the number of items forgotten."""
        name, forgotten = key.id_for(tenant), 0
        for kept in await self._all(_EVERY_SCOPE):
            entries = [each for each in kept.entries if each.item.source.session == name]
            thread = await self.scopes.store.thread(kept.scope, key)
            if kept.about.tenant == tenant and (entries or thread is not None):
                forgotten += len(entries)
                if kept.scope.kind is ScopeKind.THREAD:
                    await self.forget_scope(kept.scope)
                else:
                    await self._forget(kept, entries, key)
        return forgotten

    async def forget_person(self, name: str, tenant: str = "") -> int:
        """Forget a person's scope and what they said in other scopes; return the number of items forgotten.

        Raises NotFound, and InvalidType if several tenants have a person of this name.
        """
        found: list[tuple[ScopeDetails, list[ItemDetails]]] = []
        for kept in await self._all(_EVERY_SCOPE):
            is_own = kept.scope.kind is ScopeKind.PERSON and kept.about.name == name
            entries = [each for each in kept.entries if is_own or each.item.source.name == name]
            if (is_own or entries) and tenant in ("", kept.about.tenant):
                found.append((kept, entries))
        tenants = sorted({kept.about.tenant for kept, _ in found})
        if not tenants:
            raise NotFound("Nothing is remembered of such a person.")
        if len(tenants) > 1:
            raise InvalidType(f"Several tenants have such a person: {', '.join(tenants)}.", param="tenant")
        for kept, entries in found:
            if kept.scope.kind is ScopeKind.PERSON and kept.about.name == name:
                await self.forget_scope(kept.scope)
            else:
                await self._forget(kept, entries, said_of=[name])
        return sum(len(entries) for _, entries in found)

    async def would_forget(self, name: str) -> ForgetPreview:
        """Return what forgetting an item would delete. Raises NotFound."""
        entry, kept, entries = await self._same(name)
        decide, known = await self._deletion(kept, entries)
        changes = decide(kept.copy, entries)
        before = [kept.copy.texts, *(thread.texts for thread in known.values())]
        after = [changes.texts or kept.copy.texts]
        after += [(changes.threads.get(key) or thread).texts for key, thread in known.items()]
        lines = [
            line
            for one, other in zip(before, after, strict=True)
            for text, left in ((one.long, other.long), (one.short, other.short))
            for line in text.splitlines()
            if line not in left.splitlines()
        ]
        passages = sum(item is not None for item in changes.items.values())
        return ForgetPreview(entry, [*dict.fromkeys(lines)], passages)

    async def _same(self, name: str) -> tuple[ItemDetails, ScopeDetails, Sequence[ItemDetails]]:
        """Return an item, its scope, and all records of it there: it may have been archived before."""
        entry = await self.item(name)
        kept = await self.scope(f"{entry.about.tenant}.{entry.scope.kind}.{entry.scope.tag}")
        return entry, kept, [each for each in kept.entries if each.item.id == entry.item.id]

    async def _forget(
        self,
        kept: ScopeDetails,
        entries: Sequence[ItemDetails],
        session: SessionKey | None = None,
        said_of: Sequence[str] = (),
    ) -> None:
        """Delete items of a scope, the lines of its texts about them, and its record of a session."""
        decide, _ = await self._deletion(kept, entries, session, said_of)
        for first in range(0, max(len(entries), 1), _STEP):
            some = entries[first : first + _STEP]
            await self.scopes.change(
                kept.scope, lambda copy, some=some: decide(copy, some), self._ttl(kept.scope, kept.about)
            )

    async def _deletion(
        self,
        kept: ScopeDetails,
        entries: Sequence[ItemDetails],
        session: SessionKey | None = None,
        said_of: Sequence[str] = (),
    ) -> tuple[Callable[[CachedScope, Sequence[ItemDetails]], Changes], Mapping[SessionKey, Thread]]:
        """Return a function that computes the changes to forget some items, and the scope's session records.

        The changes also delete the passages that other items quote from the same messages.
        """
        known, gone = await self.scopes.store.threads(kept.scope, THREADS), {each.item.id for each in entries}
        messages = {message for each in entries for message in each.item.source.messages}
        texts = [thread.texts for key, thread in known.items() if key == session]
        sayings = [*said_of, *(text for each in entries for text in _words_of(each))]
        sayings += [line for each in texts for line in f"{each.long}\n{each.short}".splitlines()]
        threads: dict[SessionKey, Thread | None] = {
            key: replace(thread, texts=left)
            for key, thread in known.items()
            if (left := without(thread.texts, sayings)) != thread.texts
        }
        if session is not None:
            threads[session] = None
        archive: dict[str, Archived | None] = {
            each.id: replace(each, original_content=each.item.text, item=_unquoted(each.item))
            for each in kept.archive.values()
            if not messages.isdisjoint(each.item.source.messages)
        }
        archive |= {each.archived.id: None for each in entries if each.archived is not None}

        def decide(copy: CachedScope, some: Sequence[ItemDetails]) -> Changes:
            of_same = (each for each in copy.items.values() if not messages.isdisjoint(each.source.messages))
            items: dict[str, Item | None] = {
                each.id: _unquoted(each) for each in of_same if each.id not in gone and each.source.passage
            }
            items |= {each.item.id: None for each in some}
            left = without(copy.texts, sayings)
            texts = None if left == copy.texts else left
            now, details = self.clock.now(), "forgotten on request"
            events = [event_of(each.item, EventKind.DELETE, now, details=details) for each in some]
            return Changes(items=items, archive=archive, texts=texts, threads=threads, events=events)

        return decide, known

    def _ttl(self, scope: Scope, about: About) -> float | None:
        """Return the lifetime in seconds of a thread's own scope; None for other scopes."""
        if scope.kind is not ScopeKind.THREAD:
            return None
        return self._policy(about).store.ttl

    def _policy(self, about: About) -> Policy:
        """Return the policy by which a scope was written last; the server's if that one is gone."""
        try:
            return self.policies(about.policy)
        except InvalidPolicy:
            return self.policies("")

    # --- a client's own memory ---

    async def own(self, homes: Iterable[MemoryHome]) -> ScopeDetails | None:
        """Return the first of these homes that exists as a scope; None if none does."""
        for home in homes:
            copy = (await self.scopes.of_home(home))[0]
            if copy.about is not None:
                return await self._kept(home.scope)
        return None


def _words_of(entry: ItemDetails) -> Sequence[str]:
    """Return the texts of an item: its current one, its original one, and the passage it came from."""
    return entry.text, entry.item.text, entry.item.source.passage


def _unquoted(item: Item) -> Item:
    """Return the item without the passage that it came from."""
    return replace(item, source=replace(item.source, passage=""))


def _parts(name: str) -> tuple[str, str, str]:
    """Split an id into its three parts. Raises NotFound."""
    parts = name.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isalnum() for part in parts):
        raise NotFound("There is nothing of this id.")
    return parts[0], parts[1], parts[2]


def _scope(kind: str, tag: str) -> Scope:
    try:
        return Scope(ScopeKind(kind), tag)
    except ValueError:
        raise NotFound("There is nothing of this id.") from None

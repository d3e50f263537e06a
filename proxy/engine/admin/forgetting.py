"""Forgetting: delete items, scopes, and what was learned from a session or about a person.

Forgetting removes every trace from the memory. Conversations, and the briefings at their start, belong to the
sessions and stay.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.memory.records import Archived, EventKind, Item, Scope, ScopeKind, Thread, event_of
from proxy.core.memory.texts import without
from proxy.engine.admin.memories import ItemDetails, MemoryAdmin, ScopeDetails
from proxy.engine.intake.naming import Naming
from proxy.engine.memory.scope_cache import CachedScope
from proxy.errors import InvalidType, NotFound
from proxy.ports import Changes, SessionKey
from proxy.ports.memory_store import THREADS

_EVERY_SCOPE = 100_000
"""How many scopes are searched for a session or a person that is to be forgotten."""
_STEP = 100
"""How many items are written in one step."""


class ForgetPreview(NamedTuple):
    """What forgetting an item would delete."""

    entry: ItemDetails
    lines: Sequence[str]
    """Lines that would be deleted from the texts of its scope and of the sessions in it."""
    passages: int
    """How many other items would stay but lose the passage that they came from."""


@dataclass(frozen=True)
class Forgetting:
    """Deletes memories for people. Every method raises StoreUnavailable."""

    memories: MemoryAdmin
    naming: Naming

    async def item(self, name: str) -> ItemDetails:
        """Forget an item, and the lines of texts that mention it. Raises NotFound."""
        entry, kept, entries = await self._same(name)
        await self._forget(kept, entries)
        return entry

    async def scope(self, scope: Scope) -> bool:
        """Forget a scope; return whether it existed."""
        was_there = await self.memories.scopes.store.forget(scope)
        self.memories.scopes.forget(scope)
        return was_there

    async def own_scope(self, key: SessionKey, tenant: str) -> bool:
        """Forget a session's own scope; return whether it existed."""
        return await self.scope(self.naming.scope(ScopeKind.THREAD, tenant, key.tag, key.sid))

    async def session(self, key: SessionKey, tenant: str) -> int:
        """Forget what was learned from a session, in every scope; return the number of items forgotten."""
        name, forgotten = key.id_for(tenant), 0
        for kept in await self.memories.all(_EVERY_SCOPE):
            entries = [each for each in kept.entries if each.item.source.session == name]
            thread = await self.memories.scopes.store.thread(kept.scope, key)
            if kept.about.tenant == tenant and (entries or thread is not None):
                forgotten += len(entries)
                if kept.scope.kind is ScopeKind.THREAD:
                    await self.scope(kept.scope)
                else:
                    await self._forget(kept, entries, key)
        return forgotten

    async def person(self, name: str, tenant: str = "") -> int:
        """Forget a person's scope and what they said in other scopes; return the number of items forgotten.

        Raises NotFound, and InvalidType if several tenants have a person of this name.
        """
        found: list[tuple[ScopeDetails, list[ItemDetails], bool]] = []
        for kept in await self.memories.all(_EVERY_SCOPE):
            is_own = kept.scope.kind is ScopeKind.PERSON and kept.about.name == name
            entries = [each for each in kept.entries if is_own or each.item.source.name == name]
            if (is_own or entries) and tenant in ("", kept.about.tenant):
                found.append((kept, entries, is_own))
        tenants = sorted({kept.about.tenant for kept, *_ in found})
        if not tenants:
            raise NotFound("Nothing is remembered of such a person.")
        if len(tenants) > 1:
            raise InvalidType(f"Several tenants have such a person: {', '.join(tenants)}.", param="tenant")
        for kept, entries, is_own in found:
            if is_own:
                await self.scope(kept.scope)
            else:
                await self._forget(kept, entries, said_of=[name])
        return sum(len(entries) for _, entries, _ in found)

    async def preview(self, name: str) -> ForgetPreview:
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
        entry = await self.memories.item(name)
        kept = await self.memories.scope(entry.scope_id)
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
            await self.memories.scopes.change(
                kept.scope,
                lambda copy, some=some: decide(copy, some),
                self.memories.ttl(kept.scope, kept.about),
            )

    async def _deletion(
        self,
        kept: ScopeDetails,
        entries: Sequence[ItemDetails],
        session: SessionKey | None = None,
        said_of: Sequence[str] = (),
    ) -> tuple[Callable[[CachedScope, Sequence[ItemDetails]], Changes], Mapping[SessionKey, Thread]]:
        """Return a function that computes the changes to forget items, and the scope's session records.

        The changes also delete the passages that other items quote from the same messages.
        """
        known = await self.memories.scopes.store.threads(kept.scope, THREADS)
        gone = {each.item.id for each in entries}
        messages = {message for each in entries for message in each.item.source.messages}
        texts = [thread.texts for key, thread in known.items() if key == session]
        sayings = [*said_of]
        for each in entries:
            sayings += each.text, each.item.text, each.item.source.passage
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
            now, details = self.memories.clock.now(), "forgotten on request"
            events = [event_of(each.item, EventKind.DELETE, now, details=details) for each in some]
            return Changes(items=items, archive=archive, texts=texts, threads=threads, events=events)

        return decide, known


def _unquoted(item: Item) -> Item:
    """Return the item without the passage that it came from."""
    return replace(item, source=replace(item.source, passage=""))

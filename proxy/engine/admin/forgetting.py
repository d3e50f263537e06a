"""Forgetting: delete items, scopes, and what was learned from a session or about a person.

Forgetting removes every trace from the memory. Conversations, and the briefings at their start, belong to the
sessions and stay.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.memory.records import About, Archived, EventKind, Item, Scope, ScopeKind, Thread, event_of
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
    """Lines that would be deleted from the texts of its scope, of its sessions, and of its workspace."""
    passages: int
    """How many other items would stay but lose the passage that they came from."""


class _Deletion(NamedTuple):
    """What deletes items of a scope."""

    decide: Callable[[CachedScope, Sequence[ItemDetails]], Changes]
    """Computes the changes that delete some of them, with the lines about any of them."""
    threads: Mapping[SessionKey, Thread]
    """The scope's records of sessions as they are before."""
    sayings: Sequence[str]
    """What is to be forgotten, in words: lines of texts about any of it are deleted."""


@dataclass(frozen=True)
class Forgetting:
    """Deletes memories for people. Every method raises StoreUnavailable."""

    memories: MemoryAdmin
    naming: Naming

    async def item(self, name: str) -> ItemDetails:
        """Forget an item, and the lines of texts that mention it. Raises NotFound."""
        entry, kept, _ = await self._same(name)
        await self._forget(kept, lambda each: each.item.id == entry.item.id)
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

        def is_learned(entry: ItemDetails) -> bool:
            return entry.item.source.session == name

        for kept in await self.memories.all(_EVERY_SCOPE):
            entries = [each for each in kept.entries if is_learned(each)]
            thread = await self.memories.scopes.store.thread(kept.scope, key)
            if kept.about.tenant == tenant and (entries or thread is not None):
                if kept.scope.kind is ScopeKind.THREAD:
                    forgotten += len(entries)
                    await self.scope(kept.scope)
                else:
                    forgotten += await self._forget(kept, is_learned, key)
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
        forgotten = 0
        for kept, entries, is_own in found:
            if is_own:
                forgotten += len(entries)
                await self.scope(kept.scope)
            else:
                forgotten += await self._forget(
                    kept, lambda each: each.item.source.name == name, said_of=[name]
                )
        return forgotten

    async def preview(self, name: str) -> ForgetPreview:
        """Return what forgetting an item would delete. Raises NotFound."""
        entry, kept, entries = await self._same(name)
        deletion = await self._deletion(kept, entries)
        lines, changes = self._lines(kept, deletion), deletion.decide(kept.copy, entries)
        if (above := await self._above(kept)) is not None:
            lines += self._lines(above, await self._deletion(above, (), said_of=deletion.sayings))
        passages = sum(item is not None for item in changes.items.values())
        return ForgetPreview(entry, [*dict.fromkeys(lines)], passages)

    def _lines(self, kept: ScopeDetails, deletion: _Deletion) -> list[str]:
        """Return the lines that would be deleted from the texts of a scope and of the sessions in it."""
        changes = deletion.decide(kept.copy, ())
        before = [kept.copy.texts, *(thread.texts for thread in deletion.threads.values())]
        after = [changes.texts or kept.copy.texts]
        after += [(changes.threads.get(key) or thread).texts for key, thread in deletion.threads.items()]
        return [
            line
            for one, other in zip(before, after, strict=True)
            for text, left in ((one.long, other.long), (one.short, other.short))
            for line in text.splitlines()
            if line not in left.splitlines()
        ]

    async def _same(self, name: str) -> tuple[ItemDetails, ScopeDetails, Sequence[ItemDetails]]:
        """Return an item, its scope, and all records of it there: it may have been archived before."""
        entry = await self.memories.item(name)
        kept = await self.memories.scope(entry.scope_id)
        return entry, kept, [each for each in kept.entries if each.item.id == entry.item.id]

    async def _above(self, kept: ScopeDetails) -> ScopeDetails | None:
        """Return the workspace of a channel, whose texts are merged from the channel's."""
        tag = kept.about.workspace
        return await self.memories.kept(Scope(ScopeKind.WORKSPACE, tag)) if tag else None

    async def _forget(
        self,
        kept: ScopeDetails,
        is_meant: Callable[[ItemDetails], bool],
        session: SessionKey | None = None,
        said_of: Sequence[str] = (),
    ) -> int:
        """Delete items of a scope, the lines of texts about them, and its record of a session.

        Returns the number of items deleted.
        """
        change, ttl = self.memories.scopes.change, self.memories.ttl(kept.scope, kept.about)
        # Runs under way then write nothing: what is read after this is all that there is to forget.
        await change(kept.scope, lambda copy: Changes(about=self._marked(copy)) if copy.about else None, ttl)
        present = await self.memories.kept(kept.scope)
        if present is None:
            return 0
        entries = [each for each in present.entries if is_meant(each)]
        deletion = await self._deletion(present, entries, session, said_of)
        for first in range(0, max(len(entries), 1), _STEP):
            some = entries[first : first + _STEP]
            await change(kept.scope, lambda copy, some=some: deletion.decide(copy, some), ttl)
        if (above := await self._above(present)) is not None:
            await self._forget(above, lambda _: False, said_of=deletion.sayings)
        return len(entries)

    def _marked(self, copy: CachedScope) -> About | None:
        """Return a scope's record about itself, from which runs see that something is forgotten."""
        return copy.about and replace(copy.about, since=self.memories.clock.now())

    async def _deletion(
        self,
        kept: ScopeDetails,
        entries: Sequence[ItemDetails],
        session: SessionKey | None = None,
        said_of: Sequence[str] = (),
    ) -> _Deletion:
        """Return what deletes these items, and the passages that others quote from the same messages."""
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
            return Changes(
                about=self._marked(copy),  # again, for runs that began meanwhile
                items=items,
                archive=archive,
                texts=texts,
                threads=threads,
                events=events,
            )

        return _Deletion(decide, known, sayings)


def _unquoted(item: Item) -> Item:
    """Return the item without the passage that it came from."""
    return replace(item, source=replace(item.source, passage=""))

"""Forgetting: delete items, scopes, and what was learned from a session or about a person.

Forgetting removes every trace from the memory. Conversations, and the briefings at their start, belong to the
sessions and stay.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.memory.records import About, Archived, EventKind, Item, Scope, ScopeKind, Thread, event_of
from proxy.core.memory.texts import without
from proxy.core.memory.utterances import FORMER_NAME, shown_name
from proxy.engine.admin.memories import ItemDetails, MemoryAdmin, ScopeDetails
from proxy.engine.intake.naming import Naming
from proxy.engine.memory.scope_cache import CachedScope
from proxy.errors import InvalidType, NotFound
from proxy.ports import Changes, SessionKey, UnreadableRecord
from proxy.ports.memory_store import THREADS

_EVERY_SCOPE = 100_000
"""How many scopes are searched for a session or a person that is to be forgotten."""
_STEP = 100
"""How many items are written in one step."""


class Forgotten(NamedTuple):
    """What was forgotten of a session or a person."""

    items: int
    is_known: bool = True
    """Whether anything was remembered."""
    unread: int = 0
    """How many scopes were left as they are: they cannot be read, or the workspace above them cannot."""


class ForgetPreview(NamedTuple):
    """What forgetting an item would delete."""

    entry: ItemDetails
    lines: Sequence[str]
    """Lines that would be deleted from the texts of its scope, of its sessions, and of its workspace."""
    passages: int
    """How many other items would stay but lose the passage that they came from."""


@dataclass(frozen=True)
class _Deletion:
    """What deletes items of a scope, lines of texts about them, and passages that others quote of them."""

    kept: ScopeDetails
    entries: Sequence[ItemDetails]
    known: Mapping[SessionKey, Thread]
    """The scope's records of sessions as they are before."""
    sessions: Collection[SessionKey] = ()
    """The sessions whose records go too."""
    extra_phrases: Sequence[str] = ()
    """What else is to be forgotten, in words: a person's name, or what is said of something in a channel."""

    @cached_property
    def phrases(self) -> Sequence[str]:
        """What is to be forgotten, in words: lines of texts about any of it are deleted."""
        phrases = [*self.extra_phrases]
        for each in self.entries:
            phrases += each.text, each.item.text, each.item.source.passage
        texts = [thread.texts for key, thread in self.known.items() if key in self.sessions]
        return phrases + [line for each in texts for line in f"{each.long}\n{each.short}".splitlines()]

    @cached_property
    def _messages(self) -> frozenset[bytes]:
        return frozenset(message for each in self.entries for message in each.item.source.messages)

    def changes(self, copy: CachedScope, some: Sequence[ItemDetails], now: float) -> Changes:
        """Return the changes that delete some of the entries, with the lines about any of them."""
        gone = {each.item.id for each in self.entries}
        items: dict[str, Item | None] = {
            each.id: _unquoted(each)
            for each in copy.items.values()
            if each.source.passage
            and each.id not in gone
            and not self._messages.isdisjoint(each.source.messages)
        }
        items |= {each.item.id: None for each in some}
        archive: dict[str, Archived | None] = {
            each.id: replace(each, original_content=each.item.text, item=_unquoted(each.item))
            for each in self.kept.archive.values()
            if not self._messages.isdisjoint(each.item.source.messages)
        }
        archive |= {each.archived.id: None for each in self.entries if each.archived is not None}
        threads: dict[SessionKey, Thread | None] = {
            key: replace(thread, texts=of_session)
            for key, thread in self.known.items()
            if (of_session := without(thread.texts, self.phrases)) != thread.texts
        }
        left = without(copy.texts, self.phrases)
        events = [event_of(each.item, EventKind.DELETE, now, details="forgotten on request") for each in some]
        return Changes(
            about=_marked(copy, now, self.sessions),  # again, for runs that began meanwhile
            items=items,
            archive=archive,
            texts=None if left == copy.texts else left,
            threads=threads | dict.fromkeys(self.sessions),
            events=events,
        )

    def lines(self, changes: Changes) -> list[str]:
        """Return the lines that the changes delete from the texts of the scope and of the sessions in it."""
        before = [self.kept.copy.texts, *(thread.texts for thread in self.known.values())]
        after = [changes.texts or self.kept.copy.texts]
        after += [(changes.threads.get(key) or thread).texts for key, thread in self.known.items()]
        return [
            line
            for one, other in zip(before, after, strict=True)
            for text, left in ((one.long, other.long), (one.short, other.short))
            for line in text.splitlines()
            if line not in left.splitlines()
        ]


@dataclass(frozen=True)
class Forgetting:
    """Deletes memories for people. Every method raises StoreUnavailable."""

    memories: MemoryAdmin
    naming: Naming

    async def item(self, name: str) -> ItemDetails:
        """Forget an item, and the lines of texts that mention it. Raises NotFound."""
        entry = await self.memories.item(name)
        await self._forget(entry.scope_details, lambda each: each.item.id == entry.item.id)
        return entry

    async def scope(self, scope: Scope) -> bool:
        """Forget a scope, and of a channel the lines of its workspace's texts; return whether it existed."""
        deletion = None
        if scope.kind is ScopeKind.CHANNEL:
            with suppress(UnreadableRecord):  # then nobody can say which lines tell of it
                deletion = await self._of_all(scope)
        if deletion is not None:
            await self._forget_above(deletion)  # first: who asks again after a fault finds the words no more
        with suppress(UnreadableRecord):  # a newer release's, say: it is forgotten all the same
            about = (await self.memories.scopes.remembered(scope)).about
            if about is not None and about.former:  # what an interrupted move left there would be moved again
                await self.memories.scopes.store.forget(scope._replace(tag=about.former))
        was_there = await self.memories.scopes.store.forget(scope)
        self.memories.scopes.forget(scope)
        if deletion is not None:
            await self._forget_above(deletion)  # again: the workspace may have been merged meanwhile
        return was_there

    async def _of_all(self, scope: Scope) -> _Deletion | None:
        """Return what deletes all that there is in a scope; None if there is nothing."""
        kept = await self.memories.read_scope(scope)
        if kept is None:
            return None
        known, texts = await self._known(kept), kept.copy.texts
        said = [*texts.long.splitlines(), *texts.short.splitlines()]
        return _Deletion(kept, kept.entries, known, sessions=known, extra_phrases=said)

    async def own_scope(self, key: SessionKey, tenant: str) -> bool:
        """Forget a session's own scope; return whether it existed."""
        return await self.scope(self.naming.scope(ScopeKind.THREAD, tenant, key.tag, key.sid))

    async def session(self, names: Mapping[SessionKey, str]) -> Forgotten:
        """Forget what was learned from a session, in every scope that can be read.

        ``names`` are the keys that the session has, and had before the secret was rotated, each with its
        tenant.
        """
        ids = {key.id_for(tenant) for key, tenant in names.items()}
        items, is_known = 0, False
        every = await self.memories.all(_EVERY_SCOPE)
        unread = len(every.unread)
        for kept in every.scopes:
            try:
                threads = await self._threads_in(kept, names)
                if threads is None:
                    continue
                is_known = True
                if kept.scope.kind is ScopeKind.THREAD:
                    await self.scope(kept.scope)
                    items += len(kept.entries)
                else:
                    items += await self._forget(kept, lambda each: each.item.source.session in ids, threads)
            except UnreadableRecord:
                unread += 1
        return Forgotten(items, is_known, unread)

    async def remembered_as(self, headers: Collection[str]) -> tuple[dict[SessionKey, str], int]:
        """Return the sessions of a name of which anything is remembered, stored or not, with their tenants.

        ``headers`` are the forms that the name may have in a header. Also returns how many scopes cannot be
        read.
        """
        found, every = dict[SessionKey, str](), await self.memories.all(_EVERY_SCOPE)
        unread = len(every.unread)
        for kept in every.scopes:
            tenant = kept.about.tenant
            names = {self.naming.named(tenant, header): tenant for header in headers}
            try:
                for key in names:
                    if await self._threads_in(kept, {key: tenant}) is not None:
                        found[key] = tenant
            except UnreadableRecord:
                unread += 1
        return found, unread

    async def _threads_in(
        self, kept: ScopeDetails, names: Mapping[SessionKey, str]
    ) -> list[SessionKey] | None:
        """Return those keys of a session under which a scope has a record of it, or has yet to merge it.

        None if the scope has none, and no items of the session either.
        """
        ids, unmerged = {key.id_for(tenant) for key, tenant in names.items()}, kept.about.unmerged
        thread = self.memories.scopes.store.thread
        threads = [
            key
            for key, tenant in names.items()
            if key.id_for(tenant) in unmerged or await thread(kept.scope, key)
        ]
        is_known = threads or any(each.item.source.session in ids for each in kept.entries)
        return threads if is_known else None

    async def person(self, name: str, tenant: str = "") -> Forgotten:
        """Forget a person's scope and what they said in other scopes, in all that can be read.

        Raises NotFound, and InvalidType if several tenants have a person of this name.
        """
        former = shown_name(name, FORMER_NAME)
        found: list[tuple[ScopeDetails, list[ItemDetails], bool]] = []

        def is_theirs(entry: ItemDetails) -> bool:
            source = entry.item.source
            is_former = bool(former) and not source.person and source.name == former
            return source.speaker == name or is_former

        every = await self.memories.all(_EVERY_SCOPE)
        for kept in every.scopes:
            is_own = kept.scope.kind is ScopeKind.PERSON and kept.about.name == name
            entries = [each for each in kept.entries if is_own or is_theirs(each)]
            if (is_own or entries) and tenant in ("", kept.about.tenant):
                found.append((kept, entries, is_own))
        tenants = sorted({kept.about.tenant for kept, *_ in found})
        if not tenants:
            raise NotFound(f"Nothing is remembered of such a person.{cannot_be_read(len(every.unread))}")
        if len(tenants) > 1:
            said = f"Several tenants have such a person: {', '.join(tenants)}. Name one as `tenant`."
            raise InvalidType(said, param="tenant")
        forgotten, unread = 0, len(every.unread)
        for kept, entries, is_own in found:
            try:
                if is_own:
                    await self.scope(kept.scope)
                    forgotten += len(entries)
                else:
                    forgotten += await self._forget(kept, is_theirs, extra_phrases=[name])
            except UnreadableRecord:
                unread += 1
        return Forgotten(forgotten, unread=unread)

    async def preview(self, name: str) -> ForgetPreview:
        """Return what forgetting an item would delete. Raises NotFound."""
        entry = await self.memories.item(name)
        kept = entry.scope_details
        entries = [each for each in kept.entries if each.item.id == entry.item.id]  # archived before, too
        now, deletion = self.memories.clock.now(), _Deletion(kept, entries, await self._known(kept))
        changes = deletion.changes(kept.copy, entries, now)
        lines = deletion.lines(changes)
        if (above := await self._above(kept)) is not None:
            of_above = _Deletion(above, (), await self._known(above), extra_phrases=deletion.phrases)
            lines += of_above.lines(of_above.changes(above.copy, (), now))
        passages = sum(item is not None for item in changes.items.values())
        return ForgetPreview(entry, [*dict.fromkeys(lines)], passages)

    async def _above(self, kept: ScopeDetails) -> ScopeDetails | None:
        """Return the workspace of a channel, whose texts are merged from the channel's."""
        tag = kept.about.workspace
        return await self.memories.read_scope(Scope(ScopeKind.WORKSPACE, tag)) if tag else None

    async def _forget(
        self,
        kept: ScopeDetails,
        is_meant: Callable[[ItemDetails], bool],
        sessions: Collection[SessionKey] = (),
        extra_phrases: Sequence[str] = (),
    ) -> int:
        """Delete items of a scope, the lines of texts about them, and its records of sessions.

        Returns the number of items deleted.
        """
        change, now = self.memories.scopes.change, self.memories.clock.now
        # Runs under way then write nothing: what is read after this is all that there is to forget.
        await change(kept.scope, lambda copy: Changes(about=_marked(copy, now())) if copy.about else None)
        present = await self.memories.read_scope(kept.scope)
        if present is None:
            return 0
        entries = [each for each in present.entries if is_meant(each)]
        deletion = _Deletion(present, entries, await self._known(present), sessions, extra_phrases)
        await self._forget_above(deletion)  # first: who asks again after a fault finds these items no more
        for first in range(0, max(len(entries), 1), _STEP):
            some = entries[first : first + _STEP]
            await change(kept.scope, lambda copy, some=some: deletion.changes(copy, some, now()))
        await self._forget_above(deletion)  # again: the workspace may have been merged meanwhile
        return len(entries)

    async def _forget_above(self, deletion: _Deletion) -> None:
        if (above := await self._above(deletion.kept)) is not None:
            await self._forget(above, lambda _: False, extra_phrases=deletion.phrases)

    async def _known(self, kept: ScopeDetails) -> Mapping[SessionKey, Thread]:
        return await self.memories.scopes.store.threads(kept.scope, THREADS)


def cannot_be_read(count: int) -> str:
    """Return a sentence, with a space before it, about memories that were not searched; empty for none."""
    return f" {count} of the memories cannot be read." if count else ""


def _marked(copy: CachedScope, now: float, sessions: Collection[SessionKey] = ()) -> About | None:
    """Return a scope's record about itself, from which runs see that something is forgotten.

    It tells of these sessions no more.
    """
    if copy.about is None:
        return None
    unmerged = copy.about.unmerged.items()
    left = {name: tips for name, tips in unmerged if SessionKey.of_id(name) not in sessions}
    return replace(copy.about, since=now, unmerged=left)


def _unquoted(item: Item) -> Item:
    """Return the item without the passage that it came from."""
    return replace(item, source=replace(item.source, passage=""))

"""Upkeep of one scope: scores as of now, what is too weak put away, and what was kept long enough deleted."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.memory.archive import Due, archived, due, expired
from proxy.core.memory.life import rescored
from proxy.core.memory.records import Archived, Event, Item, Scope
from proxy.core.policy.sections import Memory
from proxy.engine.memory.asking import FAILURES, MemoryQuestions, Reader, log_failure
from proxy.engine.memory.scopes import CachedScope, Scopes
from proxy.ports import Changes, Clock
from proxy.ports.memory_store import THREADS

_STEP = 100
"""Items that one step writes: it holds the store up."""
_AT_A_TIME = 8
"""Items that are compressed beside each other."""


@dataclass(frozen=True)
class Upkeep:
    """Keeps scopes. Every method raises StoreUnavailable, and tells how many items it was about."""

    scopes: Scopes
    questions: MemoryQuestions
    clock: Clock

    async def rescore(self, scope: Scope, rules: Memory, ttl: float | None) -> int:
        """Replace every score by what it is now."""
        now, copy = self.clock.now(), await self.scopes.remembered(scope)
        fading = [item.id for item in copy.items.values() if rescored(item, now, rules.low)[1]]

        def decide(copy: CachedScope, names: Sequence[str]) -> Changes | None:
            items, events = dict[str, Item](), list[Event]()
            for item in filter(None, map(copy.items.get, names)):
                after, event = rescored(item, now, rules.low)
                if event is not None:
                    items[item.id] = after
                    events.append(event)
            return Changes(items=items, events=events) if items else None

        for first in range(0, len(fading), _STEP):
            names = fading[first : first + _STEP]
            await self.scopes.change(scope, lambda copy, names=names: decide(copy, names), ttl)
        return len(fading)

    async def put_away(self, scope: Scope, rules: Memory, ttl: float | None, reader: Reader | None) -> int:
        """Compress and archive what has faded, and what there is no room for.

        Without a ``reader`` what a model would have to compress stays; so does what it does not compress.
        """
        copy = await self.scopes.remembered(scope)
        found = due(copy.items.values(), rules)
        if reader is None:
            found = [each for each in found if not each.needs_model]
        room = asyncio.Semaphore(_AT_A_TIME)
        compressed = await asyncio.gather(*(self._compressed(each, room, reader) for each in found))
        ready = [(each, text) for each, text in zip(found, compressed, strict=True) if text is not None]

        def decide(copy: CachedScope, some: Sequence[tuple[Due, str]]) -> Changes | None:
            now, records, events = self.clock.now(), dict[str, Archived](), list[Event]()
            for each, text in some:
                if copy.items.get(each.item.id) == each.item:  # else it was used meanwhile, or is gone
                    record, told = archived(each, scope.tag, now, rules, text or None)
                    records[record.id] = record
                    events += told
            gone = {record.original_memory_id: None for record in records.values()}
            return Changes(items=gone, archive=records, events=events) if records else None

        for first in range(0, len(ready), _STEP):
            some = ready[first : first + _STEP]
            await self.scopes.change(scope, lambda copy, some=some: decide(copy, some), ttl)
        return len(ready)

    async def _compressed(self, each: Due, room: asyncio.Semaphore, reader: Reader | None) -> str | None:
        """What takes an item's place; empty where it stays as it is, None where there is nothing yet."""
        if reader is None or not each.needs_model:
            return ""
        try:
            async with room:
                return await self.questions.compression(reader, each.content)
        except FAILURES as failure:
            log_failure("an item was not compressed", failure)
            return None

    async def forget_ended(self, scope: Scope, life: float, ttl: float | None) -> int:
        """Forget the threads of sessions that have ended: without a turn for their ``life`` (seconds)."""
        threads, ended = await self.scopes.store.threads(scope, THREADS), self.clock.now() - life
        names = [session for session, thread in threads.items() if thread.updated < ended]
        if names:
            await self.scopes.change(scope, lambda _: Changes(threads=dict.fromkeys(names)), ttl)
        return len(names)

    async def delete_expired(self, scope: Scope, rules: Memory, ttl: float | None) -> int:
        """Delete what was archived for as long as its policy had said, or has no room any more."""
        archive, now = await self.scopes.store.archive(scope), self.clock.now()
        names, events = expired(archive, now, rules.capacity)

        def decide(_: CachedScope, first: int) -> Changes:
            some = names[first : first + _STEP]
            return Changes(archive=dict.fromkeys(some), events=events[first : first + _STEP])

        for first in range(0, len(names), _STEP):
            await self.scopes.change(scope, lambda copy, first=first: decide(copy, first), ttl)
        return len(names)

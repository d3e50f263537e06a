"""Items for tests of memory, the time at which they were created, and what people may do with memories."""

from __future__ import annotations

from typing import Any

from proxy.adapters.search import SqliteSearch
from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.in_process_memories import InProcessMemories
from proxy.adapters.stores.redis import RedisStore
from proxy.cache import CacheMemory
from proxy.core.dialects.registry import DIALECTS
from proxy.core.memory.records import Item, Kind, Scope, Source, Trust
from proxy.core.policy.policy import Policy
from proxy.engine.admin.forgetting import Forgetting
from proxy.engine.admin.memories import MemoryAdmin
from proxy.engine.background import Background
from proxy.engine.intake.naming import Naming
from proxy.engine.memory.conversations import Conversations
from proxy.engine.memory.reader import MemoryReader
from proxy.engine.memory.scope_cache import ScopeCache
from proxy.ports import ScopeSnapshot, UnreadableRecord
from tests.support.stores import HandClock
from tests.support.upstreams import COUNTER

NOW = 1_767_225_600.0
"""2026-01-01, 00:00 UTC."""
DAY = 86_400.0


class PartlyUnread(InProcessMemories):
    """Memories of which these cannot be read, as after the secret was rotated."""

    def __init__(self, clock: HandClock, *unread: Scope) -> None:
        super().__init__(clock)
        self.unread = unread

    async def remembered(self, scope: Scope, since: int = 0) -> ScopeSnapshot:
        if scope in self.unread:
            raise UnreadableRecord
        return await super().remembered(scope, since)


def an_item(text: str = "Ana lives in Oslo.", **members: Any) -> Item:
    """Return an item that a user stated, created at :data:`NOW`; its id is its text if none is given."""
    said: dict[str, Any] = {
        "id": text,
        "text": text,
        "kind": Kind.FACT,
        "trust": Trust.USER,
        "source": Source(session="s1", messages=(b"m1",), role="user", at=NOW, passage=text),
        "last_accessed_at": NOW,
        "decay_applied_at": NOW,
        "created_at": NOW,
    }
    return Item(**{**said, **members})


def forgetting_in(store: InProcessStore | RedisStore, clock: HandClock) -> Forgetting:
    """Return what forgets memories of this store for people; its ``memories`` are looked at and restored."""
    memory = CacheMemory(1 << 20)
    naming, scopes, search = Naming("s", memory), ScopeCache(store.memories, memory), SqliteSearch()
    sources = Conversations(store, DIALECTS, memory)
    reading = MemoryReader(naming, scopes, search, COUNTER, clock, Background(), sources)
    return Forgetting(MemoryAdmin(scopes, search, reading, clock, lambda _: Policy()), naming)

"""Memory scopes for tests, and helpers that write and read them."""

from __future__ import annotations

from typing import Any

from proxy.core.memory.records import (
    About,
    Archived,
    ArchiveReason,
    Event,
    EventKind,
    Item,
    Scope,
    ScopeKind,
)
from proxy.ports import Changes, MemoryStore, SessionKey
from tests.support.memories import an_item

CHANNEL = Scope(ScopeKind.CHANNEL, "c1")
OTHER = Scope(ScopeKind.CHANNEL, "c2")
WORKSPACE = Scope(ScopeKind.WORKSPACE, "w1")
PERSON = Scope(ScopeKind.PERSON, "p1")
THREAD = Scope(ScopeKind.THREAD, "t1")
ABOUT = About(tenant="t", name="general", workspace=WORKSPACE.tag, model="m")
ALONE = About(tenant="t")
ONE, TWO, THREE = (SessionKey(tag, "named") for tag in ("a1", "a2", "a3"))


def item(name: str, text: str = "The deadline is Friday.", **members: Any) -> Item:
    return an_item(text, id=name, **members)


def items(*names: str) -> dict[str, Item | None]:
    return {name: item(name) for name in names}


def archived(name: str) -> Archived:
    return Archived(
        id=f"x{name}",
        scope=CHANNEL.tag,
        created_at=5.0,
        original_memory_id=name,
        original_content="long",
        compressed_summary="short",
        compression_method="model",
        compressed_at=9.0,
        original_size_bytes=4,
        compressed_size_bytes=5,
        compression_ratio=-0.25,
        final_importance_score=0.2,
        archive_reason=ArchiveReason.LOW_IMPORTANCE,
        retention_until=None,
        item=item(name),
    )


def event(name: str, kind: EventKind = EventKind.USE, at: float = 1.0, **members: Any) -> Event:
    return Event(kind=kind, item=name, at=at, **members)


async def written(memories: MemoryStore, scope: Scope = CHANNEL, **changes: Any) -> int:
    """Change a scope, and return its version; fails if it was changed by others meanwhile."""
    seen = (await memories.remembered(scope)).version
    version = await memories.change(scope, Changes(**changes), seen)
    assert version > seen
    return version


async def everything(memories: MemoryStore, scope: Scope) -> None:
    """Make every call of a memory store; at the end nothing is left."""
    await memories.note(scope, ONE, 1.0, ABOUT)
    seen = (await memories.remembered(scope)).version
    written = await memories.change(scope, Changes(items=items("i1"), about=ABOUT), seen)
    assert (await memories.remembered(scope, written)).version == written
    assert list(await memories.threads(scope, 1)) == [ONE]
    assert await memories.forget(scope)

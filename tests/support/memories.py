"""Items for tests of memory, and the time at which they were created."""

from __future__ import annotations

from typing import Any

from proxy.core.memory.records import Item, Kind, Source, Trust

NOW = 1_767_225_600.0
"""2026-01-01, 00:00 UTC."""
DAY = 86_400.0


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

"""Moves from an old secret's names to a new one's, for tests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proxy.adapters.stores.redis.cluster import Word
from proxy.adapters.stores.redis.scripts import Scripts
from proxy.ports import SessionKey


def before_the_old_is_deleted(
    monkeypatch: pytest.MonkeyPatch, write: Callable[[], Awaitable[object]]
) -> None:
    """Let others write once what is moved stands under both names."""
    run, has_begun = Scripts.of_session, False

    async def running(self: Scripts, name: str, key: SessionKey, *arguments: Word) -> Any:
        nonlocal has_begun
        if name == "remove" and not has_begun:
            has_begun = True
            await write()
        return await run(self, name, key, *arguments)

    monkeypatch.setattr(Scripts, "of_session", running)

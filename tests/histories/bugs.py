"""Stores with one plausible bug each; the oracle must find every one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, cast

from msgspec.structs import replace

from proxy.core.conversation.records import Node, Turn
from proxy.ports import Recorded, SessionKey, SessionStore


class Bug:
    """A correct store; its subclasses have bugs."""

    def __init__(self, store: SessionStore) -> None:
        self.store = store
        self.turns = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    @classmethod
    def plant(cls, store: SessionStore) -> SessionStore:
        """Return the store with the bug."""
        return cast("SessionStore", cls(store))

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        """Write a turn, correctly or with the bug."""
        self.turns += 1
        return await self.store.record(key, turn, ttl)


class WritesTwice(Bug):
    """Each fourth turn is written twice: a repeated write that is not recognised."""

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        recorded = await super().record(key, turn, ttl)
        if self.turns % 4 == 0 and turn.advances_tip:
            nodes = _chained(turn.nodes[-1].hash, turn.nodes)
            session = replace(turn.session, tip=nodes[-1].hash)
            await self.store.record(
                key, replace(turn, session=session, nodes=nodes, begun_at=nodes[0].parent), ttl
            )
        return recorded


class LosesTurns(Bug):
    """Each fourth turn is acknowledged but not written."""

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        if self.turns % 4 == 3:
            self.turns += 1
            return Recorded.KEPT
        return await super().record(key, turn, ttl)


class Interleaves(Bug):
    """Earlier messages are written again between a question and its answer."""

    def __init__(self, store: SessionStore) -> None:
        super().__init__(store)
        self._before: dict[SessionKey, tuple[Node, ...]] = {}

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        other = self._before.get(key, ())
        if turn.nodes and turn.advances_tip:
            self._before[key] = turn.nodes
        if other and turn.advances_tip:
            *asked, answer = turn.nodes
            nodes = _chained(asked[0].parent if asked else answer.parent, [*asked, *other[:1], answer])
            turn = replace(turn, session=replace(turn.session, tip=nodes[-1].hash), nodes=nodes)
        return await super().record(key, turn, ttl)


class TakesPartsForAnswers(Bug):
    """An answer that was cut off is stored as if it were complete."""

    async def record(self, key: SessionKey, turn: Turn, ttl: float) -> Recorded:
        if turn.nodes and turn.nodes[-1].answer:
            nodes = (*turn.nodes[:-1], replace(turn.nodes[-1], complete=True))
            turn = replace(turn, nodes=nodes, advances_tip=True)
        return await super().record(key, turn, ttl)


def _chained(after: bytes, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the same messages at another place, with the chain hashes of that place."""
    chained: list[Node] = []
    for node in nodes:
        place = hashlib.sha256(after + node.hash).digest()
        chained.append(replace(node, hash=place, parent=after))
        after = place
    return tuple(chained)

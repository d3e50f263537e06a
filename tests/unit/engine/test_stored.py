"""Histories that are read once: what is joined, what is asked for, and what is let go."""

from __future__ import annotations

import asyncio

import pytest

from proxy.adapters.memory import MemoryStore
from proxy.adapters.through import Through
from proxy.core.records import Node
from proxy.engine.stored import StoredHistories, StoredHistory
from proxy.errors import HistoryUnavailable, StoreUnavailable
from proxy.lru import Memory
from proxy.ports import Mark, SessionKey, Stored
from tests.stores import DAY, KEY, HandClock, chain, nodes, turn


class Asked(Through):
    """A store that notes how many messages each answer had."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(HandClock()))
        self.told: list[int] = []
        self.is_away = False

    async def history(self, key: SessionKey, since: Mark | None = None) -> Stored:
        await asyncio.sleep(0)
        if self.is_away:
            raise StoreUnavailable
        stored = await super().history(key, since)
        self.told.append(len(stored.nodes))
        return stored


def joined(*names: str) -> bytes:
    return b",".join(node.raw for node in nodes(*names))


def way(history: StoredHistory, *names: str) -> bytes:
    return bytes(history.way(chain(*names)[-1])[1])


class TestReading:
    async def test_each_message_is_read_once(self) -> None:
        store = Asked()
        histories = StoredHistories(store, Memory())
        names: list[str] = []
        for number in range(4):
            names += [f"u{number}", f"a{number}"]
            await store.record(KEY, turn(*names, known=2 * number), DAY)
            history = await histories.read(KEY)
            assert way(history, *names) == joined(*names)
        assert store.told == [2, 2, 2, 2]

    async def test_two_who_read_at_once_have_both_the_whole(self) -> None:
        store = Asked()
        histories = StoredHistories(store, Memory())
        await store.record(KEY, turn("u1", "a1"), DAY)
        await histories.read(KEY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        for history in await asyncio.gather(histories.read(KEY), histories.read(KEY)):
            assert way(history, "u1", "a1", "u2", "a2") == joined("u1", "a1", "u2", "a2")
        assert sorted(store.told[1:]) == [2, 4]

    async def test_after_a_fault_it_is_read_whole(self) -> None:
        store = Asked()
        histories = StoredHistories(store, Memory())
        await store.record(KEY, turn("u1", "a1"), DAY)
        await histories.read(KEY)
        store.is_away = True
        with pytest.raises(StoreUnavailable):
            await histories.read(KEY)
        store.is_away = False
        assert way(await histories.read(KEY), "u1", "a1") == joined("u1", "a1")

    async def test_those_used_longest_ago_are_let_go(self) -> None:
        store = Asked()
        histories = StoredHistories(store, Memory(20_000))
        keys = [SessionKey(KEY.tag, f"{number}") for number in range(20)]
        for key in keys:
            await store.record(key, turn("u1", "a1"), DAY)
            await histories.read(key)
            await histories.read(keys[0])
        assert store.told == [2, 0] * 20, "one in use is not read again"
        await histories.read(keys[-2])
        await histories.read(keys[1])
        assert store.told[40:] == [0, 2]

    async def test_what_has_ended_is_not_held(self) -> None:
        store = Asked()
        histories = StoredHistories(store, Memory())
        await store.record(KEY, turn("u1", "a1"), DAY)
        await histories.read(KEY)
        await store.delete(KEY)
        history = await histories.read(KEY)
        assert (history.session, history.was_here, dict(history.nodes)) == (None, True, {})


class TestWays:
    def test_a_way_goes_on_from_the_one_before(self) -> None:
        history = history_of(*nodes("u1", "a1", "u2", "a2"))
        assert way(history, "u1", "a1") == joined("u1", "a1")
        assert way(history, "u1", "a1", "u2", "a2") == joined("u1", "a1", "u2", "a2")

    def test_a_way_may_go_back_and_aside(self) -> None:
        history = history_of(*nodes("u1", "a1", "u2", "a2"), *nodes("u1", "a1", "v2", known=2))
        for names in (
            ("u1", "a1", "u2", "a2"),
            ("u1", "a1"),
            ("u1", "a1", "v2"),
            ("u1", "a1", "u2"),
            ("u1", "a1", "u2"),
        ):
            assert way(history, *names) == joined(*names)

    def test_before_anything_was_answered_there_is_none(self) -> None:
        assert history_of(*nodes("u1")).way(b"") == (b"", b"")

    @pytest.mark.parametrize("missing", [0, 1, 2])
    def test_there_is_no_way_over_a_hole(self, missing: int) -> None:
        told = nodes("u1", "a1", "u2")
        history = history_of(*told[:missing], *told[missing + 1 :])
        with pytest.raises(HistoryUnavailable):
            history.way(chain("u1", "a1", "u2")[-1])


def history_of(*told: Node) -> StoredHistory:
    return StoredHistory(Stored(nodes={node.hash: node for node in told}))

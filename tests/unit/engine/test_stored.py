"""Histories that are read once: what is joined, what is asked for, and what is let go."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from proxy.adapters.stores.in_process import InProcessStore
from proxy.cache import CacheMemory
from proxy.core.conversation.records import Node
from proxy.core.dialects.answers import Reply
from proxy.core.dialects.registry import CHAT
from proxy.engine.append.append import StoredHistories, StoredHistory
from proxy.errors import HistoryUnavailable, StoreUnavailable
from proxy.ports import Mark, SessionKey, Stored
from tests.support.stores import DAY, KEY, HandClock, chain, nodes, turn


class Asked(InProcessStore):
    """A store that notes how many messages each answer had."""

    def __init__(self) -> None:
        super().__init__(HandClock())
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
        histories = StoredHistories(store, CHAT, CacheMemory())
        names: list[str] = []
        for number in range(4):
            names += [f"u{number}", f"a{number}"]
            await store.record(KEY, turn(*names, known=2 * number), DAY)
            history = await histories.read(KEY)
            assert way(history, *names) == joined(*names)
        assert store.told == [2, 2, 2, 2]

    async def test_two_who_read_at_once_have_both_the_whole(self) -> None:
        store = Asked()
        histories = StoredHistories(store, CHAT, CacheMemory())
        await store.record(KEY, turn("u1", "a1"), DAY)
        await histories.read(KEY)
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        for history in await asyncio.gather(histories.read(KEY), histories.read(KEY)):
            assert way(history, "u1", "a1", "u2", "a2") == joined("u1", "a1", "u2", "a2")
        assert sorted(store.told[1:]) == [2, 4]

    async def test_after_a_fault_it_is_read_whole(self) -> None:
        store = Asked()
        histories = StoredHistories(store, CHAT, CacheMemory())
        await store.record(KEY, turn("u1", "a1"), DAY)
        await histories.read(KEY)
        store.is_away = True
        with pytest.raises(StoreUnavailable):
            await histories.read(KEY)
        store.is_away = False
        assert way(await histories.read(KEY), "u1", "a1") == joined("u1", "a1")

    async def test_those_used_longest_ago_are_let_go(self) -> None:
        store = Asked()
        histories = StoredHistories(store, CHAT, CacheMemory(20_000))
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
        histories = StoredHistories(store, CHAT, CacheMemory())
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
    return StoredHistory(Stored(nodes={node.hash: node for node in told}), CHAT)


def keyed(turns: int) -> StoredHistory:
    """A history of so many turns, each with a key, whose answers were given a second after one another."""
    names = [name for number in range(turns) for name in (f"u{number}", f"a{number}")]
    told = nodes(*names)
    replies = [
        replace(node, reply=Reply(key=f"k{place // 2}", after=b""), at=float(place // 2))
        if place % 2
        else node
        for place, node in enumerate(told)
    ]
    session = turn(*names).session
    return StoredHistory(Stored(session, {node.hash: node for node in reversed(replies)}), CHAT)


def test_the_newest_64_turns_are_known_by_their_keys() -> None:
    history = keyed(70)
    known = [number for number in range(70) if history.answer_to(f"k{number}", since=0.0)]
    assert known == list(range(6, 70))


def test_a_turn_is_known_by_its_key_for_so_long() -> None:
    history = keyed(5)
    known = [number for number in range(5) if history.answer_to(f"k{number}", since=2.0)]
    assert known == [2, 3, 4]


def test_a_key_that_nobody_has_used_is_not_known() -> None:
    assert keyed(2).answer_to("", since=0.0) is None


def test_of_two_turns_with_one_key_the_newer_one_is_known() -> None:
    names = ["u0", "a0", "u1", "a1"]
    told = {node.hash: replace(node, reply=Reply(key="k", after=b"")) for node in nodes(*names)[1::2]}
    history = StoredHistory(
        Stored(turn(*names).session, {node.hash: node for node in nodes(*names)} | told), CHAT
    )
    answer = history.answer_to("k", since=0.0)
    assert answer is not None
    assert answer.hash == chain(*names)[-1]


def test_a_turn_that_was_edited_away_is_not_known_by_its_key() -> None:
    kept, edited = nodes("u0", "a0", "u1", "a1"), nodes("u0", "a0", "u2", "a2", known=2)
    told = {
        node.hash: node for node in (*kept[:3], replace(kept[3], reply=Reply(key="k", after=b"")), *edited)
    }
    history = StoredHistory(Stored(turn("u0", "a0", "u2", "a2").session, told), CHAT)
    assert history.answer_to("k", since=0.0) is None

"""Pins of clients: written once, before the request that sets them goes out; known from then on."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import pytest

from proxy.adapters.stores.in_process import InProcessStore
from proxy.cache import CacheMemory
from proxy.engine.sessions.attachments import MAX_PINS, Attachments
from proxy.engine.sessions.session_cache import SessionCache, SessionState
from proxy.errors import InvalidValue, StoreUnavailable
from proxy.ports import LookupResult, SessionKey
from tests.support.stores import DAY, KEY, HandClock, chain, found, turn

FIRST, SECOND, THIRD = chain("u1", "a1", "u2")


class Counted(InProcessStore):
    """A store that counts writes of pins, and can be away."""

    writes = 0
    is_away = False

    async def pin(self, key: SessionKey, hashes: Sequence[bytes], ttl: float) -> None:
        if self.is_away:
            raise StoreUnavailable
        self.writes += 1
        await super().pin(key, hashes, ttl)


@pytest.fixture
def store() -> Counted:
    return Counted(HandClock())


def process() -> SessionCache:
    """What one process has of its sessions."""
    return SessionCache(CacheMemory())


async def settled(
    store: Counted, here: SessionCache, *wanted: bytes
) -> tuple[AbstractSet[bytes], tuple[str, ...]]:
    """What the session's next request gets."""
    answer = LookupResult() if store.is_away else await found(store, "u1", "a1")
    session = SessionState("t", KEY, found=answer, cached=here.of(KEY))
    return await Attachments(store, here).pins(session, frozenset(wanted), DAY)


async def test_where_none_are_set_nothing_is_written(store: Counted) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    assert await settled(store, process()) == (frozenset(), ())
    assert store.writes == 0


async def test_a_pin_is_written_once_however_often_it_is_sent(store: Counted) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    here = process()
    for _ in range(3):
        assert await settled(store, here, FIRST) == ({FIRST}, ())
    assert await settled(store, here, SECOND) == ({FIRST, SECOND}, ())
    assert await settled(store, here) == ({FIRST, SECOND}, ())
    assert store.writes == 2


async def test_another_worker_reads_them_with_the_session(store: Counted) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    await settled(store, process(), FIRST)
    assert await settled(store, process()) == ({FIRST}, ())


async def test_a_pin_holds_before_the_turn_that_set_it_is_recorded(store: Counted) -> None:
    here = process()
    await settled(store, here, FIRST)
    assert await settled(store, here) == ({FIRST}, ())


async def test_while_the_store_is_away_pins_hold_here_and_are_written_later(store: Counted) -> None:
    here = process()
    await store.record(KEY, turn("u1", "a1"), DAY)
    store.is_away = True
    assert await settled(store, here, FIRST) == ({FIRST}, ("pins-not-saved",))
    store.is_away = False
    assert await settled(store, here) == ({FIRST}, ())
    assert await settled(store, process()) == ({FIRST}, ())


async def test_a_deleted_session_takes_its_pins_along(store: Counted) -> None:
    here = process()
    await settled(store, here, FIRST)
    here.forget(KEY)
    assert await settled(store, here) == (frozenset(), ())
    await store.record(KEY, turn("u1", "a1"), DAY)
    await settled(store, here, SECOND)
    await store.delete(KEY)  # by another worker
    assert await settled(store, here) == (frozenset(), ())


async def test_a_session_has_so_many_pins_at_most(store: Counted) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    here = process()
    many = [number.to_bytes(32, "big") for number in range(MAX_PINS)]
    assert len((await settled(store, here, *many))[0]) == MAX_PINS
    with pytest.raises(InvalidValue) as refused:
        await settled(store, here, THIRD)
    assert refused.value.param == "unabridged.pin"
    assert len((await settled(store, here))[0]) == MAX_PINS

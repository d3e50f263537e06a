"""Pins of clients: written once, before the request that sets them goes out; known from then on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from proxy.adapters.stores.memory import MemoryStore
from proxy.cache import Memory
from proxy.engine.flow import SessionState
from proxy.engine.sessions.attachments import MOST, Pins
from proxy.errors import InvalidValue, StoreUnavailable
from proxy.ports import Found, SessionKey
from tests.support.stores import DAY, KEY, HandClock, chain, found, turn

FIRST, SECOND, THIRD = chain("u1", "a1", "u2")


class Counted(MemoryStore):
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


async def session(store: Counted) -> SessionState:
    """The session as its next request finds it."""
    answer = Found() if store.is_away else await found(store, "u1", "a1")
    return SessionState("t", KEY, found=answer)


async def settled(store: Counted, pins: Pins, *asked: bytes) -> tuple[frozenset[bytes], tuple[str, ...]]:
    return await pins.settle(await session(store), frozenset(asked), DAY)


async def test_where_none_are_set_nothing_is_written(store: Counted) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    assert await settled(store, Pins(store, Memory())) == (frozenset(), ())
    assert store.writes == 0


async def test_a_pin_is_written_once_however_often_it_is_sent(store: Counted) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    pins = Pins(store, Memory())
    for _ in range(3):
        assert await settled(store, pins, FIRST) == ({FIRST}, ())
    assert await settled(store, pins, SECOND) == ({FIRST, SECOND}, ())
    assert await settled(store, pins) == ({FIRST, SECOND}, ())
    assert store.writes == 2


async def test_another_worker_reads_them_with_the_session(store: Counted) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    await settled(store, Pins(store, Memory()), FIRST)
    assert await settled(store, Pins(store, Memory())) == ({FIRST}, ())


async def test_a_pin_holds_before_the_turn_that_set_it_is_recorded(store: Counted) -> None:
    pins = Pins(store, Memory())
    await settled(store, pins, FIRST)
    assert await settled(store, pins) == ({FIRST}, ())


async def test_while_the_store_is_away_pins_hold_here_and_are_written_later(store: Counted) -> None:
    pins = Pins(store, Memory())
    await store.record(KEY, turn("u1", "a1"), DAY)
    store.is_away = True
    assert await settled(store, pins, FIRST) == ({FIRST}, ("pins-not-saved",))
    store.is_away = False
    assert await settled(store, pins) == ({FIRST}, ())
    assert await settled(store, Pins(store, Memory())) == ({FIRST}, ())


async def test_a_deleted_session_takes_its_pins_along(store: Counted) -> None:
    pins = Pins(store, Memory())
    await settled(store, pins, FIRST)
    pins.forget(KEY)
    assert await settled(store, pins) == (frozenset(), ())
    await store.record(KEY, turn("u1", "a1"), DAY)
    await settled(store, pins, SECOND)
    await store.delete(KEY)  # by another worker
    assert await settled(store, pins) == (frozenset(), ())


async def test_a_session_has_so_many_pins_at_most(store: Counted) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    pins = Pins(store, Memory())
    many = [number.to_bytes(32, "big") for number in range(MOST)]
    assert len((await settled(store, pins, *many))[0]) == MOST
    with pytest.raises(InvalidValue) as refused:
        await settled(store, pins, THIRD)
    assert refused.value.param == "unabridged.pin"
    assert len((await settled(store, pins))[0]) == MOST

"""A failing network between us and the store: each call says so in time, and gets no other call's reply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import Any

import pytest

from proxy.adapters.stores.redis import RedisStore, listing
from proxy.adapters.stores.redis.keys import session
from proxy.errors import StoreUnavailable
from proxy.ports import SessionKey
from tests.support.calls import HASTE, Call, every_call, turns
from tests.support.network import Shim
from tests.support.servers import PATIENCE, eventually
from tests.support.stores import DAY, KEY, OTHER, HandClock, Server, chain, epoch, is_left_alone, turn

BOUND = HASTE + PATIENCE

FAULTS: dict[str, dict[str, Any]] = {
    "no reply, and the end of the connection": {"lose_replies": True},
    "no reply, and silence": {"swallow": True},
    "half a reply": {"cut": 1},
    "half a reply and a reset": {"cut": 1, "resets": True},
    "garbage before a reply": {"garbage": b"\x16\x03\x01 no reply\r\n"},
    "a reply in single bytes, too slowly": {"drip": HASTE},
    "a reply that comes too late": {"lag": 2 * HASTE},
}
every_fault = pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)


@pytest.fixture
async def afar(shim: Shim, clock: HandClock) -> AsyncIterator[RedisStore]:
    """A store behind the shim that soon gives up."""
    opened = RedisStore(shim.url, clock, timeout=HASTE, rest=1.0)
    yield opened
    await opened.aclose()


def harm(shim: Shim, fault: dict[str, Any]) -> None:
    for name, value in fault.items():
        setattr(shim, name, value)


def mend(shim: Shim, fault: dict[str, Any]) -> None:
    usual = Shim(shim.connect)
    harm(shim, {name: getattr(usual, name) for name in fault})


async def messages_in_the_end(store: RedisStore, clock: HandClock) -> int:
    """How many messages there are, as soon as a machine that is busy has made a connection in time."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(StoreUnavailable):
                return len(await store.nodes(KEY))
            clock.time += 1.0


@every_fault
async def test_a_call_says_so_in_time_and_the_next_one_is_answered_again(
    shim: Shim, afar: RedisStore, clock: HandClock, fault: dict[str, Any]
) -> None:
    await afar.record(KEY, turn("u1", "a1"), DAY)
    assert await messages_in_the_end(afar, clock) == 2
    harm(shim, fault)
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(afar.nodes(KEY), BOUND)
    mend(shim, fault)
    clock.time += 1.0
    assert len(await afar.nodes(KEY)) == 2
    assert await turns(afar) == 1


@every_fault
async def test_a_connection_that_cannot_be_made_is_given_up_and_made_anew(
    shim: Shim, afar: RedisStore, clock: HandClock, fault: dict[str, Any]
) -> None:
    harm(shim, fault)
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(afar.ping(), BOUND)
    mend(shim, fault)
    async with asyncio.timeout(PATIENCE):
        while is_left_alone(afar):
            clock.time += 1.0
            with suppress(StoreUnavailable):
                await afar.ping()


@every_call
async def test_half_a_reply_is_no_reply_to_any_call(call: Call, shim: Shim, afar: RedisStore) -> None:
    await afar.ping()
    shim.cut = 2
    with pytest.raises(StoreUnavailable):
        await asyncio.wait_for(call(afar), BOUND)


@every_fault
async def test_a_turn_that_is_written_again_after_it_is_one_turn(
    shim: Shim, afar: RedisStore, clock: HandClock, fault: dict[str, Any]
) -> None:
    await afar.record(type(KEY)("aa", "warm"), turn("u1", "a1"), DAY)
    harm(shim, fault)
    with pytest.raises(StoreUnavailable):
        await afar.record(KEY, turn("u1", "a1"), DAY)
    mend(shim, fault)
    clock.time += 1.0
    await afar.record(KEY, turn("u1", "a1"), DAY)
    assert await turns(afar) == 1
    assert len(await afar.nodes(KEY)) == 2


async def test_a_move_to_a_new_secret_s_name_that_is_broken_off_is_whole_after_the_next(
    shim: Shim, afar: RedisStore, clock: HandClock
) -> None:
    for trip in range(1, 11):  # it makes ten
        former, moved = SessionKey(f"a{trip}", "named"), SessionKey(f"b{trip}", "named")
        await afar.record(former, turn("u1", "a1"), DAY)
        await afar.begin_epoch(former, epoch("e1"), 0, DAY)
        await afar.sessions(1)  # the listing is written by then
        shim.lose_from = shim.trips + trip
        with pytest.raises(StoreUnavailable):
            await afar.move(former.tag, moved.tag, "tenant")
        shim.lose_from = None
        clock.time += 1.0
        if await afar.session(former):  # a server that names by the old secret goes on with it meanwhile
            await afar.record(former, turn("u1", "a1", "u2", "a2", known=2), DAY)
            await afar.move(former.tag, moved.tag, "tenant")
            session = await afar.session(moved)
            assert session is not None
            assert session.tip == chain("u1", "a1", "u2", "a2")[-1]
            assert await afar.session(former) is None
        assert await afar.nodes(moved)
        assert await afar.epochs(moved, "lane") == (epoch("e1"),)


# --- replies that belong to nobody, as in the incident of March 2023 ---


async def summarised(store: RedisStore) -> None:
    for number in range(8):
        await store.keep_summary(KEY, str(number), f"text {number}", DAY)


@pytest.mark.parametrize("pause", [0.0, 0.02, 0.06], ids=lambda pause: f"after {pause} s")
async def test_the_reply_to_a_call_that_was_given_up_is_nobodys(
    shim: Shim, clock: HandClock, pause: float
) -> None:
    """The call is out and its reply is on its way when its caller leaves: the connection must go with it."""
    store = RedisStore(shim.url, clock, timeout=PATIENCE, rest=1.0)
    await summarised(store)
    shim.lag = 0.05
    for number in range(8):
        left = asyncio.create_task(store.summaries(KEY, [str(number)]))
        await asyncio.sleep(pause)
        left.cancel()
        await asyncio.wait({left})
        other = str((number + 1) % 8)
        assert await store.summaries(KEY, [other]) == {other: f"text {other}"}
    await store.aclose()


async def test_many_who_leave_at_once_leave_nothing_to_those_who_stay(shim: Shim, clock: HandClock) -> None:
    store = RedisStore(shim.url, clock, timeout=PATIENCE, rest=1.0)
    await summarised(store)
    shim.lag = 0.02
    for _ in range(5):
        calls = [asyncio.create_task(store.summaries(KEY, [str(number % 8)])) for number in range(48)]
        await asyncio.sleep(0.01)
        for call in calls[::2]:
            call.cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for number, answer in list(enumerate(answers))[1::2]:
            assert answer == {str(number % 8): f"text {number % 8}"}
    await store.aclose()


async def test_a_reply_that_nobody_asked_for_is_no_answer_to_the_next_call(
    shim: Shim, afar: RedisStore, clock: HandClock
) -> None:
    await summarised(afar)
    await afar.ping()
    shim.stray = b"$6\r\nforged\r\n"
    with suppress(StoreUnavailable):  # it may be noticed at once
        await afar.ping()
    shim.stray = b""
    for number in range(8):
        clock.time += 1.0
        try:
            found = await afar.summaries(KEY, [str(number)])
        except StoreUnavailable:
            continue  # noticed, and the connection is gone
        assert found == {str(number): f"text {number}"}
    assert await afar.summaries(KEY, ["0"]) == {"0": "text 0"}


async def test_a_server_that_says_no_more_will_come_is_asked_on_another_connection(
    shim: Shim, afar: RedisStore, clock: HandClock
) -> None:
    await summarised(afar)
    await afar.ping()
    shim.half_close = True
    with suppress(StoreUnavailable):
        await afar.ping()
    shim.half_close = False
    clock.time += 1.0
    try:
        await afar.ping()
    except StoreUnavailable:
        clock.time += 1.0
    assert await afar.summaries(KEY, ["3"]) == {"3": "text 3"}


async def test_a_session_that_begins_again_while_others_are_listed_stays_in_the_listing(
    shim: Shim, valkey: Server, store: RedisStore, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PIECE_SESSIONS", 1)
    await store.record(KEY, turn("u1", "a1"), DAY)
    await store.record(OTHER, turn("u1", "a1"), 0.05)
    assert [key for key, _ in (await store.sessions(9)).sessions][-1] == KEY
    await eventually(lambda: not valkey.run("EXISTS", session(OTHER)))
    async with aclosing(RedisStore(shim.url, clock, timeout=PATIENCE, rest=1.0)) as afar:
        await afar.ping()
        shim.lag, before = 0.1, shim.trips
        listed = asyncio.create_task(afar.sessions(9))
        await eventually(
            lambda: shim.trips == before + 3
        )  # the names, the one that is gone, and what follows
        await store.record(OTHER, turn("u1", "a1"), DAY)
        assert {key for key, _ in (await store.sessions(9)).sessions} == {KEY, OTHER}
        assert [key for key, _ in (await listed).sessions] == [KEY]
    assert {key for key, _ in (await store.sessions(9)).sessions} == {KEY, OTHER}

"""Calls that travel together: each gets its own answer, whatever becomes of the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.autopipeline import LARGE
from proxy.errors import StoreUnavailable
from proxy.ports import LookupResult, Recorded, SessionKey, UnreadableRecord
from tests.support.calls import HASTE
from tests.support.network import Shim
from tests.support.servers import PATIENCE
from tests.support.stores import DAY, KEY, HandClock, Server, chain, found, turn

SIDS = [f"{number:02}" for number in range(8)]


@pytest.fixture
async def afar(shim: Shim, clock: HandClock) -> AsyncIterator[RedisStore]:
    """A store behind the shim, with a session under each of the sids, and its scripts loaded."""
    opened = RedisStore(shim.url, clock, PATIENCE, rest=1.0)
    for sid in SIDS:
        await opened.record(SessionKey(KEY.tag, sid), turn("u1", "a1", name=sid), DAY)
        await found(opened, "u1", "a1", sid=sid)
    await opened.sessions(1)  # and all of them listed
    yield opened
    await opened.aclose()


def asked(store: RedisStore, times: int = 1) -> list[asyncio.Task[LookupResult]]:
    return [asyncio.create_task(found(store, "u1", "a1", sid=sid)) for sid in SIDS * times]


def names(answers: Sequence[LookupResult]) -> list[str]:
    return [each.session.name for each in answers if each.session is not None]


async def test_calls_that_come_at_once_make_one_trip(shim: Shim, afar: RedisStore) -> None:
    before = shim.trips
    assert names(await asyncio.gather(*asked(afar, times=4))) == SIDS * 4
    assert shim.trips == before + 1


async def test_calls_that_come_while_one_is_under_way_make_one_trip_after_it(
    shim: Shim, afar: RedisStore
) -> None:
    shim.lag, before = 0.5, shim.trips
    first = asked(afar)
    await asyncio.sleep(0.1)
    later = [each for _ in range(4) for each in asked(afar)]
    assert names(await asyncio.gather(*first, *later)) == SIDS * 5
    assert shim.trips == before + 2


async def test_reads_and_writes_of_many_sessions_share_a_trip(shim: Shim, afar: RedisStore) -> None:
    before = shim.trips
    written = (
        afar.record(SessionKey(KEY.tag, sid), turn("u1", "a1", "u2", "a2", known=2), DAY) for sid in SIDS
    )
    await asyncio.gather(*asked(afar), *written)
    await afar.sessions(1)
    assert shim.trips <= before + 4  # theirs, the listing's, and two to read it


@pytest.fixture
async def patient(shim: Shim, clock: HandClock, afar: RedisStore) -> AsyncIterator[RedisStore]:
    """Another on the same server, whose turns wait for company longer than any test."""
    opened = RedisStore(shim.url, clock, PATIENCE, rest=1.0, linger=PATIENCE / 2)
    await found(opened, "u1", "a1", sid=SIDS[0])  # connected
    yield opened
    await opened.aclose()


async def test_turns_wait_for_company_and_travel_with_the_first_call_that_does_not(
    shim: Shim, patient: RedisStore
) -> None:
    before = shim.trips
    written = [
        asyncio.create_task(patient.record(SessionKey(KEY.tag, sid), turn("u1", "a1", name=sid), DAY))
        for sid in SIDS
    ]
    await asyncio.sleep(0.05)
    assert shim.trips == before
    assert (await found(patient, "u1", "a1", sid=SIDS[-1])).session is not None
    assert await asyncio.gather(*written) == [Recorded.KEPT] * len(SIDS)
    assert shim.trips == before + 1


async def test_a_turn_that_nobody_joins_travels_alone_when_it_has_waited(
    shim: Shim, clock: HandClock
) -> None:
    async with aclosing(RedisStore(shim.url, clock, PATIENCE, rest=1.0, linger=0.02)) as store:
        assert await store.record(KEY, turn("u1", "a1"), DAY) is Recorded.KEPT
        assert (await found(store, "u1", "a1")).session is not None


async def test_a_turn_whose_client_waits_for_it_does_not_wait_for_company(
    shim: Shim, patient: RedisStore
) -> None:
    async with asyncio.timeout(PATIENCE / 4):
        await patient.record(
            SessionKey(KEY.tag, "01"), turn("u1", "a1", "u2", "a2", begun_at=chain("u1", "a1")[-1]), DAY
        )


async def test_a_turn_waits_no_longer_for_company_than_it_may_take(shim: Shim, clock: HandClock) -> None:
    async with aclosing(RedisStore(shim.url, clock, HASTE, rest=1.0, linger=PATIENCE)) as store:
        assert await store.record(KEY, turn("u1", "a1"), DAY) is Recorded.KEPT


async def test_whoever_waits_when_the_store_is_closed_is_told(shim: Shim, patient: RedisStore) -> None:
    shim.lag = PATIENCE
    under_way = asked(patient)
    await asyncio.sleep(0.02)
    writing = asyncio.create_task(patient.record(SessionKey(KEY.tag, "01"), turn("u1", "a1"), DAY))
    await asyncio.sleep(0.02)
    await patient.aclose()
    async with asyncio.timeout(PATIENCE / 4):
        told = [each.exception() for each in (await asyncio.wait([*under_way, writing]))[0]]
    assert {type(each) for each in told} == {StoreUnavailable}


async def test_a_turn_that_is_late_does_not_wait_for_company(patient: RedisStore) -> None:
    late = replace(turn("u1", "a1", name="late"), is_late=True)
    async with asyncio.timeout(PATIENCE / 4):
        await patient.record(SessionKey(KEY.tag, "01"), late, DAY)


async def test_a_refusal_is_that_of_its_own_call_alone(afar: RedisStore, valkey: Server) -> None:
    valkey.run("DEL", "u1:{aa}:03")
    valkey.run("SET", "u1:{aa}:03", "of another type")
    answers = await asyncio.gather(*asked(afar), return_exceptions=True)
    assert [type(each) for each in answers] == [LookupResult] * 3 + [UnreadableRecord] + [LookupResult] * 4
    assert names([each for each in answers if isinstance(each, LookupResult)]) == SIDS[:3] + SIDS[4:]


async def test_a_server_that_has_forgotten_the_scripts_is_told_them_again(
    afar: RedisStore, valkey: Server
) -> None:
    valkey.run("SCRIPT", "FLUSH")
    assert names(await asyncio.gather(*asked(afar, times=2))) == SIDS * 2


async def test_a_connection_that_ends_fails_all_whose_answers_were_to_come_on_it(
    shim: Shim, afar: RedisStore, clock: HandClock
) -> None:
    shim.cut = 10
    answers = await asyncio.gather(*asked(afar), return_exceptions=True)
    assert {type(each) for each in answers} == {StoreUnavailable}
    shim.cut = None
    clock.time += 1.0
    await afar.ping()
    assert names(await asyncio.gather(*asked(afar))) == SIDS


async def test_a_large_turn_goes_alone_and_holds_up_nobody(shim: Shim, afar: RedisStore) -> None:
    shim.lag = 1.5
    large = turn("u1", "a1", head=(b"x" * LARGE,))
    writing = asyncio.create_task(afar.record(SessionKey(KEY.tag, "large"), large, DAY))
    await asyncio.sleep(0.3)
    shim.lag = 0.0
    assert names(await asyncio.gather(*asked(afar))) == SIDS
    assert not writing.done()
    await writing


# --- replies that belong to nobody, as in the incident of March 2023 ---


@pytest.mark.parametrize("pause", [0.0, 0.01, 0.03, 0.06], ids=lambda pause: f"after {pause} s")
async def test_those_who_leave_a_group_leave_nothing_to_those_who_stay(
    shim: Shim, afar: RedisStore, pause: float
) -> None:
    """Some leave before their call is sent, some while its answer is on its way, some when it is there."""
    shim.lag = 0.02
    for _ in range(4):
        calls = asked(afar, times=3)
        await asyncio.sleep(pause / 2)
        calls += asked(afar, times=3)
        await asyncio.sleep(pause / 2)
        for call in calls[::2]:
            call.cancel()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for sid, answer in list(zip(SIDS * 6, answers, strict=True))[1::2]:
            assert isinstance(answer, LookupResult)
            assert names([answer]) == [sid]
        assert names(await asyncio.gather(*asked(afar))) == SIDS


async def test_a_caller_who_leaves_before_the_call_is_sent_is_not_served(
    shim: Shim, afar: RedisStore
) -> None:
    shim.lag = 0.5
    ahead = asked(afar)
    await asyncio.sleep(0.05)
    key = SessionKey(KEY.tag, "never")
    left = asyncio.create_task(afar.record(key, turn("u1", "a1"), DAY))
    await asyncio.sleep(0.05)
    left.cancel()
    await asyncio.gather(*ahead)
    shim.lag = 0.0
    assert await afar.session(key) is None


async def test_a_reply_that_nobody_asked_for_is_no_answer_to_a_group(
    shim: Shim, afar: RedisStore, clock: HandClock
) -> None:
    shim.stray = b"$6\r\nforged\r\n"
    await asyncio.gather(*asked(afar), return_exceptions=True)
    shim.stray = b""
    await asyncio.sleep(0.01)
    for _ in range(3):
        clock.time += 1.0
        answers = await asyncio.gather(*asked(afar), return_exceptions=True)
        told = [each for each in answers if isinstance(each, LookupResult)]
        assert names(told) in (SIDS, [])
    assert names(await asyncio.gather(*asked(afar))) == SIDS


@pytest.mark.parametrize("stray", [b"+OK\r\n", b"$6\r\nforged\r\n", b"*0\r\n", b"-ERR no\r\n"])
async def test_where_there_is_an_answer_too_many_nobody_is_told_anothers(
    shim: Shim, afar: RedisStore, clock: HandClock, stray: bytes
) -> None:
    """It comes when the calls are out already: nothing could be seen of it before."""
    shim.garbage = stray
    answers = await asyncio.gather(*asked(afar), return_exceptions=True)
    assert {type(each) for each in answers} == {StoreUnavailable}
    shim.garbage = b""
    clock.time += 1.0
    await afar.ping()
    assert names(await asyncio.gather(*asked(afar))) == SIDS


# --- the listing ---


async def test_who_asks_for_the_listing_waits_for_what_was_used_before_and_not_for_a_lull(
    shim: Shim, afar: RedisStore
) -> None:
    async def steady() -> None:
        while True:
            await afar.record(SessionKey(KEY.tag, "busy"), turn("u1", "a1"), DAY)

    shim.lag = 0.005
    load = [asyncio.create_task(steady()) for _ in range(4)]
    await asyncio.sleep(0.05)
    await afar.record(KEY, turn("u1", "a1", updated=9.0), DAY)
    listed = await asyncio.wait_for(afar.sessions(3), PATIENCE)
    assert KEY in [key for key, _ in listed.sessions]
    assert await asyncio.wait_for(afar.delete(KEY), PATIENCE)
    for each in load:
        each.cancel()
    await asyncio.gather(*load, return_exceptions=True)

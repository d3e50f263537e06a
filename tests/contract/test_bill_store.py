"""What every BillStore adds up, keeps and forgets."""

from __future__ import annotations

import pytest

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis import keys as names
from proxy.adapters.stores.redis.codec import Keyring
from proxy.core.economics.bill import NOTHING, Bill
from proxy.ports import BatchId, BillStore
from tests.support.stores import DAY, KEY, OTHER, STRANGER, HandClock, Site, pass_time, run, turn

Store = InProcessStore | RedisStore
ONE = Bill(requests=1, sent=100, answers=7, failed={"timeout": 1})
TWO = Bill(requests=2, sent=50, summaries=3)
HOUR = 472_222
"""The hour of the clock's time."""


@pytest.fixture
def bills(store: Store) -> BillStore:
    return store.bills


class TestHours:
    async def test_amounts_add_up_by_hour_and_model(self, bills: BillStore) -> None:
        await bills.add_to_hour(HOUR, {"a model": ONE.amounts(), "b": TWO.amounts()}, BatchId("w", 1))
        await bills.add_to_hour(HOUR, {"a model": TWO.amounts()}, BatchId("w", 2))
        await bills.add_to_hour(HOUR + 1, {"b": ONE.amounts()}, BatchId("w", 3))
        assert await bills.hours(HOUR, HOUR + 1) == {
            HOUR: {"a model": ONE + TWO, "b": TWO},
            HOUR + 1: {"b": ONE},
        }

    async def test_only_the_hours_that_are_asked_for_are_told(self, bills: BillStore) -> None:
        for hour in range(HOUR, HOUR + 4):
            await bills.add_to_hour(hour, {"m": ONE.amounts()}, BatchId("w", hour))
        assert sorted(await bills.hours(HOUR + 1, HOUR + 2)) == [HOUR + 1, HOUR + 2]

    async def test_names_of_models_may_be_anything(self, bills: BillStore) -> None:
        odd = ["", "with spaces and a : colon", "模型", "a\nb", "{tag}"]
        await bills.add_to_hour(HOUR, dict.fromkeys(odd, ONE.amounts()), BatchId("w", 1))
        assert (await bills.hours(HOUR, HOUR))[HOUR] == dict.fromkeys(odd, ONE)


class TestEvidence:
    async def test_counts_add_up_by_hour_and_name_apart_from_bills(self, bills: BillStore) -> None:
        names = {"policy\0a model": {"whole:same": 1, "cut:result:disposable": 7}}
        await bills.add_evidence(HOUR, names, BatchId("w", 1))
        await bills.add_evidence(HOUR, names | {"other\0m": {"spent": 10**12}}, BatchId("w", 2))
        await bills.add_to_hour(HOUR, {"m": ONE.amounts()}, BatchId("w", 3))
        assert await bills.evidence(HOUR - 1, HOUR + 1) == {
            HOUR: {
                "policy\0a model": {"whole:same": 2, "cut:result:disposable": 14},
                "other\0m": {"spent": 10**12},
            }
        }
        assert await bills.hours(HOUR, HOUR) == {HOUR: {"m": ONE}}
        assert await bills.evidence(HOUR + 1, HOUR + 2) == {}


class TestSessions:
    async def test_a_bill_adds_up_beside_those_of_others(self, store: Store, bills: BillStore) -> None:
        for key in (KEY, OTHER, STRANGER):
            await store.record(key, turn("u1", "a1"), DAY)
        await bills.add_to_session(KEY, ONE.amounts(), DAY, BatchId("w", 1))
        await bills.add_to_session(OTHER, TWO.amounts(), DAY, BatchId("w", 2))
        await bills.add_to_session(KEY, TWO.amounts(), DAY, BatchId("x", 1))
        assert await bills.of_sessions([OTHER, STRANGER, KEY]) == [TWO, NOTHING, ONE + TWO]

    async def test_it_may_come_before_the_first_turn(self, store: Store, bills: BillStore) -> None:
        await bills.add_to_session(KEY, ONE.amounts(), DAY, BatchId("w", 1))
        await store.record(KEY, turn("u1", "a1"), DAY)
        await bills.add_to_session(KEY, TWO.amounts(), DAY, BatchId("w", 2))
        assert await bills.of_sessions([KEY]) == [ONE + TWO]

    async def test_it_goes_with_its_session_and_comes_back_for_none_that_has_gone(
        self, store: Store, bills: BillStore
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), DAY)
        await bills.add_to_session(KEY, ONE.amounts(), DAY, BatchId("w", 1))
        await bills.add_to_hour(HOUR, {"m": ONE.amounts()}, BatchId("w", 2))
        await store.delete(KEY)
        assert await bills.of_sessions([KEY]) == [NOTHING]
        await bills.add_to_session(KEY, ONE.amounts(), DAY, BatchId("w", 3))
        assert await bills.of_sessions([KEY]) == [NOTHING]
        assert await bills.hours(HOUR, HOUR) == {HOUR: {"m": ONE}}

    async def test_it_lives_as_long_as_its_session(
        self, store: Store, bills: BillStore, clock: HandClock
    ) -> None:
        await store.record(KEY, turn("u1", "a1"), 0.3)
        await bills.add_to_session(KEY, ONE.amounts(), DAY, BatchId("w", 1))
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
        await store.record(OTHER, turn("u1", "a1"), 0.3)
        await bills.add_to_session(OTHER, ONE.amounts(), DAY, BatchId("w", 2))
        await pass_time(clock, 0.5)
        await store.record(OTHER, turn("u1", "a1"), DAY)
        assert await bills.of_sessions([KEY, OTHER]) == [ONE, NOTHING]


class TestOneServer:
    async def test_what_is_sent_again_is_added_once(self, site: Site, clock: HandClock) -> None:
        store = RedisStore(site.url, clock, 2.0, 1.0)
        await store.record(KEY, turn("u1", "a1"), DAY)
        for number in (1, 1, 2, 1):
            await store.bills.add_to_session(KEY, ONE.amounts(), DAY, BatchId("w", number))
            await store.bills.add_to_hour(HOUR, {"m": ONE.amounts()}, BatchId("w", number))
        assert await store.bills.of_sessions([KEY]) == [ONE + ONE]
        assert await store.bills.hours(HOUR, HOUR) == {HOUR: {"m": ONE + ONE}}
        await store.aclose()

    async def test_before_the_first_turn_it_lives_for_a_day_at_most(
        self, site: Site, clock: HandClock
    ) -> None:
        store = RedisStore(site.url, clock, timeout=2.0, rest=1.0)
        await store.bills.add_to_session(KEY, ONE.amounts(), 30 * DAY, BatchId("w", 1))
        lives = [
            run(server, "TTL", name) for server in site.servers for name in run(server, "KEYS", "*:bill")
        ]
        assert lives == [DAY]
        await store.record(KEY, turn("u1", "a1"), 30 * DAY)
        assert await store.delete(KEY)
        assert await store.bills.of_sessions([KEY]) == [NOTHING]
        await store.aclose()

    async def test_a_bill_goes_with_its_session_to_a_new_secret(self, site: Site, clock: HandClock) -> None:
        store = RedisStore(site.url, clock, 2.0, 1.0, Keyring(["new", "old"], lambda: True))
        former = KEY._replace(sid="named")
        await store.record(former, turn("u1", "a1"), DAY)
        await store.bills.add_to_session(former, ONE.amounts(), DAY, BatchId("w", 1))
        assert await store.move(former.tag, "cc", "tenant")
        assert await store.bills.of_sessions([former, former._replace(tag="cc")]) == [NOTHING, ONE]
        await store.aclose()

    async def test_what_is_no_amount_is_left_out(self, server_url: str, clock: HandClock) -> None:
        store = RedisStore(server_url, clock, 2.0, 1.0)
        await store.bills.add_to_hour(HOUR, {"m": ONE.amounts()}, BatchId("w", 1))
        run(server_url, "HSET", names.hour(HOUR), "sent m", "much", "of-a-newer-release m", 5, "odd", 3)
        told = (await store.bills.hours(HOUR, HOUR))[HOUR]["m"]
        assert (told.sent, told.requests, told.failed) == (0, 1, {"timeout": 1})
        await store.aclose()

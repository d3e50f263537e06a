"""What is handed in for a session, as each store keeps it: the first that comes stays."""

from __future__ import annotations

from proxy.ports import Lookup, LookupResult, SessionKey, SessionStore
from tests.support.stores import DAY, KEY, HandClock, chain, pass_time, turn

OTHER = SessionKey(KEY.tag, "02")
STRANGER = SessionKey("bb", KEY.sid)
FIRST, SECOND = (b"1" * 32, b'{"text":"first"}'), (b"2" * 32, bytes(range(256)))


async def asked(store: SessionStore, key: SessionKey = KEY, injected: bytes = b"") -> LookupResult:
    newest = tuple(reversed(chain("u1", "a1")))
    return await store.find(Lookup(key.tag, key.sid, newest, (), "lane", injected=injected))


async def test_the_first_one_stays_and_whoever_comes_later_is_told_it(store: SessionStore) -> None:
    assert await store.inject(KEY, *FIRST, DAY) == FIRST[1]
    assert await store.inject(KEY, *SECOND, DAY) == FIRST[1]
    assert await store.inject(KEY, *FIRST, DAY) == FIRST[1]
    assert await store.injection(KEY) == FIRST[1]


async def test_it_comes_with_its_session_unless_whoever_asks_has_it(store: SessionStore) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    assert ((await asked(store)).injected, (await asked(store)).injection) == (b"", None)
    await store.inject(KEY, *SECOND, DAY)
    for known, told in ((b"", SECOND[1]), (FIRST[0], SECOND[1]), (SECOND[0], None)):
        answer = await asked(store, injected=known)
        assert (answer.injected, answer.injection) == (SECOND[0], told)
        assert answer.session is not None


async def test_it_is_found_before_the_first_turn_is_recorded(store: SessionStore) -> None:
    await store.inject(KEY, *FIRST, DAY)
    answer = await asked(store)
    assert (answer.sid, answer.session, answer.injection) == (KEY.sid, None, FIRST[1])
    await store.record(KEY, turn("u1", "a1"), DAY)
    assert (await asked(store)).injection == FIRST[1]
    assert await store.session(KEY) is not None


async def test_it_stays_when_later_turns_say_nothing_of_it(store: SessionStore) -> None:
    await store.inject(KEY, *FIRST, DAY)
    await store.record(KEY, turn("u1", "a1"), DAY)
    await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
    await store.pin(KEY, chain("u1"), DAY)
    assert await store.injection(KEY) == FIRST[1]


async def test_it_is_of_one_session_and_goes_with_it(store: SessionStore) -> None:
    for key in (KEY, OTHER, STRANGER):
        await store.record(key, turn("u1", "a1"), DAY)
    await store.inject(KEY, *FIRST, DAY)
    assert [await store.injection(key) for key in (OTHER, STRANGER)] == [None, None]
    assert (await asked(store, STRANGER)).injected == b""
    await store.delete(KEY)
    assert await store.injection(KEY) is None
    assert (await asked(store)).injected == b""
    assert await store.inject(KEY, *SECOND, DAY) == SECOND[1]


async def test_whoever_remembers_a_deleted_session_hears_that_it_is_gone(store: SessionStore) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    await store.delete(KEY)
    await store.inject(KEY, *SECOND, DAY)
    answer = await asked(store)
    assert (answer.injection, answer.has_ended) == (SECOND[1], True)


async def test_it_ends_with_its_session(store: SessionStore, clock: HandClock) -> None:
    await store.inject(KEY, *FIRST, ttl=0.05)
    await pass_time(clock, 0.1)
    assert await store.injection(KEY) is None
    assert await store.inject(KEY, *SECOND, DAY) == SECOND[1]


async def test_what_stands_gives_way_to_what_comes_after_it_alone(store: SessionStore) -> None:
    await store.inject(KEY, *FIRST, DAY)
    assert await store.inject(KEY, *SECOND, DAY, after=b"3" * 32) == FIRST[1]
    assert await store.inject(KEY, *SECOND, DAY, after=FIRST[0]) == SECOND[1]
    assert await store.inject(KEY, *SECOND, DAY, after=FIRST[0]) == SECOND[1]
    assert (await asked(store)).injected == SECOND[0]

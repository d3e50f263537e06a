"""What callers hand in: the first of a session, written once, read by everybody after."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.adapters.stores.in_process import InProcessStore
from proxy.cache import CacheMemory
from proxy.core.conversation.extension import Injection
from proxy.engine.sessions.attachments import Attachments, ReadMemory
from proxy.engine.sessions.session_cache import SessionCache, SessionState
from proxy.errors import StoreUnavailable
from proxy.ports import Lookup, LookupResult, SessionKey
from tests.support.stores import DAY, KEY, HandClock, chain, turn

ONE, TWO = Injection(b'{"text":"one","tools":[]}'), Injection(b'{"text":"two","tools":[]}')
Settled = tuple[Injection | None, tuple[str, ...]]


class Counted(InProcessStore):
    """A store that counts what it is asked, and can be away."""

    writes = reads = 0
    is_away = False

    async def inject(
        self, key: SessionKey, digest: bytes, injection: bytes, ttl: float, *, after: bytes = b""
    ) -> bytes:
        if self.is_away:
            raise StoreUnavailable
        self.writes += 1
        return await super().inject(key, digest, injection, ttl, after=after)

    async def injection(self, key: SessionKey) -> bytes | None:
        if self.is_away:
            raise StoreUnavailable
        self.reads += 1
        return await super().injection(key)


@pytest.fixture
def store() -> Counted:
    return Counted(HandClock())


def process(memory: CacheMemory | None = None) -> SessionCache:
    """What one process has of its sessions."""
    return SessionCache(memory or CacheMemory())


async def settle(
    store: Counted,
    here: SessionCache,
    session: SessionState,
    wanted: Injection | None,
    memory: ReadMemory | None = None,
) -> Settled:
    session = replace(session, cached=here.of(session.key))
    return await Attachments(store, here).injection(session, wanted, DAY, memory)


async def settled(
    store: Counted, here: SessionCache, wanted: Injection | None = None, memory: ReadMemory | None = None
) -> Settled:
    """What the session's next request gets."""
    newest, held = tuple(reversed(chain("u1", "a1"))), here.of(KEY).injection
    lookup = Lookup(KEY.tag, KEY.sid, newest, (), "lane", injected=held.injection.digest if held else b"")
    found = LookupResult() if store.is_away else await store.find(lookup)
    session = SessionState("t", KEY, found=found, is_store_away=store.is_away)
    return await settle(store, here, session, wanted, memory)


async def test_where_nothing_is_handed_in_nothing_is_asked_for(store: Counted) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    assert await settled(store, process()) == (None, ())
    assert (store.writes, store.reads) == (0, 0)


async def test_it_is_written_once_and_holds_for_requests_without_it(store: Counted) -> None:
    here = process()
    for asked in (ONE, ONE, None):
        assert await settled(store, here, asked) == (ONE, ())
        await store.record(KEY, turn("u1", "a1"), DAY)
    assert (store.writes, store.reads) == (1, 0)


async def test_a_later_one_that_is_another_is_ignored_and_said_so(store: Counted) -> None:
    here = process()
    await settled(store, here, ONE)
    assert await settled(store, here, TWO) == (ONE, ("inject-ignored",))
    assert await settled(store, process(), TWO) == (ONE, ("inject-ignored",)), "elsewhere as well"
    assert store.writes == 1


async def test_another_worker_reads_it_with_the_session(store: Counted) -> None:
    await settled(store, process(), ONE)
    assert await settled(store, process()) == (ONE, ())
    assert store.reads == 0


async def test_of_two_that_come_at_once_one_wins_for_both(store: Counted) -> None:
    here, there = process(), process()
    late = SessionState("t", KEY)
    assert await settle(store, here, late, ONE) == (ONE, ())
    assert await settle(store, there, late, TWO) == (ONE, ("inject-ignored",))
    assert await settled(store, there) == (ONE, ())


async def test_while_the_store_is_away_it_holds_here_and_is_written_later(store: Counted) -> None:
    here = process()
    store.is_away = True
    assert await settled(store, here, ONE) == (ONE, ("inject-not-saved",))
    assert await settled(store, here) == (ONE, ("inject-not-saved",))
    store.is_away = False
    assert await settled(store, here) == (ONE, ())
    assert await settled(store, process()) == (ONE, ())


async def test_what_was_read_is_known_while_the_store_is_away(store: Counted) -> None:
    here = process()
    await settled(store, here, ONE)
    store.is_away = True
    assert await settled(store, here) == (ONE, ())


async def test_what_came_while_the_store_was_away_gives_way_to_what_it_holds(store: Counted) -> None:
    await settled(store, process(), ONE)
    elsewhere = process()
    store.is_away = True
    assert await settled(store, elsewhere, TWO) == (TWO, ("inject-not-saved",))
    store.is_away = False
    assert await settled(store, elsewhere, TWO) == (ONE, ("inject-ignored",))


async def test_a_deleted_session_takes_it_along(store: Counted) -> None:
    here = process()
    await settled(store, here, ONE)
    await store.delete(KEY)  # by another worker
    assert await settled(store, here) == (None, ())
    await settled(store, here, ONE)
    await store.record(KEY, turn("u1", "a1"), DAY)
    await store.delete(KEY)
    await store.record(KEY, turn("u1", "a1"), DAY)  # begun again, by another worker too
    assert await settled(store, here) == (None, ())
    assert await settled(store, here, TWO) == (TWO, ())


async def test_a_store_that_has_lost_everything_gets_it_back(store: Counted) -> None:
    here = process()
    await settled(store, here, ONE)
    store._sessions.clear()  # pyright: ignore[reportPrivateUsage]
    assert await settled(store, here) == (ONE, ())
    assert await settled(store, process()) == (ONE, ())


async def test_what_was_let_go_of_since_the_store_was_asked_is_read_again(store: Counted) -> None:
    here = process()
    await settled(store, here, ONE)
    known = LookupResult(sid=KEY.sid, injected=ONE.digest)
    session = SessionState("t", KEY, found=known)
    here.forget(KEY)
    assert await settle(store, here, session, None) == (ONE, ())
    assert store.reads == 1


async def test_a_process_holds_so_much_at_most_and_reads_the_rest_again(store: Counted) -> None:
    here = process(CacheMemory(32_000_000))
    large = [Injection(b'{"text":"%d%s","tools":[]}' % (number, b"x" * 1_000_000)) for number in range(20)]
    keys = [SessionKey("aa", f"{number:02}") for number in range(20)]
    for key, injection in zip(keys, large, strict=True):
        session = SessionState("t", key)
        assert await settle(store, here, session, injection) == (injection, ())
    held = [key for key in keys if here.of(key).injection]
    assert 5 < len(held) < 20
    assert held == keys[-len(held) :], "those used last"


# --- what memory tells a session at its start stands in the same record, before what a caller hands in ---


def remembered_texts(*texts: str) -> ReadMemory:
    """Memory that tells these texts, one each time it is asked."""
    left = list(texts)

    async def tell() -> str:
        return left.pop(0)

    return tell


TOLD = Injection(b'{"memory":"Ana lives in Oslo.","text":"","tools":[]}')
TOLD_ONE = Injection(b'{"memory":"Ana lives in Oslo.","text":"one","tools":[]}')


async def test_memory_is_asked_once_at_the_start_and_tells_every_worker_the_same(store: Counted) -> None:
    memory = remembered_texts("Ana lives in Oslo.")
    here, there = process(), process()
    assert await settled(store, here, memory=memory) == (TOLD, ())
    assert await settled(store, there, memory=memory) == (TOLD, ())
    await store.record(KEY, turn("u1", "a1"), DAY)
    for each in (here, there, process()):
        assert await settled(store, each, memory=memory) == (TOLD, ())
    assert store.writes == 1


async def test_that_memory_had_nothing_to_tell_at_the_start_holds_for_good(store: Counted) -> None:
    here = process()
    for each in (here, here, process()):
        assert await settled(store, each, memory=remembered_texts("", "Ana lives in Oslo.")) == (None, ())


async def test_a_session_that_is_there_already_is_not_told(store: Counted) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    assert await settled(store, process(), memory=remembered_texts()) == (None, ())


async def test_what_is_handed_in_stands_beside_what_is_remembered_at_once_or_later(store: Counted) -> None:
    assert await settled(store, process(), ONE, remembered_texts("Ana lives in Oslo.")) == (TOLD_ONE, ())
    assert await settled(store, process(), ONE) == (TOLD_ONE, ())
    assert await settled(store, process(), TWO) == (TOLD_ONE, ("inject-ignored",))


@pytest.mark.parametrize(("told", "both"), [("Ana lives in Oslo.", TOLD_ONE), ("", ONE)])
async def test_a_caller_may_hand_in_later_and_memory_stays(
    store: Counted, told: str, both: Injection
) -> None:
    here, there = process(), process()
    await settled(store, here, memory=remembered_texts(told))
    await settled(store, there)
    await store.record(KEY, turn("u1", "a1"), DAY)
    assert await settled(store, here, ONE) == (both, ())
    assert await settled(store, there, TWO) == (both, ("inject-ignored",))
    assert await settled(store, process()) == (both, ())


async def test_while_the_store_is_away_a_process_tells_the_same_and_stores_it_later(store: Counted) -> None:
    here, store.is_away = process(), True
    assert await settled(store, here, memory=remembered_texts("Ana lives in Oslo.")) == (
        TOLD,
        ("inject-not-saved",),
    )
    store.is_away = False
    assert await settled(store, here, memory=remembered_texts()) == (TOLD, ())
    assert await settled(store, process()) == (TOLD, ())


async def test_nothing_to_tell_is_nothing_lost_while_the_store_is_away(store: Counted) -> None:
    here, store.is_away = process(), True
    assert await settled(store, here, memory=remembered_texts("")) == (None, ())
    store.is_away = False
    assert await settled(store, here, memory=remembered_texts("Ana lives in Oslo.")) == (None, ())

"""SessionStore.move: sessions go from an old secret's names to a new one's, whole and once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.redis import RedisStore, keys
from proxy.adapters.stores.redis.codec import Keyring
from proxy.core.conversation.records import Session
from proxy.ports import Recorded, SessionKey
from tests.support.moves import before_the_old_is_deleted
from tests.support.stores import DAY, HandClock, Site, chain, dump, epoch, found, hidden, turn

FORMER = SessionKey("aa", "named")
NOW = SessionKey("bb", "named")
LATER = SessionKey("cc", "named")


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
async def store(request: pytest.FixtureRequest, site: Site, clock: HandClock) -> AsyncGenerator[RedisStore]:
    keyring = Keyring(["new", "old"], lambda: request.param)
    opened = RedisStore(site.url, clock, 2.0, 1.0, keyring)
    yield opened
    await opened.aclose()


async def fill(store: RedisStore, key: SessionKey) -> None:
    await store.inject(key, b"digest", b"{}", DAY)
    await store.record(key, turn("u1", "a1", headerless=key.sid != "named"), DAY)
    await store.begin_epoch(key, epoch("e1"), 0, DAY)
    await store.keep_hidden(key, hidden("u1", "a1"), DAY)
    await store.keep_summary(key, "one", "text", DAY)
    await store.pin(key, chain("u1"), DAY)
    await store.record(key, turn("u1", "a1", "u2", "a2", known=2, complete=False), DAY)


async def everything(store: RedisStore, key: SessionKey) -> list[object]:
    told = await found(store, "u1", "a1", sid=key.sid, tag=key.tag)
    history = await store.history(key)
    return [
        told.counts,
        told.known,
        told.epochs,
        told.hidden,
        told.injection,
        history.nodes,
        _without_names(told.session),
        await store.summaries(key, ["one"]),
        await store.lanes(key),
    ]


def _without_names(session: Session | None) -> dict[str, object]:
    assert session is not None
    members = {name: getattr(session, name) for name in session.__struct_fields__}
    return {name: value for name, value in members.items() if name not in ("tenant", "former")}


async def test_all_of_a_named_session_is_found_under_its_new_name_and_nothing_under_the_old(
    store: RedisStore, site: Site
) -> None:
    await fill(store, FORMER)
    before = await everything(store, FORMER)
    assert await store.move(FORMER.tag, NOW.tag, "new tenant")
    assert await everything(store, NOW) == before
    session = await store.session(NOW)
    assert session is not None
    assert session.tenant == "new tenant"
    assert [key for key, _ in (await store.sessions(10)).sessions] == [NOW]
    held = [text for server in site.servers for text in dump(server)]
    assert [text for text in held if b"{aa}" in text or b"aa/" in text] == []


async def test_sessions_without_a_header_are_recognised_under_the_new_name(store: RedisStore) -> None:
    sids = ("01", "02")
    for sid in sids:
        await store.record(SessionKey("aa", sid), turn("u1", f"a{sid}", headerless=True), DAY)
    assert await store.move("aa", "bb", "t")
    for sid in sids:
        assert (await found(store, "u1", f"a{sid}", "u2", sid=None, tag="bb")).sid == sid
        assert (await found(store, "u1", f"a{sid}", "u2", sid=None, tag="aa")).sid is None


async def test_a_session_goes_on_after_the_move(store: RedisStore) -> None:
    await store.record(FORMER, turn("u1", "a1"), DAY)
    await store.move(FORMER.tag, NOW.tag, "t")
    await store.record(NOW, turn("u1", "a1", "u2", "a2", known=2), DAY)
    session = await store.session(NOW)
    assert session is not None
    assert (session.turns, session.tip) == (2, chain("u1", "a1", "u2", "a2")[-1])


async def test_a_session_knows_the_ids_that_it_had_before(store: RedisStore) -> None:
    await store.record(FORMER, turn("u1", "a1", tenant="t1"), DAY)
    for before, after, tenant in ((FORMER, NOW, "t2"), (NOW, FORMER, "t1"), (FORMER, LATER, "t3")):
        assert await store.move(before.tag, after.tag, tenant)
    session = await store.session(LATER)
    assert session is not None
    assert session.former == ("t2.bb.named", "t1.aa.named")


async def test_two_workers_at_once_move_it_once_and_what_began_anew_stays(store: RedisStore) -> None:
    await store.record(FORMER, turn("u1", "a1"), DAY)
    assert any(await asyncio.gather(*(store.move(FORMER.tag, NOW.tag, "t") for _ in range(5))))
    assert len(await store.nodes(NOW)) == 2
    await store.record(FORMER, turn("u9", "a9"), DAY)
    await store.move(FORMER.tag, NOW.tag, "t")
    assert chain("u9")[0] not in await store.nodes(NOW)


BEGAN = chain("u1", "a1")[-1]


@pytest.mark.parametrize("is_named", [True, False], ids=["by a header", "by its chain"])
async def test_what_others_write_under_the_old_name_meanwhile_is_moved_too(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, is_named: bool
) -> None:
    sid = "named" if is_named else "01"
    former = FORMER._replace(sid=sid)
    await store.record(former, turn("u1", "a1", headerless=not is_named), DAY)
    late = turn("u1", "a1", "u2", "a2", known=2, begun_at=BEGAN, headerless=not is_named)

    async def write() -> None:
        assert await store.record(former, late, DAY) is Recorded.KEPT
        await store.pin(former, chain("u1"), DAY)
        await store.begin_epoch(former, epoch("e1"), 0, DAY)

    before_the_old_is_deleted(monkeypatch, write)
    assert await store.move("aa", "bb", "t")
    told = await found(store, "u1", "a1", "u2", "a2", "u3", sid=sid if is_named else None, tag="bb")
    assert (told.sid, told.epochs) == (sid, (epoch("e1"),))
    assert told.session is not None
    assert (told.session.turns, told.session.tip, told.session.pins) == (
        2,
        late.session.tip,
        tuple(chain("u1")),
    )
    assert await store.session(former) is None


async def test_of_turns_under_both_names_at_once_none_is_lost(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.record(FORMER, turn("u1", "a1"), DAY)

    async def write() -> None:
        await store.record(FORMER, turn("u1", "a1", "u2", "a2", known=2, begun_at=BEGAN), DAY)
        await store.record(NOW, turn("u1", "a1", "u3", "a3", known=2), DAY)

    before_the_old_is_deleted(monkeypatch, write)
    assert await store.move(FORMER.tag, NOW.tag, "t")
    history = await store.history(NOW)
    assert history.nodes.keys() == {*chain("u1", "a1", "u2", "a2"), *chain("u1", "a1", "u3", "a3")}
    assert history.session is not None
    assert history.session.tip == chain("u1", "a1", "u3", "a3")[-1]
    assert await store.session(FORMER) is None


async def test_a_session_that_begins_under_the_old_name_meanwhile_is_found_there_until_it_is_moved(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions without a name share an index if they began with the same words."""
    first, second = (SessionKey("aa", sid) for sid in ("01", "02"))
    await store.record(first, turn("u1", "a1", headerless=True), DAY)

    async def write() -> None:
        await store.record(second, turn("u1", "a2", headerless=True), DAY)

    before_the_old_is_deleted(monkeypatch, write)
    assert await store.move("aa", "bb", "t")
    assert (await found(store, "u1", "a2", "u2", sid=None, tag="aa")).sid == "02"
    assert await store.move("aa", "bb", "t")
    for answer, sid in (("a1", "01"), ("a2", "02")):
        assert (await found(store, "u1", answer, "u2", sid=None, tag="bb")).sid == sid


async def test_of_two_copies_the_longer_life_counts(store: RedisStore, clock: HandClock) -> None:
    await store.record(FORMER, turn("u1", "a1"), 10 * DAY)
    await store.record(NOW, turn("u1", "a1"), 60.0)
    assert await store.move(FORMER.tag, NOW.tag, "t")
    life = await store._connection.ask("", "PTTL", keys.session(NOW))  # pyright: ignore[reportPrivateUsage]
    assert life > 9 * DAY * 1_000


async def test_that_a_session_has_expired_is_known_under_the_new_name_too(store: RedisStore) -> None:
    await store.record(FORMER, turn("u1", "a1"), DAY)
    await store.delete(FORMER)
    assert await store.move(FORMER.tag, NOW.tag, "t")
    assert (await store.history(NOW)).was_here


async def test_where_nothing_was_nothing_is_moved(store: RedisStore, clock: HandClock) -> None:
    assert not await store.move("aa", "bb", "t")
    assert not await InProcessStore(clock).move("aa", "bb", "t")

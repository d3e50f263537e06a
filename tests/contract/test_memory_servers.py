"""Memories on servers: two clients, what is stored and what is left, what is damaged, sealed or moved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.adapters.stores.redis import RedisStore, keys
from proxy.adapters.stores.redis.codec import Keyring, UnknownSecret, UnknownVersion
from proxy.core.memory.records import EventKind, Scope, ScopeKind, Texts, Thread
from proxy.ports import Changes, MemoryStore, SessionKey, UnreadableRecord
from tests.support.memories import forgetting_in
from tests.support.moves import before_the_old_is_deleted
from tests.support.scopes import (
    ABOUT,
    ALONE,
    CHANNEL,
    ONE,
    OTHER,
    PERSON,
    THREAD,
    TWO,
    WORKSPACE,
    archived,
    event,
    item,
    items,
    written,
)
from tests.support.stores import HandClock, Site, dump, keys_without_ttl, pass_time, run

CANARY = "canary-4711"


@pytest.fixture(params=[False, True], ids=["plain", "sealed"])
async def store(request: pytest.FixtureRequest, site: Site, clock: HandClock) -> AsyncGenerator[RedisStore]:
    keyring = Keyring(["new", "old"], lambda: request.param)
    opened = RedisStore(site.url, clock, 2.0, 1.0, keyring)
    yield opened
    await opened.aclose()


@pytest.fixture
def memories(store: RedisStore) -> MemoryStore:
    return store.memories


@pytest.fixture
async def second(site: Site, clock: HandClock) -> AsyncGenerator[MemoryStore]:
    """Another worker's."""
    opened = RedisStore(site.url, clock, 2.0, 1.0, Keyring(["new", "old"], lambda: False))
    yield opened.memories
    await opened.aclose()


async def fill(memories: MemoryStore, scope: Scope = CHANNEL) -> None:
    """One of everything that is kept of a scope."""
    await memories.note(scope, TWO, 4.0, replace(ABOUT, name=CANARY))
    await written(
        memories,
        scope,
        texts=Texts(long=CANARY, short=CANARY),
        items={"i1": item("i1", text=CANARY), "i2": item("i2")},
        archive={"x": replace(archived("i3"), original_content=CANARY, compressed_summary=CANARY)},
        events=[event("i1", at=at, details=CANARY) for at in range(3)],
        threads={ONE: Thread(updated=6.0, tip=b"tip", texts=Texts(long=CANARY))},
    )
    await written(memories, scope, items={"i2": None}, events=[event("i2", EventKind.DELETE)])
    assert await memories.claim_work(scope, "items", "token", 60)


async def everything(memories: MemoryStore, scope: Scope = CHANNEL) -> list[Any]:
    told = await memories.remembered(scope)
    return [
        told._replace(about=None),
        await memories.archive(scope),
        [await memories.log(scope, name) for name in ("i1", "i2")],
        list((await memories.threads(scope, 9)).items()),
    ]


def named(site: Site, tag: str) -> list[bytes]:
    """What is stored in which a tag stands: names of keys, members, values."""
    return [text for server in site.servers for text in dump(server) if tag.encode() in text]


def holder_of(site: Site, name: str) -> str:
    """The server that holds a key."""
    return next(server for server in site.servers if run(server, "KEYS", name))


def stored(site: Site, scope: Scope, part: str = "") -> tuple[str, str]:
    """The server that holds a key of a scope, and the key."""
    name = keys.session(SessionKey(scope.tag, keys.MEMORY)) + part
    return holder_of(site, name), name


class TestTwoWorkers:
    async def test_of_two_who_change_the_same_version_one_gets_in(
        self, memories: MemoryStore, second: MemoryStore
    ) -> None:
        seen = await written(memories, items=items("i1"))
        changes = [Changes(items=items(name)) for name in ("i2", "i3")]
        versions = await asyncio.gather(
            memories.change(CHANNEL, changes[0], seen), second.change(CHANNEL, changes[1], seen)
        )
        assert sum(version > seen for version in versions) == 1
        assert 0 in versions
        assert len((await memories.remembered(CHANNEL)).items) == 2

    async def test_what_one_writes_is_news_to_the_other(
        self, memories: MemoryStore, second: MemoryStore
    ) -> None:
        first = await written(memories, items=items("i1"))
        assert (await second.remembered(CHANNEL)).items == items("i1")
        version = await written(second, items=items("i2"))
        told = await memories.remembered(CHANNEL, first)
        assert (told.version, told.items, told.is_whole) == (version, items("i2"), False)


class TestWhatIsStored:
    async def test_a_scope_that_is_forgotten_leaves_no_key_and_no_word(
        self, memories: MemoryStore, site: Site
    ) -> None:
        await fill(memories)
        assert named(site, CHANNEL.tag)
        assert await memories.forget(CHANNEL)
        assert named(site, CHANNEL.tag) == []
        assert named(site, CANARY) == []
        assert [text for server in site.servers for text in dump(server) if b":memory" in text] == []

    async def test_the_scope_of_a_thread_that_ended_leaves_nothing(
        self, memories: MemoryStore, site: Site, clock: HandClock
    ) -> None:
        await memories.note(THREAD, ONE, 5.0, ALONE, ttl=0.3)
        await pass_time(clock, 0.4)
        await memories.note(PERSON, ONE, 5.0, ALONE)
        assert named(site, THREAD.tag) == []

    async def test_memories_alone_are_kept_without_a_time_to_live(
        self, memories: MemoryStore, site: Site
    ) -> None:
        for scope in (CHANNEL, PERSON, WORKSPACE):
            await fill(memories, scope)
        assert keys_without_ttl(*site.servers) == []
        await memories.note(THREAD, ONE, 5.0, ALONE)
        assert len(keys_without_ttl(*site.servers)) == 2
        await memories.note(THREAD, ONE, 5.0, ALONE, ttl=60)
        assert keys_without_ttl(*site.servers) == []

    async def test_leases_that_have_ended_do_not_heap_up(
        self, memories: MemoryStore, site: Site, clock: HandClock
    ) -> None:
        for work in range(5):
            assert await memories.claim_work(CHANNEL, f"daily {work}", "token", 0.05)
        await pass_time(clock, 0.1)
        assert await memories.claim_work(CHANNEL, "daily 5", "token", 60)
        server, name = stored(site, CHANNEL, keys.CLAIMS)
        assert run(server, "HKEYS", name) == [b"daily 5"]

    async def test_a_change_of_one_item_among_ten_thousand_is_small_to_write_and_to_hear_of(
        self, memories: MemoryStore, site: Site
    ) -> None:
        def sent() -> int:
            stats = [run(server, "INFO", "stats") for server in site.servers]
            return sum(each["total_net_output_bytes"] + each["total_net_input_bytes"] for each in stats)

        seen = 0
        for part in range(20):
            many = items(*(f"i{part}-{number}" for number in range(500)))
            seen = await memories.change(CHANNEL, Changes(items=many), seen)
        before = sent()
        version = await memories.change(CHANNEL, Changes(items=items("i0-0")), seen)
        told = await memories.remembered(CHANNEL, seen)
        assert (await memories.remembered(CHANNEL, version)).items == {}
        assert sent() - before < 40_000  # nearly all of it is what `sent` asks
        assert (told.version, set(told.items)) == (version, {"i0-0"})
        assert len((await memories.remembered(CHANNEL)).items) == 10_000


class TestWhatIsSealed:
    @pytest.mark.parametrize("store", [True], indirect=True, ids=["sealed"])
    async def test_nothing_that_was_said_can_be_read_in_the_store(
        self, memories: MemoryStore, site: Site
    ) -> None:
        await fill(memories)
        assert str(await everything(memories)).count(CANARY) >= 8
        assert named(site, CANARY) == []
        assert named(site, "deadline") == []

    @pytest.mark.parametrize("store", [True], indirect=True, ids=["sealed"])
    async def test_another_secret_reads_nothing_and_harms_nothing(
        self, memories: MemoryStore, site: Site, clock: HandClock
    ) -> None:
        await fill(memories)
        before = await everything(memories)
        stranger = RedisStore(site.url, clock, 2.0, 1.0, Keyring(["third"], lambda: True))
        with pytest.raises(UnknownSecret):
            await stranger.memories.remembered(CHANNEL)
        assert await stranger.memories.archive(CHANNEL) == {}
        await stranger.memories.note(CHANNEL, ONE, 9.0, ALONE)
        await stranger.aclose()
        assert (await everything(memories))[:3] == before[:3]

    @pytest.mark.parametrize("store", [True], indirect=True, ids=["sealed"])
    async def test_what_a_server_cannot_read_it_forgets_all_the_same(
        self, memories: MemoryStore, site: Site, clock: HandClock
    ) -> None:
        await written(memories, PERSON, about=ABOUT)
        stranger = RedisStore(site.url, clock, 2.0, 1.0, Keyring(["third"], lambda: True))
        assert await forgetting_in(stranger, clock).scope(PERSON)
        await stranger.aclose()
        assert (await memories.remembered(PERSON)).about is None


class TestWhatIsDamaged:
    async def test_an_item_that_is_damaged_is_left_out_and_hides_no_other(
        self, memories: MemoryStore, site: Site, caplog: pytest.LogCaptureFixture
    ) -> None:
        first = await written(memories, about=ABOUT, items=items("i1"))
        await written(memories, items=items("i2", "i3"))
        server, name = stored(site, CHANNEL, keys.ITEMS)
        run(server, "HSET", name, "i2", b"\x01\xc1")
        with caplog.at_level(logging.WARNING):
            assert (await memories.remembered(CHANNEL)).items == items("i1", "i3")
        assert "damaged" in caplog.text
        assert (await memories.remembered(CHANNEL, first)).items == {"i2": None, **items("i3")}
        await written(memories, items=items("i2"))
        assert (await memories.remembered(CHANNEL)).items == items("i1", "i2", "i3")

    async def test_texts_and_archive_and_log_lose_what_is_damaged_alone(
        self, memories: MemoryStore, site: Site
    ) -> None:
        await fill(memories)
        await written(memories, archive={"y": archived("i4")}, threads={ONE: Thread(updated=6.0)})
        server, name = stored(site, CHANNEL)
        for field in ("about", "texts"):
            run(server, "HSET", name, field, "junk")
        run(server, "HSET", name + keys.ARCHIVE, "x", "junk")
        run(server, "HSET", name + keys.LOG, "i1", "junk junk junk")
        run(server, "HSET", name + keys.READ, keys.listed(ONE), "junk")
        told = await memories.remembered(CHANNEL)
        assert (told.about, told.texts, set(told.items)) == (None, Texts(), {"i1"})
        assert await memories.archive(CHANNEL) == {"y": archived("i4")}
        assert await memories.thread(CHANNEL, ONE) == Thread(updated=6.0)
        assert list(await memories.log(CHANNEL, "i1")) == []
        await written(memories, about=ABOUT, texts=Texts(long="anew"), events=[event("i1")])
        told = await memories.remembered(CHANNEL)
        assert (told.about, told.texts) == (ABOUT, Texts(long="anew"))
        assert list(await memories.log(CHANNEL, "i1")) == [event("i1")]

    async def test_a_version_that_is_damaged_begins_anew_and_all_read_all(
        self, memories: MemoryStore, site: Site
    ) -> None:
        seen = await written(memories, items=items("i1"))
        server, name = stored(site, CHANNEL)
        run(server, "HSET", name, "version", "junk")
        assert (await memories.remembered(CHANNEL)).items == items("i1")
        await written(memories, items=items("i2"))
        assert (await memories.remembered(CHANNEL, seen)).items == items("i1", "i2")

    async def test_what_a_newer_release_wrote_stays_as_it_is(self, memories: MemoryStore, site: Site) -> None:
        await written(memories, about=ABOUT, items=items("i1", "i2"))
        server, name = stored(site, CHANNEL)
        run(server, "HSET", name + keys.ITEMS, "i2", b"\x02newer")
        assert (await memories.remembered(CHANNEL)).items == items("i1")
        await written(memories, items=items("i3"))
        assert run(server, "HGET", name + keys.ITEMS, "i2") == b"\x02newer"
        run(server, "HSET", name, "texts", b"\x02newer")
        with pytest.raises(UnknownVersion):
            await memories.remembered(CHANNEL)

    @pytest.mark.parametrize("part", ["", keys.ITEMS, keys.ARCHIVE])
    async def test_a_key_of_another_type_is_a_record_that_cannot_be_read_and_is_forgotten_with_the_rest(
        self, store: RedisStore, memories: MemoryStore, site: Site, clock: HandClock, part: str
    ) -> None:
        await fill(memories)
        server, name = stored(site, CHANNEL, part)
        run(server, "DEL", name)
        run(server, "SET", name, "another application's")
        with pytest.raises(UnreadableRecord):
            await forgetting_in(store, clock).memories.read_scope(CHANNEL)
        assert await forgetting_in(store, clock).scope(CHANNEL)
        assert (await memories.remembered(CHANNEL)).version == 0
        assert list(await memories.scopes(9)) == []

    async def test_a_scope_of_a_kind_that_is_not_known_here_is_not_listed(
        self, memories: MemoryStore, site: Site
    ) -> None:
        await memories.note(CHANNEL, ONE, 1.0, ABOUT)
        index = keys.session(keys.INDEX)
        server = holder_of(site, index)
        run(server, "ZADD", index, 1e17, "planet/c9")
        assert list(await memories.scopes(9)) == [CHANNEL]

    async def test_of_what_is_listed_and_not_stored_all_but_the_newest_is_taken_from_the_list(
        self, memories: MemoryStore, site: Site
    ) -> None:
        await memories.note(CHANNEL, ONE, 1.0, ABOUT)
        index = keys.session(keys.INDEX)
        server = holder_of(site, index)
        now = float(run(server, "ZSCORE", index, "channel/c1"))
        for member, age in (("person/old", 3.7e9), ("person/young", 1.8e9), ("channel/c1", 9e9)):
            run(server, "ZADD", index, now - age, member)
        old, young = (Scope(ScopeKind.PERSON, tag) for tag in ("old", "young"))
        assert list(await memories.scopes(9)) == [young, old, CHANNEL]
        for scope in (old, young, CHANNEL):
            await memories.unlist(scope)
        assert list(await memories.scopes(9)) == [young, CHANNEL]


class TestMoving:
    FORMER = Scope(ScopeKind.CHANNEL, "old1")

    async def test_all_of_a_scope_is_found_under_its_new_name_and_nothing_under_the_old(
        self, memories: MemoryStore, site: Site
    ) -> None:
        await fill(memories, self.FORMER)
        before = await everything(memories, self.FORMER)
        assert await memories.move(self.FORMER.tag, CHANNEL, "new tenant", "w2")
        assert await everything(memories, CHANNEL) == before
        about = (await memories.remembered(CHANNEL)).about
        moved = replace(ABOUT, name=CANARY, tenant="new tenant", workspace="w2")
        assert about == replace(moved, former=self.FORMER.tag)
        assert list(await memories.scopes(9)) == [CHANNEL]
        assert list(await memories.channels(Scope(ScopeKind.WORKSPACE, "w2"))) == [CHANNEL]
        assert [text for text in named(site, self.FORMER.tag) if b"former" not in text] == []
        assert keys_without_ttl(*site.servers) == []

    async def test_a_scope_goes_on_after_the_move(self, memories: MemoryStore) -> None:
        await fill(memories, self.FORMER)
        await memories.move(self.FORMER.tag, CHANNEL, "t")
        seen = (await memories.remembered(CHANNEL)).version
        version = await written(memories, items=items("i5"), events=[event("i1", at=7.0)])
        assert await memories.remembered(CHANNEL, seen) == (
            version,
            replace(ABOUT, name=CANARY, workspace="", former=self.FORMER.tag),
            Texts(long=CANARY, short=CANARY),
            items("i5"),
            False,
        )
        assert [each.at for each in await memories.log(CHANNEL, "i1")] == [0.0, 1.0, 2.0, 7.0]

    async def test_a_threads_own_scope_ends_when_it_would_have(
        self, memories: MemoryStore, clock: HandClock
    ) -> None:
        former = self.FORMER._replace(kind=ScopeKind.THREAD)
        await memories.note(former, ONE, 5.0, ALONE, ttl=0.5)
        assert await memories.move(self.FORMER.tag, THREAD, "t")
        assert (await memories.remembered(THREAD)).version
        await pass_time(clock, 0.6)
        assert not (await memories.remembered(THREAD)).version

    async def test_two_workers_at_once_move_it_once_and_what_began_anew_stays(
        self, memories: MemoryStore, second: MemoryStore
    ) -> None:
        await written(memories, self.FORMER, items=items("i1"))
        both = (each.move(self.FORMER.tag, CHANNEL, "t") for each in (memories, second))
        assert any(await asyncio.gather(*both))
        assert (await memories.remembered(CHANNEL)).items == items("i1")
        await written(memories, OTHER, items=items("i2"))
        assert not await memories.move(OTHER.tag, CHANNEL, "t")
        assert (await memories.remembered(OTHER)).items == items("i2")

    async def test_what_others_write_under_the_old_name_meanwhile_is_moved_too(
        self, memories: MemoryStore, second: MemoryStore, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await written(memories, self.FORMER, about=ABOUT, items=items("i1"))

        async def write() -> None:
            await written(second, self.FORMER, items=items("i2"))
            await second.note(self.FORMER, TWO, 9.0, ABOUT)

        before_the_old_is_deleted(monkeypatch, write)
        assert await memories.move(self.FORMER.tag, CHANNEL, "t")
        assert (await memories.remembered(CHANNEL)).items == items("i1", "i2")
        assert list(await memories.threads(CHANNEL, 9)) == [TWO]
        assert [text for text in named(site, self.FORMER.tag) if b"former" not in text] == []

    async def test_what_others_forget_under_the_old_name_meanwhile_is_forgotten(
        self, memories: MemoryStore, second: MemoryStore, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await written(memories, self.FORMER, about=ABOUT, items={"i1": item("i1", text=CANARY)})
        before_the_old_is_deleted(monkeypatch, lambda: second.forget(self.FORMER))
        assert not await memories.move(self.FORMER.tag, CHANNEL, "t")
        assert named(site, CANARY) == []
        assert not (await memories.remembered(CHANNEL)).version

    async def test_where_nothing_was_nothing_is_moved(self, memories: MemoryStore, site: Site) -> None:
        assert not await memories.move(self.FORMER.tag, CHANNEL, "t")
        assert named(site, "memory") == []

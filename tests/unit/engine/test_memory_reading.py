"""What a session is told at its start, and what being told does to an item."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from proxy.adapters.search import SqliteSearch
from proxy.adapters.stores.in_process import InProcessStore
from proxy.cache import CacheMemory
from proxy.core.conversation.messages import root_hash
from proxy.core.dialects.chat.body import read_body
from proxy.core.dialects.registry import CHAT, DIALECTS
from proxy.core.memory.records import About, EventKind, Item, Scope, Source, Texts
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Memory as Rules
from proxy.engine.background import Background
from proxy.engine.flow import Incoming
from proxy.engine.intake.history import History
from proxy.engine.intake.homes import named_home, own_home
from proxy.engine.intake.naming import Envelope, Naming
from proxy.engine.intake.reader import Reader
from proxy.engine.memory.conversations import Conversations
from proxy.engine.memory.reader import MemoryReader
from proxy.engine.memory.scope_cache import ScopeCache
from proxy.ports import Changes, Passage, Search, SessionKey
from tests.support.memories import NOW, an_item
from tests.support.stores import HandClock
from tests.support.upstreams import COUNTER

NAMING = Naming("secret", CacheMemory())
HEADERS = {
    b"authorization": b"Bearer sk-1",
    b"x-unabridged-channel": b"general",
    b"x-unabridged-workspace": b"acme",
}
ENVELOPE = Envelope.read(NAMING, "/chat/completions", HEADERS, [])
FIRST, SECOND = SessionKey("aa", "named"), SessionKey("bb", "named")


class Place:
    """A channel in a workspace, and who reads what is remembered of them."""

    def __init__(self, search: Search | None = None) -> None:
        self.clock, memory = HandClock(NOW), CacheMemory()
        store = InProcessStore(self.clock)
        self.memories, self.background = store.memories, Background()
        home = named_home(NAMING, HEADERS, channel="general", workspace="acme")
        assert home is not None
        assert home.workspace is not None
        self.channel, self.workspace = home.scope, home.workspace
        self.reading = MemoryReader(
            NAMING,
            ScopeCache(self.memories, memory),
            search or SqliteSearch(),
            COUNTER,
            self.clock,
            self.background,
            Conversations(store, DIALECTS, memory),
        )

    async def know(self, scope: Scope, texts: Texts, *items: Item) -> None:
        await self.memories.note(scope, FIRST, NOW, About(tenant="t", name="general"))
        version = (await self.memories.remembered(scope)).version
        changes = Changes(texts=texts, items={item.id: item for item in items})
        assert await self.memories.change(scope, changes, version)

    async def begins(
        self, question: str, session: SessionKey = FIRST, room: int = 1_000, envelope: Envelope = ENVELOPE
    ) -> str:
        policy = Policy(memory=Rules(enabled=True))
        raw = b'{"model":"m","messages":[{"role":"user","content":"%s"}]}' % question.encode()
        incoming = Incoming(envelope, raw, policy, 0.0)
        history = await history_of(raw)
        home = self.reading.home(incoming, history, session)
        told = await self.reading.opening(home, history, session, room)
        await self.background.drain()
        return told


class LongSearch(SqliteSearch):
    """A search that has still to index thousands of items."""

    async def search(self, shelf: str, passages: Sequence[Passage], query: str, most: int) -> list[int]:
        await asyncio.Event().wait()
        raise AssertionError


async def history_of(raw: bytes) -> History:
    """A request's messages, as they are read."""
    return await Reader(CHAT, COUNTER, CacheMemory()).read(read_body(raw, 10), root_hash())


@pytest.fixture
async def place() -> Place:
    place = Place()
    await COUNTER.ready()  # as a server's is before its first request: a session's start waits a second
    elsewhere = Source(session="s0", messages=(b"m0",), role="user", at=NOW)
    boat, oslo = an_item("Ana has a boat.", source=elsewhere), an_item("Ana lives in Oslo.")
    nuts = an_item("Ana is allergic to nuts.", is_standing=True)
    bergen = an_item("Ana lives in Bergen.", superseded_by=oslo.id)
    channel = Texts(long="- channel long", short="- channel short")
    await place.know(place.channel, channel, boat, oslo, nuts, bergen)
    workspace = Texts(long="- workspace long", short="- workspace short")
    await place.know(place.workspace, workspace, an_item("Oslo is cold."))
    return place


async def test_texts_stand_before_the_items_that_fit_and_those_that_stay_true(place: Place) -> None:
    lines = (await place.begins("Where is Oslo?")).splitlines()
    assert lines[:3] == ["- workspace long", "- channel long", "- channel short"]
    assert lines[3] == "2026-01-01:"
    assert sorted(lines[4:]) == ["- Ana is allergic to nuts.", "- Ana lives in Oslo.", "- Oslo is cold."]


async def test_what_fits_best_is_told_first_whether_it_is_the_channels_or_the_workspaces(
    place: Place,
) -> None:
    boats = [an_item(f"Boat number {number} has sailed to Bergen.") for number in range(200)]
    await place.know(place.channel, Texts(), *boats)
    assert "- Oslo is cold." in await place.begins("Is it cold in Oslo when the boat has sailed?", room=400)


async def test_what_is_told_is_used_once_a_session(place: Place) -> None:
    for session in (FIRST, FIRST, SECOND):
        await place.begins("Where is Oslo?", session)
    items = (await place.memories.remembered(place.channel)).items
    scores = {name: item.importance_score for name, item in items.items() if item is not None}
    assert (scores["Ana lives in Oslo."], scores["Ana has a boat."]) == (0.7, 0.5)
    above = (await place.memories.remembered(place.workspace)).items["Oslo is cold."]
    assert above is not None
    assert above.access_count == 2
    log = await place.memories.log(place.channel, "Ana lives in Oslo.")
    assert [event.kind for event in log] == [EventKind.USE, EventKind.USE]


async def test_it_keeps_within_its_room(place: Place) -> None:
    told = await place.begins("Where is Oslo?", room=60)
    assert 0 < COUNTER.count(told) <= 60


async def test_what_needs_no_search_is_told_though_the_search_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("proxy.engine.memory.reader._SEARCHING", 0.05)
    place = Place(LongSearch())
    await COUNTER.ready()
    nuts = an_item("Ana is allergic to nuts.", is_standing=True)
    await place.know(place.channel, Texts(short="- channel short"), nuts, an_item("Ana has a boat."))
    told = await place.begins("Who has a boat?")
    assert told.splitlines() == ["- channel short", "2026-01-01:", "- Ana is allergic to nuts."]


async def test_where_nothing_is_remembered_nothing_is_told() -> None:
    assert await Place().begins("Where is Oslo?") == ""


async def test_a_session_that_belongs_to_nobody_is_told_nothing_though_it_had_a_namesake() -> None:
    place, nobody = Place(), Envelope.read(NAMING, "/chat/completions", {}, [])
    own = own_home(NAMING, {}, FIRST).scope
    await place.know(own, Texts(long="- what the deleted one said"), an_item("Oslo is cold."))
    assert await place.begins("Where is Oslo?", envelope=nobody) == ""

"""What was put away is found, told as that, taken back and forgotten like any other item."""

from __future__ import annotations

import pytest

from proxy.adapters.search import SqliteSearch
from proxy.adapters.stores.in_process import InProcessStore
from proxy.cache import Memory
from proxy.core.dialects.registry import DIALECTS
from proxy.core.memory.records import ArchiveReason, Texts
from proxy.core.policy.policy import Policy
from proxy.engine.admin.forgetting import Forgetting
from proxy.engine.admin.memories import MemoryAdmin
from proxy.engine.background import Background
from proxy.engine.intake.naming import Naming
from proxy.engine.memory.conversations import Conversations
from proxy.engine.memory.reader import MemoryReader
from proxy.engine.memory.scope_cache import ScopeCache
from proxy.errors import NotFound
from tests.support.scopes import ABOUT, CHANNEL, archived, written
from tests.support.stores import HandClock
from tests.support.upstreams import COUNTER

NAME = f"channel.{CHANNEL.tag}.i1"
TEXTS = Texts(long="- Friday is the deadline.\n- The boat is green.", short="- The boat is green.")


@pytest.fixture
async def memories() -> MemoryAdmin:
    clock = HandClock()
    store = InProcessStore(clock)
    await written(store.memories, about=ABOUT, archive={"xi1": archived("i1")}, texts=TEXTS)
    memory = Memory(1 << 20)
    naming, scopes, search = Naming("s", memory), ScopeCache(store.memories, memory), SqliteSearch()
    sources = Conversations.open(store, DIALECTS, memory)
    reading = MemoryReader(naming, scopes, search, COUNTER, clock, Background(), sources)
    return MemoryAdmin(scopes, search, reading, clock, lambda _: Policy())


async def test_an_archived_item_is_told_by_its_summary(memories: MemoryAdmin) -> None:
    entry = await memories.item(NAME)
    assert (entry.state, entry.text) == ("archived", "short")
    assert entry.archived is not None
    assert entry.archived.archive_reason is ArchiveReason.LOW_IMPORTANCE
    assert [each.id for each in (await memories.found("", "short", 5)).items] == [NAME]
    assert [each.id for each in (await memories.found(f"t.channel.{CHANNEL.tag}", "short", 5)).items] == [
        NAME
    ]


async def test_it_is_born_again_when_it_is_taken_back(memories: MemoryAdmin) -> None:
    entry = await memories.restore(NAME)
    assert (entry.state, entry.text) == ("remembered", "The deadline is Friday.")
    found = await memories.item(NAME)
    assert (found.state, found.item.importance_score, found.item.access_count) == ("remembered", 0.5, 0)
    assert found.item.created_at == memories.clock.now()
    assert not await memories.scopes.store.archive(CHANNEL)


async def test_it_is_forgotten_with_the_lines_that_tell_of_it_and_no_others(memories: MemoryAdmin) -> None:
    await Forgetting(memories, Naming("s", Memory(1 << 20))).item(NAME)
    with pytest.raises(NotFound):
        await memories.item(NAME)
    assert not await memories.scopes.store.archive(CHANNEL)
    texts = (await memories.scopes.remembered(CHANNEL)).texts
    assert (texts.long, texts.short) == ("- The boat is green.", "- The boat is green.")


async def test_a_scope_of_another_tenant_is_not_found_by_its_tag(memories: MemoryAdmin) -> None:
    assert (await memories.scope(f"t.channel.{CHANNEL.tag}")).about == ABOUT
    for name in (f"u.channel.{CHANNEL.tag}", f"t.person.{CHANNEL.tag}x", "t.nothing.c1"):
        with pytest.raises(NotFound):
            await memories.scope(name)

"""What was put away is found, told as that, taken back and forgotten like any other item."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.in_process_memories import InProcessMemories
from proxy.core.memory.items import ProposedItem, VerifiedItem
from proxy.core.memory.records import ArchiveReason, Scope, Source, Texts, Thread
from proxy.core.memory.utterances import shown_name, utterances_of
from proxy.engine.admin.forgetting import Forgetting
from proxy.engine.admin.memories import MemoryAdmin
from proxy.errors import NotFound, StoreUnavailable
from proxy.ports import Changes, SessionKey
from tests.support.conversations import chain_from, user
from tests.support.memories import PartlyUnread, forgetting_in
from tests.support.scopes import (
    ABOUT,
    ALONE,
    CHANNEL,
    ONE,
    OTHER,
    PERSON,
    TWO,
    WORKSPACE,
    archived,
    item,
    written,
)
from tests.support.stores import HandClock

NAME = f"channel.{CHANNEL.tag}.i1"
TEXTS = Texts(long="- Friday is the deadline.\n- The boat is green.", short="- The boat is green.")


@pytest.fixture
async def forgetting() -> Forgetting:
    clock = HandClock()
    store = InProcessStore(clock)
    await written(store.memories, about=ABOUT, archive={"xi1": archived("i1")}, texts=TEXTS)
    return forgetting_in(store, clock)


@pytest.fixture
def memories(forgetting: Forgetting) -> MemoryAdmin:
    return forgetting.memories


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


@pytest.mark.parametrize("name", ["i1", "i2"], ids=["archived", "superseded"])
async def test_what_is_restored_while_it_is_forgotten_stays_forgotten(
    forgetting: Forgetting, memories: MemoryAdmin, name: str
) -> None:
    await written(memories.scopes.store, items={"i2": item("i2", superseded_by="i3")})
    wanted = f"channel.{CHANNEL.tag}.{name}"
    forgotten = forgetting.item(wanted)
    await asyncio.gather(forgotten, *(memories.restore(wanted) for _ in range(5)), return_exceptions=True)
    with pytest.raises(NotFound):
        await memories.item(wanted)


@pytest.mark.parametrize("name", ["i1", "i2"], ids=["archived", "superseded"])
async def test_nothing_is_restored_into_a_scope_that_is_forgotten_meanwhile(
    forgetting: Forgetting, memories: MemoryAdmin, name: str
) -> None:
    await written(memories.scopes.store, items={"i2": item("i2", superseded_by="i3")})
    restoring = asyncio.create_task(memories.restore(f"channel.{CHANNEL.tag}.{name}"))
    await asyncio.sleep(0)  # it has read the item, and decides
    await forgetting.scope(CHANNEL)
    with pytest.raises(NotFound):
        await restoring
    assert list(await memories.scopes.store.scopes(9)) == []


async def test_what_an_interrupted_move_left_under_the_former_name_is_forgotten_too(
    forgetting: Forgetting, memories: MemoryAdmin
) -> None:
    store = memories.scopes.store
    await written(store, about=replace(ABOUT, former=OTHER.tag))
    await written(store, OTHER, about=ABOUT, items={"i2": item("i2")})
    assert await forgetting.scope(CHANNEL)
    assert list(await store.scopes(9)) == []


async def test_it_is_restored_though_its_scope_changes_meanwhile(memories: MemoryAdmin) -> None:
    restoring = asyncio.create_task(memories.restore(NAME))
    await asyncio.sleep(0)
    await written(memories.scopes.store, items={"i2": item("i2")})
    assert (await restoring).state == (await memories.item(NAME)).state == "remembered"
    assert not await memories.scopes.store.archive(CHANNEL)


async def test_work_on_a_scope_that_was_forgotten_does_not_begin_it_anew(memories: MemoryAdmin) -> None:
    await memories.scopes.store.forget(CHANNEL)
    await memories.scopes.change(CHANNEL, lambda _: Changes(threads={ONE: None}))
    assert list(await memories.scopes.store.scopes(9)) == []


async def test_it_is_forgotten_with_the_lines_that_tell_of_it_and_no_others(
    forgetting: Forgetting, memories: MemoryAdmin
) -> None:
    await forgetting.item(NAME)
    with pytest.raises(NotFound):
        await memories.item(NAME)
    assert not await memories.scopes.store.archive(CHANNEL)
    texts = (await memories.scopes.remembered(CHANNEL)).texts
    assert (texts.long, texts.short) == ("- The boat is green.", "- The boat is green.")


async def test_an_item_of_a_channel_is_forgotten_in_the_texts_of_its_workspace_too(
    forgetting: Forgetting, memories: MemoryAdmin
) -> None:
    store, above = memories.scopes.store, "- Every deadline is on a Friday.\n- They sail."
    await written(store, WORKSPACE, about=ALONE, texts=Texts(long=above))
    preview = await forgetting.preview(NAME)
    assert preview.lines == ["- Friday is the deadline.", "- Every deadline is on a Friday."]
    await forgetting.item(NAME)
    assert (await store.remembered(WORKSPACE)).texts.long == "- They sail."


async def test_a_channel_is_forgotten_in_the_texts_of_its_workspace_too(
    forgetting: Forgetting, memories: MemoryAdmin
) -> None:
    store, read = memories.scopes.store, Thread(updated=1.0, texts=Texts(short="- They paint a fence."))
    await written(store, items={"i2": item("i2", "Ana lives in Oslo.")}, threads={ONE: read})
    others = "- They sail.\n- Ben lives by the sea."
    told = ("Each deadline is a Friday.", "A boat is green.", "Ana lives in Oslo.", "Crews paint a fence.")
    await written(store, WORKSPACE, about=ALONE, texts=Texts(long="\n".join([others, *told]), short=told[1]))
    assert await forgetting.scope(CHANNEL)
    assert (await store.remembered(WORKSPACE)).texts == Texts(long=others)
    assert list(await store.scopes(9)) == [WORKSPACE]


async def test_a_channel_stays_until_nothing_of_it_is_left_in_its_workspace() -> None:
    class Failing(InProcessMemories):
        """Memories whose workspace cannot be changed while it is away."""

        is_away = False

        async def change(self, scope: Scope, changes: Changes, seen: int) -> int:
            if scope == WORKSPACE and self.is_away:
                raise StoreUnavailable
            return await super().change(scope, changes, seen)

    clock = HandClock()
    store = InProcessStore(clock)
    failing = store.memories = Failing(clock)
    await written(failing, WORKSPACE, about=ALONE, texts=TEXTS)
    await written(failing, about=ABOUT, texts=TEXTS)
    forgetting, failing.is_away = forgetting_in(store, clock), True
    with pytest.raises(StoreUnavailable):
        await forgetting.scope(CHANNEL)
    failing.is_away = False
    assert await forgetting.scope(CHANNEL)
    assert (await failing.remembered(WORKSPACE)).texts == Texts()


async def test_a_session_of_a_channel_is_forgotten_in_the_texts_of_its_workspace_too(
    forgetting: Forgetting, memories: MemoryAdmin
) -> None:
    store = memories.scopes.store
    read = Thread(updated=1.0, texts=Texts(short="- They paint the boat."))
    await written(store, threads={ONE: read})
    await written(store, WORKSPACE, about=ALONE, texts=Texts(short="- Crews paint a boat.\n- They sail."))
    assert (await forgetting.session({ONE: "t"})).items == 0
    assert (await store.remembered(WORKSPACE)).texts.short == "- They sail."


async def test_of_a_session_that_nothing_was_learned_from_nothing_is_forgotten(
    forgetting: Forgetting,
) -> None:
    assert not (await forgetting.session({SessionKey("ff", "named"): "t"})).is_known


async def test_a_session_is_forgotten_under_all_names_that_it_had(
    forgetting: Forgetting, memories: MemoryAdmin
) -> None:
    former = SessionKey("dd", "named")
    sources = [Source(session=key.id_for("t"), messages=(), role="user", at=1.0) for key in (former, ONE)]
    learned = {f"i{n}": item(f"i{n}", "The hull is red.", source=each) for n, each in enumerate(sources, 2)}
    await written(memories.scopes.store, items=learned)
    assert (await forgetting.session({ONE: "t", former: "t"})).items == 2


async def test_a_person_who_spoke_in_a_channel_is_forgotten_in_the_texts_of_its_workspace_too(
    forgetting: Forgetting, memories: MemoryAdmin
) -> None:
    store, texts = memories.scopes.store, Texts(long="- Ana has a boat.\n- They sail.")
    source = Source(session="s", messages=(), role="user", name="ana", at=1.0)
    await written(store, items={"i2": item("i2", "I am in Oslo.", source=source)}, texts=texts)
    await written(store, WORKSPACE, about=ALONE, texts=texts)
    assert (await forgetting.person("ana")).items == 1
    for scope in (CHANNEL, WORKSPACE):
        assert (await store.remembered(scope)).texts.long == "- They sail."


@pytest.mark.parametrize("name", ["user:123", "[bot]", "auth0|4711", "4f2a" * 16, "7" * 70, "Ana: Berg"])
@pytest.mark.parametrize("is_former", [False, True])
async def test_a_person_is_forgotten_whatever_the_name_is_made_of_and_whichever_release_stored_it(
    forgetting: Forgetting, memories: MemoryAdmin, name: str, is_former: bool
) -> None:
    store = memories.scopes.store
    (said,) = utterances_of(chain_from([user("I am in Oslo.")]), [1.0], (), [name])
    source = VerifiedItem(ProposedItem(said.text), said.trust, is_standing=False, lines=(said,)).source("s")
    if is_former:
        source = replace(source, name=shown_name(name, 60), person="")
    texts = Texts(long=f"- {source.name} has a boat.\n- They sail at 7 or 4.\n- Each user has a key.")
    await written(store, items={"i2": item("i2", said.text, source=source)}, texts=texts)
    assert (await forgetting.person(name)).items == 1
    left = (await store.remembered(CHANNEL)).texts.long
    assert left == "- They sail at 7 or 4.\n- Each user has a key."


@pytest.mark.parametrize("name", ["[user]", "[]"])
async def test_a_person_whose_name_is_shown_as_nothing_or_as_anybody_is_forgotten_by_it(
    forgetting: Forgetting, memories: MemoryAdmin, name: str
) -> None:
    (said,) = utterances_of(chain_from([user("I am in Oslo.")]), [1.0], (), [name])
    source = VerifiedItem(ProposedItem(said.text), said.trust, is_standing=False, lines=(said,)).source("s")
    await written(memories.scopes.store, items={"i2": item("i2", said.text, source=source)})
    assert (await forgetting.person(name)).items == 1


async def test_what_is_said_by_another_whose_name_is_shown_alike_is_not_forgotten(
    forgetting: Forgetting, memories: MemoryAdmin
) -> None:
    store, names = memories.scopes.store, ("user:123", "user 123")
    sources = [
        Source(session="s", messages=(), role="user", name="user 123", person=each, at=1.0) for each in names
    ]
    said = {f"i{n}": item(f"i{n}", "The hull is red.", source=each) for n, each in enumerate(sources, 2)}
    await written(store, items=said)
    assert (await forgetting.person("user:123")).items == 1
    assert [*(await store.remembered(CHANNEL)).items] == ["i3"]


async def test_a_name_of_marks_alone_is_not_that_of_everybody_without_a_name(
    forgetting: Forgetting, memories: MemoryAdmin
) -> None:
    sources = [
        Source(session="s", messages=(), role="user", name="", person=each, at=1.0) for each in ("", "[]")
    ]
    said = {f"i{n}": item(f"i{n}", "The hull is red.", source=each) for n, each in enumerate(sources, 2)}
    await written(memories.scopes.store, items=said)
    assert (await forgetting.person("[]")).items == 1
    assert [*(await memories.scopes.store.remembered(CHANNEL)).items] == ["i2"]


async def test_a_workspace_of_which_nothing_is_remembered_stays_so(
    forgetting: Forgetting, memories: MemoryAdmin
) -> None:
    await forgetting.item(NAME)
    assert (await memories.scopes.store.remembered(WORKSPACE)).version == 0


async def test_a_scope_of_another_tenant_is_not_found_by_its_tag(memories: MemoryAdmin) -> None:
    assert (await memories.scope(f"t.channel.{CHANNEL.tag}")).about == ABOUT
    for name in (f"u.channel.{CHANNEL.tag}", f"t.person.{CHANNEL.tag}x", "t.nothing.c1"):
        with pytest.raises(NotFound):
            await memories.scope(name)


# --- what cannot be read ---


@pytest.fixture
async def unread() -> PartlyUnread:
    """The memories of a channel, of its workspace and of Ana; the test says which of them are unread."""
    memories = PartlyUnread(HandClock())
    said = Source(session=ONE.id_for("t"), messages=(), role="user", name="ana", person="ana", at=1.0)
    await written(memories, about=ABOUT, items={"i1": item("i1", "They sail.", source=said)}, texts=TEXTS)
    await written(memories, WORKSPACE, about=ALONE, texts=Texts(long="- Ana has a boat.\n- They row."))
    await written(memories, PERSON, about=replace(ALONE, name="ana"), items={"i2": item("i2")})
    return memories


def forgetting_of(memories: InProcessMemories) -> Forgetting:
    store = InProcessStore(HandClock())
    store.memories = memories
    return forgetting_in(store, HandClock())


async def test_a_memory_that_cannot_be_read_hides_no_other_and_is_named(unread: PartlyUnread) -> None:
    unread.unread = (PERSON,)
    memories = forgetting_of(unread).memories
    for query in ("", "sail"):
        found = await memories.found("", query, 5)
        assert [each.text for each in found.items] == ["They sail."]
        assert [(each.id, each.reason) for each in found.unread] == [
            (f"unknown.person.{PERSON.tag}", "damaged")
        ]
    unread.unread = (WORKSPACE,)
    assert (await memories.found(f"t.channel.{CHANNEL.tag}", "sail", 5)).items


async def test_of_a_session_and_a_person_all_that_can_be_read_is_forgotten_and_the_rest_counted(
    unread: PartlyUnread,
) -> None:
    unread.unread = (PERSON,)
    forgetting = forgetting_of(unread)
    assert await forgetting.session({ONE: "t"}) == (1, True, 1)
    assert await forgetting.session({TWO: "t"}) == (0, False, 1)
    said = Source(session="s", messages=(), role="user", name="ana", person="ana", at=1.0)
    await written(unread, items={"i3": item("i3", source=said)})
    assert await forgetting.person("ana") == (1, True, 1)
    with pytest.raises(NotFound, match="1 of the memories cannot be read"):
        await forgetting.person("ben")


async def test_what_a_workspace_that_cannot_be_read_may_tell_of_is_left_and_counted(
    unread: PartlyUnread,
) -> None:
    unread.unread = (WORKSPACE,)
    forgetting = forgetting_of(unread)
    assert await forgetting.session({ONE: "t"}) == (0, True, 2)
    assert await forgetting.person("ana") == (1, True, 2)
    unread.unread = ()
    assert await forgetting.person("ana") == (1, True, 0)
    assert (await unread.remembered(WORKSPACE)).texts.long == "- They row."


async def test_a_channel_that_cannot_be_read_is_forgotten(unread: PartlyUnread) -> None:
    unread.unread = (CHANNEL, WORKSPACE)
    assert await forgetting_of(unread).scope(CHANNEL)
    assert CHANNEL not in await unread.scopes(9)

"""What is forgotten while it is read stays forgotten, and nothing else is lost."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from proxy.core.memory.records import About, Scope, ScopeKind, Texts
from proxy.ports import SessionKey
from tests.support.daily import KEY, OPERATOR, PERSON, WORKSPACE, Place, reading
from tests.support.memories import DAY, NOW, an_item
from tests.support.remembering import RememberingModel


async def test_what_is_forgotten_while_it_is_read_stays_forgotten(model: RememberingModel) -> None:
    place = Place(model, credentials=OPERATOR)
    await reading(place, "I live in Oslo.")
    model.meanwhile = lambda: place.memories.forget(PERSON)
    assert (await place.process().run()).failed == 0
    assert len(model.asked_for_texts) == 2
    assert (await place.memories.remembered(PERSON)).version == 0


async def test_nor_is_it_remembered_where_somebody_has_spoken_again_since(model: RememberingModel) -> None:
    place = Place(model, credentials=OPERATOR)
    await reading(place, "I live in Oslo.")

    async def begin_anew() -> None:
        await place.memories.forget(PERSON)
        about = About(tenant="t", name="ana", since=place.clock.now())
        await place.memories.note(PERSON, SessionKey("dd", "named"), place.clock.now(), about)

    model.meanwhile = begin_anew
    assert (await place.process().run()).threads == 0
    assert await place.items() == {}
    assert (await place.memories.remembered(PERSON)).texts == Texts()


async def test_a_session_that_is_forgotten_while_it_is_read_stays_forgotten(model: RememberingModel) -> None:
    place = Place(model, credentials=OPERATOR)
    await reading(place, "I live in Oslo.")
    model.meanwhile = lambda: place.forgetting.session({KEY: "t"})
    assert (await place.process().run()).threads == 0
    assert await place.items() == {}
    assert await place.memories.threads(PERSON, 1) == {}


async def test_an_item_that_is_forgotten_while_texts_are_written_is_in_none_and_all_else_in_the_next(
    model: RememberingModel,
) -> None:
    place = Place(model, credentials=OPERATOR)
    await place.know(an_item(id="a1"), texts=Texts(long="- Ana lives in Oslo."))
    await reading(place, "We paint the boat.")

    async def forget() -> None:
        if len(model.asked_for_texts) == 4:  # what was read before is now being merged
            await place.forgetting.item(f"{PERSON.kind}.{PERSON.tag}.a1")

    model.meanwhile = forget
    await place.process().run()
    assert "Oslo" in model.prompts(model.asked_for_texts)[3]
    assert (await place.memories.remembered(PERSON)).texts == Texts()
    await place.process().run()
    texts = (await place.memories.remembered(PERSON)).texts
    assert ("boat" in texts.long, "Oslo" in texts.long) == (True, False)


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_channels_item_that_is_forgotten_while_its_workspace_is_written_is_not_in_that(
    model: RememberingModel, is_first: bool
) -> None:
    place, channel = Place(model, credentials=OPERATOR), Scope(ScopeKind.CHANNEL, "one")
    oslo = Texts(long="- Ana lives in Oslo.\n- They sail.", updated=NOW)
    about = {"workspace": WORKSPACE.tag, "workspace_name": "acme"}
    await place.know(an_item(id="a1"), scope=channel, texts=oslo, **about)
    if not is_first:
        await place.know(scope=WORKSPACE, texts=replace(oslo, updated=NOW - DAY))
    model.meanwhile = lambda: place.forgetting.item(f"{channel.kind}.{channel.tag}.a1")
    place.clock.time += 1.0
    await place.process().run()
    assert "Oslo" not in (await place.memories.remembered(WORKSPACE)).texts.long
    model.meanwhile = None
    await place.process().run()
    assert (await place.memories.remembered(WORKSPACE)).texts.long == "- They sail."


async def test_a_workspace_that_is_forgotten_while_it_is_written_is_written_anew_by_the_next_run(
    model: RememberingModel,
) -> None:
    place, channel = Place(model, credentials=OPERATOR), Scope(ScopeKind.CHANNEL, "one")
    texts = Texts(long="- They sail.", updated=NOW)
    await place.know(scope=channel, texts=texts, workspace=WORKSPACE.tag, workspace_name="acme")
    model.meanwhile = lambda: place.memories.forget(WORKSPACE)
    await place.process().run()
    assert (await place.memories.remembered(WORKSPACE)).version == 0
    model.meanwhile = None
    await place.process().run()
    assert (await place.memories.remembered(WORKSPACE)).texts.long == "- They sail."

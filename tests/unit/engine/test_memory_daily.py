"""What the daily run makes of memories, by a clock that moves when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.adapters.stores.in_process_memories import InProcessMemories
from proxy.adapters.stores.redis import RedisStore
from proxy.core.memory.records import About, ArchiveReason, EventKind, Scope, ScopeKind, Texts
from proxy.core.policy.sections import Memory as Rules
from proxy.engine.background import LEASE
from proxy.engine.intake.homes import MemoryHome
from proxy.engine.memory.maintenance import ScopeMaintenance, last_at
from proxy.errors import StoreUnavailable
from tests.support.daily import KEY, OPERATOR, PERSON, WORKSPACE, YEAR, Place, reading, said
from tests.support.memories import DAY, NOW, PartlyUnread, an_item
from tests.support.remembering import ALLERGIC, COMPRESSING, LIVES, OSLO, TEXTS, RememberingModel, note
from tests.support.servers import PATIENCE, Exchange, eventually, until
from tests.support.stores import HandClock, serving, valkey_command
from tests.support.upstreams import JSON, plainly

REFUSED = plainly(500, [], b"no")
LONG = "Ana keeps her boat at the north pier. " + "She paints it every spring with two friends. " * 5


async def test_what_has_faded_is_put_away_and_what_stays_true_is_not(model: RememberingModel) -> None:
    place = Place(model, credentials=OPERATOR)
    health = an_item("Ana is allergic to nuts.", is_standing=True)
    await place.know(an_item(), health, an_item(LONG, id="boat"))
    place.clock.time += YEAR
    done = await place.process().run()
    assert list(await place.items()) == [health.id]
    assert (await place.items())[health.id].importance_score == 0.3
    by_id = {record.original_memory_id: record for record in await place.archive()}
    short, long = by_id["Ana lives in Oslo."], by_id["boat"]
    assert (short.compression_method, long.compression_method) == ("none", "model")
    assert (short.compressed_summary, long.archive_reason) == (
        "Ana lives in Oslo.",
        ArchiveReason.LOW_IMPORTANCE,
    )
    assert len(long.compressed_summary) < len(LONG)
    assert (done.rescored, done.archived, done.failed) == (3, 2, 0)
    kinds = [event.kind for event in await place.memories.log(PERSON, "boat")]
    assert kinds == [EventKind.SCORE_UPDATE, EventKind.COMPRESS, EventKind.ARCHIVE]


async def test_without_a_key_what_needs_a_model_waits_for_a_request_and_its_credentials(
    model: RememberingModel,
) -> None:
    place = Place(model)
    await place.know(an_item("short"), an_item(LONG, id="boat"))
    place.clock.time += YEAR
    process = place.process()
    assert (await process.run()).archived == 1
    assert list(await place.items()) == ["boat"]
    assert model.compressions == []
    home = MemoryHome("t", PERSON, "ana")
    process.met(home, place.reader)
    process.met(home, place.reader)  # once a day
    await until([], lambda: _names(place))
    assert len(model.compressions) == 1


async def test_without_a_key_a_workspace_is_written_with_the_credentials_of_a_request_in_a_channel_of_it(
    model: RememberingModel,
) -> None:
    place = Place(model)
    await channels_in_a_workspace(place)
    await place.process().run()
    assert model.asked_for_texts == []
    homes = [MemoryHome("t", each, each.tag, workspace=WORKSPACE) for each in CHANNELS]
    for process in (place.process(), place.process()):
        for home in homes:
            process.met(home, place.reader)

    async def bridges() -> list[bool]:
        texts = (await place.memories.remembered(WORKSPACE)).texts
        return [f"bridge {each.tag}" in texts.long for each in CHANNELS]

    await until([True, True], bridges)
    assert len(model.asked_for_texts) == 2  # once a day


async def _names(place: Place) -> list[str]:
    return [*(await place.items())]


async def test_a_model_that_fails_leaves_everything_as_it_is_and_the_run_goes_on(
    model: RememberingModel,
) -> None:
    place = Place(model, credentials=OPERATOR)
    await place.know(an_item("short"), an_item(LONG, id="boat"))
    place.clock.time += YEAR
    model.answers[COMPRESSING] = REFUSED
    done = await place.process().run()
    assert (list(await place.items()), done.archived, done.failed) == (["boat"], 1, 0)
    model.answers.clear()
    assert (await place.process().run()).archived == 1


async def test_the_weakest_make_room_and_what_stays_true_goes_last(model: RememberingModel) -> None:
    place = Place(model, Rules(enabled=True, capacity=20))
    items = [an_item(f"item {number:02}", importance_score=0.4 + number / 100) for number in range(18)]
    await place.know(*(replace(item, is_standing=item.id == "item 00") for item in items))
    done = await ScopeMaintenance(place.process().writer, PERSON, place.rules).put_away(None)
    gone = {item.id for item in items} - (await place.items()).keys()
    assert (done, gone) == (2, {"item 01", "item 02"})
    assert {record.archive_reason for record in await place.archive()} == {ArchiveReason.CAPACITY_LIMIT}


async def test_after_a_run_no_more_is_left_than_there_is_room_for_whatever_was_read_in_it(
    model: RememberingModel,
) -> None:
    place = Place(model, Rules(enabled=True, capacity=3), credentials=OPERATOR)
    model.notes["allergic"] = note(ALLERGIC)
    await reading(place, OSLO)
    await place.know_more(*(an_item(f"item {number}", importance_score=0.4) for number in range(3)))
    done = await place.process().run()
    texts = {item.text for item in (await place.items()).values()}
    assert (done.threads, done.archived, len(texts)) == (1, 2, 3)
    assert {LIVES, ALLERGIC} < texts


@pytest.mark.parametrize(("retention", "left"), [(90 * DAY, 0), ("never", 1)])
async def test_what_was_archived_long_enough_is_deleted(
    model: RememberingModel, retention: Any, left: int
) -> None:
    place = Place(model, Rules(enabled=True, retention=retention))
    await place.know(an_item())
    place.clock.time += YEAR
    await place.process().run()
    assert len(await place.archive()) == 1
    place.clock.time += 91 * DAY
    done = await place.process().run()
    assert (len(await place.archive()), done.deleted) == (left, 1 - left)


async def test_of_two_servers_one_makes_the_run_of_a_day(model: RememberingModel) -> None:
    place = Place(model, credentials=OPERATOR)
    await place.know(an_item(LONG, id="boat"))
    place.clock.time += YEAR
    model.answers[COMPRESSING] = REFUSED  # so that there is something left to do
    one, two = place.process(), place.process()
    for process in (one, two, one):
        await process.run(due="2027-01-01 03:00")
    assert len(model.compressions) == 1
    await two.run(due="2027-01-02 03:00")
    assert len(model.compressions) == 2
    await one.run()  # because somebody asks for it
    assert len(model.compressions) == 3


async def test_a_thread_that_a_crash_has_left_unread_is_read(model: RememberingModel) -> None:
    place = Place(model, credentials=OPERATOR)
    await place.memories.note(PERSON, KEY, place.clock.now(), About(tenant="t", name="ana"))
    await said(place, KEY, "I live in Oslo.")
    place.clock.time += 100.0
    assert (await place.process().run()).threads == 0  # it may go on
    place.clock.time += 300.0
    assert (await place.process().run()).threads == 1
    assert [item.text for item in (await place.items()).values()] == ["Ana lives in Oslo."]
    texts = (await place.memories.remembered(PERSON)).texts
    assert "Oslo" in texts.short
    assert "Oslo" in texts.long
    place.clock.time += 300.0
    asked = len(model.asked_for_items)
    assert (await place.process().run()).threads == 0
    assert len(model.asked_for_items) == asked


async def test_what_a_long_text_could_not_take_in_is_merged_the_next_time(model: RememberingModel) -> None:
    place = Place(model, credentials=OPERATOR)
    await place.memories.note(PERSON, KEY, place.clock.now(), About(tenant="t", name="ana"))
    await said(place, KEY, "I live in Oslo.")
    place.clock.time += 400.0
    model.answers = {f"{TEXTS}: here the long-term": plainly(500, [JSON], b"{}")}
    await place.process().run()
    texts = (await place.memories.remembered(PERSON)).texts
    assert ("Oslo" in texts.short, texts.long) == (True, "")
    model.answers.clear()
    await place.process().run()
    (thread,) = (await place.memories.threads(PERSON, 1)).values()
    texts = (await place.memories.remembered(PERSON)).texts
    assert ("Oslo" in texts.long, "Oslo" in thread.texts.long) == (True, True)
    asked = len(model.asked_for_texts)
    await place.process().run()
    assert len(model.asked_for_texts) == asked


async def test_a_workspace_is_written_from_the_texts_of_its_channels_alone(model: RememberingModel) -> None:
    place = Place(model, credentials=OPERATOR)
    for name in ("one", "two"):
        channel = Scope(ScopeKind.CHANNEL, name)
        texts = Texts(long=f"- They built bridge {name}.", short=f"- They paint {name}.", updated=NOW)
        await place.know(scope=channel, texts=texts, workspace=WORKSPACE.tag, workspace_name="acme")
    await place.process().run()
    written = await place.memories.remembered(WORKSPACE)
    assert written.about is not None
    assert (written.about.name, written.about.tenant) == ("acme", "t")
    assert ("bridge one" in written.texts.long, "bridge two" in written.texts.long) == (True, True)
    assert ("paint one" in written.texts.short, "bridge" in written.texts.short) == (True, False)
    asked = len(model.asked_for_texts)
    await place.process().run()
    assert len(model.asked_for_texts) == asked  # nothing is new


CHANNELS = [Scope(ScopeKind.CHANNEL, name) for name in ("one", "two")]


async def channels_in_a_workspace(place: Place) -> None:
    for each in CHANNELS:
        texts = Texts(long=f"- They built bridge {each.tag}.", short="- They paint.", updated=NOW)
        await place.know(scope=each, texts=texts, workspace=WORKSPACE.tag, workspace_name="acme")


@pytest.mark.parametrize("due", ["", "2027-01-01 03:00"])
@pytest.mark.parametrize("unread", [PERSON, CHANNELS[0]])
async def test_a_memory_that_cannot_be_read_fails_alone(
    model: RememberingModel, due: str, unread: Scope
) -> None:
    place = Place(model, credentials=OPERATOR)
    memories = place.memories = PartlyUnread(place.clock)
    await channels_in_a_workspace(place)
    await place.know(an_item())
    memories.unread = (unread,)
    done = await place.process().run(due=due)
    assert (done.scopes, done.of, done.failed) == (3, 3, 1)
    assert "bridge two" in (await place.memories.remembered(WORKSPACE)).texts.long


async def test_a_workspace_that_cannot_be_read_fails_once(model: RememberingModel) -> None:
    place = Place(model, credentials=OPERATOR)
    memories = place.memories = PartlyUnread(place.clock)
    await channels_in_a_workspace(place)
    await place.know(scope=WORKSPACE)
    memories.unread = (WORKSPACE,)
    done = await place.process().run()
    assert (done.of, done.failed) == (3, 1)


async def test_what_a_channel_learns_while_another_server_passes_it_is_in_the_workspace_on_the_same_day(
    model: RememberingModel,
) -> None:
    place, due = Place(model, credentials=OPERATOR), "2027-01-01 03:00"
    await channels_in_a_workspace(place)
    await place.process().run(due=due)
    place.clock.time += 10
    later = Texts(long="- They built bridge three.", short="- They dance.", updated=place.clock.now())
    await place.know_more(scope=CHANNELS[0], texts=later)
    await place.process().run(due=due)
    assert "bridge three" in (await place.memories.remembered(WORKSPACE)).texts.long


async def test_what_a_channel_learns_from_a_server_whose_clock_is_behind_is_in_the_workspace(
    model: RememberingModel,
) -> None:
    place = Place(model, credentials=OPERATOR)
    await channels_in_a_workspace(place)
    place.clock.time += 60.0
    await place.process().run()
    later = Texts(long="- They built bridge three.", short="- They dance.", updated=NOW + 30.0)
    await place.know_more(scope=CHANNELS[0], texts=later)
    await place.process().run()
    assert "bridge three" in (await place.memories.remembered(WORKSPACE)).texts.long


async def test_a_workspace_is_not_written_again_while_its_channels_say_the_same(
    model: RememberingModel,
) -> None:
    place = Place(model, credentials=OPERATOR)
    await channels_in_a_workspace(place)
    await place.process().run()
    asked = len(model.asked_for_texts)
    place.clock.time += DAY
    await place.process().run()
    assert len(model.asked_for_texts) == asked


async def test_what_a_killed_server_was_at_another_does_on_the_same_day(model: RememberingModel) -> None:
    place, due = Place(model, credentials=OPERATOR), "2027-01-01 03:00"
    await place.know(an_item(LONG, id="boat"))
    place.clock.time += YEAR
    async with _killed_in(place, due, COMPRESSING):
        assert (await place.process().run(due=due)).archived == 0  # it may be alive
        place.clock.time += LEASE + 1.0
        assert (await place.process().run(due=due)).archived == 1
        assert (await place.process().run(due=due)).scopes == 0


async def test_a_workspace_is_written_though_its_channels_were_done_by_a_server_that_was_killed(
    model: RememberingModel,
) -> None:
    place, due = Place(model, credentials=OPERATOR), "2027-01-01 03:00"
    await channels_in_a_workspace(place)
    async with _killed_in(place, due, TEXTS):
        place.clock.time += LEASE + 1.0
        done = await place.process().run(due=due)
        assert done.of - done.scopes == len(CHANNELS)
        assert "bridge two" in (await place.memories.remembered(WORKSPACE)).texts.long


async def test_what_was_said_before_the_secret_was_rotated_is_read_and_found_after_that(
    model: RememberingModel,
) -> None:
    clock, renamed = HandClock(NOW), Scope(ScopeKind.PERSON, "ff")
    with serving(valkey_command()) as server:
        async with aclosing(RedisStore(server.url, clock, PATIENCE, 1.0)) as store:
            place = Place(model, clock=clock, credentials=OPERATOR, kept_in=store)
            await reading(place, OSLO)
            assert await store.memories.move(PERSON.tag, renamed, "t")
            found = await place.forgetting.memories.found("", "Oslo", 5)
            assert OSLO in [line.text for line in found.said]
            assert (await place.process().run()).threads == 1
            assert [item.text for item in (await place.items(renamed)).values()] == [LIVES]
            assert "Oslo" in (await store.memories.remembered(renamed)).texts.long


async def test_what_was_said_in_a_channel_under_an_old_secret_is_no_item_of_its_workspace(
    model: RememberingModel,
) -> None:
    place, channel = Place(model, credentials=OPERATOR), CHANNELS[0]
    texts = Texts(long="- They built a bridge.", short="- They paint.", updated=NOW)
    await place.know(scope=channel, texts=texts, workspace=WORKSPACE.tag, former=PERSON.tag)
    await place.process().run()
    await said(place, KEY, OSLO)  # in the channel, and it goes on in the workspace
    await place.memories.note(WORKSPACE, KEY, NOW, About(tenant="t"))
    await place.process().writer.thread(MemoryHome("t", WORKSPACE, "acme"), KEY, place.reader)
    assert (await place.memories.remembered(WORKSPACE)).texts.long
    assert await place.items(WORKSPACE) == {}


async def test_a_workspace_is_written_at_the_time_of_its_channels_policy(model: RememberingModel) -> None:
    place = Place(model, credentials=OPERATOR)
    await channels_in_a_workspace(place)
    await place.process().run(lambda _: False, "2027-01-01 03:00")
    assert model.asked_for_texts == []


@asynccontextmanager
async def _killed_in(place: Place, due: str, task: str) -> AsyncGenerator[None]:
    """Within the block a server is dead that has set the model such a task in its daily run."""
    asked = asyncio.Event()

    async def hang(exchange: Exchange) -> None:
        asked.set()
        await exchange.gone()

    place.model.answers[task] = hang
    running = asyncio.create_task(place.process().run(due=due))
    await asyncio.wait_for(asked.wait(), PATIENCE)
    place.model.answers.clear()
    yield
    running.cancel()


async def test_the_scope_of_a_session_lives_no_longer_for_being_maintained(model: RememberingModel) -> None:
    place, thread = Place(model), Scope(ScopeKind.THREAD, "bb")
    await place.memories.note(thread, KEY, NOW, About(tenant="t"), ttl=30 * DAY)
    await place.know_more(an_item(), scope=thread)
    place.clock.time += 29 * DAY
    assert (await place.process().run()).rescored == 1
    assert await place.items(thread)
    place.clock.time += 2 * DAY
    assert await place.items(thread) == {}


async def test_the_run_begins_at_its_time_of_day_and_after_a_start_if_nobody_ran_then(
    model: RememberingModel,
) -> None:
    place, hour = Place(model), 3_600.0
    await place.know(an_item())
    async with _days(place):
        place.clock.time = NOW + 2 * hour  # the run of the day before makes up for what nobody did
        await until(NOW + 2 * hour, lambda: _rescored_at(place))
        place.clock.time = NOW + 2.9 * hour
        await asyncio.sleep(0.05)
        assert await _rescored_at(place) == NOW + 2 * hour
        place.clock.time = NOW + 4 * hour
        await until(NOW + 4 * hour, lambda: _rescored_at(place))
    place.clock.time = NOW + 26 * hour
    async with _days(place), _days(place):  # after a restart there is nothing left to do
        await asyncio.sleep(0.05)
        assert await _rescored_at(place) == NOW + 4 * hour
        place.clock.time = NOW + 75 * hour
        await until(NOW + 75 * hour, lambda: _rescored_at(place))
    assert len(await place.memories.log(PERSON, "Ana lives in Oslo.")) == 1


async def test_a_run_that_does_not_reach_the_store_is_tried_again(model: RememberingModel) -> None:
    place = Place(model)
    memories = place.memories = _Away(place.clock)
    await place.know(an_item())
    place.clock.time += DAY
    async with _days(place):
        await eventually(lambda: memories.asked > 1)
        assert await _rescored_at(place) == NOW
        memories.is_away = False
        await until(NOW + DAY, lambda: _rescored_at(place))


class _Away(InProcessMemories):
    """Memories whose list cannot be read for some time."""

    is_away, asked = True, 0

    async def scopes(self, most: int) -> Sequence[Scope]:
        self.asked += 1
        if self.is_away:
            raise StoreUnavailable
        return await super().scopes(most)


async def test_the_run_takes_from_the_list_what_is_gone_and_nothing_else(model: RememberingModel) -> None:
    place = Place(model)
    memories = place.memories = _WithGone(place.clock)
    await place.know(an_item())
    assert (await place.process().run()).failed == 0
    assert memories.unlisted == [GONE]


GONE = Scope(ScopeKind.PERSON, "dd")


class _WithGone(InProcessMemories):
    """Memories whose list has one of which nothing is stored."""

    def __init__(self, clock: HandClock) -> None:
        super().__init__(clock)
        self.unlisted: list[Scope] = []

    async def scopes(self, most: int) -> Sequence[Scope]:
        return [GONE, *await super().scopes(most)]

    async def unlist(self, scope: Scope) -> None:
        self.unlisted.append(scope)


@asynccontextmanager
async def _days(place: Place) -> AsyncGenerator[None]:
    """A process that lives through the days that the clock says."""
    running = asyncio.create_task(place.process().every_day())
    yield
    running.cancel()


async def _rescored_at(place: Place) -> float:
    return (await place.items())["Ana lives in Oslo."].decay_applied_at


def test_a_time_of_day_was_last_today_or_yesterday() -> None:
    assert last_at("03:00", NOW + 4 * 3_600) == NOW + 3 * 3_600
    assert last_at("03:00", NOW + 2 * 3_600) == NOW - 21 * 3_600

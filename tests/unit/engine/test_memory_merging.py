"""What was said in the threads of a channel is merged into its texts once, whatever the clocks say."""

from __future__ import annotations

import gc
import json
import re
import tracemalloc
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import pytest
from msgspec.structs import replace

from proxy.adapters.stores.redis import RedisStore, keys
from proxy.core.memory.records import About, Scope, ScopeKind, Texts, Thread
from proxy.engine.background import LEASE
from proxy.engine.intake.homes import MemoryHome
from proxy.engine.memory import writer
from proxy.engine.memory.reader import SearchedScope
from proxy.engine.memory.scope_cache import CachedScope
from proxy.ports import Changes, SessionKey, UnreadableRecord
from proxy.ports.memory_store import THREADS
from tests.support.daily import OPERATOR, YEAR, Place
from tests.support.memories import NOW
from tests.support.remembering import TEXTS, RememberingModel
from tests.support.servers import PATIENCE
from tests.support.stores import HandClock, chain, run, serving, turn, valkey_command
from tests.support.upstreams import JSON, plainly

CHANNEL = Scope(ScopeKind.CHANNEL, "c1")
HOME = MemoryHome("t", CHANNEL, "general")
A, B = SessionKey("aa", "named"), SessionKey("bb", "named")


@pytest.fixture(params=["memory", "valkey"])
async def place(request: pytest.FixtureRequest, model: RememberingModel) -> AsyncGenerator[Place]:
    clock = HandClock(NOW)
    if request.param == "memory":
        yield Place(model, clock=clock)
        return
    with serving(valkey_command()) as server:
        async with aclosing(RedisStore(server.url, clock, PATIENCE, 1.0)) as store:
            yield Place(model, clock=clock, kept_in=store)


def names_of(said: Sequence[str]) -> list[str]:
    return [f"{kind} {text}" for text in said for kind in "ua"]


async def recorded(place: Place, key: SessionKey, *said: str, at: float, **session: Any) -> None:
    """A session in which users say these things; what of it is new was said at this time."""
    written = turn(*names_of(said), updated=at, model="gpt-test", policy="default", **session)
    raws = [
        json.dumps({"role": role, "content": content}).encode()
        for text in said
        for role, content in (("user", text), ("assistant", "Noted."))
    ]
    pairs = zip(written.nodes, raws, strict=True)
    nodes = tuple(replace(node, raw=raw, at=at, scope=CHANNEL.tag) for node, raw in pairs)
    await place.store.record(key, replace(written, nodes=nodes), YEAR)
    await place.memories.note(CHANNEL, key, at, About(tenant="t", name="general"))


async def goes_on(place: Place, key: SessionKey, *said: str, at: float, **session: Any) -> None:
    """A session goes on like that, and what is new of it is read."""
    await recorded(place, key, *said, at=at, **session)
    assert await place.process().writer.thread(HOME, key, place.reader)


async def merged(place: Place) -> list[str]:
    """What users said of what the channel's texts are written from now."""
    asked = place.model.asked_for_texts
    before = len(asked)
    await place.process().writer.channel(HOME, place.reader)
    prompts = [each for each in place.model.prompts(asked[before:]) if "short-term memory" in each]
    lines: list[str] = re.findall(r"^\[\d{4}-.{11}\] user: (.+)$", "\n".join(prompts), re.MULTILINE)
    return lines


async def test_a_turn_that_is_written_late_is_merged(place: Place) -> None:
    await goes_on(place, A, "We paint the boat.", at=NOW + 600.0)
    assert await merged(place) == ["We paint the boat."]
    await goes_on(place, B, "The mast is made of steel.", at=NOW)
    assert await merged(place) == ["The mast is made of steel."]
    assert await merged(place) == []


async def test_a_turn_that_a_worker_has_timed_before_the_last_one_is_merged(place: Place) -> None:
    await goes_on(place, A, "We paint the boat.", at=NOW + 30.0)
    assert await merged(place) == ["We paint the boat."]
    await goes_on(place, A, "We paint the boat.", "It is green.", at=NOW + 10.0)
    assert await merged(place) == ["It is green."]
    assert "It is green." in (await place.memories.threads(CHANNEL, 1))[A].texts.long


async def test_each_line_of_several_threads_is_merged_once_and_all_in_the_order_of_their_times(
    place: Place,
) -> None:
    await goes_on(place, A, "One.", at=NOW)
    await goes_on(place, B, "Two.", at=NOW + 1.0)
    await goes_on(place, A, "One.", "Three.", at=NOW + 2.0)
    assert await merged(place) == ["One.", "Two.", "Three."]
    await goes_on(place, B, "Two.", "Four.", at=NOW + 3.0)
    assert await merged(place) == ["Four."]


async def test_what_is_read_while_the_texts_are_written_is_merged_the_next_time(place: Place) -> None:
    await goes_on(place, A, "One.", at=NOW)

    async def meanwhile() -> None:
        place.model.meanwhile = None
        await goes_on(place, A, "One.", "Two.", at=NOW + 1.0)
        await goes_on(place, B, "Three.", at=NOW + 2.0)

    place.model.meanwhile = meanwhile
    assert (await merged(place))[0] == "One."
    assert await merged(place) == ["Two.", "Three."]


async def test_a_server_that_has_lost_its_lease_replaces_no_texts_that_another_has_written_meanwhile(
    model: RememberingModel,
) -> None:
    place = Place(model)
    await goes_on(place, A, "One.", at=NOW)

    async def meanwhile() -> None:
        model.meanwhile = None
        await goes_on(place, B, "Two.", at=NOW + 1.0)
        place.clock.time += LEASE + 1.0
        await place.process().writer.channel(HOME, place.reader)

    model.meanwhile = meanwhile
    await place.process().writer.channel(HOME, place.reader)
    texts = (await place.memories.remembered(CHANNEL)).texts
    assert ("One." in texts.long, "Two." in texts.long) == (True, True)
    assert await merged(place) == []


async def test_what_a_long_text_could_not_take_in_is_merged_the_next_time(place: Place) -> None:
    await goes_on(place, A, "One.", at=NOW)
    place.model.answers = {f"{TEXTS}: here the long-term": plainly(500, [JSON], b"{}")}
    assert await merged(place) == ["One."]
    place.model.answers.clear()
    assert await merged(place) == ["One."]
    assert await merged(place) == []


async def test_of_branches_of_a_session_each_line_is_merged_once(place: Place) -> None:
    await goes_on(place, A, "One.", "Two.", at=NOW)
    assert await merged(place) == ["One.", "Two."]
    await goes_on(place, A, "One.", "Or three.", at=NOW + 1.0)
    assert await merged(place) == ["Or three."]
    await goes_on(place, A, "One.", "Two.", "Four.", at=NOW + 2.0)
    assert await merged(place) == ["Four."]
    texts = (await place.memories.threads(CHANNEL, 1))[A].texts.long
    assert texts.count("One.") == texts.count("Two.") == texts.count("Four.") == 1


async def test_what_was_read_of_a_branch_that_is_left_before_the_texts_are_written_is_merged(
    place: Place,
) -> None:
    await goes_on(place, A, "One.", "Two.", at=NOW)
    await goes_on(place, A, "One.", "Or three.", at=NOW + 1.0)
    assert await merged(place) == ["One.", "Two.", "Or three."]
    await goes_on(place, A, "One.", "Two.", "Four.", at=NOW + 2.0)
    await goes_on(place, A, "One.", "Or three.", "Five.", at=NOW + 3.0)
    assert await merged(place) == ["Four.", "Five."]
    assert await merged(place) == []


async def test_of_a_session_that_goes_on_where_it_was_read_its_lines_are_made_once(place: Place) -> None:
    await recorded(place, A, "One.", "Two.", at=NOW)
    (earlier, here), (left,) = chain(*names_of(["One.", "Two."]))[1::2], chain(*names_of(["Three."]))[1::2]
    await recorded(place, A, "Three.", at=NOW + 1.0)
    await recorded(place, A, "One.", "Two.", at=NOW + 2.0)
    said = await place.process().writer.sources.of(
        A, place.reader.policy, frozenset({CHANNEL.tag}), [earlier, here, left]
    )
    assert said is not None
    lines = [
        [line.text for line in each if line.name == "user"] for each in (said.lines, *said.other_branches)
    ]
    assert lines == [["One.", "Two."], ["Three."]]


async def test_what_was_read_of_a_branch_that_is_left_before_its_own_text_is_written_stands_in_that(
    place: Place,
) -> None:
    place.model.answers = {f"{TEXTS}: here the long-term": plainly(500, [JSON], b"{}")}
    await goes_on(place, A, "One.", "Two.", at=NOW)
    place.model.answers.clear()
    await goes_on(place, A, "One.", "Or three.", at=NOW + 1.0)
    texts = (await place.memories.threads(CHANNEL, 1))[A].texts
    assert [line for line in texts.long.splitlines() if "Noted" not in line] == [
        "- One.",
        "- Two.",
        "- Or three.",
    ]
    assert "Two." not in texts.short


async def test_what_a_fork_has_from_its_session_is_not_merged_again(place: Place) -> None:
    await goes_on(place, A, "One.", "Two.", at=NOW)
    assert await merged(place) == ["One.", "Two."]
    fork = chain(*names_of(["One."]))[-1]
    await recorded(place, B, "One.", at=NOW, forked_at=fork)
    await goes_on(place, B, "One.", "Three.", at=NOW + 1.0, forked_at=fork)
    assert await merged(place) == ["Three."]


async def test_a_session_that_has_another_name_since_the_secret_was_rotated_is_not_merged_again(
    place: Place,
) -> None:
    await goes_on(place, A, "One.", at=NOW)
    assert await merged(place) == ["One."]
    await place.store.delete(A)
    await recorded(place, B, "One.", at=NOW, former=(A.id_for("t"),))
    await goes_on(place, B, "One.", "Two.", at=NOW + 1.0, former=(A.id_for("t"),))
    assert await merged(place) == ["Two."]


async def test_what_was_read_of_a_session_before_the_secret_was_rotated_is_merged_after_that(
    place: Place,
) -> None:
    await goes_on(place, A, "One.", at=NOW)
    await place.store.delete(A)
    await goes_on(place, B, "One.", "Two.", at=NOW + 1.0, former=(A.id_for("t"),))
    assert await merged(place) == ["One.", "Two."]
    assert await merged(place) == []


async def test_a_session_that_cannot_be_read_keeps_nothing_of_others_from_the_texts(
    model: RememberingModel,
) -> None:
    with serving(valkey_command()) as server:
        async with aclosing(RedisStore(server.url, HandClock(NOW), PATIENCE, 1.0)) as store:
            place = Place(model, clock=HandClock(NOW), kept_in=store)
            await goes_on(place, A, "One.", at=NOW)
            await goes_on(place, B, "Two.", at=NOW)
            record = run(server.url, "HGET", keys.session(A), "record")
            run(server.url, "HSET", keys.session(A), "record", b"\x7f" + record[1:])  # by a newer release
            assert await merged(place) == ["Two."]
            texts = (await place.memories.remembered(CHANNEL)).texts
            assert texts.short
            assert await merged(place) == []
            assert (await place.memories.remembered(CHANNEL)).texts == texts
            run(server.url, "HSET", keys.session(A), "record", record)
            assert await merged(place) == ["One."]


async def test_no_model_reads_what_a_damaged_memory_cannot_take_in(model: RememberingModel) -> None:
    clock, name = HandClock(NOW), keys.session(SessionKey(CHANNEL.tag, keys.MEMORY))
    with serving(valkey_command()) as server:
        async with aclosing(RedisStore(server.url, clock, PATIENCE, 1.0)) as store:
            place = Place(model, clock=clock, kept_in=store)
            await recorded(place, A, "One.", at=NOW)
            run(server.url, "HSET", name, "about", "damaged")
            with pytest.raises(UnreadableRecord):
                await place.process().writer.thread(HOME, A, place.reader)
            assert model.asked_for_items == model.asked_for_texts == []


async def test_what_tools_gave_is_not_held_while_a_model_reads_what_was_said(model: RememberingModel) -> None:
    with serving(valkey_command()) as server:
        async with aclosing(RedisStore(server.url, HandClock(NOW), PATIENCE, 1.0)) as store:
            place = Place(model, clock=HandClock(NOW), kept_in=store)
            await recorded(place, A, "One.", "Two.", at=NOW)
            written = turn(*names_of(["One.", "Two."]), "t", known=4, updated=NOW)
            raw = json.dumps({"role": "tool", "tool_call_id": "c", "content": "x" * 4_000_000}).encode()
            result = replace(written.nodes[0], raw=raw, at=NOW, scope=CHANNEL.tag)
            await store.record(A, replace(written, nodes=(result,)), YEAR)
            sources = place.process().writer.sources
            tracemalloc.start()
            said = await sources.of(A, place.reader.policy, frozenset([CHANNEL.tag]))
            gc.collect()
            held, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert said is not None
            assert len(said.hashes) == 5
            assert held < len(raw) < most


async def test_a_session_that_is_forgotten_before_it_is_merged_is_not_merged(place: Place) -> None:
    await goes_on(place, A, "One.", at=NOW)
    await goes_on(place, B, "Two.", at=NOW)
    await place.forgetting.session({A: "t"})
    assert await merged(place) == ["Two."]


async def test_a_forgotten_session_is_not_merged_where_newer_ones_have_taken_the_place_of_its_record(
    place: Place,
) -> None:
    await goes_on(place, A, "One.", at=NOW)
    for number in range(THREADS):
        newer = SessionKey(f"{number}", "named")
        await place.memories.note(CHANNEL, newer, NOW + 1.0, About(tenant="t"))
    assert (await place.forgetting.session({A: "t"})).is_known
    about = (await place.memories.remembered(CHANNEL)).about
    assert about is not None
    assert not about.unmerged
    assert await merged(place) == []


async def test_the_texts_of_an_earlier_release_which_went_by_time_go_on_from_there(place: Place) -> None:
    await recorded(place, A, "One.", at=NOW)
    await recorded(place, A, "One.", "Two.", at=NOW + 10.0)
    await recorded(place, B, "Three.", at=NOW)
    read = {
        A: Thread(updated=NOW + 10.0, tip=chain(*names_of(["One.", "Two."]))[-1]),
        B: Thread(updated=NOW, tip=chain(*names_of(["Three."]))[-1]),
    }
    texts = Texts(long="- One.\n- Three.", short="- One.", updated=NOW, read_up_to=NOW)
    version = (await place.memories.remembered(CHANNEL)).version
    assert await place.memories.change(CHANNEL, Changes(texts=texts, threads=read), version)
    await goes_on(place, B, "Three.", "Four.", at=NOW + 20.0)
    assert await merged(place) == ["Two.", "Four."]
    assert await merged(place) == []
    await goes_on(place, A, "One.", "Two.", "Five.", at=NOW + 15.0)
    assert await merged(place) == ["Five."]


async def test_what_an_earlier_release_had_read_before_it_wrote_any_texts_is_merged(place: Place) -> None:
    await recorded(place, A, "One.", at=NOW)
    version = (await place.memories.remembered(CHANNEL)).version
    read = {A: Thread(updated=NOW, tip=chain(*names_of(["One."]))[-1])}
    about = About(tenant="t", name="general", runs=1)
    assert await place.memories.change(CHANNEL, Changes(about=about, threads=read), version)
    await recorded(place, B, "Two.", at=NOW + 1.0)
    version = (await place.memories.remembered(CHANNEL)).version
    read = {B: Thread(updated=NOW + 1.0, tip=chain(*names_of(["Two."]))[-1])}
    about = About(tenant="t", name="general", runs=2)
    assert await place.memories.change(CHANNEL, Changes(about=about, threads=read), version)
    await goes_on(place, B, "Two.", "Three.", at=NOW + 2.0)
    assert await merged(place) == ["One.", "Two.", "Three."]
    assert await merged(place) == []


async def test_of_more_threads_than_are_noted_those_that_were_read_last_are_merged(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_MOST_THREADS", 2)
    for number, text in enumerate(("One.", "Two.", "Three.")):
        await goes_on(place, SessionKey(f"{number}", "named"), text, at=NOW - number)
    about = (await place.memories.remembered(CHANNEL)).about
    assert about is not None
    assert len(about.unmerged) == 2
    assert await merged(place) == ["Three.", "Two."]


async def test_of_more_threads_than_are_noted_the_daily_run_merges_the_newest(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_MOST_THREADS", 2)
    place.credentials = OPERATOR
    for number, text in enumerate(("One.", "Two.", "Three.")):
        await recorded(place, SessionKey(f"{number}", "named"), text, at=NOW + number)
    place.clock.time += 400.0
    done = await place.process().run()
    assert done.threads == 3
    prompts = place.model.prompts(place.model.asked_for_texts)
    of_channel = next(each for each in prompts if "Two." in each and "Three." in each)
    assert "One." not in of_channel


async def test_a_turn_that_is_written_late_before_a_crash_is_read_by_the_daily_run_once(place: Place) -> None:
    place.credentials = OPERATOR
    await goes_on(place, A, "We paint the boat.", at=NOW + 30.0)
    await recorded(place, A, "We paint the boat.", "It is green.", at=NOW + 10.0)
    place.clock.time += 400.0
    assert (await place.process().run()).threads == 1
    assert "It is green." in (await place.memories.threads(CHANNEL, 1))[A].texts.long
    asked = len(place.model.asked_for_texts)
    assert (await place.process().run()).threads == 0
    assert len(place.model.asked_for_texts) == asked


async def test_a_turn_that_is_written_late_is_found_by_a_search_like_any_other(place: Place) -> None:
    await recorded(place, A, "We paint the boat.", at=NOW + 30.0)
    memories = place.forgetting.memories

    async def said_of(query: str) -> list[str]:
        searched = [SearchedScope(CHANNEL, CachedScope(), place.reader.policy, has_sessions=True)]
        return [line.text for line in (await memories.reading.search(searched, query)).said.values()]

    assert "We paint the boat." in await said_of("boat")
    await recorded(place, A, "We paint the boat.", "It is green.", at=NOW + 10.0)
    assert "It is green." in await said_of("green")

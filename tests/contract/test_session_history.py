"""What every SessionStore tells of a history to who has read it before: what is new, or all of it again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from proxy.core.conversation.records import Session
from proxy.ports import Mark, SessionStore, Stored
from tests.support.stores import DAY, KEY, OTHER, HandClock, chain, turn


async def read(store: SessionStore) -> Stored:
    """A history that was read, with its mark."""
    stored = await store.history(KEY)
    assert stored.mark is not None
    assert not stored.is_news
    return stored


async def told(store: SessionStore, before: Stored, *names: str) -> Session:
    """The session, where the messages that end the chain of these names are told alone."""
    stored = await store.history(KEY, before.mark)
    assert stored.is_news
    assert stored.nodes.keys() == set(chain(*names)) - before.nodes.keys()
    whole = await store.history(KEY)
    assert (stored.session, stored.mark) == (whole.session, whole.mark)
    assert {**before.nodes, **stored.nodes} == whole.nodes
    assert stored.session is not None
    return stored.session


async def test_where_nothing_was_written_nothing_is_told_again(store: SessionStore) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    await told(store, await read(store), "u1", "a1")


async def test_what_was_written_since_is_told_alone(store: SessionStore) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    before = await read(store)
    await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, model="n"), DAY)
    session = await told(store, before, "u1", "a1", "u2", "a2")
    assert (session.model, session.turns) == ("n", 2)
    await store.record(KEY, turn("u1", "a1", "u2", "a2", "u3", "a3", known=4), DAY)
    await told(store, before, "u1", "a1", "u2", "a2", "u3", "a3")


async def test_a_turn_that_is_written_twice_is_told_once(store: SessionStore) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    before = await read(store)
    for _ in range(2):
        await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2), DAY)
    await told(store, before, "u1", "a1", "u2", "a2")


async def test_a_turn_that_comes_in_two_parts_is_told_as_it_comes(store: SessionStore) -> None:
    await store.record(KEY, turn("u1", "a1", begun_at=b""), DAY)
    tip = chain("u1", "a1")[-1]
    before = await read(store)
    await store.record(KEY, turn("u1", "a1", "u2", known=2, complete=False, begun_at=tip), DAY)
    await told(store, before, "u1", "a1", "u2")
    await store.record(KEY, turn("u1", "a1", "u2", "a2", known=3, begun_at=tip), DAY)
    await told(store, before, "u1", "a1", "u2", "a2")


async def test_a_turn_that_is_not_written_is_not_told(store: SessionStore) -> None:
    await store.record(KEY, turn("u1", "a1", begun_at=b""), DAY)
    await store.record(KEY, turn("u1", "a1", "u2", "a2", known=2, begun_at=chain("u1", "a1")[-1]), DAY)
    before = await read(store)
    await store.record(KEY, turn("u1", "a1", "late", "a3", known=2, begun_at=chain("u1", "a1")[-1]), DAY)
    await store.record(KEY, turn("v1", "a1", "torn", known=2), DAY)
    await told(store, before, "u1", "a1", "u2", "a2")


CHANGES: dict[str, tuple[Callable[[SessionStore], Awaitable[object]], object]] = {
    "pins": (lambda store: store.pin(KEY, chain("u1"), DAY), tuple(chain("u1"))),
    "blocked": (lambda store: store.pause(KEY, paused=True), "paused"),
    "unsaved": (lambda store: store.mark_unsaved(KEY, b"u" * 32), b"u" * 32),
}


@pytest.mark.parametrize("member", CHANGES)
async def test_the_session_is_told_as_it_is(store: SessionStore, member: str) -> None:
    change, value = CHANGES[member]
    await store.record(KEY, turn("u1", "a1"), DAY)
    before = await read(store)
    await change(store)
    assert getattr(await told(store, before, "u1", "a1"), member) == value


async def test_a_session_is_told_to_be_compacting_while_it_is(store: SessionStore) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    before = await read(store)
    await store.take_place(KEY, "compact-1", 8, 5.0)
    assert (await told(store, before, "u1", "a1")).blocked == "compacting"


async def test_where_an_answer_took_the_place_of_one_that_was_cut_off_all_is_told_again(
    store: SessionStore,
) -> None:
    await store.record(KEY, turn("u1", "a1", complete=False), DAY)
    before = await read(store)
    await store.record(KEY, turn("u1", "a1"), DAY)
    again = await store.history(KEY, before.mark)
    assert not again.is_news
    assert again == await store.history(KEY)
    await told(store, again, "u1", "a1")


async def test_a_session_that_has_begun_anew_is_told_whole_however_alike(store: SessionStore) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    before = await read(store)
    await store.delete(KEY)
    assert await store.history(KEY, before.mark) == Stored(was_here=True)
    await store.record(KEY, turn("u1", "a1"), DAY)
    again = await store.history(KEY, before.mark)
    assert not again.is_news
    assert again == await store.history(KEY)


async def test_a_session_that_has_expired_is_told_of_as_ever(store: SessionStore, clock: HandClock) -> None:
    await store.record(KEY, turn("u1", "a1"), 0.02)
    before = await read(store)
    clock.time += 1
    await asyncio.sleep(0.05)
    assert await store.history(KEY, before.mark) == Stored(was_here=True)


async def test_another_session_s_mark_is_nothing_here(store: SessionStore) -> None:
    for key in (KEY, OTHER):
        await store.record(key, turn("u1", "a1"), DAY)
    whole = await store.history(KEY)
    assert await store.history(KEY, (await store.history(OTHER)).mark) == whole
    assert await store.history(KEY, Mark(b"", 1)) == whole


@pytest.mark.parametrize("many", [60, 700])
async def test_however_much_is_new_nothing_is_missing(store: SessionStore, many: int) -> None:
    await store.record(KEY, turn("u1", "a1"), DAY)
    before = await read(store)
    names = ["u1", "a1", *(f"t{number}" for number in range(many)), "a2"]
    await store.record(KEY, turn(*names, known=2), DAY)
    stored = await store.history(KEY, before.mark)
    whole = await store.history(KEY)
    assert (stored.session, stored.mark) == (whole.session, whole.mark)
    assert {**(before.nodes if stored.is_news else {}), **stored.nodes} == whole.nodes
    await told(store, whole, *names)


async def test_a_session_that_was_only_pinned_has_no_mark(store: SessionStore) -> None:
    await store.pin(KEY, chain("u1"), DAY)
    assert await store.history(KEY) == Stored()

"""Turns that are written late."""

from __future__ import annotations

import asyncio

from proxy.adapters.stores.in_process import InProcessStore
from proxy.core.conversation.records import Session, Turn
from proxy.engine.recording.backlog import Backlog, Unwritten
from proxy.ports import SessionKey
from tests.support.stores import DAY, KEY, HandClock, chain, turn


class Held(InProcessStore):
    """A store that answers when it is let go on."""

    def __init__(self) -> None:
        super().__init__(HandClock())
        self.is_asked, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def session(self, key: SessionKey) -> Session | None:
        self.is_asked.set()
        await self.may_go_on.wait()
        return await super().session(key)


async def test_a_session_that_is_deleted_while_its_turn_is_written_ends_no_writing() -> None:
    store = Held()
    backlog = Backlog(store, pause=60)
    for names in (("u1", "a1"), ("u1", "a1", "u2", "a2")):
        backlog.add(Unwritten(KEY, turn(*names), DAY, frozenset(chain(*names))))
    writing = asyncio.ensure_future(backlog.aclose())
    await store.is_asked.wait()
    forgetting = asyncio.ensure_future(backlog.forget(KEY))
    await asyncio.sleep(0)
    store.may_go_on.set()
    await asyncio.gather(writing, forgetting)
    assert len(await store.nodes(KEY)) == 2


async def test_a_turn_that_is_written_late_is_told_of_once_it_is_written() -> None:
    store, told = Held(), list[bytes]()
    store.may_go_on.set()

    def tells(written: Turn) -> None:
        assert written.is_late
        told.append(written.session.tip)

    backlog = Backlog(store, pause=60)
    for names in (("u1", "a1"), ("u1", "a1", "u2", "a2")):
        backlog.add(Unwritten(KEY, turn(*names), DAY, frozenset(chain(*names)), tells))
    await backlog.aclose()
    assert told == [chain("u1", "a1")[-1], chain("u1", "a1", "u2", "a2")[-1]]


async def test_a_request_that_is_kept_for_what_follows_its_turn_counts_to_what_waits() -> None:
    store, told = Held(), list[bytes]()
    store.may_go_on.set()
    backlog = Backlog(store, pause=60, limit=1_000)
    for name in ("u1", "u2"):
        late = turn(name, f"a{name}")
        backlog.add(
            Unwritten(KEY, late, DAY, frozenset(), lambda written: told.append(written.session.tip), 600)
        )
    await backlog.aclose()
    assert len(told) == 1

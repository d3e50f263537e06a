"""Turns that are written late."""

from __future__ import annotations

import asyncio

from proxy.adapters.stores.in_process import InProcessStore
from proxy.core.conversation.records import Session
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

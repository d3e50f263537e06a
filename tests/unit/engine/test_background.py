"""What the end of the process waits for."""

from __future__ import annotations

import asyncio

import pytest

from proxy.engine.background import Background


async def test_what_must_be_done_is_waited_for_and_what_it_begins_too() -> None:
    background, done = Background(), list[str]()

    async def work() -> None:
        await asyncio.sleep(0)
        done.append("first")
        background.run(more())

    async def more() -> None:
        await asyncio.sleep(0)
        done.append("second")

    background.run(work())
    await background.drain()
    assert done == ["first", "second"]


async def test_what_need_not_be_done_holds_nothing_up() -> None:
    background = Background()
    learning = background.run(asyncio.Event().wait(), is_needed=False)
    await asyncio.wait_for(background.drain(), 5)
    with pytest.raises(asyncio.CancelledError):
        await learning

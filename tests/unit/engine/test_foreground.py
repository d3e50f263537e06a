"""Background calls give way: they begin while nobody waits, and end when somebody comes."""

from __future__ import annotations

import asyncio

from proxy.engine.background import Foreground


def hurried() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def test_a_call_begins_only_once_the_last_user_is_served() -> None:
    foreground, begun = Foreground(0.0), asyncio.Event()

    async def call() -> str:
        begun.set()
        return "done"

    with foreground:
        with foreground:
            waiting = asyncio.create_task(foreground.when_idle(call, 3, hurried()))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        assert not begun.is_set()
    assert await waiting == "done"


async def test_a_call_is_cut_off_when_a_user_comes_and_begins_again_after() -> None:
    foreground, begun = Foreground(0.0), 0

    async def call() -> int:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0.02)
        return begun

    waiting = asyncio.create_task(foreground.when_idle(call, 3, hurried()))
    await asyncio.sleep(0.01)
    with foreground:
        await asyncio.sleep(0.03)
        assert begun == 1
    assert await waiting == 2


async def test_a_call_that_is_cut_off_each_time_is_given_up() -> None:
    foreground = Foreground(0.0)

    async def call() -> None:
        await asyncio.sleep(10)

    waiting = asyncio.create_task(foreground.when_idle(call, 2, hurried()))
    while not waiting.done():
        await asyncio.sleep(0.005)
        with foreground:
            await asyncio.sleep(0)
    assert waiting.result() is None


async def test_what_nobody_is_in_a_hurry_for_waits_for_quiet() -> None:
    foreground, begun = Foreground(10.0), asyncio.Event()

    async def call() -> None:
        begun.set()

    waiting = asyncio.create_task(foreground.when_idle(call, 2, asyncio.Event()))
    await asyncio.sleep(0.02)
    assert not begun.is_set()
    waiting.cancel()


async def test_a_users_request_goes_out_when_what_was_cancelled_for_it_has_ended() -> None:
    foreground, begun, events = Foreground(0), asyncio.Event(), list[str]()

    async def call() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            events.append("connection closed")

    working = asyncio.create_task(foreground.when_idle(call, 1, asyncio.Event()))
    await begun.wait()
    with foreground:
        await foreground.given_way()
        events.append("request sent")
    await working
    assert events == ["connection closed", "request sent"]

"""Background calls: a few at a time whatever the traffic is; where they hold up users, they give way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from proxy.app import SystemClock
from proxy.engine.flow import PeekedResponse
from proxy.engine.foreground import Contention, Foreground
from proxy.engine.models.asking import RateLimited
from tests.support.servers import PATIENCE, eventually

KIND = "chat"
ANN, BEN = [(b"authorization", b"Bearer ann")], [(b"authorization", b"Bearer ben")]
LONG = 10.0


class Answer:
    """An upstream's answer without a body."""

    def __init__(self, status: int = 200, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        self.status = status
        self.headers = headers

    async def chunks(self) -> AsyncIterator[bytes]:
        yield b""

    async def aclose(self) -> None: ...


def hurried() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def unmeasured(quiet: float = 0.0, most: int = 1) -> Foreground:
    """Nothing is known of the upstream, so calls give way."""
    return Foreground(Contention(SystemClock()), SystemClock(), most, quiet=quiet)


def measured(most: int = 1, seconds: float = 0.01) -> Foreground:
    """It is known how long an answer takes, and not yet whether calls hold it up."""
    contention = Contention(SystemClock())
    for _ in range(3):
        contention.record_baseline(KIND, seconds)
    return Foreground(contention, SystemClock(), most, quiet=LONG)


class Calls:
    """Calls that go on until they are let go."""

    def __init__(self) -> None:
        self.begun = self.cancelled = self.most = self._now = 0
        self.go = asyncio.Event()

    async def one(self) -> str:
        self.begun += 1
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self._now -= 1
        return "done"


async def answered(seconds: float = 0.0, answer: Answer | None = None) -> PeekedResponse:
    await asyncio.sleep(seconds)
    return PeekedResponse(answer or Answer(), b"", is_over=True)


async def request(foreground: Foreground, send: Callable[[], Awaitable[PeekedResponse]]) -> None:
    """A user's request, up to where its answer begins."""
    await foreground.send_measured(KIND, ANN, send)


# --- beside users ---


async def test_a_call_runs_beside_users_who_never_pause() -> None:
    foreground, calls = measured(), Calls()
    with foreground:
        running = asyncio.create_task(foreground.run(calls.one, ANN, asyncio.Event()))
        await eventually(lambda: calls.begun == 1)
        for _ in range(20):
            with foreground:
                await request(foreground, answered)
        calls.go.set()
        assert await running == "done"
    assert calls.cancelled == 0


async def test_so_many_run_at_a_time_and_the_others_in_their_turn() -> None:
    foreground, calls = measured(most=2), Calls()
    running = [asyncio.create_task(foreground.run(calls.one, ANN, asyncio.Event())) for _ in range(5)]
    await eventually(lambda: calls.begun == 2)
    await asyncio.sleep(0.05)
    assert calls.begun == 2
    calls.go.set()
    assert await asyncio.gather(*running) == ["done"] * 5
    assert calls.most == 2


async def test_a_call_that_a_request_waits_for_stands_in_no_line() -> None:
    foreground, calls = measured(), Calls()
    hurry = asyncio.Event()
    first = asyncio.create_task(foreground.run(calls.one, ANN, asyncio.Event()))
    await eventually(lambda: calls.begun == 1)
    second = asyncio.create_task(foreground.run(calls.one, ANN, hurry))
    await asyncio.sleep(0.2)
    assert calls.begun == 1
    hurry.set()
    await eventually(lambda: calls.begun == 2)
    calls.go.set()
    await asyncio.gather(first, second)


async def test_a_user_who_waits_too_long_beside_it_ends_the_call_and_from_then_on_calls_give_way() -> None:
    foreground, calls = measured(), Calls()
    running = asyncio.create_task(foreground.run(calls.one, ANN, asyncio.Event()))
    await eventually(lambda: calls.begun == 1)
    with foreground:
        head = asyncio.create_task(request(foreground, lambda: answered(LONG)))
        await eventually(lambda: calls.cancelled == 1)
        assert not head.done()
        head.cancel()
        await asyncio.sleep(0.2)
        assert calls.begun == 1
    running.cancel()


async def test_with_none_calls_give_way_whatever_was_measured() -> None:
    foreground, calls = measured(most=0), Calls()
    with foreground:
        running = asyncio.create_task(foreground.run(calls.one, ANN, hurried()))
        await asyncio.sleep(0.2)
        assert calls.begun == 0
    await eventually(lambda: calls.begun == 1)
    running.cancel()


# --- the upstream's limit ---


async def test_after_a_429_the_call_is_made_again_when_the_upstream_says() -> None:
    foreground, asked = measured(), list[float]()
    now = asyncio.get_running_loop().time

    async def call() -> str:
        asked.append(now())
        if len(asked) == 1:
            raise RateLimited(0.3)
        return "done"

    assert await foreground.run(call, ANN, hurried()) == "done"
    assert asked[1] - asked[0] >= 0.3


@pytest.mark.parametrize(
    ("status", "headers"), [(429, [(b"Retry-After", b"1")]), (503, [(b"retry-after", b"1")])]
)
async def test_after_a_users_429_no_call_is_made_until_the_upstream_says(
    status: int, headers: Sequence[tuple[bytes, bytes]]
) -> None:
    foreground, calls = measured(), Calls()
    with foreground:
        await request(foreground, lambda: answered(answer=Answer(status, headers)))
    running = asyncio.create_task(foreground.run(calls.one, ANN, hurried()))
    await asyncio.sleep(0.5)
    assert calls.begun == 0
    await eventually(lambda: calls.begun == 1)
    running.cancel()


async def test_one_users_429_holds_up_no_call_with_the_key_of_another() -> None:
    foreground, of_ann, of_ben = measured(most=2), Calls(), Calls()
    with foreground:
        await request(foreground, lambda: answered(answer=Answer(429)))
    waiting = asyncio.create_task(foreground.run(of_ann.one, ANN, hurried()))
    running = asyncio.create_task(foreground.run(of_ben.one, BEN, hurried()))
    await eventually(lambda: of_ben.begun == 1)
    assert of_ann.begun == 0
    waiting.cancel()
    running.cancel()


# --- giving way ---


async def test_a_call_that_gives_way_begins_only_once_the_last_user_is_served() -> None:
    foreground, begun = unmeasured(), asyncio.Event()

    async def call() -> str:
        begun.set()
        return "done"

    with foreground:
        with foreground:
            waiting = asyncio.create_task(foreground.run(call, ANN, hurried()))
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        assert not begun.is_set()
    assert await waiting == "done"


async def test_it_is_cut_off_when_a_user_comes_and_begins_again_after() -> None:
    foreground, calls = unmeasured(), Calls()
    waiting = asyncio.create_task(foreground.run(calls.one, ANN, hurried()))
    await eventually(lambda: calls.begun == 1)
    with foreground:
        await eventually(lambda: calls.cancelled == 1)
        assert calls.begun == 1
        calls.go.set()
    assert await asyncio.wait_for(waiting, PATIENCE) == "done"
    assert calls.begun == 2


async def test_what_nobody_is_in_a_hurry_for_waits_for_quiet() -> None:
    foreground, calls = unmeasured(LONG), Calls()
    with foreground:
        pass
    waiting = asyncio.create_task(foreground.run(calls.one, ANN, asyncio.Event()))
    await asyncio.sleep(0.2)
    assert calls.begun == 0
    waiting.cancel()


async def test_a_call_that_was_cut_off_waits_for_a_longer_pause_each_time() -> None:
    foreground, begun = unmeasured(0.1), list[float]()
    now, ended = asyncio.get_running_loop().time, 0.0
    pauses = list[float]()

    async def call() -> None:
        begun.append(now())
        await asyncio.sleep(LONG)

    waiting = asyncio.create_task(foreground.run(call, ANN, asyncio.Event()))
    for number in range(1, 4):
        await eventually(lambda number=number: len(begun) == number)
        pauses.append(begun[-1] - ended)
        with foreground:
            await request(foreground, answered)
        ended = now()
    assert pauses[1] >= 0.2
    assert pauses[2] >= 0.4
    waiting.cancel()


async def test_a_users_request_goes_out_when_what_was_cancelled_for_it_has_ended() -> None:
    foreground, begun, events = unmeasured(), asyncio.Event(), list[str]()

    async def call() -> None:
        begun.set()
        try:
            await asyncio.sleep(0 if events else LONG)
        finally:
            await asyncio.sleep(0)
            events.append("connection closed")

    async def send() -> PeekedResponse:
        events.append("request sent")
        return await answered()

    working = asyncio.create_task(foreground.run(call, ANN, hurried()))
    await begun.wait()
    with foreground:
        await request(foreground, send)
    await working
    assert events[:2] == ["connection closed", "request sent"]

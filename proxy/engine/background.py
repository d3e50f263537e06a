"""Work beside the requests: it outlives its request, and gives way to those whom somebody waits for.

What must be done runs to its end, and the process's end waits for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from proxy.core.planning.chain import Chain
from proxy.errors import StoreUnavailable
from proxy.telemetry import log_fault

T = TypeVar("T")

_RENEWALS = 3
"""How often a lease is renewed before it would run out."""
_LONG = 20_000
"""Counted tokens of a chain from which planning happens off the event loop."""
_MANY = 200
"""Messages of which the same is true."""
_QUIET = 1.0
_WAY = 0.1
"""Seconds that a user waits at most for a call that is being cancelled."""


class Background:
    """Coroutines beside the requests."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dispensable: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[None, None, T], *, is_needed: bool = True) -> asyncio.Task[T]:
        """Start ``work``: a client that leaves does not stop it; the end does, unless it ``is_needed``."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        if not is_needed:
            self._dispensable.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._dispensable.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log_fault("background work failed", error)

    async def drain(self) -> None:
        """Wait until nothing is left, without what need not be done."""
        for task in self._dispensable:
            task.cancel()
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)


class Foreground:
    """Users first: calls of our own to the upstream run only while nobody waits for an answer of it.

    A one-slot upstream (a local model) serves whoever comes first; a summary in that slot would stand before
    a user. So such a call starts ``quiet`` seconds after the last foreground request, and is cancelled when
    one arrives. ``with foreground:`` is one in flight.
    """

    def __init__(self, quiet: float = _QUIET) -> None:
        self._quiet = quiet
        self._in_flight = 0
        self._arrivals = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._background: set[asyncio.Task[Any]] = set()

    def __enter__(self) -> None:
        self._in_flight += 1
        self._arrivals += 1
        self._idle.clear()
        for task in self._background:
            task.cancel()

    def __exit__(self, *_: object) -> None:
        self._in_flight -= 1
        if not self._in_flight:
            self._idle.set()

    async def given_way(self) -> None:
        """Return once the calls that were cancelled for a user have ended, and their connections with them.

        A request that went out before would stand behind them in an upstream's only slot.
        """
        if self._background:
            await asyncio.wait(self._background, timeout=_WAY)

    async def _quiet_again(self, hurry: asyncio.Event) -> None:
        """A call that is begun in every short pause is paid for each time and never finished."""
        while True:
            await self._idle.wait()
            arrivals = self._arrivals
            with suppress(TimeoutError):
                async with asyncio.timeout(self._quiet):
                    await hurry.wait()
            if self._idle.is_set() and arrivals == self._arrivals:
                return

    async def when_idle(
        self, call: Callable[[], Coroutine[Any, Any, T]], attempts: int, hurry: asyncio.Event
    ) -> T | None:
        """Run ``call`` once nobody has been waiting for a while (at once when ``hurry`` is set).

        It runs again if it was cancelled for somebody; None after so many attempts.
        """
        for _ in range(attempts):
            await self._quiet_again(hurry)
            task = asyncio.create_task(call())
            self._background.add(task)
            try:
                return await task
            except asyncio.CancelledError:
                current = asyncio.current_task()
                if current is not None and current.cancelling():
                    task.cancel()
                    raise
            finally:
                self._background.discard(task)
        return None


async def keep_renewing(renew: Callable[[], Awaitable[object]], lease: float) -> None:
    """Renew a ``lease`` (seconds) of the store's before it runs out, until this is cancelled.

    A store that is away for longer than the lease costs what was held.
    """
    while True:
        await asyncio.sleep(lease / _RENEWALS)
        with suppress(StoreUnavailable):
            await renew()


async def off_loop(chain: Chain, work: Callable[[], T]) -> T:
    """Run planning of a chain where it cannot hold up other requests, if it is much."""
    if chain.tokens.total < _LONG and len(chain) < _MANY:
        return work()
    return await asyncio.to_thread(work)

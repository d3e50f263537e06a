"""Users first: background calls run only while nobody waits for the same upstream.

A one-slot upstream (a local model) serves whoever comes first; a summary in that slot would stand before a
user. So a background call starts when no foreground request is in flight and is cancelled when one arrives.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

T = TypeVar("T")

_QUIET = 1.0
_WAY = 0.1
"""Seconds that a user waits at most for a call that is being cancelled."""


class Foreground:
    """Counts the foreground requests in flight to one upstream.

    What nobody waits for is begun ``quiet`` seconds after the last of them.
    """

    def __init__(self, quiet: float = _QUIET) -> None:
        self._quiet = quiet
        self._in_flight = 0
        self._arrivals = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._background: set[asyncio.Task[Any]] = set()

    def request(self) -> Self:
        """While it lasts a foreground request is in flight; whatever runs in the background is cancelled."""
        return self

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
            with contextlib.suppress(TimeoutError):
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

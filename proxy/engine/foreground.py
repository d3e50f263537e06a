"""Users first: background calls run only while nobody waits for the same upstream.

A one-slot upstream (a local model) serves whoever comes first; a summary in that slot would stand before a
user. So a background call starts when no foreground request is in flight and is cancelled when one arrives.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")


class Foreground:
    """Counts the foreground requests in flight to one upstream."""

    def __init__(self) -> None:
        self._in_flight = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._background: set[asyncio.Task[Any]] = set()

    @contextmanager
    def request(self) -> Generator[None]:
        """A foreground request is in flight; whatever runs in the background is cancelled."""
        self._in_flight += 1
        self._idle.clear()
        for task in self._background:
            task.cancel()
        try:
            yield
        finally:
            self._in_flight -= 1
            if not self._in_flight:
                self._idle.set()

    async def when_idle(self, call: Callable[[], Coroutine[Any, Any, T]], attempts: int) -> T | None:
        """Run ``call`` once nobody is waiting, again if somebody came; None after so many attempts."""
        for _ in range(attempts):
            await self._idle.wait()
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

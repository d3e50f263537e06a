"""Work that outlives its request: it runs to its end, and the end of the process waits for it."""

import asyncio
from collections.abc import Coroutine

from proxy.telemetry import log_fault


class Background:
    """Coroutines beside the requests."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[None, None, None]) -> None:
        """Start ``work``; a client that leaves does not stop it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log_fault("background work failed", error)

    async def drain(self) -> None:
        """Wait until nothing is left."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

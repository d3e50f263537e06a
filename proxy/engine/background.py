"""Work that outlives its request. What must be done runs to its end, and the process's end waits for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from proxy.telemetry import log_fault

T = TypeVar("T")


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

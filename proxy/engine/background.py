"""Work beside the requests: it outlives its request.

What must be done runs to its end, and the process's end waits for it. Calls of our own to the upstream have
rules of their own (:mod:`proxy.engine.foreground`).
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

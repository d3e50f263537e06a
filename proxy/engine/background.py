"""Background work, which may outlive the request that started it.

Work that is needed runs to its end, and the process waits for it when it ends. Our own calls to the upstream
have further rules (:mod:`proxy.engine.foreground`).
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from proxy.core.planning.chain import Chain
from proxy.errors import StoreUnavailable
from proxy.telemetry import log_fault

T = TypeVar("T")

LEASE = 15.0
"""Seconds of a lease on work: others take over a dead worker's work after that."""
_RENEWALS = 3
"""How often a lease is renewed before it would expire."""
_LONG, _MANY = 1_000, 20
"""Counted tokens and messages of a chain from which on planning runs in a thread: it takes 10 to 25 ms for so
many tokens."""
_SLOW, _VERY_MANY = 20_000, 200
"""Those from which on it may take seconds."""
_QUICK = ThreadPoolExecutor(2, thread_name_prefix="planning")
"""The threads of what takes less, which does not wait behind what may take seconds."""


def is_being_cancelled() -> bool:
    """Whether somebody has cancelled the current task; else a CancelledError in it is another task's."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Background:
    """Runs coroutines in the background."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._dispensable: set[asyncio.Task[Any]] = set()

    def run(self, work: Coroutine[None, None, T], *, is_needed: bool = True) -> asyncio.Task[T]:
        """Start ``work``, which goes on if the client leaves; shutdown cancels it unless it ``is_needed``."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        if not is_needed:
            self._dispensable.add(task)

        def done(ended: asyncio.Task[T]) -> None:
            self._tasks.discard(ended)
            self._dispensable.discard(ended)
            if not ended.cancelled() and (error := ended.exception()) is not None:
                log_fault("background work failed", error)

        task.add_done_callback(done)
        return task

    async def drain(self) -> None:
        """Cancel the work that is not needed, and wait for the rest."""
        for task in self._dispensable:
            task.cancel()
        while self._tasks:
            # Not `gather`: from Python 3.12 on it runs nothing else, also no callback, if all have ended.
            await asyncio.wait(self._tasks)


async def keep_renewing(renew: Callable[[], Awaitable[object]], lease: float) -> None:
    """Renew a store's ``lease`` (seconds) before it expires, until this is cancelled.

    If the store is away for longer than the lease, the lease is lost.
    """
    while True:
        await asyncio.sleep(lease / _RENEWALS)
        with suppress(StoreUnavailable):
            await renew()


class Lease:
    """The right to a piece of work that the store gives to one worker at a time; renewed until it ends.

    ``claim`` and ``release`` are the store's, for this work.
    """

    def __init__(
        self, claim: Callable[[str, float], Awaitable[bool]], release: Callable[[str], Awaitable[None]]
    ) -> None:
        self._claim, self._release = claim, release
        self.token = secrets.token_hex(8)
        self._renewing: asyncio.Task[None] | None = None

    async def take(self) -> bool:
        """Take it; return False while another worker has it. Raises StoreUnavailable."""
        claim = partial(self._claim, self.token, LEASE)
        is_ours = await claim()
        if is_ours:
            self._renewing = asyncio.create_task(keep_renewing(claim, LEASE), name="lease")
        return is_ours

    def end(self) -> bool:
        """Stop renewing; return whether it was being renewed."""
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
        return renewing is not None

    async def hold(self, seconds: float) -> None:
        """Have it for ``seconds`` more, so that nobody does the work again. Raises StoreUnavailable."""
        if self.end():
            await self._claim(self.token, seconds)

    async def give_up(self) -> None:
        """Let another worker do the work; no effect once it has ended."""
        if self.end():
            with suppress(StoreUnavailable):  # then it expires
                await self._release(self.token)


async def off_loop(chain: Chain, work: Callable[[], T]) -> T:
    """Run planning of a chain, in a thread if it is so long that it would hold up other requests.

    Handing work to a thread takes some 0.1 ms: what every turn does, and does quickly, is not for this.
    """
    tokens, messages = chain.tokens.total, len(chain)
    if tokens < _LONG and messages < _MANY:
        return work()
    if tokens < _SLOW and messages < _VERY_MANY:
        return await asyncio.get_running_loop().run_in_executor(_QUICK, copy_context().run, work)
    return await asyncio.to_thread(work)

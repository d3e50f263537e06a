"""Order among a session's appended turns and compactions: each waits for the one before, on any worker.

A place in the queue is a ticket in the store with a lease, which is renewed while its worker lives; if the
worker dies, the lease ends and the next turn starts. Clients that send whole histories do not queue: their
turns need no order, and only check whether a compaction is running.
"""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from proxy.engine.background import Background, keep_renewing
from proxy.errors import SessionBusy, StoreUnavailable
from proxy.ports import Clock, PlaceState, QueueStore, SessionKey

TURN = "turn"
_GLANCES = (0.005, 0.05)
"""Seconds between two checks of the queue: the first, and the longest."""
_AGAIN = 0.1
"""Seconds after which a failed call of the store is repeated."""


class TurnQueue:
    """The queues of all sessions. ``lease`` is in seconds."""

    def __init__(self, store: QueueStore, background: Background, clock: Clock, lease: float) -> None:
        self._store = store
        self._background = background
        self._clock = clock
        self._lease = lease
        self._is_closing = False

    def close(self) -> None:
        """Stop repeating failed calls, because the process ends; leases then expire by themselves."""
        self._is_closing = True

    @asynccontextmanager
    async def place(
        self,
        key: SessionKey,
        kind: str,
        *,
        wait: float,
        queue: int,
        finished: Callable[[], Awaitable[None]] | None = None,
    ) -> AsyncGenerator[None]:
        """Wait in the queue; entered when first. The place is given up at the end, once ``finished`` returns.

        Raises SessionBusy after ``wait`` seconds or if ``queue`` others are waiting already, and
        StoreUnavailable.
        """
        ticket = f"{kind}-{secrets.token_hex(8)}"
        deadline, renewing = self._clock.monotonic() + wait, None
        glance, longest = _GLANCES

        async def leave() -> None:
            try:
                if finished is not None:
                    await finished()
            finally:
                if renewing is not None:
                    renewing.cancel()
                await self.insist(lambda: self._store.leave(key, ticket), self._lease)

        try:
            take_place = partial(self._store.take_place, key, ticket, queue, self._lease)
            while (state := await take_place()) is not PlaceState.GO:
                if state is PlaceState.FULL or self._clock.monotonic() >= deadline:
                    raise SessionBusy
                await asyncio.sleep(glance)
                glance = min(2 * glance, longest)
            # If the store is away for longer than the lease, only the tip's own check is left.
            renew = keep_renewing(lambda: self._store.renew_lease(key, ticket, self._lease), self._lease)
            renewing = self._background.run(renew)
            yield
        finally:
            self._background.run(leave())

    async def insist(self, call: Callable[[], Awaitable[None]], seconds: float) -> None:
        """Repeat a call of the store until it succeeds, for at most so many seconds."""
        given_up = self._clock.monotonic() + seconds
        while not self._is_closing and self._clock.monotonic() < given_up:
            with contextlib.suppress(StoreUnavailable):
                await call()
                return
            await asyncio.sleep(_AGAIN)

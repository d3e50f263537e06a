"""How serving ends: readiness first, then the streams, then the listener.

A server that is told to end stops listening at once, and no probe can ask it any more whether it is ready. So
the signal comes here first. From then on `/readyz` says no and each answer to a new request closes its
connection. The server hears of the signal when nothing is under way any more, or time is up.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from proxy.telemetry import log_event

GRACE = 5.0
"""Seconds for which new requests are still answered: a balancer needs a moment to see that we end."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Drain:
    """What is under way, and whether we are about to end; `timeout` is in seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._is_serving = False
        self.under_way = 0
        """Requests; whoever counts one calls `leave` when it has ended."""
        self._signal: int = signal.SIGTERM
        self._began = 0.0
        """By the loop's clock."""
        self.has_begun = False
        self.is_over = False
        """Whether what is still under way is being cut off."""
        self._is_empty = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[None] | None = None
        self._before: dict[signal.Signals, Any] = {}
        """The server's own handlers."""

    @property
    def is_ready(self) -> bool:
        return self._is_serving and not self.has_begun

    @property
    def refuses_new(self) -> bool:
        """Whether new requests have had their grace; asked once it has begun."""
        grace = min(GRACE, self._timeout / 2)
        return self.is_over or self._loop.time() - self._began > grace

    async def emptied(self, seconds: float) -> None:
        """Wait until nothing is under way any more, for so long at most."""
        if self.under_way:
            self._is_empty.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), seconds)

    def leave(self) -> None:
        """A request has ended."""
        self.under_way -= 1
        if not self.under_way:
            self._is_empty.set()

    @contextmanager
    def serving(self) -> Generator[None]:
        """Within, we are ready, until SIGINT or SIGTERM begins the drain.

        The server's own handlers hear of it when that is over, and of a SIGINT meanwhile at once: who presses
        Ctrl-C twice does not want to wait. Where the server runs in a thread, it is ended otherwise.
        """
        self._loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._caught) for number in _SIGNALS}
        self._is_serving = True
        try:
            yield
        finally:
            self._is_serving = False
            self._restore()
            if self._task is not None:
                self._task.cancel()

    def _caught(self, number: int, _: FrameType | None) -> None:
        if not self.has_begun:
            self._signal, self.has_begun, self._began = number, True, self._loop.time()
            self._loop.call_soon_threadsafe(self._finish_soon)
        elif number == signal.SIGINT:
            self._pass_on(self._signal, number)

    def _finish_soon(self) -> None:
        async def finish() -> None:
            log_event("draining", requests=self.under_way)
            await self.emptied(self._timeout)
            self._pass_on(self._signal)

        self._task = self._loop.create_task(finish())

    def _pass_on(self, *numbers: int) -> None:
        self.is_over = True
        self._restore()
        for number in numbers:
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

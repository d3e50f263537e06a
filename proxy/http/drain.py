"""How serving ends: readiness first, then the streams, then the listener.

A server that is told to end stops listening at once, and no probe can ask it any more whether it is ready. So
:class:`Drain` gets the signal first. From then on `/readyz` says no, and each answer to a new request closes
its connection. The server gets the signal when no request is in progress any more, or time is up.
"""

import asyncio
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from proxy.telemetry import log_event

_GRACE = 5.0
"""Seconds for which new requests are still answered: a load balancer needs a moment to notice the end."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Drain:
    """Counts the requests in progress, and ends serving; `timeout` is in seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._is_serving = False
        self.in_flight = 0
        """Requests in progress; whoever counts one calls `leave` when it has ended."""
        self._signal: int = signal.SIGTERM
        self._began = 0.0
        """When the drain began, by the loop's clock."""
        self.has_begun = False
        self.is_over = False
        """Whether the requests still in progress are being cut off."""
        self._is_empty = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[None] | None = None
        self._before: dict[signal.Signals, Any] = {}
        """The server's own signal handlers."""

    @property
    def is_ready(self) -> bool:
        return self._is_serving and not self.has_begun

    @property
    def refuses_new(self) -> bool:
        """Whether the grace period for new requests is over; asked once the drain has begun."""
        grace = min(_GRACE, self._timeout / 2)
        return self.is_over or self._loop.time() - self._began > grace

    async def wait_empty(self, seconds: float) -> None:
        """Wait until no request is in progress, at most so many seconds."""
        if self.in_flight:
            self._is_empty.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), seconds)

    def leave(self) -> None:
        self.in_flight -= 1
        if not self.in_flight:
            self._is_empty.set()

    @contextmanager
    def serving(self) -> Generator[None]:
        """A context in which the server is ready, until SIGINT or SIGTERM begins the drain.

        The server's own handlers get the signal when the drain is over, and a SIGINT during the drain at
        once: who presses Ctrl-C twice does not want to wait. A server that runs in a thread is ended in
        another way.
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
            log_event("draining", requests=self.in_flight)
            await self.wait_empty(self._timeout)
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

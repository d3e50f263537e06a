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

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.errors import Unavailable
from proxy.http.asgi import send_error, with_headers
from proxy.http.front import request_id
from proxy.telemetry import log_event

GRACE = 5.0
"""Seconds for which new requests are still answered: a balancer needs a moment to see that we end."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_CLOSE = (b"connection", b"close")


class Drain:
    """What is under way, and whether we are about to end; `timeout` is in seconds."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._is_serving = False
        self._under_way = 0
        self._signal: int | None = None
        self._began: float | None = None
        self._is_over = False
        self._is_empty = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[None] | None = None
        self._before: dict[signal.Signals, Any] = {}
        """The server's own handlers."""

    @property
    def is_ready(self) -> bool:
        return self._is_serving and self._signal is None

    @property
    def has_begun(self) -> bool:
        return self._signal is not None

    @property
    def grace_is_over(self) -> bool:
        grace = min(GRACE, self._timeout / 2)
        return self._began is not None and self._loop.time() - self._began > grace

    @property
    def is_over(self) -> bool:
        """Whether what is still under way is being cut off."""
        return self._is_over

    async def emptied(self, seconds: float) -> None:
        """Wait until nothing is under way any more, for so long at most."""
        if self._under_way:
            self._is_empty.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_empty.wait(), seconds)

    def enter(self) -> None:
        self._under_way += 1

    def leave(self) -> None:
        self._under_way -= 1
        if not self._under_way:
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
        if self._signal is None:
            self._signal = number
            self._loop.call_soon_threadsafe(self._begin)
        elif number == signal.SIGINT:
            self._pass_on(self._signal, number)

    def _begin(self) -> None:
        self._began = self._loop.time()
        self._task = self._loop.create_task(self._finish())

    async def _finish(self) -> None:
        log_event("draining", requests=self._under_way)
        await self.emptied(self._timeout)
        self._pass_on(self._signal or signal.SIGTERM)

    def _pass_on(self, *numbers: int) -> None:
        self._is_over = True
        self._restore()
        for number in numbers:
            signal.raise_signal(number)

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}


class Draining:
    """An ASGI application around another, whose requests `drain` counts."""

    def __init__(self, app: ASGIApp, drain: Drain) -> None:
        self._app = app
        self._drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        self._drain.enter()
        try:
            if self._drain.has_begun:
                await self._answer_late(scope, receive, send)
            else:
                await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self._drain.is_over:
                raise  # else the server has said so already
        finally:
            self._drain.leave()

    async def _answer_late(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_late = self._drain.grace_is_over or self._drain.is_over
        if is_late and scope["path"].startswith("/v1/"):
            await send_error(send, Unavailable("The proxy is ending."), request_id(scope), unread=receive)
            return
        await self._app(scope, receive, with_headers(send, _CLOSE))

"""Connections that measure how far away the server is, and are waited for accordingly.

What a round trip may take follows from those before it, as for TCP itself (RFC 6298). To make a connection
takes several of them (TCP, TLS, a password, a database), so it is made to its end whoever has stopped waiting
for it: the next caller finds it there, and what it has measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, Final, cast

from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.exceptions import ResponseError

PATIENCE: Final = 4.0
"""Seconds that TCP and TLS may take, which nobody waits for but at the start."""
_HANDSHAKE: Final = 3.0
"""Seconds that TLS may take of these."""
_FARTHEST: Final = 1.0
"""Seconds that an answer may take while a connection is made; a server farther away is no store."""
_LONGEST: Final = 2.0
"""Seconds that anything is waited for, at most, whatever was measured; more where the setting is more."""


class AdaptiveTimeout:
    """How long something may take, in `seconds`: what is usual, and beside it four times what it varies by.

    `least` is the least room beside what is usual, and all that may be taken before anything was measured.
    """

    def __init__(self, least: float) -> None:
        self.least = least
        self._usual: float | None = None
        self._variation = 0.0
        self._quickest = inf

    @property
    def seconds(self) -> float:
        """RFC 6298, section 2, with the least room for the granularity of the clock."""
        if self._usual is None:
            return self.least
        return min(self._usual + max(self.least, 4 * self._variation), max(self.least, _LONGEST))

    def measured(self, seconds: float) -> None:
        """It has taken so long once more."""
        self._quickest = min(self._quickest, seconds)
        if self._usual is None:
            self._usual, self._variation = seconds, seconds / 2
        else:
            self._variation += (abs(self._usual - seconds) - self._variation) / 4
            self._usual += (seconds - self._usual) / 8

    def begin(self) -> None:
        """Begin with the quickest so far: at the start it was we who were slow."""
        if self._usual is not None:
            self._usual, self._variation = self._quickest, self._quickest / 2


@dataclass
class Timeouts:
    """How long a server is waited for, shared by all connections to it."""

    trip: AdaptiveTimeout
    """Of a round trip,"""
    connect: AdaptiveTimeout
    """and of making a connection."""
    reached: Callable[[], None]
    """Called whenever a connection was made, and the server has answered on it."""
    failure: Exception | None = None
    """What became of the connection that was to be made last; told where the next one takes too long."""


class _Measuring(AbstractConnection):
    """What connections of every kind do alike."""

    def __init__(self, *, timeouts: Timeouts, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._timeouts = timeouts
        self._is_timed = self.socket_timeout is not None
        """Whether each answer has its time; else whoever uses the connection sees to it."""
        self._connecting: asyncio.Task[None] | None = None
        self._sent = 0.0

    async def connect(self) -> None:
        """Wait until it is connected. TimeoutError where that takes too long; it is made nevertheless."""
        connecting = self._connecting
        if connecting is None or connecting.done():
            connecting = self._connecting = None
            if not self.is_connected:
                connecting = self._connecting = asyncio.create_task(self._make(), name="connecting")
                # Its failure is that of whoever waits for it, if anybody does: asyncio need not complain.
                connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        if connecting is not None:
            await asyncio.wait({connecting}, timeout=self._timeouts.connect.seconds)
            if not connecting.done():
                raise self._timeouts.failure or TimeoutError("No connection was made in time.")
            connecting.result()
        self.socket_timeout = self._timeouts.trip.seconds if self._is_timed else None

    async def _make(self) -> None:
        """Connect, and measure one round trip."""
        began = monotonic()
        self.socket_timeout = max(_FARTHEST, self._timeouts.trip.least)
        try:
            await super().connect()
            await self.send_command("PING", check_health=False)
            with suppress(ResponseError):  # a user who may not say so is answered, too
                await self.read_response()
        except BaseException as failure:
            self._timeouts.failure = failure if isinstance(failure, Exception) else None
            await super().disconnect(nowait=True)
            raise
        self._timeouts.failure = None
        self._timeouts.connect.measured(monotonic() - began)
        self._timeouts.reached()

    async def disconnect(self, *args: Any, **options: Any) -> None:
        """End it, also while it is being made."""
        connecting = self._connecting
        if connecting is not None and connecting is not asyncio.current_task():
            self._connecting = None
            connecting.cancel()
            await asyncio.wait({connecting})
        await super().disconnect(*args, **options)

    async def send_packed_command(self, *args: Any, **options: Any) -> None:
        await super().send_packed_command(*args, **options)
        self._sent = monotonic()

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """The next answer; the first to what was sent last ends a round trip."""
        answer = cast("Any", await super().read_response(*args, **options))
        if self._sent:
            self._timeouts.trip.measured(monotonic() - self._sent)
            self._sent = 0.0
        return answer


class _Plain(_Measuring, Connection):
    pass


class _Encrypted(_Measuring, SSLConnection):
    def _connection_arguments(self) -> dict[str, Any]:
        """A server that knows nothing of TLS may wait for more, and say nothing."""
        arguments = cast("dict[str, Any]", super()._connection_arguments())  # pyright: ignore[reportUnknownMemberType]
        return {**arguments, "ssl_handshake_timeout": _HANDSHAKE}


class _Local(_Measuring, UnixDomainSocketConnection):
    pass


MEASURING: Final[dict[type[AbstractConnection], type[AbstractConnection]]] = {
    Connection: _Plain,
    SSLConnection: _Encrypted,
    UnixDomainSocketConnection: _Local,
}
"""By the kind of connection that a URL asks for."""

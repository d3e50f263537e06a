"""Connections that measure their round trips to the server, and derive their timeouts from them.

The timeout of a round trip follows from earlier ones, as in TCP itself (RFC 6298). Connecting takes several
round trips (TCP, TLS, a password, a database); it is therefore completed even if its caller has stopped
waiting: the next caller finds the connection ready, and the measured times.
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
"""Seconds that TCP and TLS may take together; callers wait that long only at the start."""
_HANDSHAKE: Final = 3.0
"""Seconds of these that TLS may take."""
_FARTHEST: Final = 1.0
"""Seconds that an answer may take while connecting; a server farther away is not usable as a store."""
_LONGEST: Final = 2.0
"""The longest timeout in seconds, whatever was measured, unless the setting is longer."""


class AdaptiveTimeout:
    """A timeout in `seconds` that adapts to measured times: the mean plus four times the mean deviation.

    `least` is the least time added to the mean, and the whole timeout before anything was measured.
    """

    def __init__(self, least: float) -> None:
        self.least = least
        self._usual: float | None = None
        self._variation = 0.0
        self._quickest = inf

    @property
    def seconds(self) -> float:
        """The timeout by RFC 6298, section 2, with `least` in place of the granularity of the clock."""
        if self._usual is None:
            return self.least
        return min(self._usual + max(self.least, 4 * self._variation), max(self.least, _LONGEST))

    def measured(self, seconds: float) -> None:
        self._quickest = min(self._quickest, seconds)
        if self._usual is None:
            self._usual, self._variation = seconds, seconds / 2
        else:
            self._variation += (abs(self._usual - seconds) - self._variation) / 4
            self._usual += (seconds - self._usual) / 8

    def begin(self) -> None:
        """Start again from the quickest time so far: during the start this process itself was slow."""
        if self._usual is not None:
            self._usual, self._variation = self._quickest, self._quickest / 2


@dataclass
class Timeouts:
    """The timeouts for a server, shared by all connections to it."""

    trip: AdaptiveTimeout
    """The timeout of a round trip."""
    connect: AdaptiveTimeout
    """The timeout of connecting."""
    reached: Callable[[], None]
    """Called whenever a connection was made and the server has answered on it."""
    failure: Exception | None = None
    """The failure of the last attempt to connect, if it failed; raised if the next one takes too long."""


class _Measuring(AbstractConnection):
    """The common behaviour of all kinds of connections."""

    def __init__(self, *, timeouts: Timeouts, **options: Any) -> None:
        super().__init__(**options)  # pyright: ignore[reportUnknownMemberType]
        self._timeouts = timeouts
        self._is_timed = self.socket_timeout is not None
        """Whether each answer has a timeout; otherwise the user of the connection sets one."""
        self._connecting: asyncio.Task[None] | None = None
        self._sent = 0.0

    async def connect(self) -> None:
        """Wait until it is connected. Raises TimeoutError if that takes too long, but goes on connecting."""
        connecting = self._connecting
        if connecting is None or connecting.done():
            connecting = self._connecting = None
            if not self.is_connected:
                connecting = self._connecting = asyncio.create_task(self._make(), name="connecting")
                # Retrieve the failure here, so that asyncio does not log it if nobody waits for the task.
                connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        if connecting is not None:
            await asyncio.wait({connecting}, timeout=self._timeouts.connect.seconds)
            if not connecting.done():
                raise self._timeouts.failure or TimeoutError("No connection was made in time.")
            connecting.result()
        self.socket_timeout = self._timeouts.trip.seconds if self._is_timed else None

    async def _make(self) -> None:
        began = monotonic()
        self.socket_timeout = max(_FARTHEST, self._timeouts.trip.least)
        try:
            await super().connect()
            await self.send_command("PING", check_health=False)
            with suppress(ResponseError):  # a user without the right to PING gets an answer too
                await self.read_response()
        except BaseException as failure:
            self._timeouts.failure = failure if isinstance(failure, Exception) else None
            await super().disconnect(nowait=True)
            raise
        self._timeouts.failure = None
        self._timeouts.connect.measured(monotonic() - began)
        self._timeouts.reached()

    async def disconnect(self, *args: Any, **options: Any) -> None:
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
        """Read the next answer; the first one after a send ends a round trip, which is measured."""
        answer = cast("Any", await super().read_response(*args, **options))
        if self._sent:
            self._timeouts.trip.measured(monotonic() - self._sent)
            self._sent = 0.0
        return answer


class _Plain(_Measuring, Connection):
    pass


class _Encrypted(_Measuring, SSLConnection):
    def _connection_arguments(self) -> dict[str, Any]:
        """Add a timeout for TLS: a server that does not speak it may wait silently for more data."""
        arguments = cast("dict[str, Any]", super()._connection_arguments())  # pyright: ignore[reportUnknownMemberType]
        return {**arguments, "ssl_handshake_timeout": _HANDSHAKE}


class _Local(_Measuring, UnixDomainSocketConnection):
    pass


MEASURING: Final[dict[type[AbstractConnection], type[AbstractConnection]]] = {
    Connection: _Plain,
    SSLConnection: _Encrypted,
    UnixDomainSocketConnection: _Local,
}
"""Our connection classes, by the class that redis-py chooses for a URL."""

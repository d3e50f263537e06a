"""Pipelining: commands issued at about the same time are sent as one group, in one round trip.

Through redis-py's client a command costs this process 100 µs and more, nearly all of it overhead: taking a
connection from the pool and returning it, timers, packing words one by one. In a group it costs 10 to 40.
Commands that arrive while a group is under way wait for the next one; so a quiet process makes a trip for
each command, and a busy one a trip for many. A command whose answer nobody waits for may be delayed
("linger") to be sent with others.

Every answer is read, even if its caller has been cancelled. Each group ends with an ECHO whose answer must
come in its place before any answer is delivered; so a surplus answer cannot be taken for another command's.
An error reply fails its own command only. On any other failure the connection is closed and the whole group
fails; if there was no answer in time or no connection, all waiting commands fail too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, Final, NamedTuple, cast

import hiredis
from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as ConnectionFailed
from redis.exceptions import InvalidResponse, ResponseError

from proxy.adapters.stores.redis.breaker import Breaker
from proxy.adapters.stores.redis.deadline import Deadline
from proxy.adapters.stores.redis.pool import Timeouts

LARGE: Final = 64 * 1024
"""A command of more bytes is sent alone, through the client: it would delay the others."""

_MOST: Final = 128
"""The most commands in a group; limited because the first answer is delivered with the last."""

_UNLIMITED: Final = nullcontext()
"""No timeout: a connection limits the time that it is made in, and a timeout for each group is expensive."""

packed: Callable[[tuple[str | bytes | float, ...]], bytes] = cast("Any", hiredis).pack_command
"""Packs a command into bytes of the Redis protocol."""


class _Command(NamedTuple):
    packed: bytes
    answer: asyncio.Future[Any]

    def succeed(self, answer: object) -> None:
        if not self.answer.done():  # done: its caller was cancelled
            self.answer.set_result(answer)

    def fail(self, failure: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(failure)


class AutoPipeline:
    """Sends the commands of all callers to the server of a pool, over one connection."""

    def __init__(self, pool: ConnectionPool, timeouts: Timeouts, breaker: Breaker, linger: float) -> None:
        """`linger`: seconds for which a command that may linger waits for others."""
        self._timeouts = timeouts
        self._breaker = breaker
        self._linger = linger
        self._timer: asyncio.TimerHandle | None = None
        """Set while every waiting command may linger; starts the next trip when it fires."""
        self._pool = pool
        self._connection: Any = self._pool.connection_class(**self._pool.connection_kwargs)
        self._waiting: deque[_Command] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._trips = 0

    def ask(self, command: bytes, *, may_linger: bool) -> asyncio.Future[Any]:
        """Send a packed command; the future has its answer.

        The future fails with an error of redis-py, or with TimeoutError if no answer came in time.
        """
        loop = asyncio.get_running_loop()
        asked = _Command(command, loop.create_future())
        self._waiting.append(asked)
        if not (may_linger and self._linger):
            self._send_soon()
        elif len(self._waiting) == 1:
            self._timer = loop.call_later(self._linger, self._send_soon)
        return asked.answer

    def _send_soon(self) -> None:
        """Send the waiting commands as soon as the trip under way has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send(), name="autopipeline")

    async def aclose(self) -> None:
        """Close the connection; commands still waiting fail with ConnectionError."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        _fail(self._waiting, ConnectionFailed("The connection is closed."))
        await self._connection.disconnect()

    async def _send(self) -> None:
        """Make round trips as long as commands wait that may not linger. A trial soon gives up connecting."""
        trip = self._timeouts.trip
        while self._timer is None and self._waiting:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST))]
            group = [each for each in group if not each.answer.done()]  # drop those of cancelled callers
            if not group:
                continue
            is_connected = False
            try:
                most = self._timeouts.of_call(1, is_trial=True) if self._breaker.is_open else None
                async with asyncio.timeout(most) if most else _UNLIMITED:
                    await self._pool.ensure_connection(self._connection)
                is_connected = True
                try:
                    with Deadline(trip.seconds, trip.seconds) as self._connection.deadline:
                        await self._exchange(group)
                except Exception:
                    await self._connection.disconnect(nowait=True)
                    raise
            except asyncio.CancelledError:
                _fail(group, ConnectionFailed("The connection is closed."))
                raise
            except Exception as failure:  # noqa: BLE001 - whatever it is, each caller raises it
                is_gone = isinstance(failure, TimeoutError) or not is_connected
                _fail([*group, *self._waiting] if is_gone else group, failure)

    async def _exchange(self, group: list[_Command]) -> None:
        self._trips += 1
        last = b"%d" % self._trips
        commands = [*(each.packed for each in group), packed(("ECHO", last))]
        await self._connection.send_packed_command(commands)
        answers = [await self._answer() for _ in group]
        echo = await self._answer()
        if isinstance(echo, ResponseError):
            raise echo
        if echo != last:
            raise InvalidResponse("There was an answer too many.")
        for each, answer in zip(group, answers, strict=True):
            if isinstance(answer, ResponseError):
                each.fail(answer)
            else:
                each.succeed(answer)

    async def _answer(self) -> Any:
        """Read the next answer; an error reply is returned, not raised."""
        try:
            return await self._connection.read_response()
        except ResponseError as refusal:
            return refusal


def _fail(group: Iterable[_Command], failure: Exception) -> None:
    for each in group:
        each.fail(failure)

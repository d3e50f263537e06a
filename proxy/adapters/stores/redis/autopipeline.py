"""Commands that come about together travel together: one trip to the server for all of them.

Through redis-py's client a command costs this process 100 µs and more, nearly all of it beside the command:
for a connection taken from the pool and given back, for timers, for words packed one by one. In a group it
costs 10 to 40. While one group is under way, what comes meanwhile waits for the next; so a quiet process
makes a trip for each command, and a busy one a trip for many. What nobody waits for may linger for company.

Every answer is read, that of a caller who has left too, and a group ends with a word that must come back in
its place before anybody is told anything: so no answer becomes another's, were there one too many. A refusal
is its own command's; where anything else goes wrong the connection is closed, and all who were to hear on it
are told. Where no answer came in time, or there is no connection, so are all who wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, cast

import hiredis
from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError as ConnectionFailed
from redis.exceptions import InvalidResponse, ResponseError

from proxy.adapters.stores.redis.timeouts import Timeouts

LARGE: Final = 64 * 1024
"""A command of more bytes goes alone, through the client: it would hold up the others."""

_MOST: Final = 128
"""Commands of one group: the last of them waits for the first."""

packed: Callable[[tuple[str | bytes | float, ...]], bytes] = cast("Any", hiredis).pack_command
"""A command as it is sent."""


class _Command(NamedTuple):
    """A command as it is sent, and who waits for its answer."""

    packed: bytes
    answer: asyncio.Future[Any]

    def succeed(self, answer: object) -> None:
        if not self.answer.done():  # else its caller has left
            self.answer.set_result(answer)

    def fail(self, failure: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(failure)


class AutoPipeline:
    """Commands to the server of a pool, whoever sends them."""

    def __init__(self, pool: ConnectionPool, timeouts: Timeouts, linger: float) -> None:
        """`linger`: seconds for which a command waits for company that may."""
        self._timeouts = timeouts
        self._linger = linger
        self._timer: asyncio.TimerHandle | None = None
        """While all that waits may go on waiting."""
        self._pool = pool
        options: dict[str, Any] = dict(self._pool.connection_kwargs)
        options["socket_timeout"] = None  # a group has its time as a whole, not each answer of it
        self._connection: Any = self._pool.connection_class(**options)
        self._waiting: deque[_Command] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._trips = 0

    def ask(self, command: bytes, *, may_linger: bool) -> asyncio.Future[Any]:
        """The answer to a command as it is sent, or an error of redis-py's; TimeoutError where none came."""
        loop = asyncio.get_running_loop()
        asked = _Command(command, loop.create_future())
        self._waiting.append(asked)
        if not (may_linger and self._linger):
            self._send_soon()
        elif len(self._waiting) == 1:
            self._timer = loop.call_later(self._linger, self._send_soon)
        return asked.answer

    def _send_soon(self) -> None:
        """What waits is sent as soon as the trip that is under way has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send(), name="autopipeline")

    async def aclose(self) -> None:
        """Close the connection; whoever still waits is told so."""
        if self._timer is not None:
            self._timer.cancel()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.wait([self._sending])
        _fail(self._waiting, ConnectionFailed("The connection is closed."))
        await self._connection.disconnect()

    async def _send(self) -> None:
        """Make round trips for as long as anybody waits who may not linger."""
        while self._timer is None and self._waiting:
            group = [self._waiting.popleft() for _ in range(min(len(self._waiting), _MOST))]
            group = [each for each in group if not each.answer.done()]  # the others have left
            if not group:
                continue
            is_connected = False
            try:
                await self._pool.ensure_connection(self._connection)
                is_connected = True
                try:
                    async with asyncio.timeout(self._timeouts.trip.seconds):
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
        """The next answer; a refusal is one."""
        try:
            return await self._connection.read_response()
        except ResponseError as refusal:
            return refusal


def _fail(group: Iterable[_Command], failure: Exception) -> None:
    for each in group:
        each.fail(failure)

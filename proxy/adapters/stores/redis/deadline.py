"""The deadline of a call: a server may not be silent, but a long request or reply may take its time.

What a session holds may be long, and the line slow. So time counts from the last bytes that left this machine
or came, and a request or a reply of any length gets through. A server that stops half-way is given up as soon
as one that never began.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, Self, cast

from redis.exceptions import ConnectionError as ConnectionFailed

SLOWEST: Final = 16 * 1024
"""Bytes a second that must get through, on average: what trickles would keep its caller for ever.

So little because all connections of a process may share a slow line: 32 of them have 4 Mbit/s.
"""

QUICK: Final = 8 * 1024
"""Bytes of a request that gets through within a pause; a larger one is watched as it leaves."""

_LOOK: Final = 1 / 16
"""Seconds between two looks: less than `QUICK` bytes may take at `SLOWEST`, else a server that has stopped
would seem a slow one."""

_GRACE: Final = 0.02
"""Seconds in which this process may still read what has come in time, if it was busy itself."""


class Slow(ConnectionFailed):
    """Raised for a call that took too long although the server answers: other calls need not be spared it."""


class Deadline:
    """Limits a block of this task, as `asyncio.timeout` does; it begins when it is made.

    The block may take `seconds`, and as much longer as its requests and replies take at :data:`SLOWEST` bytes
    a second. Once a request is being sent, nothing may pause for longer than `pause` seconds. Raises
    TimeoutError, or Slow if a reply has begun, if a request was still leaving, or if others keep this call
    waiting.
    """

    def __init__(self, seconds: float, pause: float) -> None:
        self.is_answering = False
        """Whether the server has begun a reply, to this call or to those that this one waits for."""
        self._loop = asyncio.get_running_loop()
        self._end = self._due = self._loop.time() + seconds
        self._pause = pause
        self._unsent: Callable[[], int] | None = None
        self._left: int | None = None
        """How many bytes of a request were left when it was looked at last."""
        self._timer = self._loop.call_at(self._due, self._check)
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._cancellations = self._task.cancelling()
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        self._timer.cancel()
        is_ours = self._is_over and self._task.uncancel() <= self._cancellations
        if is_ours and isinstance(raised, asyncio.CancelledError):
            late = TimeoutError("It took too long.")
            if self.is_answering:
                raise Slow(*late.args) from late
            raise late from raised

    def sending(self, size: int, unsent: Callable[[], int]) -> None:
        """Note that a request of so many bytes is being sent: its reply is due within the pause.

        The pause begins anew as long as the number of bytes that are left, as `unsent` tells, changes.
        """
        self.is_answering = False
        self._end += size / SLOWEST
        self._due = min(self._end, self._loop.time() + self._pause)
        self._unsent, self._left = (unsent if size > QUICK else None), None
        if (at := self._next_check()) < self._timer.when():
            self._timer.cancel()
            self._timer = self._loop.call_at(at, self._check)

    def received(self, size: int) -> None:
        """Note that so many bytes of a reply have come."""
        self.is_answering, self._unsent = True, None
        self._end += size / SLOWEST
        self._due = min(self._end, self._loop.time() + self._pause)

    def _next_check(self) -> float:
        look = inf if self._unsent is None else self._loop.time() + _LOOK
        return min(self._due, look)

    def _check(self, *, is_late: bool = False) -> None:
        """End the block if it is due; the timer is not set anew with each piece of a reply, which is dear."""
        now = self._loop.time()
        if self._unsent is not None and (left := self._unsent()) != self._left:
            self._due = min(self._end, now + self._pause)
            self._left = left
            if not left:
                self._unsent = None
        if now < self._due:
            self._timer = self._loop.call_at(self._next_check(), self._check)
        elif not is_late:
            self._timer = self._loop.call_later(_GRACE, partial(self._check, is_late=True))
        else:
            # What left within the last pause shows that the server takes it, though too slowly.
            self.is_answering |= self._left is not None and self._due == self._end
            self._is_over = True
            self._task.cancel()

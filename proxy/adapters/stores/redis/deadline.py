"""The deadline of a call: a server may not be silent, but a long reply may take its time.

What a session holds may be long, and the line slow. So time counts from the last bytes that came, and a reply
of any length is read to its end. A server that stops half-way is given up as soon as one that never began.
"""

from __future__ import annotations

import asyncio
from functools import partial
from math import inf
from typing import Final, Self, cast

from redis.exceptions import ConnectionError as ConnectionFailed

SLOWEST: Final = 16 * 1024
"""Bytes a second that a reply must bring, on average: one that trickles would keep its caller for ever.

So little because all connections of a process may share a slow line: 32 of them have 4 Mbit/s.
"""

_GRACE: Final = 0.02
"""Seconds in which this process may still read what has come in time, if it was busy itself."""


class Slow(ConnectionFailed):
    """Raised for a call that took too long although the server answers: other calls need not be spared it."""


class Deadline:
    """Limits a block of this task, as `asyncio.timeout` does; it begins when it is made.

    The block may take `seconds`, and as much longer as its replies take that bring :data:`SLOWEST` bytes a
    second. Once a request is sent, nothing may pause for longer than `pause` seconds. Raises TimeoutError, or
    Slow if a reply has begun or if others keep this call waiting.
    """

    def __init__(self, seconds: float, pause: float) -> None:
        self.is_answering = False
        """Whether the server has begun a reply, to this call or to those that this one waits for."""
        self._loop = asyncio.get_running_loop()
        self._end = self._due = self._loop.time() + seconds
        self._pause = pause
        self._timer = self._loop.call_at(self._due, self._check)
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._cancellations = self._task.cancelling()
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, raised: BaseException | None, __: object) -> None:
        self._timer.cancel()
        self._due = -inf  # so that nothing sets the timer again
        is_ours = self._is_over and self._task.uncancel() <= self._cancellations
        if is_ours and isinstance(raised, asyncio.CancelledError):
            late = TimeoutError("It took too long.")
            if self.is_answering:
                raise Slow(*late.args) from late
            raise late from raised

    def sending(self) -> None:
        """Note that a request is being sent, or is sent: its reply is due within the pause."""
        self.is_answering = False
        due = min(self._end, self._loop.time() + self._pause)
        if due < self._due:
            self._timer.cancel()
            self._timer = self._loop.call_at(due, self._check)
        self._due = due

    def received(self, size: int) -> None:
        """Note that so many bytes of a reply have come."""
        self.is_answering = True
        self._end += size / SLOWEST
        self._due = min(self._end, self._loop.time() + self._pause)

    def _check(self, *, is_late: bool = False) -> None:
        """End the block if it is due; the timer is not set anew with each piece of a reply, which is dear."""
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._check)
        elif not is_late:
            self._timer = self._loop.call_later(_GRACE, partial(self._check, is_late=True))
        else:
            self._is_over = True
            self._task.cancel()

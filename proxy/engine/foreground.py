"""Users first: when our own calls to the upstream are made, and when they give way.

A few of them run at a time, whatever the traffic is. Where they hold up users, they begin in a pause and end
when a user comes: a summary in the only slot of a local model would delay a user. Whether they hold up users
is measured, never assumed, because a server that takes one request at a time does not say so: the time from a
request to the head of its answer is compared with the usual time for its kind while none of our calls is
running.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum
from http import HTTPStatus
from statistics import median
from typing import Any, TypeVar

from proxy.engine.background import is_being_cancelled
from proxy.engine.flow import PeekedResponse
from proxy.engine.models.asking import RateLimited, rate_limit
from proxy.ports import Clock, Header

T = TypeVar("T")
Credentials = Sequence[Header]
"""Headers that say whose request it is: an upstream limits how much each caller may ask."""

_LONGEST_QUIET = 60.0
"""Longest pause (seconds without a request) that a call which gives way waits for."""
_AFTER = 0.1
"""Seconds before a call begins, so that the request that caused it is sent first."""
_LOOK = 1.0
"""Seconds after which it is checked again whether calls give way."""
_WAY = 0.1
"""Most seconds that a user waits for a call that is being cancelled."""
_LIMITED, _LONGEST_LIMIT = 20.0, 600.0
"""Seconds without calls after a 429 that names no time, at first and at most; they double each time."""


class Foreground:
    """The users' requests in progress, and our own calls beside them, at most ``most`` at a time.

    If ``most`` is 0 the calls always give way. ``with foreground:`` is a request in progress. A call that a
    request waits for does not queue: it is that user's own.
    """

    def __init__(self, contention: Contention, clock: Clock, most: int = 1, *, quiet: float) -> None:
        """``quiet``: seconds without a request after which a call that gives way begins.

        They double each time a user came before the call had ended: a call that is begun in every short pause
        is paid for each time and never finished.
        """
        self._contention = contention
        self._clock = clock
        self._most = most
        self._quiet = quiet
        self._in_flight = 0
        self._ended = clock.monotonic() - _LONGEST_QUIET
        """When the last request ended, in monotonic seconds."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._calls: set[asyncio.Task[Any]] = set()
        self._begun = 0
        """Number of calls begun so far."""
        self._room = asyncio.Event()
        self._stopped: dict[Credentials, float] = {}
        """Until when no call is made with some credentials, in monotonic seconds."""

    # --- users' requests ---

    def __enter__(self) -> None:
        self._in_flight += 1
        self._idle.clear()
        if self._calls and self._yields:
            self._cancel()

    def __exit__(self, *_: object) -> None:
        self._in_flight -= 1
        self._ended = self._clock.monotonic()
        if not self._in_flight:
            self._idle.set()

    async def send_measured(
        self, kind: str, credentials: Credentials, send: Callable[[], Awaitable[PeekedResponse]]
    ) -> PeekedResponse:
        """Send a user's request, and measure how long its answer takes to begin.

        The usual time depends on the ``kind``. It first waits until calls that were cancelled for the user
        have ended, with their connections: sent earlier, the request would queue behind them in an upstream's
        only slot. While nothing is known yet, our own calls are cancelled if the request takes too long
        beside them.
        """
        if self._calls and (ending := [task for task in self._calls if task.cancelling()]):
            await asyncio.wait(ending, timeout=_WAY)
        guard, is_beside, begun = None, bool(self._calls), self._begun
        if is_beside and (patience := self._contention.wait_limit(kind)):

            def overrun() -> None:
                self._contention.record_timeout()
                self._cancel()

            guard = asyncio.get_running_loop().call_later(patience, overrun)
        since = self._clock.monotonic()
        try:
            sent = await send()
        finally:
            if guard is not None:
                guard.cancel()
        seconds = self._clock.monotonic() - since
        if sent.response.status != HTTPStatus.OK:
            limit = rate_limit(sent.response)
            if limit is not None:  # too many calls: make none of our own
                self._stop(credentials, limit or _LIMITED)
        elif is_beside:
            self._contention.record_contended(kind, seconds)
        elif begun == self._begun:
            self._contention.record_baseline(kind, seconds)
        return sent

    def _stop(self, credentials: Credentials, seconds: float) -> None:
        now, caller = self._clock.monotonic(), tuple(credentials)
        until = max(self._stopped.get(caller, now), now + seconds)
        still = {each: end for each, end in self._stopped.items() if end > now}
        self._stopped = {**still, caller: until}

    # --- calls of our own ---

    async def run(
        self, call: Callable[[], Coroutine[Any, Any, T]], credentials: Credentials, hurry: asyncio.Event
    ) -> T:
        """Return the result of ``call``, made when it may be, and sooner once ``hurry`` is set.

        It is made again after it was cancelled for a user, or met the upstream's rate limit, which holds for
        its ``credentials`` alone.
        """
        quiet, limit = self._quiet, _LIMITED
        while True:
            await self._may_begin(tuple(credentials), hurry, quiet)
            task = asyncio.create_task(call())
            self._calls.add(task)
            self._begun += 1
            try:
                return await task
            except RateLimited as refusal:
                self._stop(credentials, refusal.seconds or limit)
                limit = min(2 * limit, _LONGEST_LIMIT)
            except asyncio.CancelledError:
                if is_being_cancelled():
                    task.cancel()
                    raise
                quiet = min(2 * quiet, _LONGEST_QUIET)
            finally:
                self._calls.discard(task)
                self._room.set()

    async def _may_begin(self, credentials: Credentials, hurry: asyncio.Event, quiet: float) -> None:
        await _either(hurry.wait(), seconds=_AFTER)
        while True:
            if (left := self._stopped.get(credentials, 0.0) - self._clock.monotonic()) > 0:
                await asyncio.sleep(left)
                continue
            if self._yields:  # then no user may have been waiting for a while
                if self._in_flight:
                    await _either(self._idle.wait(), seconds=_LOOK)
                    continue
                left = self._ended + quiet - self._clock.monotonic()
                if left > 0 and not hurry.is_set():
                    await _either(hurry.wait(), seconds=min(left, _LOOK))
                    continue
            if hurry.is_set() or len(self._calls) < max(self._most, 1):
                return
            self._room.clear()
            await _either(hurry.wait(), self._room.wait(), seconds=_LOOK)

    @property
    def _yields(self) -> bool:
        return not self._most or self._contention.yields

    def _cancel(self) -> None:
        for task in self._calls:
            task.cancel()


async def _either(*waits: Coroutine[Any, Any, object], seconds: float) -> None:
    """Return once one of the coroutines has returned, or after so many seconds."""
    tasks = [asyncio.ensure_future(each) for each in waits]
    try:
        await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


# --- what is measured of the upstream ---

_SAMPLES = 16
"""Latest answers of a kind from which the usual time is computed."""
_LEAST_SAMPLES = 3
_KINDS = 100
"""Most kinds of answers that are kept: clients choose names of models."""
_LATEST = 8
"""Number of latest answers beside a call of ours that count."""
_SLOWED_TIMES, _SLOWED_BY = 1.5, 0.05
"""An answer counts as held up if it takes so many times the usual time, and so many seconds more."""
_SLOWED = 5
"""Held-up answers among the latest that show an upstream that serves one request at a time."""
_FREE = 4
"""Answers that show an upstream that serves several, if at most a quarter was held up."""
_PATIENCE_TIMES, _PATIENCE = 3.0, 0.25
"""How long a user may wait for an answer while nothing is known: so many times the usual time, and at least
so many seconds more than that."""
_RETEST, _LONGEST_REST = 60.0, 3_600.0
"""Seconds after which it is measured again, at first and at most: upstreams are replaced behind their URL."""


class _Concurrency(Enum):
    """How many requests the upstream serves at a time."""

    UNKNOWN = 0
    ONE = 1
    SEVERAL = 2


class Contention:
    """What this process has measured of its upstream.

    An answer's kind is what its usual time depends on: the model, and whether it is streamed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._baselines: dict[str, deque[float]] = {}
        """By kind, seconds of the latest answers while no call of ours was running."""
        self._delays: deque[bool] = deque(maxlen=_LATEST)
        """For the latest answers beside a call of ours, whether they were held up."""
        self._concurrency = _Concurrency.UNKNOWN
        self._latest: deque[float] | None = None
        """The times of the kind answered last whose usual time is known."""
        self._retest = _RETEST
        self._retest_at = 0.0
        """When it is measured again, in monotonic seconds."""

    @property
    def yields(self) -> bool:
        """Whether a call of ours waits for a pause, and ends when a user comes.

        It also does so while the usual time is not known yet.
        """
        if self._concurrency is _Concurrency.ONE and self._clock.monotonic() >= self._retest_at:
            self._concurrency = _Concurrency.UNKNOWN
            self._delays.clear()
        return self._concurrency is _Concurrency.ONE or self._latest is None

    def wait_limit(self, kind: str) -> float | None:
        """Seconds that a user may wait beside a call of ours; None where it is known how the upstream serves.

        If a user waits longer, :meth:`record_timeout` is called and the call ends: this limits what measuring
        costs. Also None while no usual time is known.
        """
        if self._concurrency is not _Concurrency.UNKNOWN:
            return None
        usual = self._baseline_of(kind) or (median(self._latest) if self._latest else None)
        if usual is None:
            return None
        return max(_PATIENCE_TIMES * usual, usual + _PATIENCE)

    def record_timeout(self) -> None:
        """Note that a user has waited longer than :meth:`wait_limit` allows."""
        if self._concurrency is _Concurrency.UNKNOWN:
            self._set_concurrency(_Concurrency.ONE)

    def record_baseline(self, kind: str, seconds: float) -> None:
        """Note the seconds to an answer's head while no call of ours was running."""
        samples = self._baselines.get(kind)
        if samples is None:
            if len(self._baselines) >= _KINDS:
                del self._baselines[next(iter(self._baselines))]
            samples = self._baselines[kind] = deque(maxlen=_SAMPLES)
        samples.append(seconds)
        if len(samples) >= _LEAST_SAMPLES:
            self._latest = samples

    def record_contended(self, kind: str, seconds: float) -> None:
        """Note the seconds to an answer's head when a call of ours was running."""
        usual = self._baseline_of(kind)
        if usual is None or self._concurrency is _Concurrency.ONE:
            return
        self._delays.append(seconds >= max(_SLOWED_TIMES * usual, usual + _SLOWED_BY))
        slowed = sum(self._delays)
        if slowed >= _SLOWED:
            self._set_concurrency(_Concurrency.ONE)
        elif len(self._delays) >= _FREE and 4 * slowed <= len(self._delays):
            self._set_concurrency(_Concurrency.SEVERAL)

    def _baseline_of(self, kind: str) -> float | None:
        samples = self._baselines.get(kind)
        return median(samples) if samples is not None and len(samples) >= _LEAST_SAMPLES else None

    def _set_concurrency(self, serves: _Concurrency) -> None:
        self._concurrency = serves
        if serves is _Concurrency.SEVERAL:
            self._retest = _RETEST
            return
        self._delays.clear()
        self._retest_at = self._clock.monotonic() + self._retest
        self._retest = min(2 * self._retest, _LONGEST_REST)

"""The connection to a server. Calls are limited in time and never retried; redis-py's errors are caught here.

redis-py retries by default, which executes a write twice if its reply was lost; here only callers retry, and
every write is idempotent. RESP2 without CLIENT SETINFO needs no handshake on any server. The timeouts come
from :mod:`proxy.adapters.stores.redis.pool`, the errors from :mod:`proxy.adapters.stores.redis.breaker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final, NamedTuple

from redis.exceptions import ConnectionError as ConnectionFailed
from redis.exceptions import NoScriptError

from proxy.adapters.stores.redis.autopipeline import LARGE, AutoPipeline, packed
from proxy.adapters.stores.redis.breaker import FOREIGN, Breaker, Rejected
from proxy.adapters.stores.redis.cluster import Cluster, Command, Server, Word
from proxy.adapters.stores.redis.pool import PATIENCE, AdaptiveTimeout, Timeouts, connection_pool
from proxy.errors import StoreUnavailable

CLUSTER: Final = "+cluster://"
"""Part of the URL of a cluster."""


class Use(NamedTuple):
    """How a script is used."""

    op: str = ""
    """The name under which it is timed; empty: it is not timed."""
    script: str = ""
    """The name of its source, if it differs."""
    may_linger: bool = False
    """Whether it may be delayed, to be sent together with other commands."""
    revises: bool = False
    """Whether it is a write other than a turn that may change the result of a lookup."""
    trips: int = 1
    """Its timeout, in round trips, if it is sent alone."""
    is_long: bool = False
    """Whether its reply may be long: it is sent alone, as all calls of a group wait for the last reply."""


class Script(NamedTuple):
    """A Lua script, which the server caches by its digest."""

    source: str
    digest: str
    use: Use


Timed = Callable[[str, float], object]
"""Called with the purpose of a call, and with its duration in seconds."""


def untimed(_: str, __: float) -> None:
    """Ignore the duration of a call."""


class Connection:
    """A pool of connections to a server, or to each node of a cluster, and the rules for calls.

    `timeout` is how much longer than usual a round trip may take, and `linger` how long a call that may
    linger waits for others (at most half of `timeout`); both in seconds. Every failure of a call is raised as
    StoreUnavailable.
    """

    def __init__(
        self, url: str, timeout: float, breaker: Breaker, linger: float, timed: Timed = untimed
    ) -> None:
        self.revision = 0
        """Changes when a write other than a turn may have happened, or a call has failed."""
        self.generation = 0
        """Changes when a connection is made: the server behind it may have lost its newest writes."""
        self._timed = timed
        self._timeouts = Timeouts(AdaptiveTimeout(timeout), AdaptiveTimeout(timeout), self._reached)
        pool, is_cluster = connection_pool(url.replace(CLUSTER, "://", 1), self._timeouts), CLUSTER in url
        self._server = (Cluster if is_cluster else Server)(pool, self._timeouts, breaker)
        linger = min(linger, timeout / 2)
        self._pipeline = None if is_cluster else AutoPipeline(pool, self._timeouts, breaker, linger)
        self._loaded: set[str] = set()
        """Digests of the scripts that the server is known to have."""
        self._timeout = timeout
        self._breaker = breaker

    def _reached(self) -> None:
        self.generation += 1
        self._breaker.succeeded()

    @contextmanager
    def patience(self) -> Generator[None]:
        """Within the block, use long timeouts: at the start no request waits, and much else is going on."""
        trip, connect = self._timeouts.trip, self._timeouts.connect
        trip.least = connect.least = max(PATIENCE, self._timeout)
        try:
            yield
        finally:
            for each in (trip, connect):
                each.least = self._timeout
                each.begin()

    async def ask(self, op: str, *command: Word, trips: int = 1) -> Any:
        """Return the answer to a command, with a timeout of ``trips`` round trips; timed as ``op``.

        PING is sent to every node of a cluster.
        """
        return (await self.ask_all(op, command, trips=trips))[0]

    async def ask_all(
        self, op: str, *commands: Command, trips: int = 1, transaction: bool = False, raises: bool = True
    ) -> list[Any]:
        """Return the answers to commands that are sent together; a transaction is executed atomically.

        Error replies are raised if ``raises`` is set, and otherwise returned among the answers. The call is
        timed as ``op`` unless that is empty.
        """
        if not commands:
            return []
        began, cancellations = perf_counter(), _cancellations()
        try:
            answers = await self._server.run(commands, trips=trips, transaction=transaction)
            for refusal in answers if raises else ():
                if isinstance(refusal, Exception):
                    raise refusal
        except Rejected:
            op = ""  # nothing was called that took time
            raise
        except StoreUnavailable:
            self.revision += 1
            raise
        except FOREIGN as failure:
            raise self.failed(failure) from failure
        else:
            return answers
        finally:
            if op:
                self._timed(op, perf_counter() - began)
            if _cancellations() > cancellations:
                # redis-py swallows a cancellation that comes together with a result (`asyncio.wait_for`,
                # before Python 3.12) or while it cleans up: a request whose client has left would go on.
                raise asyncio.CancelledError

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Word]) -> Any:
        """Run a script and return its answer. The source is sent only if the server does not have it.

        Except in a cluster, the calls of all callers are pipelined, but for those that are long.
        """
        began = perf_counter()
        words = (len(keys), *keys, *args)
        whole = ("EVAL", script.source, *words)
        known = ("EVALSHA", script.digest, *words) if script.digest in self._loaded else whole
        is_alone = self._pipeline is None or script.use.is_long
        command = b"" if is_alone else packed(known)
        self.revision += script.use.revises
        try:
            if self._pipeline is None or is_alone or len(command) > LARGE:
                (answer,) = await self.ask_all("", known, trips=script.use.trips, raises=False)
                if isinstance(answer, NoScriptError):
                    answer = await self.ask("", *whole, trips=script.use.trips)
                elif isinstance(answer, Exception):
                    raise self.failed(answer) from answer
            else:
                answer = await self._join(self._pipeline, command, whole, may_linger=script.use.may_linger)
        finally:
            self.revision += script.use.revises
            if script.use.op:
                self._timed(script.use.op, perf_counter() - began)
        self._loaded.add(script.digest)
        return answer

    async def _join(self, pipeline: AutoPipeline, command: bytes, whole: Command, *, may_linger: bool) -> Any:
        self._breaker.admit()
        try:
            try:
                answer = await pipeline.ask(command, may_linger=may_linger)
            except NoScriptError:
                answer = await pipeline.ask(packed(whole), may_linger=False)
        except FOREIGN as failure:
            raise self.failed(failure) from failure
        self._breaker.succeeded()
        return answer

    def failed(self, failure: Exception) -> StoreUnavailable:
        """Note a failure of the store, or what it refused, and return the error to raise."""
        self.revision += 1
        return self._breaker.failed(failure)

    async def aclose(self) -> None:
        try:
            async with asyncio.timeout(self._timeouts.of_call(1, is_trial=True)):
                if self._pipeline:
                    await self._pipeline.aclose()
                await self._server.aclose()
        except (ConnectionFailed, OSError):
            return  # the server was gone before us, and the sockets are closed either way


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0

"""The connection to a server. Calls are limited in time and never retried; redis-py's errors are caught here.

redis-py retries by default, which executes a write twice if its reply was lost; here only callers retry, and
every write is idempotent. RESP2 without CLIENT SETINFO needs no handshake on any server. The timeouts come
from :mod:`proxy.adapters.stores.redis.pool`. A server that failed is not called for a while, so that its
failure costs requests time only once (law 7), and it is logged once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any, Final, NamedTuple

from redis.exceptions import ConnectionError as ConnectionFailed
from redis.exceptions import NoScriptError, RedisClusterException, RedisError, ResponseError

from proxy.adapters.faults import Fault, fault_of
from proxy.adapters.stores.redis.autopipeline import LARGE, AutoPipeline, packed
from proxy.adapters.stores.redis.cluster import Cluster, Command, Server, Word
from proxy.adapters.stores.redis.pool import PATIENCE, AdaptiveTimeout, Timeouts, connection_pool
from proxy.errors import StoreUnavailable
from proxy.ports import Clock
from proxy.telemetry import log_warning

# --- circuit breaker ---


_AGAIN: Final = 3_600.0
"""Seconds after which the same kind of refusal is logged again."""


class Breaker:
    """Circuit breaker: rejects calls for `rest` seconds after a failure, then lets one through as a trial.

    While the trial is under way, other calls are rejected for another `rest` seconds. A trial that never
    reports (because it was cancelled) therefore only delays the next trial.
    """

    def __init__(self, clock: Clock, rest: float) -> None:
        self._clock = clock
        self._rest = rest
        self._next_trial: float | None = None
        self._kind = ""
        """The kind of the failure that was logged last; empty while the store works."""
        self._refused: dict[str, float] = {}
        """When each kind of refusal was logged last."""

    @property
    def is_open(self) -> bool:
        """Whether the last call that reported has failed."""
        return self._next_trial is not None

    def admit(self) -> bool:
        """Let a call pass; return whether it is a trial. Raises StoreUnavailable if calls are rejected."""
        if self._next_trial is None:
            return False
        if self._clock.monotonic() < self._next_trial:
            raise unusable(self._kind)
        self.failed()
        return True

    def failed(self, fault: Fault | None = None) -> None:
        """Report that a call could not reach the store. Logs the first of several failures of one kind."""
        if fault is not None and fault.kind != self._kind:
            self._kind = fault.kind
            log_warning("the store cannot be used", why=fault.kind, detail=fault.detail)
        self._next_trial = self._clock.monotonic() + self._rest

    def refused(self, fault: Fault) -> None:
        """Report that the store answered a call with an error."""
        self.succeeded()
        now = self._clock.monotonic()
        if now - self._refused.get(fault.kind, -_AGAIN) >= _AGAIN:
            self._refused[fault.kind] = now
            log_warning("the store refuses", why=fault.kind, detail=fault.detail)

    def succeeded(self) -> None:
        if self.is_open:
            log_warning("the store is back")
        self._next_trial, self._kind = None, ""


def unusable(kind: str) -> StoreUnavailable:
    """Return the error for a store that cannot be used; it reveals nothing internal."""
    return StoreUnavailable(f"The store cannot be used: {kind}." if kind else None)


# --- calls ---


CLUSTER: Final = "+cluster://"
"""Part of the URL of a cluster."""

_UNLIMITED: Final = nullcontext()
"""No timeout by the caller: the pipeline limits its round trips, and a timeout for each call is expensive."""

_FOREIGN: Final = (
    RedisError,
    RedisClusterException,
    OSError,  # TimeoutError and TLS included
    EOFError,  # asyncio's IncompleteReadError
    RuntimeError,  # uvloop, on writing to a transport that has just closed
)


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
        self._timed = timed
        self._timeouts = Timeouts(AdaptiveTimeout(timeout), AdaptiveTimeout(timeout), breaker.succeeded)
        self._pool = connection_pool(url.replace(CLUSTER, "://", 1), self._timeouts)
        is_cluster = CLUSTER in url
        self._server = Cluster(self._pool, self._timeouts) if is_cluster else Server(self._pool)
        linger = min(linger, timeout / 2)
        self._pipeline = None if is_cluster else AutoPipeline(self._pool, self._timeouts, linger)
        self._loaded: set[str] = set()
        """Digests of the scripts that the server is known to have."""
        self._timeout = timeout
        self.breaker = breaker

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
        is_trial = self.breaker.admit()
        try:
            async with asyncio.timeout(self._time(trips, is_trial=is_trial)):
                answers = await self._server.run(commands, transaction=transaction)
                for refusal in answers if raises else ():
                    if isinstance(refusal, Exception):
                        raise refusal
        except _FOREIGN as failure:
            raise self._failed(failure) from failure
        else:
            self.breaker.succeeded()
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

        Except in a cluster, the calls of all callers are pipelined.
        """
        began = perf_counter()
        words = (len(keys), *keys, *args)
        whole = ("EVAL", script.source, *words)
        known = ("EVALSHA", script.digest, *words) if script.digest in self._loaded else whole
        command = packed(known) if self._pipeline is not None else b""
        self.revision += script.use.revises
        try:
            if self._pipeline is None or len(command) > LARGE:
                (answer,) = await self.ask_all("", known, trips=script.use.trips, raises=False)
                if isinstance(answer, NoScriptError):
                    answer = await self.ask("", *whole, trips=script.use.trips)
                elif isinstance(answer, Exception):
                    raise self._failed(answer) from answer
            else:
                answer = await self._join(self._pipeline, command, whole, may_linger=script.use.may_linger)
        finally:
            self.revision += script.use.revises
            if script.use.op:
                self._timed(script.use.op, perf_counter() - began)
        self._loaded.add(script.digest)
        return answer

    async def _join(self, pipeline: AutoPipeline, command: bytes, whole: Command, *, may_linger: bool) -> Any:
        is_trial = self.breaker.admit()
        try:
            async with asyncio.timeout(self._time(1, is_trial=True)) if is_trial else _UNLIMITED:
                try:
                    answer = await pipeline.ask(command, may_linger=may_linger)
                except NoScriptError:
                    answer = await pipeline.ask(packed(whole), may_linger=False)
        except _FOREIGN as failure:
            raise self._failed(failure) from failure
        self.breaker.succeeded()
        return answer

    def _time(self, trips: int, *, is_trial: bool) -> float:
        """Return the timeout of a call in seconds, with that of connecting, which is short for a trial."""
        connect = self._timeout if is_trial else self._timeouts.connect.seconds
        return connect + trips * self._timeouts.trip.seconds

    def _failed(self, failure: Exception) -> StoreUnavailable:
        """Report a failure to the breaker, with the server's name, and return the error for the caller.

        A server that answers, even with an error (full, read-only, a key of another type), is reachable: the
        next call goes to it at once. If it cannot be reached, or not in time, it is not called for a while.
        """
        self.revision += 1
        fault = _fault(failure)
        if isinstance(failure, ResponseError):
            self.breaker.refused(fault)
            return StoreUnavailable(f"The store refuses: {fault.kind}.")
        # The server's address, not its URL, which may contain a password.
        options = self._pool.connection_kwargs
        name = options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"
        self.breaker.failed(Fault(fault.kind, f"{name}: {fault.detail}"))
        return unusable(fault.kind)

    async def aclose(self) -> None:
        try:
            async with asyncio.timeout(self._time(1, is_trial=True)):
                if self._pipeline:
                    await self._pipeline.aclose()
                await self._server.aclose()
        except (ConnectionFailed, OSError):
            return  # the server was gone before us, and the sockets are closed either way


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0


# --- failures in words ---

_REFUSALS: Final = {
    "NOPERM": "its user may not do that",
    "WRONGPASS": "wrong password",
    "NOAUTH": "it wants a password",
    "OOM": "its memory is full",
    "READONLY": "it is read-only",
    "MISCONF": "it cannot write to its disk",
    "NOREPLICAS": "it misses replicas",
    "LOADING": "it is still loading",
    "CLUSTERDOWN": "the cluster is down",
    "MOVED": "it is part of a cluster, whose URL begins with redis+cluster://",
}
"""Descriptions of error replies, by the first word of the reply."""


def _fault(failure: Exception) -> Fault:
    """Describe a failure. Of an error reply only the first word is used: the rest may quote a command."""
    code = getattr(failure, "status_code", None) or str(failure).partition(" ")[0]
    if "has no permissions" in str(failure):  # also in the message of a script's error
        code = "NOPERM"
    if code in _REFUSALS:
        return Fault(f"{_REFUSALS[code]} ({code})", str(failure) if code == "NOPERM" else "")
    if "DB index is out of range" in str(failure):
        return Fault("it has no database of that number", "")
    if isinstance(failure, ResponseError):
        return Fault(f"an error ({code})" if code.isupper() else "an error", "")
    return Fault(str(failure), "") if isinstance(failure, RedisClusterException) else fault_of(failure)

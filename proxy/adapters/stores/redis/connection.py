"""The connection to a server: bounded in time, never retried, and the one place where redis-py's errors end.

redis-py retries by default, which applies a write twice whose reply was lost; here every retry is the
caller's, and every write can be repeated. RESP2 without CLIENT SETINFO needs no handshake on any server.
How long a server is waited for, :mod:`proxy.adapters.stores.redis.timeouts` says. One that failed is
left alone for a while, so that its failure costs requests time once (law 7), and is told to the operator
once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from time import perf_counter
from typing import Any, Final, NamedTuple

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionFailed
from redis.exceptions import NoScriptError, RedisClusterException, RedisError, ResponseError

from proxy.adapters.faults import Fault, fault_of
from proxy.adapters.stores.redis.autopipeline import LARGE, AutoPipeline, packed
from proxy.adapters.stores.redis.cluster import Cluster, Command, Server, Word
from proxy.adapters.stores.redis.timeouts import MEASURING, PATIENCE, AdaptiveTimeout, Timeouts
from proxy.errors import SettingsError, StoreUnavailable
from proxy.ports import Clock
from proxy.telemetry import log_warning

# --- leaving a failed store alone ---


_AGAIN: Final = 3_600.0
"""Seconds after which a refusal is told again."""


class Breaker:
    """Refuses calls for `rest` seconds after a failure, then lets one through to try.

    While that one is under way the others are refused for another `rest`: a trial that never reports (it was
    cancelled) delays the next one, and blocks nothing.
    """

    def __init__(self, clock: Clock, rest: float) -> None:
        self._clock = clock
        self._rest = rest
        self._next_trial: float | None = None
        self._kind = ""
        """What is wrong, as the operator was told."""
        self._refused: dict[str, float] = {}
        """When the operator was told of each kind of refusal."""

    @property
    def is_open(self) -> bool:
        """Whether the last call that reported had failed."""
        return self._next_trial is not None

    def admit(self) -> bool:
        """Let a call pass; whether it is a trial. Raises StoreUnavailable while the store is left alone."""
        if self._next_trial is None:
            return False
        if self._clock.monotonic() < self._next_trial:
            raise unusable(self._kind)
        self.failed()
        return True

    def failed(self, fault: Fault | None = None) -> None:
        """A call found no store; the first of a row that fail alike is told to the operator."""
        if fault is not None and fault.kind != self._kind:
            self._kind = fault.kind
            log_warning("the store cannot be used", why=fault.kind, detail=fault.detail)
        self._next_trial = self._clock.monotonic() + self._rest

    def refused(self, fault: Fault) -> None:
        """A call was answered, with a refusal."""
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
    """What callers are told of a store that is not there for them, and nothing of the inside."""
    return StoreUnavailable(f"The store cannot be used: {kind}." if kind else None)


# --- calls ---


CONNECTIONS: Final = 32
"""At most this many connections a process; calls beyond them wait, within their time."""

CLUSTER: Final = "+cluster://"
"""What stands in the URL of a cluster."""

_UNLIMITED: Final = nullcontext()
"""By the caller: round trips have their own time, and a limit on each costs more than it takes to be told."""

_FOREIGN: Final = (
    RedisError,
    RedisClusterException,
    OSError,  # TimeoutError and TLS included
    EOFError,  # asyncio's IncompleteReadError
    RuntimeError,  # uvloop, writing to a transport that has just closed
)


class Use(NamedTuple):
    """What a script is run for."""

    op: str = ""
    """As what it is timed; empty where it is not."""
    script: str = ""
    """Its name, where that is another."""
    may_linger: bool = False
    """Whether it may wait for others to travel with."""
    revises: bool = False
    """Whether it may change what is found of a session, being no turn of it."""
    trips: int = 1
    """Round trips for which it has time where it goes alone."""


class Script(NamedTuple):
    """A script, which the server keeps by its digest."""

    source: str
    digest: str
    use: Use


Timed = Callable[[str, float], object]
"""Told what a call was for, and how many seconds it took."""


def untimed(_: str, __: float) -> None:
    """Let the time pass."""


class Connection:
    """A pool of connections to a server, or to each node of a cluster, and the rules by which it is called.

    `timeout` is what a round trip may take beside what it usually takes, and `linger` the time for which a
    call waits for others that may (half of that at most); both in seconds. Whatever goes wrong with a call is
    StoreUnavailable.
    """

    def __init__(
        self, url: str, timeout: float, breaker: Breaker, linger: float, timed: Timed = untimed
    ) -> None:
        self.revision = 0
        """Another number once something may have been changed that is no turn, or a call has failed."""
        self._timed = timed
        self._timeouts = Timeouts(AdaptiveTimeout(timeout), AdaptiveTimeout(timeout), breaker.succeeded)
        self._pool = _pool(url.replace(CLUSTER, "://", 1), self._timeouts)
        is_cluster = CLUSTER in url
        self._server = Cluster(self._pool, self._timeouts) if is_cluster else Server(self._pool)
        linger = min(linger, timeout / 2)
        self._pipeline = None if is_cluster else AutoPipeline(self._pool, self._timeouts, linger)
        self._loaded: set[str] = set()
        """Digests of the scripts that the server has."""
        self._timeout = timeout
        self.breaker = breaker

    @contextmanager
    def patience(self) -> Generator[None]:
        """Within, everything may take long: at the start nobody waits for it, and much else is under way."""
        trip, connect = self._timeouts.trip, self._timeouts.connect
        trip.least = connect.least = max(PATIENCE, self._timeout)
        try:
            yield
        finally:
            for each in (trip, connect):
                each.least = self._timeout
                each.begin()

    async def ask(self, op: str, *command: Word, trips: int = 1) -> Any:
        """What the server answers to a command, within the time of so many round trips; timed as ``op``.

        PING goes to every node of a cluster.
        """
        return (await self.ask_all(op, command, trips=trips))[0]

    async def ask_all(
        self,
        op: str,
        *commands: Command,
        trips: int = 1,
        transaction: bool = False,
        raises: bool = True,
    ) -> list[Any]:
        """What it answers to commands that travel together, in a transaction as one step.

        Unless it ``raises``, a refusal is an answer.
        """
        if not commands:
            return []
        async with self._call(op, trips):
            answers = await self._server.run(commands, transaction=transaction)
            for refusal in answers if raises else ():
                if isinstance(refusal, Exception):
                    raise refusal
            return answers

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[Word]) -> Any:
        """What a script answers; the server is told it where it does not know it (yet, or any more).

        To a server alone the calls of all callers travel together.
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

    @asynccontextmanager
    async def _call(self, op: str, trips: int) -> AsyncGenerator[None]:
        """What must end within the time of some round trips, and is timed as ``op``, if that is not empty.

        A server that answers, if only to refuse (full, read-only, a key of another type), is there: it is
        called again at once. One that cannot be reached, or not in time, is left alone for a while.
        """
        began, cancellations = perf_counter(), _cancellations()
        is_trial = self.breaker.admit()
        try:
            async with asyncio.timeout(self._time(trips, is_trial=is_trial)):
                yield
        except _FOREIGN as failure:
            raise self._failed(failure) from failure
        else:
            self.breaker.succeeded()
        finally:
            if op:
                self._timed(op, perf_counter() - began)
            if _cancellations() > cancellations:
                # redis-py loses a cancellation that comes together with a result (`asyncio.wait_for`, before
                # Python 3.12) or while it cleans up: a request whose client has left would go on.
                raise asyncio.CancelledError

    def _time(self, trips: int, *, is_trial: bool) -> float:
        """Seconds for a call, making a connection included, for which a mere trial does not wait long."""
        connect = self._timeout if is_trial else self._timeouts.connect.seconds
        return connect + trips * self._timeouts.trip.seconds

    def _failed(self, failure: Exception) -> StoreUnavailable:
        """What is told of a failure, of which the breaker is, with the server's name."""
        self.revision += 1
        fault = _fault(failure)
        if isinstance(failure, ResponseError):
            self.breaker.refused(fault)
            return StoreUnavailable(f"The store refuses: {fault.kind}.")
        # Where the server is; its URL may hold a password, this does not.
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


def _pool(url: str, timeouts: Timeouts) -> BlockingConnectionPool:
    options: dict[str, Any] = {
        "timeout": None,  # a call has its time as a whole, waiting for a free connection included
        "socket_timeout": timeouts.trip.seconds,
        "socket_connect_timeout": PATIENCE,
        "max_connections": CONNECTIONS,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "protocol": 2,
        "driver_info": None,
        "timeouts": timeouts,
    }
    try:
        pool = BlockingConnectionPool.from_url(url, **options)  # pyright: ignore[reportUnknownMemberType]
    except ValueError as error:
        raise SettingsError(f"The store's URL is not valid: {error}") from error
    pool.connection_class = MEASURING[pool.connection_class]
    return pool


# --- what goes wrong, in words ---

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
}
"""By the first word of what a server says."""


def _fault(failure: Exception) -> Fault:
    """What is told of a failure; of what a server says, which may quote a command, the first word alone."""
    code = getattr(failure, "status_code", None) or str(failure).partition(" ")[0]
    if "has no permissions" in str(failure):  # said by a script, too
        code = "NOPERM"
    if code in _REFUSALS:
        return Fault(f"{_REFUSALS[code]} ({code})", str(failure) if code == "NOPERM" else "")
    if isinstance(failure, ResponseError):
        return Fault(f"an error ({code})" if code.isupper() else "an error", "")
    return Fault(str(failure), "") if isinstance(failure, RedisClusterException) else fault_of(failure)

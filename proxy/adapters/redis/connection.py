"""The connection to a server: bounded in time, never retried, and the one place where redis-py's errors end.

redis-py retries by default, which applies a write twice whose reply was lost; here every retry is the
caller's, and every write can be repeated. RESP2 without CLIENT SETINFO needs no handshake on any server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionFailed
from redis.exceptions import NoScriptError, RedisClusterException, RedisError, ResponseError

from proxy.adapters.redis.breaker import Breaker
from proxy.adapters.redis.cluster import Cluster
from proxy.adapters.redis.trips import LARGE, Trips, packed
from proxy.errors import SettingsError, StoreUnavailable

CONNECTIONS: Final = 32
"""At most this many connections a process; calls beyond them wait, within their time."""

CLUSTER: Final = "+cluster://"
"""What stands in the URL of a cluster."""

_FOREIGN: Final = (
    RedisError,
    RedisClusterException,
    OSError,  # TimeoutError and TLS included
    EOFError,  # asyncio's IncompleteReadError
    RuntimeError,  # uvloop, writing to a transport that has just closed
)


class Script(NamedTuple):
    """A script, which the server keeps by its digest."""

    source: str
    digest: str
    may_linger: bool = False
    """Whether it may wait for others to travel with."""


class Connection:
    """A pool of connections to a server, or to each node of a cluster, and the rules by which it is called.

    `timeout` is the whole time of one call, waiting for a free connection included, and `linger` the time for
    which a call waits for others that may (half of its time at most); both in seconds.
    """

    def __init__(self, url: str, timeout: float, breaker: Breaker, linger: float) -> None:
        self.client: Redis = _client(url, timeout)
        linger = min(linger, timeout / 2)
        self._trips = None if isinstance(self.client, Cluster) else Trips(self.client, linger)
        self._timeout = timeout
        self._breaker = breaker

    @property
    def is_left_alone(self) -> bool:
        """Whether the server is left alone for a while, after a fault."""
        return self._breaker.is_open

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[str | bytes | float]) -> Any:
        """What a script answers; the server is told it where it does not know it (yet, or any more).

        To a server alone the calls of all callers travel together.
        """
        words = (len(keys), *keys, *args)
        known = ("EVALSHA", script.digest, *words)
        if self._trips is None or len(command := packed(known)) > LARGE:
            async with self.call() as client:
                try:
                    return await cast("Any", client).execute_command(*known)
                except NoScriptError:
                    return await cast("Any", client).execute_command("EVAL", script.source, *words)
        self._breaker.admit()
        due = asyncio.get_running_loop().time() + self._timeout
        try:
            try:
                answer = await self._trips.ask(command, due, may_linger=script.may_linger)
            except NoScriptError:
                told = packed(("EVAL", script.source, *words))
                answer = await self._trips.ask(told, due, may_linger=False)
        except _FOREIGN as failure:
            raise self._failed(failure) from failure
        self._breaker.succeeded()
        return answer

    @asynccontextmanager
    async def call(self, *, trips: int = 1) -> AsyncGenerator[Redis]:
        """One round trip, or what must end within the time of some. Whatever goes wrong is StoreUnavailable.

        A server that answers, if only to refuse (full, read-only, a key of another type), is there: it is
        called again at once. One that cannot be reached, or not in time, is left alone for a while.
        """
        self._breaker.admit()
        cancellations = _cancellations()
        try:
            async with asyncio.timeout(self._timeout * trips):
                yield self.client
        except _FOREIGN as failure:
            raise self._failed(failure) from failure
        else:
            self._breaker.succeeded()
        finally:
            if _cancellations() > cancellations:
                # redis-py loses a cancellation that comes together with a result (`asyncio.wait_for`, before
                # Python 3.12) or while it cleans up: a request whose client has left would go on.
                raise asyncio.CancelledError

    def _failed(self, failure: Exception) -> StoreUnavailable:
        """What is told of a failure, of which the breaker is."""
        if isinstance(failure, ResponseError):
            self._breaker.succeeded()
            return StoreUnavailable("The store refused.")
        self._breaker.failed(failure)
        return StoreUnavailable()

    async def aclose(self) -> None:
        """Close all connections."""
        try:
            async with asyncio.timeout(self._timeout):
                if self._trips:
                    await self._trips.aclose()
                await self.client.aclose()
        except (ConnectionFailed, OSError):
            return  # the server was gone before us, and the sockets are closed either way


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0


def _client(url: str, timeout: float) -> Redis:
    options: dict[str, Any] = {
        "timeout": timeout,
        "socket_timeout": timeout,
        "socket_connect_timeout": timeout,
        "max_connections": CONNECTIONS,
        "retry": Retry(NoBackoff(), 0),
        "health_check_interval": 0,
        "protocol": 2,
        "driver_info": None,
    }
    try:
        plain = url.replace(CLUSTER, "://", 1)
        pool = BlockingConnectionPool.from_url(plain, **options)  # pyright: ignore[reportUnknownMemberType]
    except ValueError as error:
        raise SettingsError(f"The store's URL is not valid: {error}") from error
    return Redis.from_pool(pool) if plain == url else Cluster(pool, timeout)

"""Examines a server for its operator: its product, distance, persistence and eviction policy.

It costs a dozen round trips, and is only run when a person asks for it. In a cluster, the node named by the
URL is examined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any, Final

from proxy.adapters.stores.redis import keys
from proxy.adapters.stores.redis.cluster import Word
from proxy.adapters.stores.redis.codec import Keyring
from proxy.adapters.stores.redis.connection import CLUSTER, Breaker, Connection
from proxy.adapters.stores.redis.store import RedisStore
from proxy.errors import StoreUnavailable
from proxy.ports import Clock

_TRIPS: Final = 5
_PROBE_MILLISECONDS: Final = 1000


@dataclass(frozen=True)
class Examined:
    """The properties of a server; None for those that it does not report."""

    product: str
    """`Valkey` or `Redis`; empty if it does not report it; then eviction and memory are unknown too."""
    version: tuple[int, ...]
    trip: float
    """Median of several round trip times, in seconds."""
    ahead: float | None
    """Seconds by which its clock is ahead of ours."""
    eviction: str
    """Its `maxmemory-policy`."""
    used: int
    """Memory in use, in bytes."""
    most: int
    """The limit of its memory, in bytes; 0 is no limit."""
    has_log: bool
    """Whether it keeps an append-only file."""
    snapshots: bool | None
    """Whether it is configured to write snapshots to disk."""
    is_written: bool
    """Whether the last write to disk succeeded."""
    knows_secret: bool
    """Whether it was written with one of our secrets, or with none yet."""
    refusals: Mapping[str, str]
    """The errors of operations that we need, by `write` or `script`."""


async def examine(url: str, clock: Clock, patience: float, secrets: Sequence[str]) -> Examined:
    """Examine the server of a store's URL; ``patience`` is in seconds. Raises StoreUnavailable."""
    node = Connection(url.replace(CLUSTER, "://", 1), patience, Breaker(clock, 0.0), 0.0)
    async with aclosing(node):
        with node.patience():
            await _answer(node, "PING")
            trips = list[float]()
            for _ in range(_TRIPS):
                began = perf_counter()
                await _answer(node, "PING")
                trips.append(perf_counter() - began)
            info: dict[str, Any] = await _or_none(node, "INFO") or {}
            saves: dict[Any, str] | None = await _or_none(node, "CONFIG GET", "save")
            before, time = clock.now(), await _or_none(node, "TIME")
            halfway = (before + clock.now()) / 2
    refusals, written = await _used(url, clock, patience)
    ids = Keyring(secrets, lambda: False).ids if secrets else ()
    is_valkey = "valkey_version" in info
    version = str(info.get("valkey_version" if is_valkey else "redis_version", "0"))
    return Examined(
        product=("Valkey" if is_valkey else "Redis") if info else "",
        version=tuple(int(part) for part in version.split(".") if part.isdigit()),
        trip=median(trips),
        ahead=None if time is None else time[0] + time[1] / 1e6 - halfway,
        eviction=str(info.get("maxmemory_policy", "")),
        used=int(info.get("used_memory", 0)),
        most=int(info.get("maxmemory", 0)),
        has_log=bool(info.get("aof_enabled")),
        snapshots=None if saves is None else any(saves.values()),
        is_written=not {info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status")} & {"err"},
        knows_secret=not (written and ids) or not written.isdisjoint(ids),
        refusals=refusals,
    )


async def _used(url: str, clock: Clock, patience: float) -> tuple[dict[str, str], set[bytes]]:
    """Return why we may not write or run scripts, and the ids of the secrets that servers started with."""
    store, refusals = RedisStore(url, clock, patience, 0.0), dict[str, str]()
    whole = Connection(url, patience, Breaker(clock, 0.0), 0.0)
    async with aclosing(store), aclosing(whole):
        with whole.patience():
            written: set[bytes] = await _or_none(whole, "SMEMBERS", keys.SECRETS) or set()
            try:
                await _answer(whole, "SET", keys.PROBE, "", "PX", _PROBE_MILLISECONDS)
            except StoreUnavailable as error:
                refusals["write"] = error.message
        try:
            await store.ping()
        except StoreUnavailable as error:
            refusals["script"] = error.message
    return refusals, written


async def _answer(connection: Connection, *command: Word) -> Any:
    return await connection.ask("", *command, trips=2)


async def _or_none(connection: Connection, *command: str) -> Any:
    """Return the server's answer; None if it is unavailable or returns an error."""
    try:
        return await _answer(connection, *command)
    except StoreUnavailable:
        return None

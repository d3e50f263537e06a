"""A server as whoever looks after it wants to know it: what it is, how far away, what it keeps and lets go.

Nobody but people asks this, once: it costs a dozen round trips. Of a cluster the node is looked at that the
URL names.
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
    """What a server says of itself; None is what it does not tell us."""

    product: str
    """`Valkey` or `Redis`; empty where it does not tell us, nor then what it evicts and uses."""
    version: tuple[int, ...]
    trip: float
    """Seconds that a round trip takes, the median of some."""
    ahead: float | None
    """Seconds by which its clock is ahead of ours."""
    eviction: str
    """Its `maxmemory-policy`."""
    used: int
    """Bytes of memory,"""
    most: int
    """and what it may have; 0 is no limit."""
    has_log: bool
    """Whether it keeps an append-only file."""
    snapshots: bool | None
    """Whether it writes its data to disk now and then."""
    is_written: bool
    """Whether the last writing to disk went well."""
    knows_secret: bool
    """Whether it was written with one of our secrets, or with none yet."""
    refusals: Mapping[str, str]
    """Why it refuses what we need, by what that is: `write`, `script`."""


async def examine(url: str, clock: Clock, patience: float, secrets: Sequence[str]) -> Examined:
    """Look at the server of a store's URL; ``patience`` is in seconds. Raises StoreUnavailable."""
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
    """Why we may not write, or run scripts; and the ids of the secrets with which servers began."""
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
    """What the server answers; None where it refuses to."""
    try:
        return await _answer(connection, *command)
    except StoreUnavailable:
        return None

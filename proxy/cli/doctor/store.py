"""Checks of the store: that it can be reached, is durable, and evicts nothing.

A look costs a dozen round trips. In a cluster, the node that the URL names is looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from statistics import median
from time import perf_counter
from typing import Any

from pydantic import SecretStr

from proxy.adapters.files.settings import KEPT_SECRETS, kept_secret
from proxy.adapters.stores.redis import RedisStore, keys
from proxy.adapters.stores.redis.cluster import Word
from proxy.adapters.stores.redis.codec import Keyring
from proxy.adapters.stores.redis.connection import CLUSTER, Breaker, Connection
from proxy.adapters.stores.redis.embedded import EmbeddedValkey, running_on
from proxy.app import SystemClock
from proxy.cli.doctor.findings import Finding, fail, of_clock, ok, warn
from proxy.cli.serve import store_address
from proxy.config import Settings
from proxy.errors import OperatorError, SettingsError, StoreUnavailable

_Info = Mapping[str, Any]
"""The answer to INFO; empty if the server does not give it to us."""

_TRIPS = 5
"""Round trips that are measured."""
_OLDEST = 7, 0
"""The oldest version of Redis that works; every version of Valkey does."""
_FAR = 0.05
"""Seconds of a round trip from which on every turn is noticeably slower."""
_TOO_FAR = 1.0
"""Seconds of a round trip from which on a store is not used."""
_NEARLY = 0.9
"""Share of its memory limit from which on the store counts as nearly full."""
_MIB = 2**20


async def of_store(settings: Settings) -> list[Finding]:
    """Check the store of the settings, or the embedded one, which is started if it does not run."""
    if settings.store is not None:
        if not settings.shares_store:
            return [ok("store", "within the process: what it knows is gone when it ends")]
        name = store_address(settings.store)
        return await _of_server(settings, settings.store, name, "see Stores in docs/operations.md")
    directory = settings.data_dir / "valkey"
    name, log = f"embedded, in {directory}", f"its log is {directory / 'valkey.log'}"
    try:
        running = running_on(directory)
        if running is not None:
            return await _of_server(settings, running, f"{name}, where a server runs it", log)
        valkey = EmbeddedValkey(directory)
        await asyncio.to_thread(valkey.start)
    except (OperatorError, OSError) as error:
        reason = f"{directory} cannot be used: {error.strerror}" if isinstance(error, OSError) else str(error)
        return [fail("store", reason, "name another store with --store (redis://…, memory://)")]
    try:
        return await _of_server(settings, valkey.url, f"{name}, started for this look", log)
    finally:
        await asyncio.to_thread(valkey.stop)


async def _of_server(settings: Settings, url: str, name: str, advice: str) -> list[Finding]:
    clock, trips = SystemClock(), list[float]()
    try:
        node = _connection(settings, url.replace(CLUSTER, "://", 1))
        async with aclosing(node):
            with node.patience():
                await _answer(node, "PING")
                for _ in range(_TRIPS):
                    began = perf_counter()
                    await _answer(node, "PING")
                    trips.append(perf_counter() - began)
                info: _Info = await _or_none(node, "INFO") or {}
                saves: Mapping[Any, str] | None = await _or_none(node, "CONFIG GET", "save")
                before, time = clock.now(), await _or_none(node, "TIME")
                halfway = (before + clock.now()) / 2
    except (StoreUnavailable, SettingsError) as error:
        return [fail("store", f"{name}: {error}", advice)]
    if CLUSTER in url and info.get("cluster_enabled") == 0:
        return [
            fail("store", f"{name}: it is not a cluster", "have its URL begin with redis:// or rediss://")
        ]
    findings = [_of_product(info, median(trips), name), *await _of_use(settings, url), _of_disk(info, saves)]
    if info:
        findings += _of_memory(info)
    if time is not None:
        findings.append(of_clock("store clock", time[0] + time[1] / 1e6 - halfway))
    return findings


def _connection(settings: Settings, url: str) -> Connection:
    return Connection(url, settings.store_timeout, Breaker(SystemClock(), 0.0), 0.0)


async def _answer(connection: Connection, *command: Word) -> Any:
    return await connection.ask("", *command, trips=2)


async def _or_none(connection: Connection, *command: str) -> Any:
    """Return the server's answer; None if it is unavailable or returns an error."""
    try:
        return await _answer(connection, *command)
    except StoreUnavailable:
        return None


def _of_product(info: _Info, trip: float, name: str) -> Finding:
    """Return what the server is, and how far away; ``trip`` is in seconds."""
    is_valkey = "valkey_version" in info
    number = str(info.get("valkey_version" if is_valkey else "redis_version", "0")).split(".")
    version = tuple(int(part) for part in number if part.isdigit())
    product = f"{'Valkey' if is_valkey else 'Redis'} {'.'.join(map(str, version))}"
    if not info:
        product = "a server that does not tell its version"
    stands = f"{product}, {name}, {trip * 1000:.1f} ms away"
    if info and not is_valkey and version < _OLDEST:
        return fail("store", f"{stands}: too old", "Redis 7.0 or newer is needed, or any Valkey")
    if trip >= _TOO_FAR:
        return fail("store", f"{stands}: too far", "a store that takes a second to answer is not used")
    if trip >= _FAR:
        return warn("store", stands, "each new turn waits for it once: put it nearer")
    return ok("store", stands)


async def _of_use(settings: Settings, url: str) -> list[Finding]:
    """Check that we may write and run scripts, and that it was written with our secret, or with none yet."""
    refusals = dict[str, str]()
    store, whole = RedisStore(url, SystemClock(), settings.store_timeout, 0.0), _connection(settings, url)
    async with aclosing(store), aclosing(whole):
        with whole.patience():
            written: set[bytes] = await _or_none(whole, "SMEMBERS", keys.SECRETS) or set()
            try:
                await _answer(whole, "SET", keys.PROBE, "", "PX", keys.PROBE_MILLISECONDS)
            except StoreUnavailable as error:
                refusals["write"] = error.message
        try:
            await store.ping()
        except StoreUnavailable as error:
            refusals = refusals or {"script": error.message}
    rights = "its user needs rights: docs/operations.md lists them"
    mend = "mend the store: until then chats go on without their sessions, or are refused (store.on_fault)"
    findings = [
        fail(f"store {what}s", why, rights if "NOPERM" in why else mend) for what, why in refusals.items()
    ]
    if not refusals:
        findings.append(ok("store scripts", "it writes, and runs scripts, for us"))
    return [*findings, *_of_secret(settings, written)]


def _of_secret(settings: Settings, written: set[bytes]) -> Iterator[Finding]:
    """Check that the store was ``written`` with one of our secrets, by their ids, or with none yet."""
    check, lost = "store secret", "no session of it would be found"
    file = settings.data_dir / KEPT_SECRETS["secret"]
    try:
        if settings.secret is None and file.exists():
            settings = settings.model_copy(update={"secret": SecretStr(kept_secret(file))})
    except (SettingsError, OSError):
        return  # the settings' line has it
    if not written:
        return
    if not settings.secrets:
        advice = "put the file back from a copy, or set the secret: a start would make another one"
        yield fail(check, f"it was written with a secret, and {file} is gone: {lost}", advice)
    elif written.isdisjoint(Keyring(settings.secrets, lambda: False).ids):
        stands = f"it was written with another UNABRIDGED_SECRET: {lost}"
        yield fail(check, stands, "set that of before, or of the other servers; both while rotating")


def _of_disk(info: _Info, saves: Mapping[Any, str] | None) -> Finding:
    """Return whether the server writes to disk; ``saves`` is its setting for snapshots, if it tells it."""
    check = "store persistence"
    if "err" in {info.get("aof_last_write_status"), info.get("rdb_last_bgsave_status")}:
        return fail(check, "it could not write to its disk", "look at its log, and its disk")
    if info.get("aof_enabled"):
        return ok(check, "an append-only file")
    if saves is None:
        advice = "see that it has an append-only file, or snapshots"
        return warn(check, "it does not tell whether it writes to disk", advice)
    if any(saves.values()):
        advice = "`appendonly yes` loses a second at most"
        return warn(check, "snapshots: turns since the last one are lost with it", advice)
    return warn(check, "none: sessions are gone once it restarts", "set `appendonly yes`")


def _of_memory(info: _Info) -> Iterator[Finding]:
    eviction = str(info.get("maxmemory_policy", ""))
    if eviction == "noeviction":
        yield ok("store eviction", eviction)
    else:
        lost = f"{eviction}: once it is full it lets go of sessions"
        advice = "set `maxmemory-policy noeviction`: then it refuses writes, and chats go on"
        yield warn("store eviction", lost, advice)
    size, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))  # bytes
    used = f"{size / _MIB:,.0f} MiB used"
    stands = f"{used} of {most / _MIB:,.0f}"
    if not most:
        yield ok("store memory", f"{used}; it has no limit")
    elif size >= _NEARLY * most:
        yield warn("store memory", stands, "raise its maxmemory, or lower store.ttl")
    else:
        yield ok("store memory", stands)

"""Checks of the store: that it can be reached, is durable, and evicts nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from urllib.parse import urlsplit

from proxy.adapters.stores.redis.embedded import EmbeddedValkey, running_on
from proxy.adapters.stores.redis.examination import Examined, examine
from proxy.app import SystemClock
from proxy.cli.doctor.findings import Finding, fail, of_clock, ok, warn
from proxy.config import Settings
from proxy.errors import OperatorError, StoreUnavailable

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
        parts = urlsplit(settings.store)
        if parts.scheme == "memory":
            return [ok("store", "within the process: what it knows is gone when it ends")]
        name = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
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
        return [fail("store", str(error), "name another store with --store (redis://…, memory://)")]
    try:
        return await _of_server(settings, valkey.url, f"{name}, started for this look", log)
    finally:
        await asyncio.to_thread(valkey.stop)


async def _of_server(settings: Settings, url: str, name: str, advice: str) -> list[Finding]:
    try:
        found = await examine(url, SystemClock(), settings.store_timeout, settings.secrets)
    except StoreUnavailable as error:
        return [fail("store", f"{name}: {error.message}", advice)]
    findings = [*_of_use(found, name), *_of_disk(found)]
    if found.product:
        findings += _of_memory(found)
    if found.ahead is not None:
        findings.append(of_clock("store clock", found.ahead))
    return findings


def _of_use(found: Examined, name: str) -> Iterator[Finding]:
    """Yield what the server is, how far away, and whether it does for us what we need."""
    version = ".".join(map(str, found.version))
    product = f"{found.product} {version}" if found.product else "a server that does not tell its version"
    stands = f"{product}, {name}, {found.trip * 1000:.1f} ms away"
    if found.product == "Redis" and found.version < _OLDEST:
        yield fail("store", f"{stands}: too old", "Redis 7.0 or newer is needed, or any Valkey")
    elif found.trip >= _TOO_FAR:
        yield fail("store", f"{stands}: too far", "a store that takes a second to answer is not used")
    elif found.trip >= _FAR:
        yield warn("store", stands, "each new turn waits for it once: put it nearer")
    else:
        yield ok("store", stands)
    for what, why in found.refusals.items():
        rights = "its user needs the commands of @read, @write and @scripting on the keys u1:*"
        yield fail(f"store {what}s", why, rights)
    if not found.refusals:
        yield ok("store scripts", "it writes, and runs scripts, for us")
    if not found.knows_secret:
        lost = "it was written with another UNABRIDGED_SECRET: no session of it would be found"
        yield fail("store secret", lost, "set the secret of the other servers, or both while rotating")


def _of_disk(found: Examined) -> Iterator[Finding]:
    if not found.is_written:
        yield fail("store persistence", "it could not write to its disk", "look at its log, and its disk")
    elif found.has_log:
        yield ok("store persistence", "an append-only file")
    elif found.snapshots:
        advice = "`appendonly yes` loses a second at most"
        yield warn("store persistence", "snapshots: turns since the last one are lost with it", advice)
    elif found.snapshots is None:
        advice = "see that it has an append-only file, or snapshots"
        yield warn("store persistence", "it does not tell whether it writes to disk", advice)
    else:
        lost = "none: sessions are gone once it restarts"
        yield warn("store persistence", lost, "set `appendonly yes`")


def _of_memory(found: Examined) -> Iterator[Finding]:
    if found.eviction == "noeviction":
        yield ok("store eviction", found.eviction)
    else:
        lost = f"{found.eviction}: once it is full it lets go of sessions"
        advice = "set `maxmemory-policy noeviction`: then it refuses writes, and chats go on"
        yield warn("store eviction", lost, advice)
    used = f"{found.used / _MIB:,.0f} MiB used"
    stands = f"{used} of {found.most / _MIB:,.0f}"
    if not found.most:
        yield ok("store memory", f"{used}; it has no limit")
    elif found.used >= _NEARLY * found.most:
        yield warn("store memory", stands, "raise its maxmemory, or lower store.ttl")
    else:
        yield ok("store memory", stands)

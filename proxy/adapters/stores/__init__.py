"""Stores for sessions and memories: in this process, or in Redis or Valkey, chosen by a URL.

The memory store is the attribute ``memories`` of the session store, and shares its connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from urllib.parse import urlsplit

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.codec import Keyring
from proxy.adapters.stores.redis.connection import Timed, untimed
from proxy.errors import StoreUnavailable
from proxy.ports import Clock
from proxy.telemetry import log_warning


def open_store(
    url: str,
    clock: Clock,
    timeout: float,
    rest: float,
    keyring: Keyring | None = None,
    *,
    linger: float | None = None,
    timed: Timed = untimed,
) -> InProcessStore | RedisStore:
    """Return the store at `url`, without connecting to it yet. Raises SettingsError if the URL is not valid.

    The other arguments are those of :class:`RedisStore`; data of `memory://` never leaves the process.
    """
    if urlsplit(url).scheme == "memory":
        return InProcessStore(clock)
    return RedisStore(url, clock, timeout, rest, keyring, linger=linger, timed=timed)


async def check_secret(knows_secret: Awaitable[bool]) -> bool | None:
    """Return whether a store knows our secret, and warn if it does not; None: no answer."""
    try:
        knows = await knows_secret
    except StoreUnavailable:  # requests will report it
        return None
    if not knows:
        log_warning("the store was written with another UNABRIDGED_SECRET: no session of it is found")
    return knows


async def watch_secret(
    store: InProcessStore | RedisStore, *, knows: bool | None, again: float = 30.0, day: float = 86_400.0
) -> None:
    """Have the store remember our secret as long as the server runs, until cancelled.

    It is asked every ``again`` seconds until it answers, then each ``day`` (in seconds), and no more if it
    was written with another. ``knows`` is the result of the check at the start.
    """
    while knows is not False:
        await asyncio.sleep(again if knows is None else day)
        knows = await check_secret(store.knows_secret())

"""Stores for sessions and memories: in this process, or in Redis or Valkey, chosen by a URL.

The memory store is the attribute ``memories`` of the session store, and shares its connections.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.codec import Keyring
from proxy.adapters.stores.redis.connection import Timed, untimed
from proxy.ports import Clock


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

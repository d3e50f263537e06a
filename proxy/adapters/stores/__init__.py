"""Where sessions and memories are kept: in this process, or in Redis or Valkey; a URL names which.

A store of sessions has that of ``memories`` with it, over the same connections.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from proxy.adapters.stores.in_process import InProcessStore
from proxy.adapters.stores.redis import RedisStore
from proxy.adapters.stores.redis.codec import Keyring
from proxy.adapters.stores.redis.connection import Timed, untimed
from proxy.errors import SettingsError
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
    """The store at `url`; nothing is connected yet.

    `timeout` is what a round trip may take beside what it usually takes, `rest` how long a store that failed
    is left alone and, where nobody else writes to it, `linger` how long a turn that nobody waits for waits
    for others, all in seconds. With a keyring records may be sealed; those of `memory://` never leave the
    process. `timed` is told what each call to a server was for, and how many seconds it took. Raises
    SettingsError.
    """
    match urlsplit(url).scheme:
        case "memory":
            return InProcessStore(clock)
        case "redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "unix":
            return RedisStore(url, clock, timeout, rest, keyring, linger=linger, timed=timed)
        case scheme:
            known = "redis://, rediss://, redis+cluster://, rediss+cluster://, unix:// or memory://"
            raise SettingsError(f"A store begins with {known}, not with {scheme!r}.")

"""Which store a URL names."""

from __future__ import annotations

from urllib.parse import urlsplit

from proxy.adapters.memory import MemoryStore
from proxy.adapters.redis import RedisStore
from proxy.adapters.redis.sealing import Keyring
from proxy.errors import SettingsError
from proxy.ports import Clock


def open_store(
    url: str,
    clock: Clock,
    timeout: float,
    rest: float,
    keyring: Keyring | None = None,
    linger: float = 0.0,
) -> MemoryStore | RedisStore:
    """The store at `url`; nothing is connected yet.

    `timeout` is the longest that a round trip may take, `rest` how long a store that failed is left alone,
    `linger` how long a turn that nobody waits for waits for others, all in seconds. With a keyring records
    may be sealed; those of `memory://` never leave the process. Raises SettingsError.
    """
    match urlsplit(url).scheme:
        case "memory":
            return MemoryStore(clock)
        case "redis" | "rediss" | "redis+cluster" | "rediss+cluster" | "unix":
            return RedisStore(url, clock, timeout, rest, keyring, linger)
        case scheme:
            known = "redis://, rediss://, redis+cluster://, rediss+cluster://, unix:// or memory://"
            raise SettingsError(f"A store begins with {known}, not with {scheme!r}.")

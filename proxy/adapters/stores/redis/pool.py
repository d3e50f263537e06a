"""The pool of connections to the server that a URL names, and the parameters that the URL's query may have.

redis-py takes any argument of its classes as a parameter, unchecked. Most of them would break the rules of
:mod:`proxy.adapters.stores.redis.connection`, so only those about the server itself are taken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from proxy.adapters.stores.redis.timeouts import MEASURING, PATIENCE, Timeouts
from proxy.config import DATABASE_PATH, ONE_WORD
from proxy.errors import SettingsError

CONNECTIONS: Final = 32
"""The most connections of a process; further calls wait for a free one, within their timeout."""

_TEXT: Final = re.compile("(?s).+"), "must not be empty"
_PATH: Final = re.compile(r"[^\0]+"), "must be a path"
_PARAMETERS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "db": (re.compile(r"[0-9]{1,5}"), "must be the number of a database, such as 0"),
    "username": _TEXT,
    "password": _TEXT,
    "client_name": (ONE_WORD, "must be visible ASCII characters without spaces"),
    "ssl_cert_reqs": (re.compile("none|optional|required"), "must be none, optional or required"),
    "ssl_check_hostname": (re.compile("(?i)true|false|yes|no|1|0"), "must be true or false"),
    "ssl_ciphers": _TEXT,
    "ssl_password": _TEXT,
    "ssl_ca_data": _TEXT,
    "ssl_ca_path": _PATH,
    "ssl_ca_certs": _PATH,
    "ssl_certfile": _PATH,
    "ssl_keyfile": _PATH,
}
"""By name, the form of a parameter, and a description of it."""
_FILES: Final = ("ssl_ca_path", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile")


def connection_pool(url: str, timeouts: Timeouts) -> BlockingConnectionPool:
    """Return a pool of connections that measure their round trips.

    Raises SettingsError for a path or a parameter that is not valid, without its value, which may be secret.
    """
    if wrong := _wrong_part(url):
        raise SettingsError(f"The store's URL is not valid: {wrong}")
    options: dict[str, Any] = {
        "timeout": None,  # the timeout of a call includes waiting for a free connection
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
    except (ValueError, RedisError) as error:
        raise SettingsError(f"The store's URL is not valid: {error}") from error
    pool.connection_class = MEASURING[pool.connection_class]
    return pool


def _wrong_part(url: str) -> str:
    """Return what is wrong with the URL's path or parameters; empty if nothing is."""
    parts = urlsplit(url)
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _PARAMETERS:
            # A password with a question mark in it ends up here.
            named = f"`{name}`" if name.isidentifier() and "@" not in parts.query else "of that name"
            return f"there is no parameter {named}; there are {', '.join(_PARAMETERS)}"
        pattern, must = _PARAMETERS[name]
        if name.startswith("ssl_") and parts.scheme != "rediss":
            return f"`{name}` is for rediss://, which is TLS"
        if not pattern.fullmatch(value):
            return f"`{name}` {must}"
        if name in _FILES and not os.access(value, os.R_OK):
            return f"`{name}` names what is not there, or cannot be read"
    if parts.scheme != "unix" and not DATABASE_PATH.fullmatch(parts.path):
        return "what follows the host must be the number of a database, such as /0"
    return ""

"""Connections that measure their round trips and derive their timeouts from them, and their pool.

The timeout of a round trip follows from earlier ones, as in TCP itself (RFC 6298). It ends with the first
bytes of its reply, since how long the rest takes depends on its length; so does how long a large request
takes, which is not measured. Connecting takes several round trips (TCP, TLS, a password, a database); it is
therefore completed even if its caller has stopped waiting: the next caller finds the connection ready, and
the measured times.

A server that answers that it is read-only may be a primary that became a replica: connections to it stay
open, and only new ones are led to the primary of today. All connections are therefore made anew then.

A URL names the server. As the parameters of its query redis-py takes any argument of its classes, unchecked.
Most of them would break the rules of :mod:`proxy.adapters.stores.redis.connection`, so only those about the
server itself are taken.
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

from redis.asyncio import BlockingConnectionPool
from redis.asyncio.connection import (
    AbstractConnection,
    Connection,
    DefaultParser,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as ConnectionFailed
from redis.exceptions import ReadOnlyError, RedisError, ResponseError

from proxy.adapters.stores.redis.deadline import QUICK, Deadline
from proxy.config import DATABASE_PATH, ONE_WORD
from proxy.errors import SettingsError

if sys.platform != "win32":
    import fcntl
    import termios

PATIENCE: Final = 4.0
"""Seconds that TCP and TLS may take together; callers wait that long only at the start."""
_HANDSHAKE: Final = 3.0
"""Seconds of these that TLS may take."""
_FARTHEST: Final = 1.0
"""Seconds that an answer may take while connecting; a server farther away is not usable as a store."""
_LONGEST: Final = 2.0
"""The longest timeout in seconds, whatever was measured, unless the setting is longer."""
_DEMOTED: Final = 1.0
"""Least seconds between two times that all connections are made anew because the server is read-only."""


class AdaptiveTimeout:
    """A timeout in `seconds` that adapts to measured times: the mean plus four times the mean deviation.

    `least` is the least time added to the mean, and the whole timeout before anything was measured.
    """

    def __init__(self, least: float) -> None:
        self.least = least
        self._usual: float | None = None
        self._variation = 0.0
        self._quickest = inf

    @property
    def seconds(self) -> float:
        """The timeout by RFC 6298, section 2, with `least` in place of the granularity of the clock."""
        if self._usual is None:
            return self.least
        return min(self._usual + max(self.least, 4 * self._variation), max(self.least, _LONGEST))

    def measured(self, seconds: float) -> None:
        self._quickest = min(self._quickest, seconds)
        if self._usual is None:
            self._usual, self._variation = seconds, seconds / 2
        else:
            self._variation += (abs(self._usual - seconds) - self._variation) / 4
            self._usual += (seconds - self._usual) / 8

    def begin(self) -> None:
        """Start again from the quickest time so far: during the start this process itself was slow."""
        if self._usual is not None:
            self._usual, self._variation = self._quickest, self._quickest / 2


@dataclass
class Timeouts:
    """The timeouts for a server, shared by all connections to it."""

    trip: AdaptiveTimeout
    """The timeout of a round trip."""
    connect: AdaptiveTimeout
    """The timeout of connecting."""
    reached: Callable[[], None]
    """Called whenever a connection was made and the server has answered on it."""
    failure: Exception | None = None
    """The failure of the last attempt to connect, if it failed; raised if the next one takes too long."""
    outdated: float = -inf
    """Connections that were made before this moment (monotonic) are made anew before they are used again."""

    def of_call(self, trips: int, *, is_trial: bool) -> float:
        """Return the timeout of a call in seconds, with that of connecting, which is short for a trial."""
        connect = self.connect.least if is_trial else self.connect.seconds
        return connect + trips * self.trip.seconds


class _Parser(cast("Any", DefaultParser)):
    """Reports each piece of a reply as it arrives."""

    def on_connect(self, connection: _Measuring) -> None:
        super().on_connect(connection)  # pyright: ignore[reportUnknownMemberType]
        self._arrived = connection.arrived

    async def read_from_socket(self) -> bool:
        piece: bytes = await self._stream.read(self._read_size)
        if not piece:
            raise ConnectionFailed("Connection closed by server.")
        self._arrived(len(piece))
        self._reader.feed(piece)
        return True


class _Measuring(AbstractConnection):
    """The common behaviour of all kinds of connections."""

    def __init__(self, *, timeouts: Timeouts, **options: Any) -> None:
        super().__init__(parser_class=_Parser, **options)  # pyright: ignore[reportUnknownMemberType]
        self.deadline: Deadline | None = None
        """The deadline of the call that uses the connection; set by the user of a connection that is made."""
        self._timeouts = timeouts
        self._connecting: asyncio.Task[None] | None = None
        self._made = 0.0
        self._sent = 0.0

    async def connect(self) -> None:
        """Wait until it is connected. Raises TimeoutError if that takes too long, but goes on connecting."""
        if self.is_connected and self._made < self._timeouts.outdated:
            await self.disconnect(nowait=True)
        connecting = self._connecting
        if connecting is None or connecting.done():
            connecting = self._connecting = None
            if not self.is_connected:
                connecting = self._connecting = asyncio.create_task(self._make(), name="connecting")
                # Retrieve the failure here, so that asyncio does not log it if nobody waits for the task.
                connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        if connecting is not None:
            await asyncio.wait({connecting}, timeout=self._timeouts.connect.seconds)
            if not connecting.done():
                raise self._timeouts.failure or TimeoutError("No connection was made in time.")
            connecting.result()
        self.socket_timeout = None

    async def _make(self) -> None:
        began = self._made = monotonic()
        self.socket_timeout, self.deadline = max(_FARTHEST, self._timeouts.trip.least), None
        try:
            await super().connect()
            await self.send_command("PING", check_health=False)
            with suppress(ResponseError):  # a user without the right to PING gets an answer too
                await self.read_response()
        except BaseException as failure:
            self._timeouts.failure = failure if isinstance(failure, Exception) else None
            await super().disconnect(nowait=True)
            raise
        self._timeouts.failure = None
        self._timeouts.connect.measured(monotonic() - began)
        self._timeouts.reached()

    async def disconnect(self, *args: Any, **options: Any) -> None:
        connecting = self._connecting
        # Once connected, nothing is awaited here: a second cancellation would leave half a reply to come.
        if not (connecting is None or connecting.done() or connecting is asyncio.current_task()):
            self._connecting = None
            connecting.cancel()
            await asyncio.wait({connecting})
        await super().disconnect(*args, **options)

    async def send_packed_command(self, command: Any, *args: Any, **options: Any) -> None:
        size = sum(map(len, command))
        if self.deadline is not None:
            self.deadline.sending(size, self._unsent)
        await super().send_packed_command(command, *args, **options)
        self._sent = monotonic() if size <= QUICK else 0.0

    def _unsent(self) -> int:
        """Return how many bytes have not reached the server's machine, or at least not left this process."""
        if self._writer is None or self._writer.transport.is_closing():  # its call will be told so
            return 0
        transport = self._writer.transport
        left, own = transport.get_write_buffer_size(), transport.get_extra_info("socket")
        if sys.platform != "win32":
            with suppress(OSError, ValueError):  # a system that does not tell, a socket that is closed
                left += int.from_bytes(fcntl.ioctl(own.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return left

    def arrived(self, size: int) -> None:
        """Note that a piece of a reply has arrived; the first one after a send ends a round trip."""
        if self._sent:
            self._timeouts.trip.measured(monotonic() - self._sent)
            self._sent = 0.0
        if self.deadline is not None:
            self.deadline.received(size)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        try:
            return cast("Any", await super().read_response(*args, **options))
        except ReadOnlyError:
            now = monotonic()
            if now - self._timeouts.outdated >= _DEMOTED:
                self._timeouts.outdated = now
            raise


class _Plain(_Measuring, Connection):
    pass


class _Encrypted(_Measuring, SSLConnection):
    def _connection_arguments(self) -> dict[str, Any]:
        """Add a timeout for TLS: a server that does not speak it may wait silently for more data."""
        arguments = cast("dict[str, Any]", super()._connection_arguments())  # pyright: ignore[reportUnknownMemberType]
        return {**arguments, "ssl_handshake_timeout": _HANDSHAKE}


class _Local(_Measuring, UnixDomainSocketConnection):
    pass


_MEASURING: Final[dict[type[AbstractConnection], type[AbstractConnection]]] = {
    Connection: _Plain,
    SSLConnection: _Encrypted,
    UnixDomainSocketConnection: _Local,
}
"""Our connection classes, by the class that redis-py chooses for a URL."""


# --- the pool of connections to the server that a URL names ---


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
        "socket_timeout": None,  # a deadline is that of a call, not of each reply
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
    pool.connection_class = _MEASURING[pool.connection_class]
    return pool


def _wrong_part(url: str) -> str:
    """Return what is wrong with the URL's path or parameters; empty if nothing is."""
    parts = urlsplit(url)
    given = dict[str, str]()
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
        given[name] = value
    if given.keys() & {"ssl_certfile", "ssl_keyfile"} and (wrong := _wrong_certificate(given)):
        return wrong
    if parts.scheme != "unix" and not DATABASE_PATH.fullmatch(parts.path):
        return "what follows the host must be the number of a database, such as /0"
    if parts.scheme != "unix" and parts.path.strip("/") and "db" in given:
        return "the number of a database follows the host or is `db`, not both"
    return ""


def _wrong_certificate(given: Mapping[str, str]) -> str:
    """Return what is wrong with a client's certificate and its key; empty if they can be used.

    For a password that is not given, OpenSSL would ask on the terminal.
    """
    if "ssl_certfile" not in given:
        return "`ssl_keyfile` needs `ssl_certfile` too"
    key, password = given.get("ssl_keyfile"), given.get("ssl_password", "")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(given["ssl_certfile"], key, password=password)
    except OSError:  # ssl.SSLError is one
        holder = "ssl_keyfile" if key else "ssl_certfile"
        opened = "`ssl_password` opens" if password else "can be used without `ssl_password`"
        return f"`{holder}` has no key of the certificate that {opened}"
    return ""

"""The upstream over connections of our own: HTTP/1.1 by asyncio and httptools, at a tenth of a client's cost.

What a general client does beside moving bytes is most of its cost (docs/benchmarks.md), and none of it is
wanted here. Connections are kept alive and used again newest first. An answer that comes while the request is
still being written is heard.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Sequence

from proxy.adapters.faults import fault_of
from proxy.adapters.upstream.connection import Answer, Connection
from proxy.adapters.upstream.pooled import Header, PooledUpstream
from proxy.errors import InvalidHeader, Overloaded, UpstreamTimeout, UpstreamUnreachable

_FULL = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL})
"""No file descriptor or no port is left for a connection: ours is the fault, and it passes."""


class HttptoolsUpstream(PooledUpstream[Connection]):
    """See `PooledUpstream`."""

    async def _exchange(
        self,
        method: str,
        path: bytes,
        headers: Sequence[Header],
        body: bytes | AsyncIterator[bytes] | None,
    ) -> Answer:
        lines = [name + b": " + value for name, value in headers]
        first = method.encode("ascii") + b" " + path + b" HTTP/1.1\r\nhost: " + self._netloc
        head = b"\r\n".join([first, *lines, b"\r\n"])
        ends = len(lines) + 3
        if head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head:
            raise InvalidHeader("A header cannot be forwarded.")
        connection = self._kept() or await self._connected()
        answer = connection.begin(method, self._give_back)
        try:
            if isinstance(body, AsyncIterator):
                connection.write(head)
                is_chunked = (b"transfer-encoding", b"chunked") in headers
                await answer.begun_while(connection.write_all(body, chunked=is_chunked))
            else:
                connection.write(head, body or b"")
                await answer.begun()
        except BaseException:
            answer.end(broken=True)
            raise
        return answer

    async def _connected(self) -> Connection:
        """A new connection."""
        connection, loop = self._admit(Connection(self._read_timeout)), asyncio.get_running_loop()
        is_secure = self._url.scheme == "https"
        port, tls = self._url.port or (443 if is_secure else 80), self._tls if is_secure else None
        try:
            async with asyncio.timeout(self._connect_timeout):
                await loop.create_connection(lambda: connection, self._url.host, port, ssl=tls)
        except BaseException as error:
            self._in_use.discard(connection)
            if isinstance(error, TimeoutError):
                raise UpstreamTimeout("no connection was made") from error
            if not isinstance(error, (OSError, UnicodeError)):  # or a name that cannot be one
                raise
            is_ours = getattr(error, "errno", None) in _FULL
            raise (Overloaded() if is_ours else UpstreamUnreachable(*fault_of(error))) from error
        return connection

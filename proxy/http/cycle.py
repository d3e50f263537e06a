"""One request and its answer, as ASGI has them, on a client's connection (RFC 9112 6 and 9).

What is sent within one pass of the event loop, an answer's head, pieces of its body and its end, goes out in
one write when the pass ends: a write costs more than all else that is done for a small answer. And whoever
wants to hear that the client left is called: no task need wait for it (`proxy.http.asgi.Client`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from proxy.errors import UnabridgedError
from proxy.http.asgi import CLIENT, send_error
from proxy.http.front import request_id
from proxy.http.headers import Header
from proxy.telemetry import log_fault

_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"connection"})
_BODILESS = frozenset({204, 304})
_HELD = 512 * 1024
"""Bytes of a request's body that wait for their reader before its sender has to: two readings."""


class Cycle:
    """A request that has begun, until its answer is complete; `completed` is called then."""

    def __init__(
        self,
        transport: asyncio.Transport,
        flow: FlowControl,
        completed: Callable[[], None],
        *,
        version: str,
        method: str,
        keep_alive: bool,
        expects_continue: bool,
    ) -> None:
        self.keep_alive = keep_alive
        self.expects_continue = expects_continue
        self.is_abandoned = False
        self.has_begun = False
        self.is_complete = False
        self._transport = transport
        self._flow = flow
        self._completed = completed
        self._version = version
        self._is_head = method == "HEAD"
        self._has_news = False
        """Whether there is something to be received."""
        self._receiver: asyncio.Future[None] | None = None
        """Whoever receives while there is nothing."""
        self._left: Callable[[], None] | None = None
        self._parts: list[bytes] = []
        """Of the request's body; those that have not been received."""
        self._held = 0
        """Bytes in them."""
        self._more_body = True
        self._is_discarding = False
        self._room: int | None = None
        """Bytes that the answer's announced length leaves for its body; None where none is announced."""
        self._is_chunked = False
        self._unwritten: list[bytes] = []
        self._unwritten_bytes = 0

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Have the request answered. An answer that stays incomplete ends its connection."""
        scope[CLIENT] = self
        try:
            await app(scope, self.receive, self.send)
        except Exception as error:  # noqa: BLE001 - the edge: whatever is wrong inside, the client hears of it
            log_fault("a request failed", error)
            if not self.has_begun:
                await send_error(self.send, UnabridgedError(), request_id(scope))
        finally:
            if not (self.is_complete or self.is_abandoned):
                self.cut()

    # --- the request ---

    def feed(self, part: bytes) -> None:
        """A part of the body has come."""
        if self.is_complete or self._is_discarding:
            return
        self._parts.append(part)
        self._held += len(part)
        if self._held > _HELD:
            self._flow.pause_reading()
        self._tell()

    def feed_end(self) -> None:
        """The body has come whole."""
        self._more_body = False
        self._tell()

    async def receive(self) -> Message:
        """ASGI's `receive`."""
        if self.expects_continue and not self._transport.is_closing():
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.expects_continue = False
        if not (self._has_news or self.is_abandoned or self.is_complete):
            self._receiver = asyncio.get_running_loop().create_future()
            await self._receiver
        self._has_news = False
        if self.is_abandoned or self.is_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._take(), "more_body": self._more_body}

    def _tell(self) -> None:
        self._has_news = True
        if self._receiver is not None and not self._receiver.done():
            self._receiver.set_result(None)

    def whole_body(self) -> bytes | None:
        """The body, if it came with the head: there is nothing to be received then."""
        return None if self._more_body else self._take()

    def _take(self) -> bytes:
        self._flow.resume_reading()
        parts, self._parts, self._held = self._parts, [], 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # --- the client ---

    def watch(self, left: Callable[[], None] | None) -> None:
        """Have `left` called once the client leaves, or now if it has; None: no more."""
        self._left = left
        if left is not None and self.is_abandoned:
            left()

    def discard(self) -> None:
        """Throw away what comes of the body from now on, so that its sender is not held up."""
        self._is_discarding = True
        self._parts, self._held = [], 0
        self._flow.resume_reading()

    def leave(self) -> None:
        """The client has left: nobody waits for the answer any more."""
        if not (self.is_complete or self.is_abandoned):
            self.is_abandoned = True
            self._unwritten.clear()
            if self._left is not None:
                self._left()
        self._tell()

    # --- the answer ---

    async def send(self, message: Message) -> None:
        """ASGI's `send`."""
        if self._flow.write_paused and not self.is_abandoned:
            await self._flow.drain()
        if self.is_abandoned:
            return
        is_body = message["type"] == "http.response.body"
        if is_body is not self.has_begun or self.is_complete:
            raise RuntimeError(f"{message['type']} is out of turn.")
        if not is_body:
            self._begin(message["status"], message.get("headers", ()))
        else:
            self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))

    def _begin(self, status: int, headers: Iterable[Header]) -> None:
        self.has_begun = True
        self.expects_continue = False
        lines = [STATUS_LINE[status]]
        for given, value in headers:
            name = given.lower()
            if name in _FRAMING and not self._frames(name, value):
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        lines += self._framing(status)
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
            raise RuntimeError("A header of the answer holds a line end.")
        self._write(head, b"\r\n")

    def _frames(self, name: bytes, value: bytes) -> bool:
        """Take note of how an answer is framed; whether the header stands. The rest is ours to say."""
        if name == b"content-length":
            self._room = int(value)
            return True
        if name == b"connection" and b"close" in value.lower():
            self.keep_alive = False
        return False

    def _framing(self, status: int) -> list[bytes]:
        """The lines that say where the answer ends (RFC 9112 6.3)."""
        lines: list[bytes] = []
        if self._is_head or status in _BODILESS:
            self._room = 0
        elif self._room is None and self._version == "1.0":
            self.keep_alive = False
        elif self._room is None:
            self._is_chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        return lines

    def _go_on(self, body: bytes, *, is_last: bool) -> None:
        if self._is_chunked:
            if body:
                self._write(b"%x\r\n" % len(body), body, b"\r\n")
            if is_last:
                self._write(b"0\r\n\r\n")
        elif self._room is None:
            self._write(body)
        elif not self._is_head:
            self._room -= len(body)
            if self._room < 0 or (is_last and self._room):
                raise RuntimeError("The answer's body has not the length that was announced.")
            self._write(body)
        if is_last:
            self._complete()

    def _complete(self) -> None:
        self.is_complete = True
        self.flush()
        self._tell()
        if not self.keep_alive:
            self._transport.close()
        self._completed()

    def _write(self, *parts: bytes) -> None:
        """Have bytes written with what else is sent in this pass of the loop; much of it at once."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self.flush)
        self._unwritten += parts
        self._unwritten_bytes += sum(map(len, parts))
        if self._unwritten_bytes > HIGH_WATER_LIMIT:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        if self._unwritten:
            unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
            self._transport.write(b"".join(unwritten))

    def cut(self) -> None:
        """End the connection with an answer that is not complete."""
        self.flush()
        self._transport.close()

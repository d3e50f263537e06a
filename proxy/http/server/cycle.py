"""One request and its answer on uvicorn's protocol, with what uvicorn lacks.

Data sent within one pass of the event loop is written at once. A body that has arrived completely is returned
without waiting. Answers are framed here (RFC 9112 6 and 9): uvicorn's way costs more (docs/benchmarks.md) and
sends chunks to HTTP/1.0. An incomplete answer closes its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from proxy.errors import UnabridgedError
from proxy.http.asgi import CLIENT, ClientDisconnected, send_error
from proxy.ports import Header
from proxy.telemetry import log_fault

NOWHERE = bytearray()
"""Marks a body that is discarded as it arrives."""
_BEGINNING = b"HTTP/1.1 "
"""The bytes with which every answer begins."""
_OURS_TO_SAY = frozenset({b"transfer-encoding", b"connection"})
_BODILESS = frozenset({204, 304})
_ZEROS = b"0" * 8
"""Zeros that may precede a chunk's size: some parsers take 16 digits, which leaves 8 for the size."""


class JoinedWrites:
    """A transport that joins the writes of one pass of the event loop.

    A write costs more than all other work for a small answer.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        self._size = 0
        self._ahead = b""
        """Bytes of the next data that were already written."""
        self.is_silent = False
        """Whether nothing was written since this was last set."""
        self.get_extra_info, self.is_closing = transport.get_extra_info, transport.is_closing
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.can_write_eof, self.abort = transport.can_write_eof, transport.abort

    def write(self, *parts: bytes) -> None:
        if self._ahead:
            parts, self._ahead = (parts[0].removeprefix(self._ahead), *parts[1:]), b""
        self.is_silent = False
        if not self._parts:
            self._loop.call_soon(self.flush)
        self._parts += parts
        self._size += sum(map(len, parts))
        if self._size > HIGH_WATER_LIMIT:
            self.flush()

    def write_ahead(self, promised: bytes) -> None:
        """Write one more byte of the data that comes next in any case, if some is left."""
        self.flush()
        at = len(self._ahead)
        if at < len(promised):
            self._ahead = promised[: at + 1]
            self._transport.write(promised[at : at + 1])

    def flush(self) -> None:
        parts, self._parts, self._size = self._parts, [], 0
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))

    def write_eof(self) -> None:
        self.flush()
        self._transport.write_eof()

    def close(self) -> None:
        self.flush()
        self._transport.close()


class Cycle:
    """A request that `app` answers; a `proxy.http.asgi.Client`."""

    def __init__(self, app: ASGIApp, cycle: RequestResponseCycle) -> None:
        self._app = app
        self.cycle = cycle
        self._write = cast("JoinedWrites", cycle.transport).write
        self._task: asyncio.Task[object] | None = None
        """The task to cancel once the client leaves, and how often it was cancelled before."""
        self._cancelled = 0
        self._room: int | None = None
        """Bytes left of the answer's announced length; None where no length is announced."""

    async def __call__(self, scope: Scope, receive: Receive, _: Send) -> None:
        cycle = self.cycle
        scope[CLIENT] = self
        try:
            await self._app(scope, receive, self.send)
        except Exception as error:  # noqa: BLE001 - the edge: whatever fails, the client is answered
            log_fault("a request failed", error)
            if not cycle.response_started:
                await send_error(scope, self.send, UnabridgedError())
        finally:
            del scope[CLIENT]  # so that no cycle is left for the garbage collector
            if not (cycle.response_complete or cycle.disconnected):  # the answer stays incomplete
                cycle.disconnected = True
                cycle.transport.close()

    async def send(self, message: Message) -> None:
        cycle = self.cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        is_body = message["type"] == "http.response.body"
        if is_body is not cycle.response_started or cycle.response_complete:
            raise RuntimeError(f"{message['type']} is out of turn.")
        if not is_body:
            self._begin(message["status"], message.get("headers", ()))
        else:
            self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))

    def _go_on(self, body: bytes, *, is_last: bool) -> None:
        cycle = self.cycle
        if cycle.chunked_encoding:
            if body:
                self._write(b"%x\r\n" % len(body), body, b"\r\n")
            if is_last:
                self._write(b"0\r\n\r\n")
        elif self._room is None:
            self._write(body)
        elif cycle.scope["method"] != "HEAD":
            self._room -= len(body)
            if self._room < 0 or (is_last and self._room):
                raise RuntimeError("The answer's body has not the length that was announced.")
            self._write(body)
        if is_last:
            cycle.response_complete = True
            cycle.message_event.set()
            if not cycle.keep_alive:
                cycle.transport.close()
            cycle.on_response()

    def _begin(self, status: int, headers: Iterable[Header]) -> None:
        """Send the answer's head, which tells where the answer ends (RFC 9112 6.3)."""
        cycle, scope = self.cycle, self.cycle.scope
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        lines = [STATUS_LINE[status]]
        for given, value in headers:
            name = given.lower()
            if name == b"content-length":
                self._room = int(value)
            elif name in _OURS_TO_SAY:
                cycle.keep_alive = cycle.keep_alive and b"close" not in value.lower()
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if scope["method"] == "HEAD" or status in _BODILESS:
            self._room = 0
        elif self._room is None and scope["http_version"] == "1.0":
            cycle.keep_alive = False
        elif self._room is None:
            cycle.chunked_encoding = True
            lines.append(b"transfer-encoding: chunked\r\n")
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
            raise RuntimeError("A header of the answer holds a line end.")
        self._write(head, b"\r\n")

    def leave(self) -> None:
        """Note that the client has left, and cancel what waits for it."""
        cycle = self.cycle
        if not (cycle.response_complete or cycle.disconnected):
            cycle.disconnected = True
            if self._task is not None:
                self._task.cancel()
        cycle.message_event.set()

    # --- the client, as the application knows it ---

    def __enter__(self) -> None:
        self._task = cast("asyncio.Task[object]", asyncio.current_task())
        self._cancelled = self._task.cancelling()
        if self.cycle.disconnected:
            self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = cast("asyncio.Task[object]", self._task), None
        is_ours = self.cycle.disconnected and task.uncancel() <= self._cancelled
        if is_ours and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise ClientDisconnected from error

    def whole_body(self) -> bytes | None:
        cycle = self.cycle
        if cycle.more_body:
            return None
        body, cycle.body = bytes(cycle.body), bytearray()
        cycle.flow.resume_reading()
        return body

    def put_back(self, body: bytes) -> None:
        self.cycle.body = cast("bytearray", body)

    def discard(self) -> None:
        self.cycle.body = NOWHERE
        self.cycle.flow.resume_reading()

    def probe(self) -> bool:
        """Write a byte that comes next in any case, if there is one, to learn whether the client is there.

        Returns False within a body that is not chunked: there every byte is the application's.
        """
        cycle = self.cycle
        transport = cast("JoinedWrites", cycle.transport)
        if not cycle.response_started:
            transport.write_ahead(_BEGINNING)
        elif cycle.chunked_encoding:
            transport.write_ahead(_ZEROS)
        return not cycle.response_started or bool(cycle.chunked_encoding)

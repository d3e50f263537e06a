"""One connection to the upstream, which carries one request and its answer at a time.

llhttp, by httptools, does the parsing (RFC 9112). Bytes that are not clearly part of the answer to the
current request close the connection, so that no later caller gets them (law 6).
"""

from __future__ import annotations

import asyncio
import re
import select
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from math import inf
from typing import Self, cast

import httptools
import msgspec

from proxy.adapters.faults import fault_of
from proxy.errors import UnabridgedError, UpstreamInvalidResponse, UpstreamTimeout, UpstreamUnreachable
from proxy.ports import Header

HEAD_BYTES = 256 * 1024
"""Largest size of an answer's head, including informational answers before it, and of the framing between two
pieces of its body: chunk extensions and trailers."""

HEAD_FIELDS = 500
"""Largest number of headers of an answer; an informational answer counts as one."""

TOO_LARGE = f"head larger than {HEAD_BYTES} bytes"
_TOO_MANY = f"more than {HEAD_FIELDS} fields"

_BUFFERED = 256 * 1024
"""Unread bytes of an answer beyond which reading from the upstream pauses."""
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that parsers accept in a header's value and no server may forward (RFC 9110 5.5)."""
_FIRST_FINAL = 200
_BODILESS = frozenset({204, 304})

Content = bytes | AsyncIterator[bytes] | None
"""A request's body."""


class HttptoolsResponse(msgspec.Struct, eq=False):
    """The answer to one request, as it arrives: a `proxy.ports.UpstreamResponse`."""

    _connection: Connection
    status: int = 0
    """The final status, once the head is here."""
    headers: list[Header] = []
    """The headers as received."""
    parts: deque[bytes] = msgspec.field(default_factory=deque[bytes])
    """Parts of the body that were received and not read yet."""
    waiting: int = 0
    """Number of bytes in ``parts``."""
    is_begun: bool = False
    """Whether the head is complete."""
    is_complete: bool = False
    fault: UnabridgedError | None = None
    waiter: asyncio.Future[None] | None = None
    """Done once anything has arrived or failed."""
    _writing: asyncio.Task[None] | None = None
    _is_ended: bool = False

    # --- for the reader ---

    async def while_written(self, writing: Coroutine[None, None, None]) -> None:
        """Wait until the request's body is written, or the answer begins or fails meanwhile."""
        self._writing = task = asyncio.create_task(writing)
        task.add_done_callback(lambda _: self.wake())
        while not (self.is_begun or self.fault or task.done()):
            self.waiter = waiter = asyncio.get_running_loop().create_future()
            await waiter
        if task.done():
            task.result()

    def chunks(self) -> Self:
        return self

    __aiter__ = chunks

    async def __anext__(self) -> bytes:
        """All of the body that has arrived since the last call."""
        while not self.parts:
            if self.is_complete:
                raise StopAsyncIteration
            await self._connection.wait_for_data(self)
        taken = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        self.parts.clear()
        if self.waiting > _BUFFERED:
            self._connection.resume_reading()
        self.waiting = 0
        return taken

    async def aclose(self) -> None:
        """Give the connection back after the whole body, close it otherwise, also while being cancelled."""
        self.end(broken=False)

    def end(self, *, broken: bool) -> None:
        """Release the connection, once; the unwritten rest of the request is abandoned."""
        if self._is_ended:
            return
        self._is_ended = True
        task, is_written = self._writing, True
        if task is not None:
            is_written = task.done() and not task.cancelled() and task.exception() is None
            task.cancel()
        is_good = is_written and self.is_complete and self._connection.is_reusable
        self._connection.give_back(self._connection, broken=broken or not is_good)

    # --- for the connection ---

    def wake(self) -> None:
        waiter, self.waiter = self.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def fail(self, fault: UnabridgedError) -> None:
        """Take note that nothing more will arrive; has no effect on a complete answer."""
        if not self.is_complete and self.fault is None:
            self.fault = fault
        self.wake()


class Connection(asyncio.Protocol):
    """A connection that is kept alive from one request to the next.

    ``read_timeout``: seconds that the upstream may go without sending or accepting a byte, and within which
    the whole head of its answer must arrive.
    """

    def __init__(self, read_timeout: float, give_back: Callable[..., None]) -> None:
        self._read_timeout = read_timeout
        self.give_back = give_back
        """Called at the end of an answer with the connection, and with whether it is ``broken``."""
        self._due = inf
        """Deadline for the answer's next bytes, in monotonic seconds; infinite while nobody waits."""
        self._head_due = inf
        """Deadline for the answer's head; infinite until somebody waits for it."""
        self._timer: asyncio.TimerHandle | None = None
        """The timer that checks the deadline; it is not reset for each wait."""
        self._body: list[bytes] = []
        """Parts of the answer's body from the latest bytes received."""
        self.on_body = self._body.append
        """llhttp's event: a part of the body, unchunked."""
        self._parser = httptools.HttpResponseParser(self)
        self._answer: HttptoolsResponse | None = None
        self._fields = 0
        """Number of headers since the request, or since the head of its answer."""
        self._fields_bytes = 0
        self._framing = 0
        """Bytes received since the request, the head of its answer, or the last bytes of its body."""
        self._is_head = False
        self._ends_with_connection = False
        self._is_spoiled = False
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._poll = select.poll()
        self.idle_since = 0.0
        """Time since which the connection is idle, in monotonic seconds."""

    # --- for the sender ---

    async def exchange(
        self, method: str, path: bytes, headers: Sequence[Header], body: Content
    ) -> HttptoolsResponse:
        self._answer = answer = HttptoolsResponse(self)
        self._is_head, self._head_due = method == "HEAD", inf
        self._fields = self._fields_bytes = self._framing = 0
        first = method.encode("ascii") + b" " + path + b" HTTP/1.1"
        head = b"\r\n".join([first, *map(b": ".join, headers), b"\r\n"])
        try:
            if isinstance(body, AsyncIterator):
                self._transport.write(head)
                is_chunked = (b"transfer-encoding", b"chunked") in headers
                await answer.while_written(self._write_all(body, chunked=is_chunked))
            else:
                self._transport.writelines((head, body or b""))
            while not answer.is_begun:
                await self.wait_for_data(answer)
        except BaseException:
            answer.end(broken=True)
            raise
        return answer

    async def _write_all(self, parts: AsyncIterator[bytes], *, chunked: bool) -> None:
        """Write a body as it comes, no faster than the upstream accepts it.

        Raises UpstreamTimeout when the upstream accepts nothing, and whatever the body raises.
        """
        async for part in parts:
            if not part:
                continue
            self._transport.writelines((b"%x\r\n" % len(part), part, b"\r\n") if chunked else (part,))
            try:
                async with asyncio.timeout(None if self._may_write.is_set() else self._read_timeout):
                    await self._may_write.wait()
            except TimeoutError as error:
                raise UpstreamTimeout from error
        if chunked:
            self._transport.write(b"0\r\n\r\n")

    def wait_for_data(self, answer: HttptoolsResponse) -> asyncio.Future[None]:
        """A future that is done once anything of an answer has arrived or failed.

        Raises the fault of an answer that has failed. If nothing arrives in time,
        the answer fails with UpstreamTimeout.
        """
        if answer.fault is not None:
            raise answer.fault
        loop = asyncio.get_running_loop()
        self._due = loop.time() + self._read_timeout
        if not answer.is_begun:
            self._due = self._head_due = min(self._due, self._head_due)
        if self._timer is None:
            self._timer = loop.call_at(self._due, self._check_deadline)
        answer.waiter = waiter = loop.create_future()
        return waiter

    def _check_deadline(self) -> None:
        """Fail the answer if its deadline has passed, else set the timer for the present deadline."""
        self._timer = None
        loop = asyncio.get_running_loop()
        if self._due <= loop.time() and self._answer is not None:
            self._answer.fail(UpstreamTimeout())
        elif self._due < inf:
            self._timer = loop.call_at(self._due, self._check_deadline)

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()

    @property
    def is_reusable(self) -> bool:
        """Whether it may serve another request: the answer allowed that, and nothing came behind it."""
        return not (self._is_spoiled or self._transport.is_closing())

    @property
    def is_quiet(self) -> bool:
        return self.is_reusable and not self._poll.poll(0)

    def close(self) -> None:
        self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None or answer.is_complete:
            self._is_spoiled = True
            self.close()
            return
        self._framing += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            ours = error.__context__  # raised by one of the callbacks below
            is_ours = isinstance(ours, UpstreamInvalidResponse)
            self._refuse(answer, ours.detail if is_ours else f"not valid HTTP: {error}")
        except httptools.HttpParserUpgrade:
            self._refuse(answer, "it changes to another protocol")
        if self._body and not self._is_head:
            chunk = b"".join(self._body)
            answer.parts.append(chunk)
            answer.waiting += len(chunk)
            self._framing = 0
        elif self._framing > HEAD_BYTES:
            self._refuse(answer, TOO_LARGE)
        self._body.clear()
        if answer.waiting > _BUFFERED and not (answer.is_complete or self._transport.is_closing()):
            self._transport.pause_reading()
        self._due = inf
        answer.wake()

    def _refuse(self, answer: HttptoolsResponse, wrong: str) -> None:
        self._is_spoiled = True
        answer.fail(UpstreamInvalidResponse(detail=wrong))
        self.close()

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._may_write.set()
        answer = self._answer
        if answer is None:
            return
        if exc is None and answer.is_begun and self._ends_with_connection:
            answer.is_complete, self._is_spoiled = True, True
        part = "within the body" if answer.is_begun else f"after {self._framing} bytes of the head"
        closed = UpstreamInvalidResponse("connection closed", part)
        answer.fail(closed if exc is None else UpstreamUnreachable(*fault_of(exc)))

    # --- llhttp's callbacks ---

    def on_message_begin(self) -> None:
        """Begin an answer. Raises UpstreamInvalidResponse for one that was not requested."""
        answer = self._answer
        if answer is None or answer.is_complete:
            raise UpstreamInvalidResponse(detail="an answer too many")  # which closes the connection
        answer.headers = []
        self._fields += 1
        if self._fields > HEAD_FIELDS + 1:
            raise UpstreamInvalidResponse(detail=_TOO_MANY)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header; trailers are dropped. Raises UpstreamInvalidResponse for too many or too large."""
        self._fields += 1
        self._fields_bytes += len(name) + len(value)
        if self._fields > HEAD_FIELDS + 1:
            raise UpstreamInvalidResponse(detail=_TOO_MANY)
        if self._fields_bytes > HEAD_BYTES:
            raise UpstreamInvalidResponse(detail=TOO_LARGE)
        answer = self._answer
        if answer is not None and not answer.is_begun:
            answer.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Take note that the head is complete; the head of an informational answer is ignored."""
        answer = self._answer
        status = self._parser.get_status_code()
        if answer is None or answer.is_begun or status < _FIRST_FINAL:
            return
        answer.status, answer.is_begun = status, True
        self._fields = self._fields_bytes = self._framing = 0
        names = {*map(bytes.lower, dict(answer.headers))}
        is_framed = b"content-length" in names or b"transfer-encoding" in names
        self._ends_with_connection = not is_framed and status not in _BODILESS
        if self._is_head:  # llhttp cannot be told that no body follows
            answer.is_complete, self._is_spoiled = True, True

    def on_message_complete(self) -> None:
        answer = self._answer
        if answer is not None and answer.is_begun and not answer.is_complete:
            answer.is_complete = True
            self._is_spoiled = self._is_spoiled or not self._parser.should_keep_alive()


def unpresentable(status: int, headers: Sequence[Header]) -> str:
    """Why an answer cannot be forwarded, else empty.

    Reasons: no final status (RFC 9110 15), too many headers, control characters in a value.
    """
    if len(headers) > HEAD_FIELDS:
        return _TOO_MANY
    if not _FIRST_FINAL <= status < 600:
        return f"status {status}"
    for _, value in headers:
        if _CONTROL.search(value):
            return "a control character in a header's value"
    return ""

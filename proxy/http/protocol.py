"""The wire guard: uvicorn's HTTP protocol, which trusts nobody yet (FAULTS, malformed 17 to 20; RFC 9112).

What is refused here never reaches the application: heads that are wrong or too large (`head`), framing that
does not parse, requests that stop half way (`pace`). Everything that arrives is bounded while it arrives. The
answer has OpenAI's shape, then the connection ends: after an error nobody knows where a next request begins.

There is one timer a connection, and only while a request is incomplete at the end of what came; one that
comes in a piece costs none.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from proxy.errors import (
    HeadersTooLarge,
    InvalidPath,
    RequestError,
    RequestTimeout,
    UnabridgedError,
    URITooLong,
)
from proxy.http.asgi import LINGER, error_answer
from proxy.http.front import request_id
from proxy.http.head import MAX_HEADER_BYTES, MAX_URI, check_head
from proxy.http.pace import Pace
from proxy.telemetry import log_request

if TYPE_CHECKING:
    from uvicorn.server import ServerState

MAX_FRAMING = 64 * 1024
"""Bytes of chunk extensions or trailers between two pieces of a body."""
MAX_UNFINISHED_HEAD = MAX_URI + MAX_HEADER_BYTES + 16 * 1024
"""Bytes of a head without its end, line ends and blanks included."""

_IDLE, _BLANK, _HEAD, _BODY = range(4)
"""Between requests, before one's first letter, in its head, in its body."""


class GuardedConfig(uvicorn.Config):
    """uvicorn's settings, and those of the guard."""

    request_timeout: float
    """Seconds (`proxy.http.pace`)."""


class WireGuard(HttpToolsProtocol):
    """One connection of a client."""

    parser: httptools.HttpRequestParser

    def __init__(
        self,
        config: GuardedConfig,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._phase = _IDLE
        self._framing = 0
        """Bytes since the last of a body, or of a request."""
        self._pace: Pace | None = None
        """That of the head or body that is incomplete, once it was found to be."""
        self._timeout = config.request_timeout
        self._timer: asyncio.TimerHandle | None = None
        self._running: RequestResponseCycle | None = None
        self._is_deaf = False
        """Whether what comes from now on is thrown away."""
        self._refusal: UnabridgedError | None = None
        """What is still to be answered, after the answers that are under way."""
        self._plain_head = b""
        """A head without its offer to change the protocol."""

    # --- the connection ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        if self._running is not None:
            _leave(self._running)  # uvicorn tells only the newest of pipelined requests
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        self._framing += len(data)
        if self._phase == _IDLE:
            self._phase = _BLANK
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_plainly(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(_in_our_words(error))
        if self._phase != _IDLE and not self._is_deaf:
            self._watch(len(data))

    def _await_request(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    # --- what the parser finds ---

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = _HEAD

    def on_headers_complete(self) -> None:
        check_head(self.parser.get_http_version(), self.url, self.headers)
        if not self.parser.should_upgrade():
            super().on_headers_complete()
        elif self.parser.get_method() == b"CONNECT":
            raise InvalidPath("There is no tunnel here.")
        elif self._offers(b"websocket"):
            super().on_headers_complete()
            self.cycle.keep_alive = False
        else:
            self._plain_head = self._without_upgrade()
            return
        self._enter(_BODY)
        self.headers = []  # what follows the body is no header of the request

    def on_body(self, body: bytes) -> None:
        self._framing = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._plain_head:
            return
        super().on_message_complete()
        self._enter(_IDLE)
        if self.cycle.response_complete:
            self._await_request()

    def _enter(self, phase: int) -> None:
        self._phase = phase
        self._framing = 0
        self._pace = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    # --- offers to change the protocol (RFC 9110 7.8) ---

    def _offers(self, protocol: bytes) -> bool:
        return any(name == b"upgrade" and value.lower() == protocol for name, value in self.headers)

    def _without_upgrade(self) -> bytes:
        line = b"%b %b HTTP/1.1\r\n" % (self.parser.get_method(), self.url)
        kept = (header for header in self.headers if header[0] != b"upgrade")
        return line + b"".join(b"%b: %b\r\n" % header for header in kept) + b"\r\n"

    def _go_on_plainly(self, rest: bytes) -> None:
        """Read a request whose offer is not taken: the parser stops at such a head, and would lose its body.

        Java's client offers h2c with each first request. What follows a WebSocket's head is not HTTP.
        """
        head, self._plain_head = self._plain_head, b""
        if head:
            self.data_received(head + rest)
        else:
            self._is_deaf = True

    # --- while a request is incomplete ---

    def _watch(self, size: int) -> None:
        """Bound what is incomplete, in bytes now and in time from now on."""
        if self._phase == _BODY and self._framing > MAX_FRAMING:
            self._refuse(RequestError("There is too much between the chunks of the body."))
        elif self._phase == _HEAD and len(self.url) > MAX_URI:
            self._refuse(URITooLong())
        elif self._phase != _BODY and self._framing > MAX_UNFINISHED_HEAD:
            self._refuse(HeadersTooLarge())
        else:
            if self._pace is None:
                self._pace = Pace(self._timeout, body=self._phase == _BODY)
            self._pace.heard(self.loop.time(), size, held_back=self.flow.read_paused)
            if self._timer is None:
                self._timer = self.loop.call_later(self._timeout, self._check_pace)

    def _check_pace(self) -> None:
        self._timer = None
        if self._pace is None:
            return
        if not self._pace.is_late(self.loop.time(), held_back=self._holds_back()):
            self._timer = self.loop.call_at(self._pace.due, self._check_pace)
        elif self._phase == _BLANK:
            self.transport.close()  # line ends and nothing else: there is no request to be answered
        else:
            self._refuse(RequestTimeout())

    def _holds_back(self) -> bool:
        """Whether the sender of a body waits for us."""
        return self.flow.read_paused or (self._phase == _BODY and self.cycle.waiting_for_100_continue)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- refusals ---

    def _refuse(self, error: UnabridgedError) -> None:
        """Answer with an error, in its turn, and end the connection."""
        self._is_deaf = True
        self._stop_timer()
        if self._phase == _BODY and not self.pipeline:
            self._give_up(error)
            return
        if self._phase == _BODY:
            self.pipeline.popleft()  # the newest: its body is at fault, and its turn has not come
        is_answering = self._running is not None and not self._running.response_complete
        if is_answering:
            self._refusal = error
        else:
            self._answer(error)

    def _give_up(self, error: UnabridgedError) -> None:
        """End a request that the application has begun to read."""
        _leave(self.cycle)
        if self.cycle.response_started:
            self.transport.close()
        else:
            self._answer(error)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._refusal is not None and self._running is not None and self._running.response_complete:
            self._answer(self._refusal)

    def _answer(self, error: UnabridgedError) -> None:
        """The last words of a connection. What is still being sent is thrown away for `LINGER`.

        Closing on unread bytes would reset the connection, and the answer with it.
        """
        if self.transport.is_closing():
            return
        name = request_id({})
        fields, body = error_answer(error, name, closes=True)
        status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n".encode()
        lines = b"".join(b"%b: %b\r\n" % field for field in fields)
        self.transport.write(b"%b%b\r\n%b" % (status, lines, body))
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._timer = self.loop.call_later(LINGER, self.transport.close)
        else:
            self.transport.close()
        log_request(route="wire", status=error.status, id=name, code=error.code)


def _leave(cycle: RequestResponseCycle) -> None:
    """Tell a request that nobody waits for its answer any more."""
    if not cycle.response_complete:
        cycle.disconnected = True
    cycle.message_event.set()


def _in_our_words(error: httptools.HttpParserError) -> UnabridgedError:
    """What the parser found, or what one of our own callbacks raised within it."""
    cause = error.__context__
    if isinstance(cause, UnabridgedError):
        return cause
    if isinstance(cause or error, httptools.HttpParserInvalidURLError):
        return InvalidPath()
    if isinstance(error, httptools.HttpParserCallbackError):
        raise error
    return RequestError(f"The request is not valid HTTP: {error}.")

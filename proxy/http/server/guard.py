"""The wire guard: uvicorn's HTTP protocol for untrusted clients (RFC 9112).

Requests refused here never reach the application: heads that are wrong or too large (`check_head`), framing
that does not parse, requests that stop half way (`Pace`). All data is limited while it arrives. The error has
OpenAI's shape, and then the connection is closed: after an error nobody knows where the next request begins.

Each connection has one timer, and only while a request is incomplete after a read; a request that arrives in
one piece costs none. When a client leaves, the running request is told by a call, even while other requests
wait behind it. A client that has closed only its own side is still answered.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import httptools
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from proxy import errors
from proxy.http.asgi import LINGER, error_answer
from proxy.http.limits import Pace
from proxy.http.request_head import MAX_HEADER_BYTES, MAX_URI, check_head, request_id
from proxy.http.server.cycle import NOWHERE, Cycle, JoinedWrites
from proxy.telemetry import log_request

if TYPE_CHECKING:
    from uvicorn.server import ServerState

MAX_FRAMING = 64 * 1024
"""Most bytes of chunk extensions or trailers between two pieces of a body."""
MAX_UNFINISHED_HEAD = MAX_URI + MAX_HEADER_BYTES + 16 * 1024
"""Most bytes of an unfinished head, line ends and blanks included."""
_HELD = 512 * 1024
"""Bytes of a request's body that are buffered before reading from its sender pauses: two reads."""
_MOMENT = 0.5
"""Seconds that a first request, or the rest of a head, may take when serving ends."""
_PROBE, _SELDOM = 0.02, 10.0
"""Seconds of silence after which a client that has closed its side is probed again. They triple after each
probe, up to the second number."""
_LENIENCE = 0.2
"""Longest wait (seconds) after which a client that cannot be probed is still taken to be there; 0.8 in
all."""

_IDLE, _BLANK, _HEAD, _BODY = range(4)
"""Phases: between requests, before a request's first letter, in its head, in its body."""


class WireGuard(HttpToolsProtocol):
    """One connection of a client."""

    parser: httptools.HttpRequestParser  # type: ignore[assignment]

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        request_timeout: float,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._phase = _IDLE
        self._framing = 0
        """Bytes since the last bytes of a body, or the last request."""
        self._pace: Pace | None = None
        """The pace of the incomplete head or body, once it was found to be incomplete."""
        self._timeout = request_timeout
        """Seconds (`Pace`)."""
        self._timer: asyncio.TimerHandle | None = None
        self._prober: asyncio.TimerHandle | None = None
        self._is_deaf = False
        """Whether all further input is discarded."""
        self._refusal: errors.UnabridgedError | None = None
        """The error still to be sent, after the answers in progress."""
        self._plain_head = b""
        """The head without its `Upgrade` header, to be parsed again."""
        self._is_ending = False
        self._running: Cycle | None = None
        """The request being answered, or the last one answered."""

    # --- the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # type: ignore[override]
        joined = JoinedWrites(cast("asyncio.Transport", transport), self.loop)
        super().connection_made(cast("asyncio.Transport", joined))
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unset_keepalive_if_required()
        for timer in (self._timer, self._prober):
            if timer is not None:
                timer.cancel()
        if self._running is not None:
            self._running.leave()
        self.pipeline.clear()
        super().connection_lost(exc)
        self.cycle = None  # type: ignore[assignment]  # which knows this connection

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self._unset_keepalive_if_required()
        self._framing += len(data)
        if self._phase == _IDLE:
            self._phase = _BLANK
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # An offer (RFC 9110 7.8) that is not accepted: the parser stops there, and loses the body. Java's
            # client offers h2c with each first request. What follows a WebSocket's head is not HTTP.
            head, self._plain_head = self._plain_head, b""
            if head:
                self.data_received(head + data[upgrade.args[0] :])
            else:
                self._is_deaf = True
        except httptools.HttpParserError as error:
            self._refuse(_in_our_words(error))
        if self._phase != _IDLE and not self._is_deaf:
            self._bound(len(data))

    def eof_received(self) -> bool:  # type: ignore[override]
        """Return whether the client is still answered after it closed its side.

        It may have closed the other side as well, which looks the same until something is written: then its
        host says so. While no data is ready, a byte is written that would be the next one anyway.
        """
        if self._phase == _BODY:  # its request will never be complete
            return False
        self._is_deaf = True
        self._stop_timer()
        self._enter(_IDLE)
        if not self._is_answering:
            return False
        self.cycle.keep_alive = False
        cast("JoinedWrites", self.transport).is_silent = True
        self._probe(_PROBE / 3)
        return True

    def _probe(self, wait: float) -> None:
        """Check whether the client is there, after so many seconds of silence."""
        transport = cast("JoinedWrites", self.transport)
        if self._running is None or not self._is_answering or transport.is_closing():
            return
        if not transport.is_silent or transport.get_write_buffer_size():
            transport.is_silent, wait = True, _PROBE
        elif self._running.probe() or wait <= _LENIENCE:
            wait = min(3 * wait, _SELDOM)
        else:
            transport.abort()
            return
        self._prober = self.loop.call_later(wait, self._probe, wait)

    def shutdown(self) -> None:
        """Close the connection, after the answer in progress or to a request that is arriving."""

        def end_if_nothing_has_come() -> None:
            if not self._is_answering:
                self.transport.close()

        self._is_ending = True
        if self._is_answering:
            self.cycle.keep_alive = False
        elif self._running is None or self._phase != _IDLE:  # nobody connects without sending a request
            self.loop.call_later(_MOMENT, end_if_nothing_has_come)
        else:
            self.transport.close()

    @property
    def _is_answering(self) -> bool:
        return self._running is not None and not self._running.cycle.response_complete

    def _await_request(self) -> None:
        """Start the keep-alive timer: no request is arriving or being answered."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )

    # --- what the parser finds ---

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._phase = _HEAD
        self._unset_keepalive_if_required()

    def on_headers_complete(self) -> None:
        parser = self.parser
        check_head(parser.get_http_version(), self.url, self.headers)
        if offers := parser.should_upgrade():
            if parser.get_method() == b"CONNECT":
                raise errors.InvalidPath("There is no tunnel here.")
            if not any(name == b"upgrade" and value.lower() == b"websocket" for name, value in self.headers):
                lines = [b"%b: %b\r\n" % header for header in self.headers if header[0] != b"upgrade"]
                line = b"%b %b HTTP/1.1\r\n" % (parser.get_method(), self.url)
                self._plain_head = b"".join([line, *lines, b"\r\n"])
                return
        super().on_headers_complete()
        if offers or self._is_ending:
            self.cycle.keep_alive = False
        self._enter(_BODY)
        self.headers = []  # what follows the body is no header of the request

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._running = Cycle(cast("ASGIApp", app), cycle)
        super()._start_asgi_task(cycle, cast("ASGI3Application", self._running))

    def on_body(self, body: bytes) -> None:
        """Take a part of the body as uvicorn does, but do not copy a part that stands alone."""
        self._framing = 0
        cycle = self.cycle
        if cycle.response_complete or cycle.body is NOWHERE:
            return
        if not cycle.body:
            cycle.body = cast("bytearray", body)
        else:
            if type(cycle.body) is not bytearray:
                cycle.body = bytearray(cycle.body)
            cycle.body += body
        if len(cycle.body) > _HELD:
            self.flow.pause_reading()
        cycle.message_event.set()

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

    # --- while a request is incomplete ---

    def _bound(self, size: int) -> None:
        """Limit an incomplete request, in bytes now and in time from now on."""
        if self._phase == _BODY and self._framing > MAX_FRAMING:
            self._refuse(errors.RequestError("There is too much between the chunks of the body."))
        elif self._phase == _HEAD and len(self.url) > MAX_URI:
            self._refuse(errors.URITooLong())
        elif self._phase != _BODY and self._framing > MAX_UNFINISHED_HEAD:
            self._refuse(errors.HeadersTooLarge())
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
        # Whether the sender of a body is waiting for us.
        is_held = self.flow.read_paused or (self._phase == _BODY and self.cycle.waiting_for_100_continue)
        if not self._pace.is_late(self.loop.time(), held_back=is_held):
            self._timer = self.loop.call_at(self._pace.due, self._check_pace)
        elif self._phase == _BLANK and self._is_answering:
            self._enter(_IDLE)  # no request has begun, so none is late
        elif self._phase == _BLANK:
            self.transport.close()  # only line ends came: there is no request to answer
        else:
            self._refuse(errors.RequestTimeout())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- refusals ---

    def _refuse(self, error: errors.UnabridgedError) -> None:
        """Answer with an error, after the answers before it, and close the connection."""
        self._is_deaf = True
        self._stop_timer()
        if self._phase == _BODY and not self.pipeline and self._running is not None:
            has_begun = self.cycle.response_started
            if has_begun:
                self.transport.close()
            self._running.leave()  # the application has begun to read it
            if not has_begun:
                self._answer(error)
            return
        if self._phase == _BODY:
            self.pipeline.popleft()  # the newest: its body is at fault, and its turn has not come
        if self._is_answering:
            self._refusal = error
        else:
            self._answer(error)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._phase != _IDLE:
            self._unset_keepalive_if_required()
        if self._refusal is not None and not self._is_answering:
            self._answer(self._refusal)

    def _answer(self, error: errors.UnabridgedError) -> None:
        """Send a connection's last answer. Input that still arrives is discarded for `LINGER` seconds.

        Closing with unread bytes would reset the connection, and the answer would be lost.
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


def _in_our_words(error: httptools.HttpParserError) -> errors.UnabridgedError:
    """Return our error for a parser's error, or the one that one of our own callbacks raised in it."""
    cause = error.__context__
    if isinstance(cause, errors.UnabridgedError):
        return cause
    if isinstance(cause or error, httptools.HttpParserInvalidURLError):
        return errors.InvalidPath()
    if isinstance(error, httptools.HttpParserCallbackError):
        raise error
    return errors.RequestError(f"The request is not valid HTTP: {error}.")

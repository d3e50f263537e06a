"""The wire guard: uvicorn's HTTP protocol, which trusts nobody yet (RFC 9112).

What is refused here never reaches the application: heads that are wrong or too large (`head`), framing that
does not parse, requests that stop half way (`Pace`). Everything that arrives is bounded while it arrives. The
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
from proxy.http.server.connection import Connection
from proxy.http.server.head import MAX_HEADER_BYTES, MAX_URI, check_head
from proxy.telemetry import log_request

if TYPE_CHECKING:
    from uvicorn.server import ServerState


# --- how long an incomplete request may take ---


SLOWEST = 100
"""Bytes a second of a body, below which its sender holds a connection and uploads nothing."""


class Pace:
    """That of one head, or of one body: when its sender counts as gone. All times are in seconds.

    A head has `timeout` from its first byte to its end. A body may take as long as it likes while it makes
    progress: no silence of `timeout`, and `SLOWEST` bytes a second in each span of that length. While we are
    the ones who do not read, no time passes.
    """

    def __init__(self, timeout: float, *, body: bool) -> None:
        self._timeout = timeout
        self._is_body = body
        self._since = 0.0
        """When this head, or the span of a body that is looked at, began; 0 before its first byte."""
        self._heard = 0.0
        self._came = 0
        """Bytes of the span."""
        self._was_held_back = False
        """Whether we did not read at some time of the span."""

    def heard(self, now: float, size: int, *, held_back: bool) -> None:
        """Bytes have come; `held_back` says that no more will be read for now."""
        self._since = self._since or now
        self._heard = now
        self._came += size
        self._was_held_back = self._was_held_back or held_back

    def is_late(self, now: float, *, held_back: bool) -> bool:
        """Whether time is up; asked at `due`. Begins the next span where it is not."""
        if held_back or self._was_held_back:
            self._since = self._heard = now
            self._came, self._was_held_back = 0, held_back
            return False
        if not self._is_body:
            return now - self._since >= self._timeout
        if now - self._since >= self._timeout:
            if self._came < SLOWEST * self._timeout:
                return True
            self._since, self._came = now, 0
        return now - self._heard >= self._timeout

    @property
    def due(self) -> float:
        """When to ask next."""
        return (min(self._since, self._heard) if self._is_body else self._since) + self._timeout


# --- what is let in ---


_MOMENT = 0.5
"""Seconds that a first request, or the rest of a head, may take when serving ends."""
MAX_FRAMING = 64 * 1024
"""Bytes of chunk extensions or trailers between two pieces of a body."""
MAX_UNFINISHED_HEAD = MAX_URI + MAX_HEADER_BYTES + 16 * 1024
"""Bytes of a head without its end, line ends and blanks included."""

_IDLE, _BLANK, _HEAD, _BODY = range(4)
"""Between requests, before one's first letter, in its head, in its body."""


class GuardedConfig(uvicorn.Config):
    """uvicorn's settings, and those of the guard."""

    request_timeout: float
    """Seconds (`Pace`)."""


class WireGuard(Connection):
    """One connection of a client."""

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
        self._is_deaf = False
        """Whether what comes from now on is thrown away."""
        self._refusal: UnabridgedError | None = None
        """What is still to be answered, after the answers that are under way."""
        self._plain_head = b""
        """A head without its offer to change the protocol."""
        self._is_ending = False

    # --- the connection ---

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

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
            self._go_on_plainly(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(_in_our_words(error))
        if self._phase != _IDLE and not self._is_deaf:
            self._watch(len(data))

    def eof_received(self) -> bool:
        if self._phase == _BODY:  # what it has asked will never be whole
            return False
        self._is_deaf = True
        self._stop_timer()
        self._enter(_IDLE)
        return super().eof_received()

    def shutdown(self) -> None:
        """End the connection, after the answer that is under way, or to a request that is on its way."""
        self._is_ending = True
        if self.is_answering:
            self.cycle.keep_alive = False
        elif self.running is None or self._phase != _IDLE:  # nobody opens a connection to say nothing
            self.loop.call_later(_MOMENT, self._end)
        else:
            self.transport.close()

    def _end(self) -> None:
        """No request has come after all."""
        if not self.is_answering:
            self.transport.close()

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
                raise InvalidPath("There is no tunnel here.")
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

    def on_body(self, body: bytes) -> None:
        self._framing = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._plain_head:
            return
        super().on_message_complete()
        self._enter(_IDLE)
        if self.cycle.response_complete:
            self.await_request()

    def _enter(self, phase: int) -> None:
        self._phase = phase
        self._framing = 0
        self._pace = None

    def _go_on_plainly(self, rest: bytes) -> None:
        """Read a request whose offer (RFC 9110 7.8) is not taken: the parser stops there, and loses its body.

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
        elif self._phase == _BLANK and self.is_answering:
            self._enter(_IDLE)  # nor is there one that is late
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
        if self._phase == _BODY and not self.pipeline and self.running is not None:
            has_begun = self.cycle.response_started
            if has_begun:
                self.transport.close()
            self.running.leave()  # the application has begun to read it
            if not has_begun:
                self._answer(error)
            return
        if self._phase == _BODY:
            self.pipeline.popleft()  # the newest: its body is at fault, and its turn has not come
        if self.is_answering:
            self._refusal = error
        else:
            self._answer(error)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._phase != _IDLE:
            self._unset_keepalive_if_required()
        if self._refusal is not None and not self.is_answering:
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

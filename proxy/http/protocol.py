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

from proxy.errors import (
    HeadersTooLarge,
    InvalidPath,
    RequestError,
    RequestTimeout,
    UnabridgedError,
    URITooLong,
)
from proxy.http.asgi import LINGER, error_answer
from proxy.http.connection import Connection
from proxy.http.front import request_id
from proxy.http.head import MAX_HEADER_BYTES, MAX_URI, check_head
from proxy.http.headers import Header
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
        self._parser = httptools.HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # it is not read: `_is_deaf`
        self._url = b""
        self._headers: list[Header] = []
        self._expects_continue = False
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

    # --- the connection ---

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)
        del self._parser  # which holds what it tells

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            return
        self.idle_since = None
        self._framing += len(data)
        if self._phase == _IDLE:
            self._phase = _BLANK
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on_plainly(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._refuse(_in_our_words(error))
        if self._phase != _IDLE and not self._is_deaf:
            self._watch(len(data))

    def await_request(self) -> None:
        """Nothing is asked or answered, unless a request has come in part."""
        if self._phase == _IDLE:
            super().await_request()

    # --- what the parser finds ---

    def on_message_begin(self) -> None:
        self._url, self._headers, self._expects_continue = b"", [], False
        self._phase = _HEAD
        self.idle_since = None

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        parser, version = self._parser, self._parser.get_http_version()
        check_head(version, self._url, self._headers)
        keeps = version != "1.0" and parser.should_keep_alive()
        if parser.should_upgrade():
            if parser.get_method() == b"CONNECT":
                raise InvalidPath("There is no tunnel here.")
            if not self._offers(b"websocket"):
                self._plain_head = self._without_upgrade()
                return
            keeps = False
        self.begin(
            parser, self._url, self._headers, keep_alive=keeps, expects_continue=self._expects_continue
        )
        self._enter(_BODY)
        self._headers = []  # what follows the body is no header of the request

    def on_body(self, body: bytes) -> None:
        self._framing = 0
        self.cycle.feed(body)

    def on_message_complete(self) -> None:
        if self._plain_head:
            return
        self.cycle.feed_end()
        self._enter(_IDLE)
        if self.cycle.is_complete:
            self.await_request()

    def _enter(self, phase: int) -> None:
        self._phase = phase
        self._framing = 0
        self._pace = None

    # --- offers to change the protocol (RFC 9110 7.8) ---

    def _offers(self, protocol: bytes) -> bool:
        return any(name == b"upgrade" and value.lower() == protocol for name, value in self._headers)

    def _without_upgrade(self) -> bytes:
        line = b"%b %b HTTP/1.1\r\n" % (self._parser.get_method(), self._url)
        kept = (header for header in self._headers if header[0] != b"upgrade")
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
        elif self._phase == _HEAD and len(self._url) > MAX_URI:
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
        return self.flow.read_paused or (self._phase == _BODY and self.cycle.expects_continue)

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
            self.pipeline.pop()  # the newest: its body is at fault, and its turn has not come
        if self.is_answering:
            self._refusal = error
        else:
            self._answer(error)

    def _give_up(self, error: UnabridgedError) -> None:
        """End a request that the application has begun to read."""
        cycle = self.cycle
        if cycle.has_begun:
            cycle.cut()
            cycle.leave()
        else:
            cycle.leave()
            self._answer(error)

    def on_response_complete(self) -> None:
        super().on_response_complete()
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

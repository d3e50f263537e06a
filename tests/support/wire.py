"""One connection to the wire guard, without a socket: bytes in, bytes out."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from proxy.http.server import server_config
from proxy.http.server.guard import WireGuard

HOST = b"Host: a\r\n"
POST = b"POST /v1/x HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /v1/x HTTP/1.1\r\n" + HOST + b"\r\n"
KIB = 1024


class Wire(asyncio.Transport):
    """A transport that records what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.writes = 0
        self.is_ended = False
        self.is_closed = False
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        assert not self.is_ended, "something was written after the end"
        self.written += data
        self.writes += 1

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_ended = True

    def close(self) -> None:
        self.is_ended = self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_ended

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


@dataclass
class OpenTurn:
    """A request as the application got it."""

    scope: Scope
    body: bytes = b""
    is_abandoned: bool = False

    @property
    def names(self) -> list[bytes]:
        return [name for name, _ in self.scope["headers"]]


@dataclass
class Connection:
    """A connection to an application that reads each request, and answers once the test allows it."""

    wire: Wire = field(default_factory=Wire)
    asked: list[OpenTurn] = field(default_factory=list[OpenTurn])
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    keep_alive: float = 75
    is_left: bool = False

    def __post_init__(self) -> None:
        self.may_answer.set()
        config = server_config(self.answer, request_timeout=15.0)
        config.timeout_keep_alive = self.keep_alive  # type: ignore[assignment]
        self.guard = WireGuard(config, ServerState(), {}, asyncio.get_running_loop(), request_timeout=15.0)
        self.guard.connection_made(self.wire)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = OpenTurn(scope)
        self.asked.append(asked)
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                asked.is_abandoned = True
                return
            asked.body += message["body"]
            more = message["more_body"]
        await self.may_answer.wait()
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})

    async def say(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.guard.data_received(piece)
        await settled()

    async def leave(self) -> None:
        if not self.is_left:
            self.is_left = True
            self.guard.connection_lost(None)
        await settled()

    @property
    def statuses(self) -> list[int]:
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", self.wire.written)]

    @property
    def code(self) -> str:
        """The code of the last answer, which is an error of ours."""
        head, _, body = self.wire.written.rpartition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert re.search(rb"x-request-id: req-\S+\r\n", head)
        assert b"content-length: %d\r\n" % len(body) in head
        error: dict[str, str] = json.loads(body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error["code"]


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


Connect = Callable[[], Connection]


def cuts(request: bytes) -> Iterable[tuple[bytes, ...]]:
    """Return the request whole, split at each offset, and byte by byte."""
    yield (request,)
    yield from ((request[:at], request[at:]) for at in range(1, len(request)))
    yield tuple(request[at : at + 1] for at in range(len(request)))

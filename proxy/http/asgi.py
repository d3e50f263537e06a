"""Helpers for raw ASGI: the client's presence, request bodies, and error answers.

Raw, because a framework's Request and Response cost more than all other work on a request, and because a
relay must not change bytes. Bodies are read under a limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractContextManager, suppress
from typing import Protocol

import msgspec
from starlette.types import Message, Receive, Scope, Send

from proxy.core.formats.unpacking import CODINGS, UnpackedTooLargeError, Unpacker, UnpackingError
from proxy.errors import InvalidEncoding, RequestTooLarge, UnabridgedError, UnsupportedMediaType
from proxy.http.limits import Permit
from proxy.http.request_head import request_id
from proxy.ports import Header

LINGER = 1.0
"""Seconds for which an unread body is read and discarded, so that its sender comes to read the answer."""

OFF_LOOP = 16 * 1024
"""Bytes of a compressed body from which on it is decoded in a thread: it may take long."""

CLIENT = "unabridged.client"
"""The scope key of the `Client`, which our server sets for what ASGI cannot express."""


class Client(AbstractContextManager[object, None], Protocol):
    """The sender of a request. ``with client:`` cancels the enclosed code once the client leaves.

    ClientDisconnected is then raised in place of the cancellation, as `asyncio.timeout` raises TimeoutError.
    """

    def whole_body(self) -> bytes | None:
        """Return the body if it is complete already; then there is nothing to receive."""
        ...

    def put_back(self, body: bytes) -> None:
        """Let the whole body, which has been read, be read again."""
        ...

    def discard(self) -> None:
        """Discard the rest of the body as it arrives, so that its sender is not held up."""
        ...


class ClientDisconnected(Exception):  # noqa: N818 - an event, not an error: nobody is left to be answered
    """The client has left."""


class Upload:
    """A request's body as a stream; if it is not read to its end, `client` discards the rest."""

    def __init__(self, receive: Receive, client: Client, *, has_body: bool) -> None:
        self._receive = receive
        self._client = client
        self.unread = has_body
        """Whether some of the body may still arrive."""

    def body(self) -> bytes | AsyncGenerator[bytes] | None:
        """Return the body at once if it is complete, else as it arrives; None where there is none."""
        if not self.unread:
            return None
        whole = self._client.whole_body()
        if whole is None:
            return self.parts()
        self.unread = False
        return whole

    async def parts(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives; it is read only on request (raises ClientDisconnected)."""
        try:
            while self.unread:
                part, self.unread = await _part(self._receive)
                if part:
                    yield part
        finally:
            if self.unread:
                self._client.discard()


async def read_body(receive: Receive, limit: int, permit: Permit, content_length: int | None = None) -> bytes:
    """Read a whole body of at most `limit` bytes, taking room from `permit` as they arrive.

    Raises RequestTooLarge and Overloaded (by `content_length` before anything is read), ClientDisconnected.
    """
    if content_length is not None:
        if content_length > limit:
            raise RequestTooLarge
        permit.expect(content_length)
    parts: list[bytes] = []
    size = 0
    more = True
    while more:
        part, more = await _part(receive)
        size += len(part)
        if size > limit:
            raise RequestTooLarge
        permit.take(len(part))
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _part(receive: Receive) -> tuple[bytes, bool]:
    """Return the next part of a body, and whether more will come."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnected
    return message.get("body", b""), message.get("more_body", False)


async def decode_body(body: bytes, content_encoding: bytes | None, limit: int) -> bytes:
    """Decode a body by its Content-Encoding (gzip, deflate), to at most `limit` bytes.

    Raises RequestTooLarge for one that unpacks to more, InvalidEncoding for one that does not unpack, and
    UnsupportedMediaType for other encodings (RFC 9110 15.5.16).
    """
    coding = (content_encoding or b"").strip().lower()
    if coding in {b"", b"identity"}:
        return body
    if coding not in CODINGS:
        raise UnsupportedMediaType("This Content-Encoding is not understood; gzip and deflate are.")
    if len(body) < OFF_LOOP:
        return _unpacked(body, coding, limit)
    return await asyncio.to_thread(_unpacked, body, coding, limit)


def _unpacked(body: bytes, coding: bytes, limit: int) -> bytes:
    for is_bare in (False, True) if coding == b"deflate" else (False,):
        unpacker = Unpacker(coding, limit, is_bare=is_bare)
        try:
            plain = unpacker.feed(body)
        except UnpackedTooLargeError as error:
            raise RequestTooLarge from error
        except UnpackingError:
            continue
        if unpacker.is_whole or not body:
            return plain
    raise InvalidEncoding(f"The body is not valid {coding.decode()}.")


def error_answer(
    error: UnabridgedError, request_id: str, *, closes: bool = False
) -> tuple[list[Header], bytes]:
    """Return headers and body of one of our errors in OpenAI's shape; `closes` adds `connection: close`."""
    body = msgspec.json.encode(error.body())
    fields = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode("latin-1")),
    ]
    if error.retry_after is not None:
        fields.append((b"retry-after", b"%d" % error.retry_after))
    if closes:
        fields.append((b"connection", b"close"))
    return fields, body


async def send_error(
    scope: Scope, send: Send, error: UnabridgedError, *, unread: Receive | None = None
) -> None:
    """Answer with one of our errors, in OpenAI's shape.

    `unread` receives the rest of a body that was not read: the connection is closed after the answer, and
    until then (at most `LINGER`) the rest is discarded, since closing with unread bytes would reset the
    connection and lose the answer.
    """
    fields, body = error_answer(error, request_id(scope), closes=unread is not None)
    await send({"type": "http.response.start", "status": error.status, "headers": fields})
    if unread is not None:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        body = b""
        with suppress(TimeoutError, ClientDisconnected):
            async with asyncio.timeout(LINGER):
                while (await _part(unread))[1]:
                    pass
    await send({"type": "http.response.body", "body": body, "more_body": False})


def with_headers(send: Send, *added: Header) -> Send:
    """Return a `send` that adds these headers to the answer."""

    async def send_them(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), *added]
        await send(message)

    return send_them

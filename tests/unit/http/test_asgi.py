from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Sequence
from contextlib import aclosing

import pytest
from starlette.types import Message, Receive, Scope

from proxy.errors import InvalidEncoding, Overloaded, RequestTooLarge, UnsupportedMediaType
from proxy.http.asgi import (
    OFF_LOOP,
    ClientDisconnected,
    Upload,
    decode_body,
    read_body,
    send_error,
)
from proxy.http.limits import Permit
from proxy.http.request_head import request_id, require_json
from tests.support.admission import admission

GONE: Message = {"type": "http.disconnect"}
ROOMY = Permit(admission())


def part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def receiving(*messages: Message) -> Receive:
    """The messages in turn, then none for ever."""
    left = list(messages)

    async def receive() -> Message:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive


class Sent:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.said_all = asyncio.Event()

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)
        if len(self.messages) == 2:
            self.said_all.set()

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.messages[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])


# --- bodies under a limit ---


@pytest.mark.parametrize("parts", [(b"whole",), (b"wh", b"ole"), (b"", b"whole", b"")])
async def test_a_body_is_the_sum_of_its_parts(parts: Sequence[bytes]) -> None:
    messages = [part(data, more=n < len(parts) - 1) for n, data in enumerate(parts)]
    assert await read_body(receiving(*messages), 5, ROOMY) == b"whole"


async def test_a_body_announced_too_large_is_refused_before_it_is_read() -> None:
    async def receive() -> Message:
        raise AssertionError

    with pytest.raises(RequestTooLarge):
        await read_body(receive, 5, ROOMY, content_length=6)


async def test_a_body_that_becomes_too_large_is_refused_at_that_point() -> None:
    with pytest.raises(RequestTooLarge):
        await read_body(receiving(part(b"abc"), part(b"def")), 5, ROOMY)


async def test_a_body_that_its_client_abandons_is_no_body() -> None:
    with pytest.raises(ClientDisconnected):
        await read_body(receiving(part(b"abc"), GONE), 5, ROOMY)


# --- encodings ---


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize("size", [0, 1, OFF_LOOP * 4])
@pytest.mark.parametrize(
    ("coding", "pack"),
    [
        (b"gzip", gzip.compress),
        (b"X-GZIP", gzip.compress),
        (b"deflate", zlib.compress),
        (b"deflate", raw_deflate),
        (b"identity", bytes),
        (None, bytes),
    ],
)
async def test_an_encoded_body_is_unpacked(coding: bytes | None, pack: type[bytes], size: int) -> None:
    body = bytes(n * n % 251 for n in range(size))
    assert await decode_body(pack(body), coding, size) == body


async def test_a_gzip_body_may_have_several_members() -> None:
    assert await decode_body(gzip.compress(b"one", mtime=0) + gzip.compress(b"two"), b"gzip", 6) == b"onetwo"


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
async def test_a_body_that_unpacks_to_more_than_the_limit_is_too_large(coding: bytes) -> None:
    pack = gzip.compress if coding == b"gzip" else zlib.compress
    with pytest.raises(RequestTooLarge):
        await decode_body(pack(bytes(20_000_000)), coding, 1_000_000)
    with pytest.raises(RequestTooLarge):
        await decode_body(pack(b"123456"), coding, 5)


@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
@pytest.mark.parametrize(
    "body", [b"{}", b"\x1f\x8b", gzip.compress(b"abc", mtime=0)[:-4], gzip.compress(b"a", mtime=0) + b"junk"]
)
async def test_a_body_that_does_not_unpack_is_refused(coding: bytes, body: bytes) -> None:
    with pytest.raises(InvalidEncoding):
        await decode_body(body, coding, 1000)


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"gzip, gzip"])
async def test_other_encodings_are_not_understood(coding: bytes) -> None:
    with pytest.raises(UnsupportedMediaType):
        await decode_body(b"x", coding, 1000)


@pytest.mark.parametrize(
    "content_type",
    [None, b"", b"application/json", b"Application/JSON; charset=utf-8", b"application/vnd.api+json"],
)
def test_json_by_any_of_its_names_is_welcome(content_type: bytes | None) -> None:
    require_json(content_type)


@pytest.mark.parametrize(
    "content_type",
    [b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x", b"text/x+json"],
)
def test_other_media_types_are_refused(content_type: bytes) -> None:
    with pytest.raises(UnsupportedMediaType):
        require_json(content_type)


# --- errors ---


async def test_an_error_has_openais_shape_and_names_the_request() -> None:
    sent = Sent()
    scope: Scope = {}
    await send_error(scope, sent, Overloaded())
    assert sent.messages[0]["status"] == 503
    assert sent.headers == {
        b"content-type": b"application/json",
        b"content-length": b"%d" % len(sent.body),
        b"x-request-id": request_id(scope).encode(),
        b"retry-after": b"1",
    }
    assert json.loads(sent.body) == Overloaded().body()
    assert sent.messages[-1]["more_body"] is False


async def test_the_connection_of_an_unread_body_is_closed_once_its_sender_could_read_the_answer() -> None:
    sent = Sent()
    arrived = asyncio.Event()
    later = [part(b"b"), part(b"c", more=False)]

    async def receive() -> Message:
        await arrived.wait()
        return later.pop(0)

    answering = asyncio.create_task(send_error({}, sent, RequestTooLarge(), unread=receive))
    await sent.said_all.wait()
    assert sent.headers[b"connection"] == b"close"
    assert len(sent.body) == int(sent.headers[b"content-length"])
    assert not answering.done()
    arrived.set()
    await answering
    assert later == []
    assert sent.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


# --- uploads ---


class Somebody:
    """A client, as the server tells of it."""

    def __init__(self, *, whole: bytes | None = None) -> None:
        self.whole = whole
        self.is_let_go = False

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def whole_body(self) -> bytes | None:
        return self.whole

    def put_back(self, body: bytes) -> None:
        self.whole = body

    def discard(self) -> None:
        self.is_let_go = True


async def test_an_upload_is_read_as_it_comes() -> None:
    client = Somebody()
    upload = Upload(receiving(part(b"a"), part(b"b", more=False)), client, has_body=True)
    assert [data async for data in upload.parts()] == [b"a", b"b"]
    assert (upload.unread, client.is_let_go) == (False, False)


async def test_an_upload_that_came_with_its_head_is_taken_at_once() -> None:
    upload = Upload(receiving(), Somebody(whole=b"ab"), has_body=True)
    assert upload.body() == b"ab"
    assert (upload.unread, upload.body()) == (False, None)


async def test_the_sender_of_an_upload_that_is_given_up_half_way_need_not_wait_with_the_rest() -> None:
    client = Somebody()
    upload = Upload(receiving(part(b"a"), part(b"b"), part(b"c", more=False)), client, has_body=True)
    async with aclosing(upload.parts()) as parts:
        assert await anext(parts) == b"a"
    assert (upload.unread, client.is_let_go) == (True, True)

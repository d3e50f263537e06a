"""An upstream whose head, or what stands between the pieces of its body, never ends: it is refused early."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import pytest

from proxy.adapters.upstream import HttptoolsUpstream
from proxy.adapters.upstream.connection import HEAD_BYTES, HEAD_FIELDS
from proxy.errors import UpstreamInvalidResponse, UpstreamTimeout
from proxy.ports import Upstream
from tests.support.servers import PATIENCE, Exchange, FakeUpstream, eventually

OK = b"HTTP/1.1 200 OK\r\n"
BODY = OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n"
HEADS = {
    "a status": (b"HTTP/1.1 200 ", b"a" * 65536),
    "a name": (OK, b"a" * 65536),
    "a value": (OK + b"X-A: ", b"a" * 65536),
    "headers": (OK, b"X-A: b\r\n" * 8000),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2000),
    "103 Early Hints": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" * 2000),
}
BODIES = {
    "a chunk extension": (BODY + b"1;a=", b"a" * 65536),
    "a trailer": (BODY + b"0\r\nX-A: ", b"a" * 65536),
    "trailers": (BODY + b"0\r\n", b"X-A: b\r\n" * 8000),
}
BYTE = 0.2
"""Seconds from one byte to the next of an upstream that lets its answer trickle in."""
BUFFERED = 32 * 2**20
"""Bytes that sockets may take before anybody reads them."""


class Endless:
    """Says a beginning, then the same for ever."""

    def __init__(self, begin: bytes, again: bytes) -> None:
        self._begin, self._again = begin, again
        self.sent = 0

    async def __call__(self, exchange: Exchange) -> None:
        await exchange.raw(self._begin)
        while True:
            await exchange.raw(self._again)
            self.sent += len(self._again)


@pytest.fixture
async def upstream(make: Callable[..., Upstream]) -> AsyncIterator[Upstream]:
    async with aclosing(make(read_timeout=PATIENCE)) as made:
        yield made


@pytest.mark.parametrize("kind", HEADS)
async def test_a_head_without_end_is_no_answer(server: FakeUpstream, upstream: Upstream, kind: str) -> None:
    server.script = script = Endless(*HEADS[kind])
    with pytest.raises(UpstreamInvalidResponse):
        await upstream.send("GET", "/models", [], None)
    await eventually(lambda: server.open_connections == 0)
    assert script.sent < BUFFERED


@pytest.mark.parametrize("kind", BODIES)
async def test_what_never_ends_between_two_pieces_of_a_body_ends_the_answer(
    server: FakeUpstream, upstream: Upstream, kind: str
) -> None:
    server.script = script = Endless(*BODIES[kind])
    response = await upstream.send("GET", "/models", [], None)
    chunks = response.chunks()
    assert await anext(chunks) == b"a"
    with pytest.raises(UpstreamInvalidResponse):
        await anext(chunks)
    await response.aclose()
    await eventually(lambda: server.open_connections == 0)
    assert script.sent < BUFFERED


SECRET = OK + b"X-A: sk-secret"
WRONG = {
    "no HTTP": (b"\x16\x03\x01 sk-secret\r\n\r\n", "not valid HTTP"),
    "a header without a name": (OK + b": sk-secret\r\n\r\n", "not valid HTTP"),
    "a control character": (SECRET + b"\x01\r\nContent-Length: 0\r\n\r\n", "a control|not valid HTTP"),
    "a status that there is not": (b"HTTP/1.1 600 sk-secret\r\nContent-Length: 0\r\n\r\n", "status 600"),
    "too many headers": (SECRET + b"\r\nX-A: b" * 500 + b"\r\n\r\n", "more than 500 fields"),
    "far too many headers": (SECRET + b"\r\nX-A: b" * 60_000, "more than 500 fields|head (too large|larger)"),
    "an end within the head": (SECRET, r"after \d\d bytes of the head|before the answer was complete"),
}


@pytest.mark.parametrize("kind", WRONG)
async def test_the_log_says_what_is_wrong_with_an_answer_and_nothing_of_what_it_holds(
    server: FakeUpstream, upstream: Upstream, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    raw, wrong = WRONG[kind]

    async def script(exchange: Exchange) -> None:
        await exchange.raw(raw)
        exchange.close()

    server.script = script
    with pytest.raises(UpstreamInvalidResponse):
        await upstream.send("GET", "/models", [], None)
    (told,) = [record for record in caplog.records if record.getMessage() == "the upstream failed"]
    fields: dict[str, str] = vars(told)["fields"]
    assert fields["code"] == "upstream_invalid_response"
    assert fields["host"] in server.url
    assert re.match(wrong, fields["detail"])
    assert "secret" not in str(fields)


async def test_the_log_says_how_much_of_a_head_is_too_much(
    server: FakeUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    async with aclosing(HttptoolsUpstream(server.url)) as upstream:
        for begin, again in HEADS.values():
            caplog.clear()
            server.script = Endless(begin, again)
            with pytest.raises(UpstreamInvalidResponse):
                await upstream.send("GET", "/models", [], None)
            detail: str = vars(caplog.records[-1])["fields"]["detail"]
            assert detail in {f"head larger than {HEAD_BYTES} bytes", f"more than {HEAD_FIELDS} fields"}


@pytest.mark.parametrize("again", [b"a", b"HTTP/1.1 103 Early Hints\r\n\r\n"], ids=["bytes", "hints"])
async def test_a_head_that_trickles_in_for_longer_than_a_first_byte_may_take_is_none(
    server: FakeUpstream, make: Callable[..., Upstream], again: bytes
) -> None:
    body = b"Content-Length: 4\r\n\r\n"

    async def script(exchange: Exchange) -> None:
        if exchange.request.target == "/slow":
            for piece in (OK, body, *[b"a"] * 4):
                await exchange.raw(piece)
                await asyncio.sleep(BYTE)
            return
        await exchange.raw(b"" if b"\r" in again else OK + b"X-A: ")
        for _ in range(20):
            await exchange.raw(again)
            await asyncio.sleep(BYTE)
        await exchange.raw((OK if b"\r" in again else b"\r\n") + body + b"a" * 4)

    server.script = script
    async with aclosing(make(read_timeout=4 * BYTE)) as upstream:
        async with aclosing(await upstream.send("GET", "/slow", [], None)) as response:
            assert b"".join([chunk async for chunk in response.chunks()]) == b"a" * 4
        with pytest.raises(UpstreamTimeout):
            await upstream.send("GET", "/models", [], None)
        await eventually(lambda: server.open_connections == 0)


async def answered(server: FakeUpstream, upstream: Upstream, raw: bytes) -> tuple[int, bytes]:
    """The number of headers, and the body, of an answer that is these bytes."""

    async def script(exchange: Exchange) -> None:
        await exchange.raw(raw)

    server.script = script
    async with aclosing(await upstream.send("GET", "/models", [], None)) as response:
        return len(response.headers), b"".join([chunk async for chunk in response.chunks()])


async def test_as_many_headers_as_may_be_are_taken_and_one_more_is_not(
    server: FakeUpstream, upstream: Upstream
) -> None:
    length = b"Content-Length: 2\r\n"
    most = OK + b"X-A: b\r\n" * (HEAD_FIELDS - 1) + length + b"\r\nok"
    assert await answered(server, upstream, most) == (HEAD_FIELDS, b"ok")
    with pytest.raises(UpstreamInvalidResponse):
        await answered(server, upstream, most.replace(OK, OK + b"X-A: b\r\n"))


async def test_a_head_of_nearly_the_most_bytes_is_taken_and_a_larger_one_is_not(server: FakeUpstream) -> None:
    async with aclosing(HttptoolsUpstream(server.url)) as upstream:
        large = OK + b"Content-Length: 2\r\nX-A: %b\r\n\r\nok" % (b"a" * (HEAD_BYTES - 200))
        assert await answered(server, upstream, large) == (2, b"ok")
        with pytest.raises(UpstreamInvalidResponse):
            await answered(server, upstream, large.replace(b"X-A: ", b"X-A: " + b"a" * 200))


async def test_some_informational_answers_and_any_number_of_chunks_are_as_good_as_ever(
    server: FakeUpstream, upstream: Upstream
) -> None:
    hints = b"HTTP/1.1 100 Continue\r\n\r\n" + b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" * 20
    chunks = b"1;a=%b\r\na\r\n" % (b"b" * 200) * 3000
    body = OK + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\nX-A: b\r\n\r\n"
    for _ in range(2):
        assert await answered(server, upstream, hints + body) == (1, b"a" * 3000)
    assert server.connections == 1

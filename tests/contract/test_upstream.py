"""What every Upstream keeps: bytes as they are, faults in our own words, connections that neither leak nor
mix up answers.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from proxy.adapters.upstream import HttptoolsUpstream, HttpxUpstream
from proxy.errors import (
    InvalidHeader,
    UnabridgedError,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.ports import Upstream
from tests.support.answers import get, whole
from tests.support.servers import Exchange, FakeUpstream, Script, eventually

CERTIFICATE = Path(__file__).parent / "certificate" / "certificate.pem"
UPSTREAMS: list[Callable[..., Upstream]] = [HttptoolsUpstream, HttpxUpstream]


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


# --- the request ---


async def test_the_base_url_stands_for_the_clients_v1(server: FakeUpstream, upstream: Upstream) -> None:
    await whole(await upstream.send("GET", "/files/a%2Bb%20c/../%7e?x=1&y=%41&z", [], None))
    assert server.requests[0].target == "/base/v1/files/a%2Bb%20c/../%7e?x=1&y=%41&z"


async def test_host_is_the_upstreams_and_nothing_else_is_added(
    server: FakeUpstream, upstream: Upstream
) -> None:
    await whole(await upstream.send("GET", "/models", [(b"host", b"elsewhere"), (b"x-a", b"1")], None))
    assert server.requests[0].headers == [(b"host", b"127.0.0.1:%d" % server.port), (b"x-a", b"1")]


async def test_repeated_headers_keep_their_order_their_case_and_their_bytes(
    server: FakeUpstream, upstream: Upstream
) -> None:
    headers = [(b"X-B", b"1"), (b"x-a", b"caf\xe9"), (b"X-B", b"2"), (b"cookie", b"a=1"), (b"cookie", b"b=2")]
    await whole(await upstream.send("GET", "/models", headers, None))
    assert server.requests[0].headers[1:] == headers


async def test_a_body_of_bytes_has_its_own_length_whatever_the_headers_say(
    server: FakeUpstream, upstream: Upstream
) -> None:
    headers = [(b"content-length", b"999"), (b"transfer-encoding", b"chunked")]
    await whole(await upstream.send("POST", "/x", headers, b'{"a": "\xc3\xa9"}'))
    request = server.requests[0]
    assert request.values("content-length") == [b"11"]
    assert request.values("transfer-encoding") == []
    assert bytes(request.raw_body) == b'{"a": "\xc3\xa9"}'


async def test_a_stream_without_a_length_is_chunked(server: FakeUpstream, upstream: Upstream) -> None:
    await whole(await upstream.send("POST", "/x", [], pieces(b"one", b"two")))
    assert server.requests[0].values("transfer-encoding") == [b"chunked"]
    assert bytes(server.requests[0].body) == b"onetwo"


async def test_a_stream_of_known_length_keeps_it(server: FakeUpstream, upstream: Upstream) -> None:
    await whole(await upstream.send("POST", "/x", [(b"content-length", b"6")], pieces(b"one", b"two")))
    assert server.requests[0].values("transfer-encoding") == []
    assert bytes(server.requests[0].raw_body) == b"onetwo"


async def test_an_empty_body_stays_announced(server: FakeUpstream, upstream: Upstream) -> None:
    await whole(await upstream.send("POST", "/x", [(b"content-length", b"0")], None))
    assert server.requests[0].values("content-length") == [b"0"]


async def test_a_header_that_cannot_be_sent_is_the_requests_fault(upstream: Upstream) -> None:
    with pytest.raises(InvalidHeader):
        await upstream.send("GET", "/models", [(b"x-a", b"1\r\nx-b: 2")], None)


async def test_an_exception_of_the_body_comes_out_as_it_is(server: FakeUpstream, upstream: Upstream) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise LookupError

    with pytest.raises(LookupError):
        await upstream.send("POST", "/x", [], broken())
    await eventually(lambda: server.open_connections == 0)


# --- the answer ---


async def test_an_answer_is_given_as_it_is(server: FakeUpstream, upstream: Upstream) -> None:
    headers = [
        (b"Set-Cookie", b"a=1"),
        (b"X-Odd", b"\xe9"),
        (b"Set-Cookie", b"b=2"),
        (b"Content-Encoding", b"gzip"),
    ]

    async def script(exchange: Exchange) -> None:
        await exchange.answer(429, headers, b"\x1f\x8bnot really")

    server.script = script
    response = await upstream.send("GET", "/models", [], None)
    assert response.status == 429
    assert list(response.headers)[:-1] == headers
    assert await whole(response) == b"\x1f\x8bnot really"


async def test_redirects_are_not_followed(server: FakeUpstream, upstream: Upstream) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.answer(307, [(b"Location", b"/elsewhere")])

    server.script = script
    response = await upstream.send("POST", "/x", [(b"authorization", b"Bearer key")], b"{}")
    await whole(response)
    assert response.status == 307
    assert len(server.requests) == 1


async def test_a_chunk_is_there_before_the_next_is_sent(server: FakeUpstream, upstream: Upstream) -> None:
    seen = asyncio.Event()

    async def script(exchange: Exchange) -> None:
        await exchange.start()
        await exchange.chunk(b"first")
        await seen.wait()
        await exchange.chunk(b"second")
        await exchange.end()

    server.script = script
    response = await upstream.send("GET", "/x", [], None)
    chunks = response.chunks()
    assert await anext(chunks) == b"first"
    seen.set()
    assert await anext(chunks) == b"second"
    assert await whole(response) == b""


async def test_a_body_without_length_ends_with_its_connection(
    server: FakeUpstream, upstream: Upstream
) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        exchange.close()

    server.script = script
    assert await get(upstream) == b"all of it"


async def test_informational_answers_are_not_the_answer(server: FakeUpstream, upstream: Upstream) -> None:
    async def script(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        await exchange.answer(200, body=b"final")

    server.script = script
    assert await get(upstream) == b"final"


# --- faults ---


def raw(data: bytes, *, reset: bool = False) -> Script:
    async def script(exchange: Exchange) -> None:
        await exchange.body()
        await exchange.raw(data)
        if reset:
            await asyncio.sleep(0.02)
            exchange.reset()
        else:
            exchange.close()

    return script


async def hang(exchange: Exchange) -> None:
    await exchange.gone()


async def hang_in_the_answer(exchange: Exchange) -> None:
    await exchange.start()
    await exchange.chunk(b"first")
    await exchange.gone()


FAULTS: dict[str, tuple[Script, type[UnabridgedError]]] = {
    "garbage": (raw(b"\x00\xff garbage\r\n\r\n"), UpstreamInvalidResponse),
    "html without http": (raw(b"<html>502 Bad Gateway</html>\r\n\r\n"), UpstreamInvalidResponse),
    "nothing": (raw(b""), UpstreamInvalidResponse),
    "half a head": (raw(b"HTTP/1.1 200 OK\r\nContent-"), UpstreamInvalidResponse),
    "no final status": (raw(b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n"), UpstreamInvalidResponse),
    "controls in a header": (raw(b"HTTP/1.1 200 OK\r\nX-A: \x01\r\n\r\n"), UpstreamInvalidResponse),
    "two lengths": (
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"),
        UpstreamInvalidResponse,
    ),
    "too short": (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour"), UpstreamInvalidResponse),
    "broken chunk": (
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        UpstreamInvalidResponse,
    ),
    "cut off between chunks": (
        raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n"),
        UpstreamInvalidResponse,
    ),
    "reset": (raw(b"", reset=True), UpstreamUnreachable),
    "reset in the answer": (
        raw(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour", reset=True),
        UpstreamUnreachable,
    ),
    "hang": (hang, UpstreamTimeout),
    "hang in the answer": (hang_in_the_answer, UpstreamTimeout),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_told_in_our_words_and_its_connection_is_gone(
    server: FakeUpstream, upstream: Upstream, fault: str
) -> None:
    server.script, expected = FAULTS[fault]
    with pytest.raises(expected) as raised:
        await whole(await upstream.send("POST", "/x", [(b"authorization", b"Bearer secret-key")], b"{}"))
    assert type(raised.value) is expected
    assert "127.0.0.1" not in raised.value.message
    assert "secret-key" not in raised.value.message
    await eventually(lambda: server.open_connections == 0)


@pytest.mark.parametrize("client", UPSTREAMS)
async def test_an_upstream_that_does_not_listen_is_unreachable(client: Callable[..., Upstream]) -> None:
    async with aclosing(client("http://127.0.0.1:1/v1")) as nobody:
        with pytest.raises(UpstreamUnreachable) as raised:
            await nobody.send("GET", "/models", [], None)
    assert "127.0.0.1" not in raised.value.message


@pytest.mark.parametrize("client", UPSTREAMS)
async def test_an_upstream_whose_name_is_unknown_is_unreachable(client: Callable[..., Upstream]) -> None:
    async with aclosing(client("https://nowhere.invalid/v1")) as nobody:
        with pytest.raises(UpstreamUnreachable) as raised:
            await nobody.send("GET", "/models", [], None)
    assert "nowhere" not in raised.value.message


# --- TLS ---


@pytest.fixture
async def secure_url() -> AsyncIterator[str]:
    """A server whose certificate is for `localhost` and 127.0.0.1, and signed by nobody else."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readline() not in (b"\r\n", b""):
            pass
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret")
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(CERTIFICATE, CERTIFICATE.with_name("key.pem"))
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context) as serving:
        yield f"https://127.0.0.1:{serving.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("client", UPSTREAMS)
async def test_an_upstream_that_the_system_trusts_is_spoken_to_in_secret(
    client: Callable[..., Upstream], secure_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    async with aclosing(client(secure_url)) as upstream:
        assert await get(upstream) == b"secret"


@pytest.mark.parametrize("client", UPSTREAMS)
async def test_an_upstream_that_nobody_vouches_for_hears_nothing(
    client: Callable[..., Upstream], secure_url: str
) -> None:
    async with aclosing(client(secure_url)) as upstream:
        with pytest.raises(UpstreamUnreachable):
            await get(upstream)


# --- what only one of them does ---


async def test_a_refusal_in_the_middle_of_an_upload_is_heard(server: FakeUpstream) -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.raw(b"HTTP/1.1 413 Too Large\r\nContent-Length: 9\r\n\r\ntoo large")
        await exchange.gone()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 1000
            await asyncio.sleep(0.001)

    server.script = refuse
    async with aclosing(HttptoolsUpstream(server.url)) as upstream:
        response = await upstream.send("POST", "/x", [], endless())
        assert (response.status, await whole(response)) == (413, b"too large")
    await eventually(lambda: server.open_connections == 0)


async def test_an_answer_that_nobody_reads_makes_the_upstream_wait(server: FakeUpstream) -> None:
    sent = 0

    async def pour(exchange: Exchange) -> None:
        nonlocal sent
        await exchange.start()
        while sent < 500:
            await exchange.chunk(b"x" * 100_000)
            sent += 1
        await exchange.end()

    server.script = pour
    async with aclosing(HttptoolsUpstream(server.url)) as upstream:
        response = await upstream.send("GET", "/x", [], None)
        await asyncio.sleep(0.1)
        assert sent < 200  # what the sockets' buffers take
        assert len(await whole(response)) == 50_000_000

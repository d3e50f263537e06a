"""An upstream that speaks HTTP/2: the same statements as of HTTP/1.1, on connections that nobody shares."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from importlib.util import find_spec

import httpx2
import pytest

from proxy.adapters.upstream import HttpxUpstream, open_upstream
from proxy.adapters.upstream import route as routes
from proxy.config import Settings
from proxy.errors import (
    InvalidHeader,
    SettingsError,
    UnabridgedError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from proxy.ports import Upstream
from tests.contract.http2 import OK, HTTP2Server, Script, Stream
from tests.support.answers import get, whole
from tests.support.certificates import Authority
from tests.support.outbound import outbound_proxy
from tests.support.servers import PATIENCE, FakeUpstream, eventually

pytestmark = pytest.mark.skipif(find_spec("h2") is None, reason="h2 is not installed: requirements/http2.txt")


@pytest.fixture
async def server(authority: Authority) -> AsyncIterator[HTTP2Server]:
    async with HTTP2Server().serve(authority.serving("127.0.0.1")) as serving:
        yield serving


@pytest.fixture(params=["directly", "by a proxy"])
async def upstream(
    request: pytest.FixtureRequest, server: HTTP2Server, authority: Authority
) -> AsyncIterator[HttpxUpstream]:
    async with outbound_proxy(server.port) as proxy:
        by = httpx2.Proxy(proxy.url) if request.param == "by a proxy" else None
        url, tls = f"{server.url}/base/v1", authority.trusting()
        made = HttpxUpstream(url, connect_timeout=PATIENCE, read_timeout=0.6, proxy=by, http2=True, tls=tls)
        async with aclosing(made):
            yield made


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_a_request_goes_out_as_it_is(server: HTTP2Server, upstream: Upstream) -> None:
    headers = [(b"host", b"elsewhere"), (b"authorization", b"Bearer key"), (b"x-a", b"caf\xe9")]
    for body in (b"{}", pieces(b"{", b"}")):
        await whole(await upstream.send("POST", "/a%2Bb?x=1", headers, body))
    await whole(await upstream.send("POST", "/large", headers, b"x" * 500_000))
    first, second, large = server.streams
    assert first.headers == {
        b":method": b"POST",
        b":authority": b"127.0.0.1:%d" % server.port,
        b":scheme": b"https",
        b":path": b"/base/v1/a%2Bb?x=1",
        b"authorization": b"Bearer key",
        b"x-a": b"caf\xe9",
        b"content-length": b"2",
    }
    assert bytes(second.body) == b"{}"
    assert len(large.body) == 500_000
    assert server.connections == 1


async def test_a_header_that_cannot_be_sent_is_the_requests_fault(
    server: HTTP2Server, upstream: Upstream
) -> None:
    with pytest.raises(InvalidHeader):
        await upstream.send("GET", "/models", [(b"x-a", b"1\r\nx-b: 2")], None)


async def test_a_chunk_is_there_before_the_next_is_sent(server: HTTP2Server, upstream: Upstream) -> None:
    seen = asyncio.Event()

    async def script(stream: Stream) -> None:
        stream.connection.send_headers(stream.number, OK)
        await stream.chunk(b"first")
        await seen.wait()
        await stream.chunk(b"second", end=True)

    server.script = script
    response = await upstream.send("GET", "/x", [], None)
    chunks = response.chunks()
    assert await anext(chunks) == b"first"
    seen.set()
    assert await anext(chunks) == b"second"
    assert await whole(response) == b""
    assert await get_ok(server, upstream) == 1


async def get_ok(server: HTTP2Server, upstream: Upstream) -> int:
    """How many connections there were, after one more answer."""
    server.script = HTTP2Server().script
    assert await get(upstream) == b'{"ok": true}'
    return server.connections


async def test_requests_at_the_same_time_have_connections_of_their_own_and_who_leaves_ends_one(
    server: HTTP2Server, upstream: Upstream
) -> None:
    go_on = asyncio.Event()

    async def script(stream: Stream) -> None:
        stream.connection.send_headers(stream.number, OK)
        await stream.chunk(b"first")
        await go_on.wait()
        await stream.chunk(b"second", end=True)

    server.script = script
    staying, leaving = [await upstream.send("GET", "/x", [], None) for _ in range(2)]
    assert server.open_connections == 2
    assert await anext(leaving.chunks()) == b"first"
    await leaving.aclose()
    await eventually(lambda: server.open_connections == 1)
    go_on.set()
    assert await whole(staying) == b"firstsecond"
    assert await get_ok(server, upstream) == 2


@pytest.mark.parametrize("begun", [False, True])
async def test_who_is_cancelled_closes_its_connection(
    server: HTTP2Server, upstream: Upstream, begun: bool
) -> None:
    async def script(stream: Stream) -> None:
        await stream.is_whole.wait()
        if begun:
            stream.connection.send_headers(stream.number, OK)
            await stream.chunk(b"first")
        waiting.set()

    waiting, server.script = asyncio.Event(), script
    task = asyncio.create_task(get(upstream))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: server.open_connections == 0)


async def test_an_answer_that_nobody_reads_makes_the_upstream_wait(
    server: HTTP2Server, upstream: Upstream
) -> None:
    sent = 0

    async def pour(stream: Stream) -> None:
        nonlocal sent
        stream.connection.send_headers(stream.number, OK)
        while sent < 400:
            await stream.chunk(b"x" * 100_000)
            sent += 1
        await stream.chunk(b"", end=True)

    server.script = pour
    response = await upstream.send("GET", "/x", [], None)
    await asyncio.sleep(0.2)
    assert sent < 300  # the stream's window, and what the sockets' buffers take
    assert len(await whole(response)) == 40_000_000


# --- faults ---


def then(act: Callable[[Stream], object], *, begun: bool = False) -> Script:
    async def script(stream: Stream) -> None:
        await stream.is_whole.wait()
        if begun:
            stream.connection.send_headers(stream.number, OK)
            await stream.chunk(b"first")
        act(stream)

    return script


def reset(stream: Stream) -> None:
    stream.connection.h2.reset_stream(stream.number, 2)
    stream.connection.flush()


def garbage(stream: Stream) -> None:
    """A piece of a body, of no stream."""
    stream.connection.raw(b"\x00\x00\x09\x00\x00\x00\x00\x00\x00sk-secret")


def close(stream: Stream) -> None:
    stream.connection.close()


def goodbye(stream: Stream) -> None:
    stream.connection.goodbye(0)
    stream.connection.close()


def many_headers(stream: Stream) -> None:
    stream.connection.send_headers(stream.number, [*OK, *[("x-a", "b")] * 501])


def large_head(stream: Stream) -> None:
    stream.connection.send_headers(stream.number, [*OK, *[("x-a", "\u00e9" * 1000)] * 100])


def wait(stream: Stream) -> None:
    """Say nothing."""


async def pings(stream: Stream) -> None:
    await stream.is_whole.wait()
    while True:
        stream.connection.h2.ping(b"12345678")
        stream.connection.flush()
        await asyncio.sleep(0.05)


async def pings_in_the_answer(stream: Stream) -> None:
    stream.connection.send_headers(stream.number, OK)
    await stream.chunk(b"first")
    await pings(stream)


async def odd_status(stream: Stream) -> None:
    await stream.answer(b"", "999")


FAULTS: dict[str, tuple[Script, type[UpstreamError]]] = {
    "reset": (then(reset), UpstreamUnreachable),
    "reset in the answer": (then(reset, begun=True), UpstreamUnreachable),
    "garbage": (then(garbage), UpstreamInvalidResponse),
    "garbage in the answer": (then(garbage, begun=True), UpstreamInvalidResponse),
    "an end": (then(close), UpstreamInvalidResponse),
    "an end in the answer": (then(close, begun=True), UpstreamInvalidResponse),
    "it leaves": (then(goodbye), UpstreamInvalidResponse),
    "many headers": (then(many_headers), UpstreamInvalidResponse),
    "a large head": (then(large_head), UpstreamInvalidResponse),
    "no final status": (odd_status, UpstreamInvalidResponse),
    "silence": (then(wait), UpstreamTimeout),
    "silence in the answer": (then(wait, begun=True), UpstreamTimeout),
    "pings instead of an answer": (pings, UpstreamTimeout),
    "pings in the answer": (pings_in_the_answer, UpstreamTimeout),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_is_told_in_our_words_and_its_connection_is_gone(
    server: HTTP2Server, upstream: Upstream, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.script, expected = FAULTS[fault]
    with pytest.raises(expected) as raised:
        await whole(await upstream.send("POST", "/x", [(b"authorization", b"Bearer secret-key")], b"{}"))
    assert type(raised.value) is expected
    assert not any(word in raised.value.message + raised.value.detail for word in ("127.0.0.1", "secret"))
    await eventually(lambda: server.open_connections == 0)
    assert len(server.streams) == 1, "nothing is sent twice"
    assert await get_ok(server, upstream) == 2


@pytest.mark.parametrize("body", [b"{}", None], ids=["bytes", "a stream"])
async def test_what_a_leaving_server_did_not_take_is_not_repeated(
    server: HTTP2Server, upstream: Upstream, body: bytes | None
) -> None:
    async def script(stream: Stream) -> None:
        await stream.answer()
        await stream.is_whole.wait()

    server.script = script
    await get(upstream)
    server.script = then(lambda stream: stream.connection.goodbye(1))
    with pytest.raises(UnabridgedError):
        await upstream.send("POST", "/x", [], pieces(b"{}") if body is None else body)
    assert [stream.headers[b":method"] for stream in server.streams] == [b"GET", b"POST"]


async def test_a_connection_that_the_upstream_ended_meanwhile_fails_no_request(
    server: HTTP2Server, upstream: Upstream
) -> None:
    async def script(stream: Stream) -> None:
        await stream.answer(b"ok")
        stream.connection.goodbye(stream.number)
        stream.connection.close()

    server.script = script
    for number in range(1, 4):
        assert await whole(await upstream.send("POST", "/x", [], b"{}")) == b"ok"
        await eventually(lambda: server.open_connections == 0)
        await asyncio.sleep(0.05)  # by the proxy too
        assert len(server.streams) == number


# --- the setting ---


async def test_an_upstream_without_http2_is_spoken_to_by_http1(authority: Authority) -> None:
    async with FakeUpstream().serve(authority.serving("127.0.0.1")) as plain:
        settings = Settings.load(
            upstream=plain.url.replace("http:", "https:"), upstream_ca=authority.file, upstream_http2=True
        )
        async with aclosing(open_upstream(settings)) as upstream:
            assert await get(upstream) == b'{"ok": true}'


async def test_the_setting_is_enough(server: HTTP2Server, authority: Authority) -> None:
    settings = Settings.load(upstream=server.url, upstream_ca=authority.file, upstream_http2=True)
    async with aclosing(open_upstream(settings)) as upstream:
        assert await get(upstream) == b'{"ok": true}'
    assert len(server.streams) == 1


def test_without_its_package_the_start_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "find_spec", dict[str, object]().get)
    with pytest.raises(SettingsError, match="pip install 'unabridged\\[http2\\]'"):
        open_upstream(Settings.load(upstream="https://a.example", upstream_http2=True))

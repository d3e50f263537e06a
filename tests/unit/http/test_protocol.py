"""The wire guard, byte by byte: what it lets in, what it refuses, wherever the bytes are cut."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from proxy.http.protocol import MAX_FRAMING, MAX_UNFINISHED_HEAD, WireGuard
from proxy.http.server import ServerConfig

HOST = b"Host: a\r\n"
POST = b"POST /v1/x HTTP/1.1\r\n" + HOST
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
GET = b"GET /v1/x HTTP/1.1\r\n" + HOST + b"\r\n"
KIB = 1024


class Wire(asyncio.Transport):
    """A socket's other end, which remembers what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_ended = False
        self.is_closed = False
        self.is_paused = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        assert not self.is_ended, "something was written after the end"
        self.written += data

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_ended = True

    def close(self) -> None:
        self.is_ended = self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_ended

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


@dataclass
class Asked:
    """A request as the application had it."""

    scope: Scope
    body: bytes = b""
    is_abandoned: bool = False

    @property
    def names(self) -> list[bytes]:
        return [name for name, _ in self.scope["headers"]]


@dataclass
class Connection:
    """One connection to an application that reads a request to its end and answers, when it may."""

    wire: Wire = field(default_factory=Wire)
    asked: list[Asked] = field(default_factory=list[Asked])
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    keep_alive: float = 75

    def __post_init__(self) -> None:
        self.may_answer.set()
        config = ServerConfig(self.answer, request_timeout=15.0)
        config.timeout_keep_alive = self.keep_alive  # type: ignore[assignment]
        self.guard = WireGuard(config, ServerState(), {}, asyncio.get_running_loop())
        self.guard.connection_made(self.wire)

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = Asked(scope)
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
        self.guard.connection_lost(None)
        await settled()

    @property
    def statuses(self) -> list[int]:
        return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", self.wire.written)]

    @property
    def code(self) -> str:
        """That of the last answer, an error of ours in OpenAI's shape."""
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


@pytest.fixture
async def connect() -> AsyncIterator[Callable[[], Connection]]:
    made: list[Connection] = []

    def new() -> Connection:
        made.append(Connection())
        return made[-1]

    yield new
    for each in made:
        await each.leave()


Connect = Callable[[], Connection]


def cuts(request: bytes) -> Iterable[tuple[bytes, ...]]:
    """The request whole, in two at each offset, and byte for byte."""
    yield (request,)
    yield from ((request[:at], request[at:]) for at in range(1, len(request)))
    yield tuple(request[at : at + 1] for at in range(len(request)))


REFUSED = {
    "a line feed alone after the request line": b"GET / HTTP/1.1\n" + HOST + b"\r\n",
    "a line feed alone after a header": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "a line feed alone at the end": b"GET / HTTP/1.1\r\nHost: a\r\n\n",
    "line feeds alone": b"GET / HTTP/1.1\nHost: a\n\n",
    "a carriage return alone": b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
    "a carriage return in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: b\rc\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n c\r\n\r\n",
    "a line folded by a tab": b"GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc\r\n\r\n",
    "a first line that is folded": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "a fold of nothing": b"GET / HTTP/1.1\r\nHost: a\r\nX:\r\n c\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    "a control character in a value": b"GET / HTTP/1.1\r\nHost: a\r\nX: a\x01b\r\n\r\n",
    "NUL in a name": b"GET / HTTP/1.1\r\nHost: a\r\nX\0: a\r\n\r\n",
    "a blank before the colon": b"GET / HTTP/1.1\r\nHost: a\r\nX : a\r\n\r\n",
    "a blank before the colon of a length": POST + b"Content-Length : 3\r\n\r\nabc",
    "a blank in a name": b"GET / HTTP/1.1\r\nHost: a\r\nX Y: a\r\n\r\n",
    "no name": b"GET / HTTP/1.1\r\nHost: a\r\n: a\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost: a\r\nabc\r\n\r\n",
    "a name beyond ASCII": b"GET / HTTP/1.1\r\nHost: a\r\nX\xe9: a\r\n\r\n",
    "a quoted name": b'GET / HTTP/1.1\r\nHost: a\r\n"X": a\r\n\r\n',
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
    "a length and chunks": POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks and a length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "the same length twice": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "a list of lengths": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "a length with a sign": POST + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": POST + b"Content-Length: -3\r\n\r\nabc",
    "a hexadecimal length": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "no length": POST + b"Content-Length:\r\n\r\nabc",
    "a length beyond 64 bits": POST + b"Content-Length: 18446744073709551616\r\n\r\nabc",
    "another coding": POST + b"Transfer-Encoding: gzip\r\n\r\n",
    "two codings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunked not at the end": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "nearly chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked behind a vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "HTTP/2's preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "an unknown method": b"FOO / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a method in lower case": b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
}
NO_PATH = {
    "an asterisk": b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n",
    "an authority": b"CONNECT a:443 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tunnel to a path": b"CONNECT /v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "no slash": b"GET v1/x HTTP/1.1\r\n" + HOST + b"\r\n",
    "a URI without a path": b"GET http://a HTTP/1.1\r\n" + HOST + b"\r\n",
    "a URI of another kind": b"GET ftp://a/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a port that is none": b"GET http://a:99999/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a fragment": b"GET /v1/x#y HTTP/1.1\r\n" + HOST + b"\r\n",
    "NUL": b"GET /v1/\0 HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tab for a blank": b"GET /\tHTTP/1.1\r\n" + HOST + b"\r\n",
    "beyond ASCII": b"GET /v1/\xe9 HTTP/1.1\r\n" + HOST + b"\r\n",
}


@pytest.mark.parametrize(
    ("request_bytes", "code"),
    [pytest.param(each, "invalid_request", id=what) for what, each in REFUSED.items()]
    + [pytest.param(each, "invalid_path", id=f"path-{what}") for what, each in NO_PATH.items()],
)
async def test_what_is_not_plainly_one_request_is_refused_wherever_it_is_cut(
    connect: Connect, request_bytes: bytes, code: str
) -> None:
    for pieces in cuts(request_bytes):
        connection = connect()
        await connection.say(*pieces)
        assert (connection.statuses, connection.code) == ([400], code), pieces
        assert connection.wire.is_ended
        assert connection.asked == []


BAD_CHUNKS = {
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "no hexadecimal size": b"xyz\r\nabc\r\n0\r\n\r\n",
    "a size with a prefix": b"0x3\r\nabc\r\n0\r\n\r\n",
    "a size with a sign": b"+3\r\nabc\r\n0\r\n\r\n",
    "a blank before the size": b" 3\r\nabc\r\n0\r\n\r\n",
    "a blank after the size": b"3 \r\nabc\r\n0\r\n\r\n",
    "a size beyond 64 bits": b"10000000000000003\r\nabc\r\n0\r\n\r\n",
    "a line feed alone after the size": b"3\nabc\r\n0\r\n\r\n",
    "a line feed alone after the data": b"3\r\nabc\n0\r\n\r\n",
    "a line feed alone after an extension": b"3;a\nabc\r\n0\r\n\r\n",
    "more data than the size says": b"3\r\nabcd\r\n0\r\n\r\n",
    "line feeds alone at the end": b"3\r\nabc\r\n0\n\n",
    "a line feed alone at the end": b"3\r\nabc\r\n0\r\n\n",
    "a length behind the body": b"3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n",
    "a coding behind the body": b"3\r\nabc\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n",
}


@pytest.mark.parametrize("what", BAD_CHUNKS)
async def test_chunks_that_are_wrong_are_refused_and_their_reader_is_told(
    connect: Connect, what: str
) -> None:
    for pieces in cuts(BAD_CHUNKS[what]):
        connection = connect()
        await connection.say(CHUNKED, *pieces)
        assert (connection.statuses, connection.code) == ([400], "invalid_request"), pieces
        assert connection.wire.is_ended
        assert [asked.is_abandoned for asked in connection.asked] == [True]


async def test_a_request_is_the_same_wherever_it_is_cut(connect: Connect) -> None:
    request = (
        b"\r\nPOST /v1/a%2Bb?c=d&&e HTTP/1.1\r\nHost:a\r\nX-Two: 1 \r\nx-two:\t2\r\nX-\xc3\xa9: no\r\n"
        b"Empty:\r\nTransfer-Encoding: Chunked\r\n\r\n3;a=b\r\nabc\r\n0005\r\ndefgh\r\n0\r\nX: y\r\n\r\n"
    ).replace(b"X-\xc3\xa9: no", b"Text: \xc3\xa9")
    for pieces in cuts(request):
        connection = connect()
        await connection.say(*pieces)
        (asked,) = connection.asked
        assert asked.body == b"abcdefgh"
        assert asked.scope["raw_path"] == b"/v1/a%2Bb"
        assert asked.scope["query_string"] == b"c=d&&e"
        assert asked.scope["headers"] == [
            (b"host", b"a"),
            (b"x-two", b"1"),
            (b"x-two", b"2"),
            (b"text", b"\xc3\xa9"),
            (b"empty", b""),
            (b"transfer-encoding", b"Chunked"),
        ]
        assert (connection.statuses, connection.wire.is_ended) == ([200], False)


@given(st.binary(max_size=200), st.integers(0, 200))
async def test_bytes_of_any_kind_are_refused_or_waited_for(noise: bytes, cut: int) -> None:
    connection = Connection()
    await connection.say(noise[:cut], noise[cut:])
    await connection.say(GET)
    assert connection.statuses in ([], [200], [400])
    await connection.leave()


LINES = (b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"Connection: upgrade\r\n")
OFFERS = (b"Upgrade: h2c\r\n", b"Upgrade: websocket\r\n")
BEGINNINGS = (b"GET / HTTP/1.1\r\n", b"CONNECT a:1 HTTP/1.1\r\n", POST, GET, CHUNKED, HOST)
SYMBOLS = (b"\r\n", b"\n", b"\r", b" ", b"\t", b":", b"0", b"3", b"abc", b";", b",", b"\0")
NOISE = st.sampled_from((*LINES, *OFFERS, *BEGINNINGS, *SYMBOLS))


@given(st.lists(NOISE, max_size=12).map(b"".join), st.integers(1, 60))
async def test_where_bytes_are_cut_changes_nothing(sent: bytes, size: int) -> None:
    whole, cut = Connection(), Connection()
    await whole.say(sent)
    for at in range(0, len(sent), size):
        await cut.say(sent[at : at + size])

    def heard(connection: Connection) -> list[tuple[Any, ...]]:
        return [
            (asked.scope["method"], asked.scope["raw_path"], asked.body)
            for asked in connection.asked
            if not asked.is_abandoned  # whether such a one had begun is a matter of time
        ]

    assert heard(whole) == heard(cut)
    assert whole.statuses == cut.statuses
    for each in (whole, cut):
        await each.leave()


# --- several requests on one connection ---


async def test_pipelined_requests_are_answered_in_order(connect: Connect) -> None:
    connection = connect()
    await connection.say(GET.replace(b"/x", b"/1") + GET.replace(b"/x", b"/2"), GET.replace(b"/x", b"/3"))
    assert [asked.scope["path"] for asked in connection.asked] == ["/v1/1", "/v1/2", "/v1/3"]
    assert connection.statuses == [200, 200, 200]


@pytest.mark.parametrize("bad", [b"FOO\r\n\r\n", POST + b"Content-Length: x\r\n\r\n", CHUNKED + b"x\r\n"])
async def test_a_bad_request_waits_for_the_answers_before_it(connect: Connect, bad: bytes) -> None:
    for pieces in cuts(GET + GET + bad):
        connection = connect()
        connection.may_answer.clear()
        await connection.say(*pieces)
        assert connection.wire.written == b""
        connection.may_answer.set()
        await settled()
        assert connection.statuses == [200, 200, 400]
        assert connection.code == "invalid_request"
        assert connection.wire.is_ended
        assert len(connection.asked) == 2


async def test_what_follows_a_refusal_is_not_read(connect: Connect) -> None:
    connection = connect()
    await connection.say(b"FOO\r\n\r\n", GET, GET)
    assert connection.statuses == [400]
    assert connection.asked == []


async def test_all_pipelined_requests_hear_that_their_client_left(connect: Connect) -> None:
    connection = connect()
    await connection.say(CHUNKED + b"3\r\nabc\r\n")
    await connection.leave()
    assert [asked.is_abandoned for asked in connection.asked] == [True]
    connection = connect()
    gone = asyncio.Event()

    async def watching(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        assert (await receive())["type"] == "http.disconnect"
        gone.set()

    connection.guard.app = watching  # type: ignore[assignment]
    await connection.say(GET + GET)
    await connection.leave()
    assert gone.is_set()


async def answered_early(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def answering(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"o", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


async def test_nothing_is_put_into_an_answer_that_has_begun(connect: Connect) -> None:
    connection = connect()
    connection.guard.app = answering  # type: ignore[assignment]
    await connection.say(CHUNKED)
    await connection.say(b"x\r\n")
    assert connection.statuses == [200]
    assert connection.wire.written.endswith(b"\r\n\r\no")
    assert connection.wire.is_closed


async def test_a_body_that_is_wrong_after_its_answer_ends_the_connection(connect: Connect) -> None:
    connection = connect()
    connection.guard.app = answered_early  # type: ignore[assignment]
    await connection.say(CHUNKED)
    await connection.say(b"x\r\n")
    assert connection.statuses == [200]
    assert connection.wire.is_closed


async def test_an_idle_connection_is_closed_in_the_end_whether_it_has_asked_or_not() -> None:
    never = Connection(keep_alive=0.05)
    early = Connection(keep_alive=0.05)
    early.guard.app = answered_early  # type: ignore[assignment]
    await early.say(POST + b"Content-Length: 3\r\n\r\n")
    await early.say(b"abc")
    assert not early.wire.is_closed
    await asyncio.sleep(0.1)
    assert never.wire.is_closed
    assert early.wire.is_closed
    for each in (never, early):
        await each.leave()


async def test_after_a_refusal_what_still_comes_is_let_in_and_thrown_away(connect: Connect) -> None:
    connection = connect()
    stalled = asyncio.Event()

    async def stalling(scope: Scope, receive: Receive, send: Send) -> None:
        await stalled.wait()

    connection.guard.app = stalling  # type: ignore[assignment]
    await connection.say(CHUNKED, b"20000\r\n" + b"a" * 0x20000 + b"\r\nx\r\n")
    assert connection.statuses == [400]
    assert not connection.wire.is_paused
    stalled.set()


async def test_a_request_after_one_that_closes_is_not_read(connect: Connect) -> None:
    connection = connect()
    await connection.say(GET[:-2] + b"Connection: close\r\n\r\n" + GET)
    assert connection.statuses == [200]
    assert len(connection.asked) == 1
    assert connection.wire.is_ended


# --- other protocols ---


async def test_an_offer_to_change_the_protocol_is_passed_over_and_its_body_read(connect: Connect) -> None:
    request = (
        POST + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
        b"Content-Length: 3\r\n\r\nabc" + GET
    )
    for pieces in cuts(request):
        connection = connect()
        await connection.say(*pieces)
        assert [asked.body for asked in connection.asked] == [b"abc", b""]
        assert b"upgrade" not in connection.asked[0].names
        assert connection.statuses == [200, 200]


async def test_what_follows_a_websockets_head_is_not_taken_for_http(connect: Connect) -> None:
    handshake = GET[:-2] + b"Connection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"
    for pieces in cuts(handshake + GET):
        connection = connect()
        await connection.say(*pieces)
        assert len(connection.asked) == 1
        assert b"upgrade" in connection.asked[0].names
        assert (connection.statuses, connection.wire.is_ended) == ([200], True)


# --- bounds, while something arrives ---


async def until_refused(connection: Connection, piece: bytes, most: int) -> None:
    sent = 0
    while not connection.wire.is_ended:
        await connection.say(piece)
        sent += len(piece)
        assert sent <= most, "there is no bound"


@pytest.mark.parametrize(
    ("begin", "piece", "status", "code"),
    [
        pytest.param(b"GET /", b"a" * KIB, 414, "uri_too_long", id="a target"),
        pytest.param(b"GET / HTTP/1.1\r\n", b"a" * KIB, 431, "headers_too_large", id="a name"),
        pytest.param(b"GET / HTTP/1.1\r\nX: ", b"a" * KIB, 431, "headers_too_large", id="a value"),
        pytest.param(b"GET / HTTP/1.1\r\n", b"X: y\r\n" * 20, 431, "headers_too_large", id="a list"),
        pytest.param(b"", b"\r\n" * 512, 431, "headers_too_large", id="empty lines"),
        pytest.param(b"GET ", b" " * KIB, 431, "headers_too_large", id="blanks"),
        pytest.param(b"GET / HTTP/1.1\r\nX:", b" " * KIB, 431, "headers_too_large", id="blanks in a line"),
    ],
)
async def test_a_head_that_never_ends_is_bounded_while_it_arrives(
    connect: Connect, begin: bytes, piece: bytes, status: int, code: str
) -> None:
    connection = connect()
    await connection.say(begin)
    await until_refused(connection, piece, MAX_UNFINISHED_HEAD + KIB)
    assert (connection.statuses, connection.code) == ([status], code)
    assert connection.asked == []


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        pytest.param(b"3;", b"a" * KIB, id="an extension"),
        pytest.param(b'3;a="', b"a" * KIB, id="a quoted extension"),
        pytest.param(b"3\r\nabc\r\n", b"0" * KIB, id="a size"),
        pytest.param(b"0\r\nX: ", b"a" * KIB, id="a trailer"),
        pytest.param(b"0\r\n", b"X: y\r\n" * 100, id="trailers"),
    ],
)
async def test_what_stands_between_chunks_is_bounded_while_it_arrives(
    connect: Connect, begin: bytes, piece: bytes
) -> None:
    connection = connect()
    await connection.say(CHUNKED, begin)
    await until_refused(connection, piece, MAX_FRAMING + KIB)
    assert (connection.statuses, connection.code) == ([400], "invalid_request")
    assert [asked.is_abandoned for asked in connection.asked] == [True]


async def test_many_small_chunks_and_many_requests_are_no_abuse(connect: Connect) -> None:
    connection = connect()
    await connection.say(CHUNKED, *(b"1;x\r\na\r\n" for _ in range(20 * KIB)), b"0\r\n\r\n")
    assert len(connection.asked[0].body) == 20 * KIB
    for _ in range(2 * KIB):
        connection.guard.data_received(GET + b"\r\n")
        await settled()
    assert connection.statuses == [200] * (2 * KIB + 1)


async def test_a_body_that_is_not_read_is_not_taken_in(connect: Connect) -> None:
    connection = connect()
    connection.guard.app = asyncio.sleep  # type: ignore[assignment]
    connection.guard.data_received(POST + b"Content-Length: 1000000\r\n\r\n" + b"a" * 100 * KIB)
    assert connection.wire.is_paused

"""The wire guard bounds what arrives, while it arrives."""

from __future__ import annotations

import asyncio

import pytest

from proxy.http.server.guard import MAX_FRAMING, MAX_UNFINISHED_HEAD
from tests.support.wire import CHUNKED, GET, KIB, POST, Connect, Connection, settled


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
    connection.guard.data_received(POST + b"Content-Length: 1000000\r\n\r\n" + b"a" * 600 * KIB)
    assert connection.wire.is_paused

"""The wire guard, byte by byte: what it lets in, what it refuses, wherever the bytes are cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.wire import CHUNKED, GET, HOST, POST, Connect, Connection, cuts

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

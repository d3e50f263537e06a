"""The wire guard, request by request: many on one connection, its end, and other protocols."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest
from starlette.types import Receive, Scope, Send

from tests.support.wire import CHUNKED, GET, POST, Connect, Connection, cuts, settled


async def test_a_client_that_closes_its_side_is_answered_and_its_connection_ends(connect: Connect) -> None:
    connection = connect()
    connection.may_answer.clear()
    await connection.say(GET)
    assert connection.guard.eof_received()
    assert connection.wire.written == b"H"
    connection.may_answer.set()
    await settled()
    assert connection.statuses == [200]
    assert b"connection: close" in connection.wire.written
    assert connection.wire.is_closed


@pytest.mark.parametrize("asked", [b"", GET, GET[:-1], CHUNKED + b"1\r\na"])
async def test_one_that_waits_for_no_answer_or_never_asks_in_full_is_left(
    connect: Connect, asked: bytes
) -> None:
    connection = connect()
    await connection.say(asked)
    assert not connection.guard.eof_received()


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


@pytest.mark.parametrize("said", [(), (GET,), (GET + GET,), (GET, POST + b"Content-Length: 2\r\n\r\na")])
async def test_a_connection_that_has_ended_leaves_nothing_to_the_garbage_collector(
    connect: Connect, said: tuple[bytes, ...]
) -> None:
    connection = connect()
    await connection.say(*said)
    await connection.leave()
    connection.asked.clear()
    guard = weakref.ref(connection.guard)
    gc.disable()
    try:
        del connection.guard
        assert guard() is None
    finally:
        gc.enable()


# --- when serving ends ---


async def test_an_idle_connection_is_closed_when_serving_ends(connect: Connect) -> None:
    connection = connect()
    await connection.say(GET)
    connection.guard.shutdown()
    assert connection.statuses == [200]
    assert connection.wire.is_closed


@pytest.mark.parametrize("before", [b"", GET[:20], GET + GET[:20]], ids=["new", "half a head", "a second"])
async def test_a_request_on_its_way_when_serving_ends_is_answered(connect: Connect, before: bytes) -> None:
    connection = connect()
    if before:
        await connection.say(before)
    connection.guard.shutdown()
    assert not connection.wire.is_closed
    await connection.say(
        (GET + GET).removeprefix(before) if before.startswith(GET) else GET.removeprefix(before)
    )
    assert connection.statuses[-1] == 200
    assert b"connection: close" in connection.wire.written.rpartition(b"HTTP/1.1")[2]
    assert connection.wire.is_closed


async def test_one_that_does_not_come_is_not_waited_for(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.http.server.guard._MOMENT", 0.01)
    connection = connect()
    connection.guard.shutdown()
    async with asyncio.timeout(5):
        while not connection.wire.is_closed:  # noqa: ASYNC110 - its time passes
            await asyncio.sleep(0.01)
    assert connection.wire.written == b""


async def test_half_a_head_that_comes_with_the_end_of_an_early_answered_body_is_waited_for(
    connect: Connect,
) -> None:
    connection = connect()

    async def answers_early(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    connection.guard.app = answers_early  # type: ignore[assignment]
    await connection.say(POST + b"Content-Length: 5\r\n\r\nabc")
    assert connection.statuses == [200]
    await connection.say(b"de" + GET[:10])
    connection.guard.shutdown()
    assert not connection.wire.is_closed


async def test_an_empty_line_after_a_request_cuts_no_answer(connect: Connect) -> None:
    connection = connect()
    connection.guard._timeout = 0.01  # pyright: ignore[reportPrivateUsage]
    connection.may_answer.clear()
    await connection.say(GET)
    await connection.say(b"\r\n")
    await asyncio.sleep(0.1)
    assert not connection.wire.is_closed
    connection.may_answer.set()
    await settled()
    await connection.say(GET)
    assert connection.statuses == [200, 200]

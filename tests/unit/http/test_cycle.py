"""One request and its answer: in how many writes, how framed, and what becomes of one that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from starlette.types import Message, Receive, Scope, Send

from proxy.http.asgi import CLIENT, ClientDisconnected
from tests.support.wire import CHUNKED, GET, KIB, POST, Connect, Connection, settled

Answer = Callable[[Scope, Receive, Send], Awaitable[None]]
OLD = GET.replace(b"1.1", b"1.0")
HEAD = GET.replace(b"GET", b"HEAD")
HEAD_OF_CHUNKS = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


def start(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


def body(data: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


LENGTH_2 = (b"content-length", b"2")


def sending(*messages: Message) -> Answer:
    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        for message in messages:
            await send(message)

    return answer


@pytest.fixture
def answered(connect: Connect) -> Callable[..., Awaitable[Connection]]:
    async def answered(answer: Answer, *requests: bytes) -> Connection:
        connection = connect()
        connection.guard.app = answer
        await connection.say(*requests or (GET,))
        return connection

    return answered


Answered = Callable[..., Awaitable[Connection]]


# --- writes ---


async def test_what_is_written_ahead_to_see_who_is_there_is_part_of_the_answer(answered: Answered) -> None:
    async def probing(scope: Scope, receive: Receive, send: Send) -> None:
        cycle = scope[CLIENT]
        for message in (start(), body(b"a"), body(b"b"), body(b"", more=False)):
            for _ in range(12):
                cycle.probe()
            await send(message)

    written = (await answered(probing)).wire.written
    zeros = b"0" * 8
    assert written == HEAD_OF_CHUNKS + zeros + b"1\r\na\r\n" + zeros + b"1\r\nb\r\n" + zeros + b"0\r\n\r\n"


async def test_a_body_with_a_length_is_not_written_ahead(answered: Answered) -> None:
    async def probing(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start(LENGTH_2))
        assert not scope[CLIENT].probe()
        await send(body(b"ok", more=False))

    assert (await answered(probing)).wire.written.endswith(b"\r\n\r\nok")


async def test_head_body_and_end_of_a_small_answer_are_one_write(answered: Answered) -> None:
    connection = await answered(sending(start(), body(b"a"), body(b"b"), body(b"", more=False)))
    assert connection.wire.written == HEAD_OF_CHUNKS + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"
    assert connection.wire.writes == 1


async def test_what_is_sent_is_written_without_waiting_for_what_follows(answered: Answered) -> None:
    goes_on = asyncio.Event()

    async def pausing(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        await goes_on.wait()
        goes_on.clear()
        await send(body(b"a"))
        await goes_on.wait()
        await send(body(b"b", more=False))

    connection = await answered(pausing)
    assert connection.wire.written == HEAD_OF_CHUNKS
    goes_on.set()
    await connection.say()
    assert connection.wire.written == HEAD_OF_CHUNKS + b"1\r\na\r\n"
    goes_on.set()
    await connection.say()
    assert connection.wire.written == HEAD_OF_CHUNKS + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n"


async def test_much_is_written_at_once() -> None:
    seen: list[int] = []

    async def large(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        for _ in range(8):
            await send(body(b"a" * 40 * KIB))
            seen.append(len(connection.wire.written) // KIB)

    connection = Connection()
    connection.guard.app = large
    await connection.say(GET)
    assert seen == [0, 80, 80, 160, 160, 240, 240, 320]
    await connection.leave()


async def test_a_client_that_does_not_read_stops_the_answer() -> None:
    sent: list[int] = []

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        await send(start())
        while True:
            await send(body(b"a" * 70 * KIB))
            sent.append(len(sent))
            connection.guard.pause_writing()

    connection = Connection()
    connection.guard.app = endless
    await connection.say(GET)
    assert sent == [0]
    connection.guard.resume_writing()
    await connection.say()
    assert sent == [0, 1]
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await connection.leave()


# --- framing ---


@pytest.mark.parametrize(
    ("request_bytes", "messages", "written"),
    [
        pytest.param(
            GET,
            (start(LENGTH_2), body(b"ok", more=False)),
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            id="a length",
        ),
        pytest.param(
            OLD,
            (start(), body(b"ok", more=False)),
            b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nok",
            id="no chunks in HTTP/1.0",
        ),
        pytest.param(
            HEAD,
            (start(LENGTH_2), body(b"ok", more=False)),
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n",
            id="a length without its body",
        ),
        pytest.param(
            HEAD, (start(), body(b"", more=False)), b"HTTP/1.1 200 OK\r\n\r\n", id="neither length nor chunks"
        ),
        pytest.param(
            GET,
            (start(status=204), body(b"", more=False)),
            b"HTTP/1.1 204 No Content\r\n\r\n",
            id="a status without a body",
        ),
        pytest.param(
            GET,
            (start((b"Connection", b"Close"), LENGTH_2), body(b"ok", more=False)),
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok",
            id="the connection's last",
        ),
    ],
)
async def test_an_answer_says_where_it_ends(
    answered: Answered, request_bytes: bytes, messages: tuple[Message, ...], written: bytes
) -> None:
    connection = await answered(sending(*messages), request_bytes)
    assert connection.wire.written == written
    assert connection.wire.is_closed == (b"connection: close" in written)


# --- faults ---


async def test_an_answer_that_stays_incomplete_ends_with_all_that_was_sent(answered: Answered) -> None:
    connection = await answered(sending(start(), body(b"a")))
    assert connection.wire.written == HEAD_OF_CHUNKS + b"1\r\na\r\n"
    assert connection.wire.is_closed


@pytest.mark.parametrize("ending", [body(b"abc", more=False), body(b"a", more=False)])
async def test_an_answer_that_has_not_the_length_it_announced_ends_the_connection(
    answered: Answered, ending: Message
) -> None:
    connection = await answered(sending(start(LENGTH_2), ending))
    assert connection.wire.written.endswith(b"content-length: 2\r\n\r\n")
    assert connection.wire.is_closed


@pytest.mark.parametrize("wrong", [(b"x", b"a\r\nb: c"), (b"x\n", b"a"), (b"x", b"a\0")])
async def test_no_header_smuggles_another(answered: Answered, wrong: tuple[bytes, bytes]) -> None:
    connection = await answered(sending(start(wrong), body(b"", more=False)))
    assert connection.wire.written == b""
    assert connection.wire.is_closed


async def test_a_fault_before_the_answer_is_told_in_openais_shape(answered: Answered) -> None:
    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        raise LookupError

    connection = await answered(failing)
    assert connection.statuses == [500]
    assert b'"type":"server_error"' in connection.wire.written


async def test_a_body_that_is_given_up_does_not_hold_its_sender_back(answered: Answered) -> None:
    gone = asyncio.Event()

    async def giving_up(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        scope[CLIENT].discard()
        with suppress(ClientDisconnected), scope[CLIENT]:
            await asyncio.Event().wait()
        gone.set()

    piece = b"8000\r\n" + b"a" * 0x8000 + b"\r\n"
    connection = await answered(giving_up, CHUNKED, piece, *(piece,) * 8)
    assert not connection.wire.is_paused
    await connection.leave()
    assert gone.is_set()


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_client_that_has_sent_a_large_body_is_still_seen_to_leave(
    answered: Answered, *, at_once: bool
) -> None:
    gone = asyncio.Event()
    sizes: list[int] = []

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        whole = scope[CLIENT].whole_body() if at_once else (await receive())["body"]
        sizes.append(len(whole))
        with suppress(ClientDisconnected), scope[CLIENT]:
            await asyncio.Event().wait()
        gone.set()

    connection = await answered(waiting, POST + b"Content-Length: 100000\r\n\r\n" + b"a" * 100_000)
    assert (sizes, connection.wire.is_paused) == ([100_000], False)
    await connection.leave()
    assert gone.is_set()


async def test_a_body_that_nobody_reads_holds_its_sender_back(answered: Answered) -> None:
    async def ignoring(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    connection = await answered(ignoring, POST + b"Content-Length: 1000000\r\n\r\n", b"a" * 500 * KIB)
    assert not connection.wire.is_paused
    connection.guard.data_received(b"a" * 20 * KIB)
    assert connection.wire.is_paused


async def test_a_body_that_was_read_can_be_put_back_for_another_reader(answered: Answered) -> None:
    read: list[bytes | None] = []

    async def reading(scope: Scope, receive: Receive, send: Send) -> None:
        parts: list[bytes] = []
        more = True
        while more:
            message = await receive()
            parts.append(message["body"])
            more = message["more_body"]
        scope[CLIENT].put_back(b"".join(parts))
        read.append(scope[CLIENT].whole_body())

    await answered(reading, POST + b"Content-Length: 4\r\n\r\nab", b"cd")
    assert read == [b"abcd"]


# --- whether the client is there ---


async def test_a_client_that_leaves_ends_what_is_done_for_it(answered: Answered) -> None:
    done: list[str] = []

    async def work(scope: Scope) -> None:
        with scope[CLIENT]:
            try:
                await asyncio.Event().wait()
            finally:
                done.append("ended")

    async def working(scope: Scope, receive: Receive, send: Send) -> None:
        with pytest.raises(ClientDisconnected):
            await work(scope)
        await asyncio.sleep(0)  # The task goes on living: its cancellation was taken back.
        done.append("went on")

    connection = await answered(working)
    await connection.leave()
    assert done == ["ended", "went on"]


async def test_for_a_client_that_has_left_nothing_is_begun(answered: Answered) -> None:
    gone, done = asyncio.Event(), list[str]()

    async def work(scope: Scope) -> None:
        with scope[CLIENT]:
            await asyncio.sleep(0)
            done.append("begun")

    async def waiting(scope: Scope, receive: Receive, send: Send) -> None:
        await gone.wait()
        with pytest.raises(ClientDisconnected):
            await work(scope)
        done.append("over")

    connection = await answered(waiting)
    await connection.leave()
    gone.set()
    await settled()
    assert done == ["over"]


async def test_what_a_present_client_waits_for_is_done(answered: Answered) -> None:
    done = asyncio.Event()

    async def working(scope: Scope, receive: Receive, send: Send) -> None:
        client = scope[CLIENT]
        with client:
            await asyncio.sleep(0)
        client.leave()
        await asyncio.sleep(0)  # Nobody listens any more.
        done.set()

    await answered(working)
    assert done.is_set()


async def test_a_cancellation_from_elsewhere_stays_a_cancellation(answered: Answered) -> None:
    done: list[str] = []

    async def working(scope: Scope, receive: Receive, send: Send) -> None:
        async def work() -> None:
            with scope[CLIENT]:
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        done.append("cancelled")

    await answered(working)
    assert done == ["cancelled"]

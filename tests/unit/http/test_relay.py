from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from starlette.types import Message

from proxy.errors import UpstreamError, UpstreamTimeout
from proxy.http.answer import pump

CHUNKS = [b"data: 1\n\n", b"data: ", b"2\n\n"]


async def arriving(chunks: Sequence[bytes], fault: UpstreamError | None = None) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    if fault is not None:
        raise fault


class Sent:
    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)


def body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def test_each_chunk_is_one_message_and_the_answer_is_completed() -> None:
    sent = Sent()
    await pump(arriving(CHUNKS), sent)
    assert sent.messages == [*(body(chunk, more=True) for chunk in CHUNKS), body(b"", more=False)]


async def test_the_tee_sees_each_chunk_after_the_client() -> None:
    sent = Sent()
    seen: list[tuple[int, bytes]] = []
    await pump(arriving(CHUNKS), sent, tee=lambda chunk: seen.append((len(sent.messages), chunk)))
    assert seen == [(1, CHUNKS[0]), (2, CHUNKS[1]), (3, CHUNKS[2])]


async def test_the_ending_is_the_last_message() -> None:
    sent = Sent()
    await pump(arriving(CHUNKS), sent, ending=lambda fault: b"end" if fault is None else b"fault")
    assert sent.messages[-1] == body(b"end", more=False)


async def test_the_ending_is_told_of_a_fault_and_completes_the_answer() -> None:
    sent = Sent()
    told: list[UpstreamError | None] = []

    def ending(fault: UpstreamError | None) -> bytes:
        told.append(fault)
        return b"data: {}\n\n"

    fault = UpstreamTimeout()
    await pump(arriving(CHUNKS, fault), sent, ending=ending)
    assert told == [fault]
    assert sent.messages[-1] == body(b"data: {}\n\n", more=False)


async def test_a_fault_that_nobody_ends_leaves_the_answer_incomplete() -> None:
    sent = Sent()
    with pytest.raises(UpstreamTimeout):
        await pump(arriving(CHUNKS, UpstreamTimeout()), sent)
    assert all(message["more_body"] for message in sent.messages)

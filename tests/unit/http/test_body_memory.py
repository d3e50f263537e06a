"""The ceiling for all bodies together."""

from __future__ import annotations

from contextlib import suppress

import pytest
from starlette.types import Message, Receive

from proxy.errors import Overloaded
from proxy.http.asgi import read_body
from proxy.http.limits import BodyMemory


def coming(*parts: bytes) -> Receive:
    left = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    left[-1]["more_body"] = False

    async def receive() -> Message:
        return left.pop(0)

    return receive


async def test_bodies_share_one_ceiling_and_room_comes_back_with_the_end_of_a_request() -> None:
    memory = BodyMemory(10)
    with memory.share() as first:
        await read_body(coming(b"abc", b"defg"), 100, first)
        with memory.share() as second, pytest.raises(Overloaded):
            await read_body(coming(b"hi", b"jk"), 100, second)
        assert memory.held == 7
        with memory.share() as third:
            assert await read_body(coming(b"xyz"), 100, third) == b"xyz"
    assert memory.held == 0


async def test_a_body_that_will_not_fit_is_refused_before_it_is_read() -> None:
    async def receive() -> Message:
        raise AssertionError

    with BodyMemory(10).share() as share, pytest.raises(Overloaded):
        await read_body(receive, 100, share, content_length=11)


async def test_what_is_announced_takes_no_room_until_it_comes() -> None:
    memory = BodyMemory(10)
    with memory.share() as patient, memory.share() as quick:
        patient.expect(10)
        assert await read_body(coming(b"0123456789"), 100, quick) == b"0123456789"


def test_a_client_that_is_refused_may_come_again() -> None:
    assert Overloaded().retry_after is not None


def test_what_a_failed_request_took_comes_back() -> None:
    memory = BodyMemory(10)
    with suppress(Overloaded), memory.share() as share:
        share.take(10)
        share.take(1)
    assert memory.held == 0

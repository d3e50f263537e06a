"""How many requests are under way at a time, and how large their bodies are together."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import pytest
from starlette.types import Message, Receive

from proxy.errors import Overloaded, RequestTooLarge
from proxy.http.asgi import read_body
from proxy.http.limits import Permit
from tests.support.admission import admission

# --- requests ---


def test_as_many_are_let_in_as_may_be_and_the_next_hears_when_to_come_again() -> None:
    requests = admission(2)
    with ExitStack() as under_way:
        for _ in range(2):
            under_way.enter_context(Permit(requests))
        with pytest.raises(Overloaded) as refusal, Permit(requests):
            pytest.fail("a third was let in")
    assert refusal.value.retry_after
    with Permit(requests):
        assert requests.in_flight == 1


def test_room_is_given_back_however_a_request_ends() -> None:
    requests = admission(1)
    with pytest.raises(ZeroDivisionError), Permit(requests):
        raise ZeroDivisionError
    assert requests.in_flight == 0


def test_a_policy_of_the_requests_own_is_stricter_and_never_looser() -> None:
    requests = admission(2)
    with Permit(requests), pytest.raises(Overloaded), Permit(requests, 1):
        pytest.fail("a second was let in")
    with Permit(requests, 9), Permit(requests, 9), pytest.raises(Overloaded), Permit(requests, 9):
        pytest.fail("a third was let in")


def test_an_edited_limit_counts_from_the_next_request_on() -> None:
    requests = admission(1, 2)
    with Permit(requests), Permit(requests):
        assert requests.in_flight == 2


def test_a_request_that_is_handed_on_is_counted_once_and_its_body_stays_held() -> None:
    requests = admission(1, ceiling=10)
    with Permit(requests) as first:
        first.take(7)
        first.release_slot()
        with Permit(requests):
            assert (requests.in_flight, requests.held) == (1, 7)
    assert (requests.in_flight, requests.held) == (0, 0)


# --- bodies ---


def coming(*parts: bytes) -> Receive:
    left = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    left[-1]["more_body"] = False

    async def receive() -> Message:
        return left.pop(0)

    return receive


async def test_bodies_share_one_ceiling_and_room_comes_back_with_the_end_of_a_request() -> None:
    requests = admission(ceiling=10)
    with Permit(requests) as first:
        await read_body(coming(b"abc", b"defg"), 100, first)
        with Permit(requests) as second, pytest.raises(Overloaded):
            await read_body(coming(b"hi", b"jk"), 100, second)
        assert requests.held == 7
        with Permit(requests) as third:
            assert await read_body(coming(b"xyz"), 100, third) == b"xyz"
    assert requests.held == 0


async def test_a_body_that_will_not_fit_is_refused_before_it_is_read() -> None:
    async def receive() -> Message:
        raise AssertionError

    requests = admission(ceiling=10)
    with Permit(requests) as first, Permit(requests) as permit:
        first.take(1)
        with pytest.raises(Overloaded):
            await read_body(receive, 100, permit, content_length=10)
        with pytest.raises(RequestTooLarge):  # even if it were alone
            await read_body(receive, 100, permit, content_length=11)


async def test_what_is_announced_takes_no_room_until_it_comes() -> None:
    requests = admission(ceiling=10)
    with Permit(requests) as patient, Permit(requests) as quick:
        patient.expect(10)
        assert await read_body(coming(b"0123456789"), 100, quick) == b"0123456789"


def test_a_client_that_is_refused_may_come_again() -> None:
    assert Overloaded().retry_after is not None


def test_what_a_failed_request_took_comes_back() -> None:
    requests = admission(ceiling=10)
    with suppress(RequestTooLarge), Permit(requests) as permit:
        permit.take(10)
        permit.take(1)
    assert requests.held == 0

from __future__ import annotations

from contextlib import ExitStack

import pytest

from proxy.errors import Overloaded
from proxy.http.limits import Admission, BodyMemory


def test_as_many_are_let_in_as_may_be_and_the_next_hears_when_to_come_again() -> None:
    admission = Admission(lambda: 2, BodyMemory(0))
    with ExitStack() as under_way:
        for _ in range(2):
            under_way.enter_context(admission.admitted())
        with pytest.raises(Overloaded) as refusal, admission.admitted():
            pytest.fail("a third was let in")
    assert refusal.value.retry_after
    with admission.admitted():
        assert admission.under_way == 1


def test_room_is_given_back_however_a_request_ends() -> None:
    admission = Admission(lambda: 1, BodyMemory(0))
    with pytest.raises(ZeroDivisionError), admission.admitted():
        raise ZeroDivisionError
    assert admission.under_way == 0


def test_a_policy_of_the_requests_own_is_stricter_and_never_looser() -> None:
    admission = Admission(lambda: 2, BodyMemory(0))
    with admission.admitted(), pytest.raises(Overloaded), admission.admitted(1):
        pytest.fail("a second was let in")
    with admission.admitted(9), admission.admitted(9), pytest.raises(Overloaded), admission.admitted(9):
        pytest.fail("a third was let in")


def test_an_edited_limit_counts_from_the_next_request_on() -> None:
    limits = [1, 2]
    admission = Admission(lambda: limits.pop(0), BodyMemory(0))
    with admission.admitted(), admission.admitted():
        assert admission.under_way == 2

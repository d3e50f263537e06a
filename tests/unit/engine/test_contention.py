"""Whether calls of our own hold up users: what has to be measured before it is believed, and for how long."""

from __future__ import annotations

import pytest

from proxy.engine.foreground import Contention
from tests.support.stores import HandClock

USUAL = 0.2
MINUTE = 60.0


def measured(clock: HandClock | None = None) -> Contention:
    contention = Contention(clock or HandClock())
    for seconds in (0.1, USUAL, USUAL, USUAL, 0.9):
        contention.record_baseline("chat", seconds)
    return contention


def test_calls_give_way_until_the_usual_is_known() -> None:
    contention = Contention(HandClock())
    assert contention.yields
    for _ in range(3):
        contention.record_baseline("chat", USUAL)
    assert not contention.yields


def test_a_user_waits_for_three_times_the_usual_at_most_while_nothing_is_known() -> None:
    contention = measured()
    assert contention.wait_limit("chat") == pytest.approx(3 * USUAL)
    assert contention.wait_limit("a model that was never asked") == pytest.approx(3 * USUAL)
    quick = Contention(HandClock())
    for _ in range(3):
        quick.record_baseline("chat", 0.01)
    assert quick.wait_limit("chat") == pytest.approx(0.26)


def test_one_user_who_waited_too_long_is_enough() -> None:
    contention = measured()
    contention.record_timeout()
    assert contention.yields


def test_answers_that_are_no_slower_beside_calls_show_that_none_is_held_up() -> None:
    contention = measured()
    for seconds in (USUAL, 0.1, 0.9, USUAL):
        contention.record_contended("chat", seconds)
    assert contention.wait_limit("chat") is None
    contention.record_timeout()  # one slow answer is chance by then
    assert not contention.yields


def test_answers_that_are_half_as_slow_again_show_that_users_are_held_up() -> None:
    contention = measured()
    for _ in range(5):
        assert not contention.yields
        contention.record_contended("chat", 1.5 * USUAL)
    assert contention.yields


def test_a_hundredth_of_a_second_is_no_delay_however_quick_the_model() -> None:
    contention = Contention(HandClock())
    for _ in range(3):
        contention.record_baseline("chat", 0.005)
    for _ in range(8):
        contention.record_contended("chat", 0.05)
    assert not contention.yields


def test_an_upstream_that_is_exchanged_for_a_slower_one_is_noticed() -> None:
    contention = measured()
    for _ in range(8):
        contention.record_contended("chat", USUAL)
    for _ in range(5):
        contention.record_contended("chat", 3 * USUAL)
    assert contention.yields


def test_it_is_tried_again_after_a_minute_and_each_time_after_twice_as_long() -> None:
    clock = HandClock()
    contention = measured(clock)
    contention.record_timeout()
    clock.time += MINUTE - 1
    assert contention.yields
    clock.time += 1
    assert not contention.yields
    contention.record_timeout()
    clock.time += 2 * MINUTE - 1
    assert contention.yields
    clock.time += 1
    assert not contention.yields


def test_kinds_of_answers_are_held_against_their_own_kind() -> None:
    contention = measured()
    for _ in range(3):
        contention.record_baseline("slow chat", 10 * USUAL)
    for _ in range(8):
        contention.record_contended("slow chat", 10 * USUAL)
    assert not contention.yields

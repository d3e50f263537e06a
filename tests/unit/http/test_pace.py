"""When the sender of an incomplete request counts as gone."""

from __future__ import annotations

from proxy.http.limits import SLOWEST, Pace

ENOUGH = 15 * SLOWEST


def test_a_head_has_one_timeout_however_often_it_is_added_to() -> None:
    pace = Pace(15, body=False)
    for second in range(100, 115):
        pace.heard(second, 1, held_back=False)
        assert not pace.is_late(second, held_back=False)
    assert pace.due == 115
    assert pace.is_late(115, held_back=False)


def test_a_body_that_goes_on_may_take_for_ever() -> None:
    pace = Pace(15, body=True)
    for second in range(100, 1000, 10):
        pace.heard(second, ENOUGH, held_back=False)
        assert not pace.is_late(second + 9, held_back=False)


def test_a_body_that_falls_silent_is_late_a_timeout_after_its_last_byte() -> None:
    pace = Pace(15, body=True)
    pace.heard(100, 10 * ENOUGH, held_back=False)
    pace.heard(110, 10 * ENOUGH, held_back=False)
    assert not pace.is_late(115, held_back=False)
    assert pace.due == 125
    assert pace.is_late(125, held_back=False)


def test_a_body_that_drips_is_late_though_it_is_never_silent() -> None:
    pace = Pace(15, body=True)
    for second in range(100, 115):
        pace.heard(second, 1, held_back=False)
    assert pace.due == 115
    assert pace.is_late(115, held_back=False)


def test_a_body_that_begins_to_drip_is_late_too() -> None:
    pace = Pace(15, body=True)
    pace.heard(100, ENOUGH, held_back=False)
    for second in range(101, 131):
        pace.heard(second, 1, held_back=False)
        late = pace.is_late(second, held_back=False)
        assert late == (second == 130)
        if late:
            break


def test_while_we_do_not_read_nobody_is_late() -> None:
    pace = Pace(15, body=True)
    pace.heard(100, 1, held_back=True)
    assert not pace.is_late(115, held_back=True)
    assert not pace.is_late(130, held_back=True)
    assert not pace.is_late(145, held_back=False), "it was held back until just now"
    assert pace.is_late(160, held_back=False)


def test_what_was_held_back_for_a_moment_has_its_whole_time_again() -> None:
    pace = Pace(15, body=True)
    pace.heard(100, 1, held_back=True)
    assert not pace.is_late(115, held_back=False)
    assert pace.due == 130
    assert pace.is_late(130, held_back=False)

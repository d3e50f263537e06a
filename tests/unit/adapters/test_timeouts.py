"""How long a server is waited for, by how long it took to answer."""

from __future__ import annotations

import pytest

from proxy.adapters.stores.redis.pool import AdaptiveTimeout

SETTING = 0.5


def measured(*samples: float) -> AdaptiveTimeout:
    allowance = AdaptiveTimeout(SETTING)
    for sample in samples:
        allowance.measured(sample)
    return allowance


def test_before_anything_was_measured_it_is_the_setting() -> None:
    assert measured().seconds == SETTING


@pytest.mark.parametrize("near", [0.0, 0.000_1, 0.005])
def test_a_server_near_by_is_waited_for_as_long_as_the_setting_says(near: float) -> None:
    assert measured(*[near] * 20).seconds == pytest.approx(SETTING + near)  # pyright: ignore[reportUnknownMemberType]


@pytest.mark.parametrize("steady", [0.1, 0.3, 0.9])
def test_one_far_away_has_the_setting_beside_what_it_usually_takes(steady: float) -> None:
    assert measured(*[steady] * 20).seconds == pytest.approx(steady + SETTING)  # pyright: ignore[reportUnknownMemberType]


def test_the_first_sample_says_little_so_there_is_room_beside_it() -> None:
    assert measured(0.3).seconds == pytest.approx(0.9)  # pyright: ignore[reportUnknownMemberType]


def test_one_that_varies_has_room_for_that() -> None:
    assert measured(*[0.2, 0.6] * 10).seconds > 0.6 + 0.3


def test_nothing_is_waited_for_beyond_two_seconds_whatever_was_measured() -> None:
    assert measured(*[1.9] * 20).seconds == 2.0
    assert measured(60.0).seconds == 2.0


def test_a_setting_of_more_than_that_is_meant() -> None:
    allowance = AdaptiveTimeout(5.0)
    allowance.measured(0.3)
    assert allowance.seconds == 5.0


def test_it_begins_with_the_quickest_answer_of_the_start() -> None:
    allowance = measured(1.4, 0.3, 0.9)
    allowance.begin()
    assert allowance.seconds == measured(0.3).seconds


def test_one_late_answer_is_forgotten_within_some_others() -> None:
    assert measured(*[0.001] * 5, 1.5, *[0.001] * 20).seconds < 0.7

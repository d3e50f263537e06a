"""How an item lives and fades, by an injected clock."""

import pytest

from proxy.core.memory.lifecycle import reborn, rescored, score_of, superseded, used
from proxy.core.memory.records import EventKind
from tests.support.memories import DAY, NOW, an_item
from tests.support.timing import Work, growth

LOW = 0.3


def test_one_use_after_another_gives_six_seven_and_eight_tenths() -> None:
    item, scores = an_item(), list[float]()
    for session in (b"one", b"two", b"three"):
        item, _ = used(item, session, NOW)
        scores.append(item.importance_score)
    assert scores == [0.6, 0.7, 0.8]
    assert item.access_count == 3


def test_a_session_uses_an_item_once() -> None:
    item, event = used(an_item(), b"one", NOW + 5, "injected")
    assert event is not None
    assert (event.kind, event.before, event.after, event.details) == (EventKind.USE, 0.5, 0.6, "injected")
    assert item.last_accessed_at == NOW + 5
    assert used(item, b"one", NOW + 9) == (item, None)


def test_a_score_is_at_most_one() -> None:
    item = an_item(importance_score=0.95)
    assert used(item, b"one", NOW)[0].importance_score == 1.0


@pytest.mark.parametrize(
    ("days", "uses", "score"),
    [(0, 0, 0.5), (7, 0, 0.475), (7, 2, 0.57), (70, 0, 0.299368), (700, 0, 0.002960), (0, 30, 1.0)],
)
def test_a_score_fades_by_the_week_and_grows_with_uses(days: int, uses: int, score: float) -> None:
    item = an_item(access_count=uses)
    assert score_of(item, NOW + days * DAY, LOW) == pytest.approx(score, abs=1e-6)


def test_what_stays_true_does_not_fade_below_low() -> None:
    item = an_item(is_standing=True)
    assert score_of(item, NOW + 3650 * DAY, LOW) == LOW
    newer, event = superseded(item, "newer", NOW)
    assert (newer.superseded_by, event.details) == ("newer", "superseded by newer")
    assert score_of(newer, NOW + 3650 * DAY, LOW) < LOW


def test_the_daily_run_takes_the_place_of_what_uses_have_raised() -> None:
    item, _ = used(an_item(), b"one", NOW)
    after, event = rescored(item, NOW + 7 * DAY, LOW)
    assert event is not None
    assert (event.kind, event.before, event.after) == (EventKind.SCORE_UPDATE, 0.6, 0.5225)
    assert (after.importance_score, after.decay_applied_at) == (0.5225, NOW + 7 * DAY)
    assert rescored(after, NOW + 7 * DAY, LOW) == (after, None)


def test_a_clock_that_was_put_back_makes_nothing_stronger_than_new() -> None:
    assert score_of(an_item(), NOW - 7 * DAY, LOW) == 0.5


def test_what_is_reborn_is_as_if_it_had_never_been_used() -> None:
    item, _ = used(an_item(superseded_by="other"), b"one", NOW)
    born, event = reborn(item, NOW + DAY)
    assert (born.importance_score, born.access_count, born.created_at) == (0.5, 0, NOW + DAY)
    assert (born.superseded_by, born.used_by) == ("", b"")
    assert (event.kind, event.before, event.after) == (EventKind.RESTORE, 0.6, 0.5)


def test_four_times_as_many_scores_take_some_four_times_as_long() -> None:
    assert growth(scoring, 1_000, 4_000) < 8


def scoring(number: int) -> Work:
    items = [an_item(f"item {each}", access_count=each % 7) for each in range(number)]
    return lambda: [rescored(item, NOW + 30 * DAY, LOW) for item in items]

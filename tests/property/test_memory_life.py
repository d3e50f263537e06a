"""Whatever items live through: their scores stay in bounds, and nothing is put away out of turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.memory.lifecycle import MOST_LOW, archive_candidates, rescored, score_of, used
from proxy.core.memory.records import ArchiveReason, Item
from proxy.core.policy.sections import Memory
from tests.support.memories import DAY, NOW, an_item

LOW = 0.3
days = st.integers(0, 4_000)
drawn = st.lists(st.tuples(st.floats(0, 1), st.booleans(), st.booleans()), max_size=40)


def items_of(found: list[tuple[float, bool, bool]]) -> list[Item]:
    """Items with these scores, standing or not, overtaken or not."""
    return [
        an_item(
            f"{n:02}",
            importance_score=score,
            is_standing=standing,
            superseded_by="newer" if overtaken else "",
        )
        for n, (score, standing, overtaken) in enumerate(found)
    ]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", "d"]), days)), days, st.booleans())
def test_a_score_stays_between_nothing_and_one_and_only_fades_by_itself(
    uses: list[tuple[str, int]], later: int, standing: bool
) -> None:
    item = an_item(is_standing=standing)
    for session, day in sorted(uses, key=lambda use: use[1]):
        item, event = used(item, session.encode(), NOW + day * DAY)
        assert event is None or event.after == item.importance_score
    assert item.access_count == len({session for session, _ in uses})
    scores = [score_of(item, NOW + day * DAY, LOW) for day in (0, later, 2 * later)]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert not standing or min(scores) >= LOW


@given(days, days)
def test_a_score_is_the_same_however_often_the_daily_run_looked(day: int, between: int) -> None:
    item = an_item(access_count=3)
    looked, _ = rescored(item, NOW + min(day, between) * DAY, LOW)
    now = NOW + day * DAY
    assert rescored(looked, now, LOW)[0].importance_score == rescored(item, now, LOW)[0].importance_score


@given(drawn.map(items_of), st.integers(1, 40))
def test_what_is_put_away_is_the_weakest_in_whatever_order_items_come(
    found: list[Item], capacity: int
) -> None:
    rules = Memory(capacity=capacity)
    gone = archive_candidates(found, rules)
    assert archive_candidates(found[::-1], rules) == gone
    names = [each.item.id for each in gone]
    assert len(set(names)) == len(names)
    low = [each.item for each in gone if each.reason is ArchiveReason.LOW_IMPORTANCE]
    assert len(low) <= MOST_LOW
    assert {item.id for item in low} == {item.id for item in found if item.importance_score < LOW}
    crowded = [each.item for each in gone if each.reason is ArchiveReason.CAPACITY_LIMIT]
    assert len(crowded) <= max(capacity // 10, 1, len(found) - len(low) - capacity)
    assert len(found) - len(gone) <= capacity
    stays = [item for item in found if item.id not in names]
    if any(item.is_standing and not item.superseded_by for item in crowded):
        assert all(item.is_standing and not item.superseded_by for item in stays)

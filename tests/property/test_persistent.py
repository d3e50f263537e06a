"""Branches of a conversation read what they share, and nothing of each other; sums are those of the parts."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.persistent import PersistentList, Sizes

runs = st.lists(st.integers(0, 99), max_size=4)
places = st.integers(-12, 12)
bounds = st.tuples(st.none() | places, st.none() | places, st.sampled_from((None, 1, 2, -1)))


@given(st.lists(st.tuples(st.integers(0, 9), bounds, runs), max_size=12))
def test_branches_of_one_beginning_never_see_each_other(
    steps: list[tuple[int, tuple[int | None, ...], list[int]]],
):
    """Each step goes on from a part of any branch that there is; all of them stay what they were."""
    told: list[list[int]] = [[]]
    kept: list[tuple[PersistentList[int], Sizes]] = [(PersistentList([]), Sizes.of(()))]
    for which, (start, end, _), new in steps:
        part, (items, sizes) = slice(start, end), kept[which % len(kept)]
        told.append([*told[which % len(told)][part], *new])
        kept.append((items[part].followed_by(new), sizes[part].followed_by(new)))
        for expected, (all_items, all_sizes) in zip(told, kept, strict=True):
            assert (all_items, all_sizes) == (expected, expected)
            assert all_sizes.total == sum(expected)


@given(runs, runs, bounds, places)
def test_they_read_like_a_list(first: list[int], later: list[int], part: tuple[int | None, ...], place: int):
    expected = [*first, *later]
    before = PersistentList([*first]), Sizes.of(first)
    both: tuple[Sequence[int], ...] = tuple(each.followed_by(later) for each in before)
    for found in both:
        assert len(found) == len(expected)
        assert [*found[slice(*part)]] == expected[slice(*part)]
        assert [*reversed(found[slice(*part)])] == expected[slice(*part)][::-1]
        assert [*reversed(found)] == expected[::-1]
        assert (place in found) == (place in expected)
        assert _at(found, place) == _at(expected, place)
        assert _index(found, place, part) == _index(expected, place, part)
    assert before == (first, first), "and who had the first part still has that alone"


@given(runs, runs, st.integers(0, 12), st.none() | st.integers(0, 12))
def test_the_sum_of_a_part_is_that_of_its_items(
    first: list[int], later: list[int], start: int, end: int | None
):
    told = [*first, *later]
    assert Sizes.of(first).followed_by(later).between(start, end) == sum(told[start:end])
    assert Sizes.of(told)[2:].between(start, end) == sum(told[2:][start:end])


@given(runs, runs, st.integers(0, 12))
def test_the_newest_come_last_first_and_a_beginning_is_known_as_one(
    first: list[int], later: list[int], most: int
):
    items = PersistentList([*first]).followed_by(later)[1:]
    told = [*first, *later][1:]
    assert items.newest(most) == tuple(told[::-1][:most])
    for other in (told[:most], [*told[:most], 100], first):
        assert items.begins_with(PersistentList([*other])) == (told[: len(other)] == other)


def _at(found: Sequence[int], place: int) -> int | None:
    try:
        return found[place]
    except IndexError:
        return None


def _index(found: Sequence[int], value: int, part: tuple[int | None, ...]) -> int | None:
    start, end, _ = part
    try:
        return found.index(value, start or 0, 10**6 if end is None else end)
    except ValueError:
        return None

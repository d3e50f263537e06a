"""When the note of a gap is written anew, and when it stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from cProfile import Profile
from typing import SupportsIndex, overload

import pytest
from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage
from proxy.core.planning.draft import Draft
from proxy.core.planning.gaps import gap_with_note, generation_upon, new_texts
from proxy.core.planning.plan import EMPTY, Anchor, Gap, Plan, Span
from proxy.core.planning.planner import finish
from proxy.core.planning.situation import Situation
from proxy.core.planning.strategies import ByImportance
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Ledger
from tests.support.conversations import assistant, chain_from, count, prose, system, user

FIRST, SECOND = (2, 10), (14, 20)
LATE = Anchor(*FIRST, "They built a bridge of stone.")


def situation(*anchored: Anchor, tokens: int = 20_000) -> Situation:
    """Two gaps whose notes are notices; the plan knows of summaries that came too late for them."""
    said = [(user(prose("en", 100, n)), assistant(prose("en", 300, n))) for n in range(20)]
    chain = chain_from([message for pair in said for message in pair] + [user("and now?")])
    policy = Policy(ledger=Ledger(constraints=False, identifiers=False))
    given = Situation(chain, EMPTY, policy, Budget(tokens, 1.0, 100), count)
    noticed = [gap_with_note(given, span, (), ()) for span in (FIRST, SECOND)]
    gaps = (
        replace(gap, anchors=tuple(each for each in anchored if gap.start <= each.start < gap.end))
        for gap in noticed
    )
    return replace(given, plan=Plan(tuple(gaps)))


def epoch(given: Situation, *spans: Span, summaries: Mapping[Span, str | None] | None = None) -> Plan:
    quotes: dict[Span, tuple[str, ...]] = dict.fromkeys(spans, ())
    return finish(Draft.of(given, Stage.TRIM, quotes, strategy=ByImportance()), summaries or {})


def test_an_epoch_brings_a_summary_that_came_too_late_and_leaves_other_notes_as_they_are():
    given = situation(LATE)
    plan = epoch(given, FIRST, SECOND)
    assert LATE.text.encode() in plan.gaps[0].note
    assert plan.gaps[0].anchors == (LATE,)
    assert plan.gaps[1] == given.plan.gaps[1]


def test_an_epoch_brings_a_part_of_a_gap_that_was_summarised_anew():
    part = Anchor(2, 6, "Anew: a bridge.", generation=0)
    plan = epoch(situation(part), FIRST, SECOND)
    assert b"Anew: a bridge." in plan.gaps[0].note
    assert plan.gaps[0].anchors == (part,)


def test_a_note_that_says_all_its_summaries_stays_as_it_is():
    once = replace(situation(), plan=epoch(situation(LATE), FIRST, SECOND))
    assert epoch(once, FIRST, SECOND) == once.plan


def test_a_larger_gap_carries_a_summary_that_came_too_late():
    plan = epoch(situation(LATE), (2, 12), SECOND)
    assert LATE.text.encode() in plan.gaps[0].note
    assert plan.gaps[0].anchors == (LATE,)


def test_a_late_summary_that_does_not_fit_leaves_its_notice():
    huge = Anchor(*FIRST, prose("en", 4_000))
    given = situation(huge)
    view = sum(given.chain.tokens[:2]) + sum(given.chain.tokens[10:14]) + sum(given.chain.tokens[20:])
    small = replace(given, budget=Budget(view + 500, 1.0, 100))
    assert [gap.note for gap in epoch(small, FIRST, SECOND).gaps] == [gap.note for gap in given.plan.gaps]


def test_a_summary_that_failed_is_told_only_where_there_is_no_note_yet():
    told = new_texts(situation(), (FIRST, (14, 22)), ByImportance(), {FIRST: None, (14, 22): None})
    assert told == {(14, 22): ()}


@pytest.mark.parametrize(("generations", "expected"), [((), 0), ((0,), 1), ((2, 0), 3)])
def test_a_summary_is_a_generation_above_the_oldest_that_it_is_made_from(
    generations: tuple[int, ...], expected: int
):
    anchors = [Anchor(2 * n, 2 * n + 2, "x", generation=each) for n, each in enumerate(generations)]
    assert generation_upon(anchors) == expected


START, END = FIRST


@pytest.mark.parametrize(
    ("before", "ready", "told"),
    [
        ((START, END - 2), (END - 2, END), {"told before", "ready"}),
        ((START, END - 2), (START, END), {"ready"}),
        ((START, END - 2), (START, END - 2), {"told before"}),
        ((START, END - 2), (START + 1, END), {"told before"}),
    ],
    ids=["apart", "of more messages", "of the same messages", "of others too"],
)
def test_a_summary_that_no_note_tells_yet_takes_the_place_of_those_that_it_was_made_from(
    before: tuple[int, int], ready: tuple[int, int], told: set[str]
) -> None:
    given = situation(Anchor(*before, "told before"))
    informed = replace(given, prepared=(Anchor(*ready, "ready"),))
    assert {each.text for each in informed.anchors_within(START, END)} == told


# --- many notes ---


class Seen(tuple[Gap, ...]):
    """Gaps that know how often one of them was looked at."""

    __slots__ = ()

    looks = 0

    def __iter__(self) -> Iterator[Gap]:
        for gap in super().__iter__():
            Seen.looks += 1
            yield gap

    @overload
    def __getitem__(self, at: SupportsIndex) -> Gap: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Gap, ...]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> Gap | tuple[Gap, ...]:
        Seen.looks += 1
        return super().__getitem__(at)


def with_a_gap_behind_each_system_message(notes: int) -> Situation:
    said = [each for n in range(notes) for each in (user(prose("en", 30, n)), system(f"Rule {n}."))]
    cut = Plan(Seen(Gap(place, place + 1) for place in range(1, 2 * notes, 2)))
    chain = chain_from([assistant("Hello."), *said, user("and now?")])
    return Situation(chain, cut, Policy(), Budget(20_000, 1.0, 100), count)


def test_three_times_as_many_notes_take_some_three_times_as_many_looks_at_gaps():
    def looks(notes: int) -> int:
        given = with_a_gap_behind_each_system_message(notes)
        Seen.looks = 0
        for span in given.plan.spans:
            gap_with_note(given, span, (), ())
        return Seen.looks

    assert looks(300) <= 2 * 3 * looks(100)


def times(function: Callable[..., object], work: Callable[[], object]) -> int:
    """How often a function was called."""
    profile = Profile()
    profile.runcall(work)
    return sum(each.callcount for each in profile.getstats() if each.code is function.__code__)


def test_a_note_that_has_neither_quote_nor_summary_to_lose_is_tried_once():
    given = with_a_gap_behind_each_system_message(20)
    quotes: dict[Span, tuple[str, ...]] = dict.fromkeys(given.plan.spans, ())
    assert times(gap_with_note, lambda: Draft.of(replace(given, plan=EMPTY), Stage.TRIM, quotes)) == 20


def test_notes_behind_the_same_request_are_in_its_language_without_reading_it_again():
    said = [user(prose("de", 40)), *(assistant(prose("en", 60, n)) for n in range(8))]
    given = Situation(chain_from([*said, user("?")]), EMPTY, Policy(), Budget(20_000, 1.0, 100), count)
    notes: list[bytes] = []

    def write() -> None:
        notes.extend(gap_with_note(given, (start, start + 2), (), ()).note for start in (1, 3, 5))

    assert times(Situation.content, write) == 1
    assert all("Nachrichten" in note.decode() for note in notes)

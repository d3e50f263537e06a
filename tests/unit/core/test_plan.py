"""Plans: what they do to a request, and which one is in force."""

from __future__ import annotations

import msgspec
import pytest

from proxy.core.persistent import Sizes
from proxy.core.planning.life import in_force
from proxy.core.planning.plan import EMPTY, Anchor, Epoch, Gap, Plan, Replacement, apply, view_tokens
from tests.support.stores import epoch

MESSAGES = [f"m{number}".encode() for number in range(6)]


def test_an_empty_plan_changes_nothing():
    assert apply(EMPTY, MESSAGES) == MESSAGES
    assert (EMPTY.depth, EMPTY.cut) == (0, 0)


def test_a_note_stands_where_messages_were_cut():
    plan = Plan((Gap(1, 3, b"note", 1), Gap(4, 5, b"other", 1)))
    assert apply(plan, MESSAGES) == [b"m0", b"note", b"m3", b"other", b"m5"]


def test_a_gap_without_a_note_has_nothing_in_its_place():
    plan = Plan((Gap(0, 1), Gap(2, 4, b"note", 1)))
    view = apply(plan, MESSAGES)
    assert view == [b"m1", b"note", b"m4", b"m5"]
    assert [view[place] for place in plan.note_places] == [b"note"]


def test_a_replacement_stands_in_its_messages_place():
    plan = Plan((Gap(0, 1, b"note", 1),), (Replacement(2, b"short", 1),))
    assert apply(plan, MESSAGES) == [b"note", b"m1", b"short", b"m3", b"m4", b"m5"]


def test_a_plan_applies_to_every_continuation_alike():
    plan = Plan((Gap(1, 3, b"note", 1),), (Replacement(3, b"short", 1),))
    one, other = apply(plan, MESSAGES[:4]), apply(plan, MESSAGES)
    assert other[: len(one)] == one


def test_the_size_of_a_view_is_reckoned_from_the_edits():
    plan = Plan((Gap(1, 3, b"note", tokens=7),), (Replacement(3, b"short", 2),))
    assert view_tokens(plan, Sizes.of([10, 20, 30, 40, 50])) == 10 + 7 + 2 + 50


def test_depth_and_cut_say_how_far_a_plan_reaches():
    plan = Plan((Gap(1, 3, b"", 0), Gap(4, 5, b"", 0)), (Replacement(7, b"", 0),))
    assert (plan.depth, plan.cut) == (8, 3)
    assert Plan((Gap(1, 3, b"", 0),)).depth == 3
    assert [place for place in range(6) if plan.covers(place)] == [1, 2, 4]


def test_a_plan_survives_being_stored():
    plan = Plan(
        (Gap(1, 3, b"\xff note", 7, (Anchor(1, 3, "s"),), ("q",)),),
        (Replacement(3, b"x", 2),),
    )
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan


def test_a_gap_is_summarised_where_one_summary_is_about_all_of_it():
    whole, part = Anchor(1, 9, "whole"), Anchor(1, 5, "part")
    assert Gap(1, 9, b"", 0, (whole,)).is_summarised
    assert not Gap(1, 9, b"", 0, (part,)).is_summarised
    assert not Gap(1, 9, b"", 0, (part, Anchor(5, 9, "rest"))).is_summarised
    assert not Gap(1, 9, b"", 0).is_summarised
    assert (whole.count, part.count) == (8, 4)


def test_a_plan_tells_its_summaries_in_order_and_those_of_a_part_of_the_chain():
    first, second, third = Anchor(1, 3, "first"), Anchor(3, 5, "second"), Anchor(7, 9, "third")
    plan = Plan((Gap(1, 6, anchors=(first, second)), Gap(7, 9, anchors=(third,))))
    assert plan.anchors == [first, second, third]
    assert plan.anchors_within(3, 7) == [second]
    assert plan.anchors_within(1, 8) == [first, second, third]
    assert EMPTY.anchors == []


# --- in force


def cutting(name: str, parent: str, depth: int, reach: bytes, calm_below: int = 0) -> Epoch:
    """An epoch that cuts all up to its reach."""
    plan = Plan((Gap(0, depth),))
    return epoch(name, parent, depth=depth, reach=reach, calm_below=calm_below, plan=plan)


CHAIN = [b"a", b"b", b"c", b"d", b"e"]
FIRST = cutting("first", "", 2, b"b")
SECOND = cutting("second", "first", 4, b"d")


def held(
    epochs: list[Epoch], chain: list[bytes], counted: int = 10_000, cannot: str = "", settled: int = 0
) -> str | None:
    """The id of the epoch in force; the plan of epoch ``cannot`` touches what this chain needs whole."""
    refused = [each.plan for each in epochs if each.id == cannot]
    found = in_force(epochs, chain, counted, lambda plan: plan not in refused, settled)
    return found.id if found else None


def test_without_epochs_none_is_in_force():
    assert held([], CHAIN) is None


def test_the_deepest_epoch_that_the_chain_contains_is_in_force():
    assert held([FIRST, SECOND], CHAIN) == "second"


def test_a_fork_before_an_epochs_reach_falls_back_to_the_one_before():
    assert held([FIRST, SECOND], [b"a", b"b", b"c", b"x", b"y"]) == "first"
    assert held([FIRST, SECOND], [b"a", b"x", b"y", b"z", b"w"]) is None


def test_a_chain_that_ends_before_an_epochs_reach_falls_back():
    assert held([FIRST, SECOND], CHAIN[:3]) == "first"
    assert held([FIRST, SECOND], CHAIN[:1]) is None
    assert held([FIRST, SECOND], []) is None


@pytest.mark.parametrize("settled", [0, 4])
def test_an_epoch_is_not_in_force_where_the_client_has_dropped_messages_before_its_edits(settled: int):
    first = msgspec.structs.replace(FIRST, number=1, begun_at=b"d")
    assert held([first], CHAIN, settled=settled) == "first"
    assert held([first], CHAIN[1:], settled=settled) is None


def test_an_epoch_without_its_parent_is_not_in_force():
    assert held([SECOND], CHAIN) is None


@pytest.mark.parametrize("parent", ["", "first"])
def test_of_two_children_the_one_written_last_counts_since_the_other_did_not_apply(parent: str):
    one, other = cutting("one", parent, 3, b"c"), cutting("other", parent, 3, b"c")
    assert held([FIRST, one, other], CHAIN) == "other"
    assert held([FIRST, other, one], CHAIN) == "one"
    deeper = cutting("deeper", parent, 4, b"d")
    assert held([FIRST, deeper, other], CHAIN) == "deeper"
    assert held([FIRST, deeper, other], CHAIN, cannot="deeper") == "other"


def test_before_others_counts_an_epoch_that_began_in_this_chain():
    here = msgspec.structs.replace(cutting("here", "first", 3, b"c"), begun_at=b"d")
    elsewhere = msgspec.structs.replace(cutting("elsewhere", "first", 4, b"d"), begun_at=b"x")
    assert held([FIRST, here, elsewhere], CHAIN) == "here"
    assert held([FIRST, here, elsewhere], [*CHAIN[:4], b"x"]) == "elsewhere"
    assert held([FIRST, here, elsewhere], CHAIN, cannot="here") == "elsewhere"
    later = msgspec.structs.replace(cutting("later", "first", 3, b"c"), begun_at=b"e")
    for epochs in ([FIRST, here, later], [FIRST, later, here]):
        assert held(epochs, CHAIN) == "later"


def test_a_child_of_another_branch_is_not_in_force():
    other = cutting("other", "first", 4, b"x")
    assert held([FIRST, other, SECOND], CHAIN) == "second"
    assert held([FIRST, other, SECOND], [b"a", b"b", b"c", b"x"]) == "other"


@pytest.mark.parametrize(("counted", "expected"), [(499, None), (500, "first"), (501, "first")])
def test_a_chain_rolled_back_to_where_it_is_calm_is_forwarded_whole(counted: int, expected: str | None):
    assert held([cutting("first", "", 2, b"b", calm_below=500)], CHAIN, counted) == expected


def test_a_chain_that_is_calm_again_falls_back_to_what_was_cut_for_another_reason_than_its_size():
    second = cutting("second", "first", 4, b"d", calm_below=500)
    third = cutting("third", "second", 5, b"e", calm_below=500)
    assert held([FIRST, second, third], CHAIN, 499) == "first"
    assert held([FIRST, second, third], CHAIN, 500) == "third"


def test_an_epoch_that_cut_what_a_chain_asks_now_is_not_in_force_for_it():
    assert held([FIRST, SECOND], CHAIN, cannot="second") == "first"
    assert held([FIRST, SECOND], CHAIN, cannot="first") is None


def test_an_epoch_says_what_it_took_out():
    assert (FIRST.removed_count, FIRST.removed_tokens) == (6, 600)

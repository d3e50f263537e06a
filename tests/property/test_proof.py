"""Comparisons and intervals: bounded, the same from both sides, and surer with more to go by."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.dialects.registry import CHAT
from proxy.core.proof.comparison import compared
from proxy.core.proof.evidence import Arm, Evidence, Interval, difference_of, share_of
from tests.support.upstreams import Message, calling, said

TEXTS = st.text(st.sampled_from("ab 19-/.模型KX\n"), max_size=60)
CALLS = st.tuples(
    st.just("c1"), st.sampled_from(["look", "leap"]), st.sampled_from(['{"at": 1}', "{}", "odd"])
)
ANSWERS = TEXTS.map(said) | st.lists(CALLS, min_size=1, max_size=3).map(lambda calls: calling(*calls))


def read(message: Message):
    return CHAT.read(json.dumps(message).encode())


@given(ANSWERS, ANSWERS)
def test_answers_compare_the_same_from_both_sides_and_within_bounds(one: Message, other: Message) -> None:
    found = compared(read(one), read(other))
    assert found == compared(read(other), read(one))
    assert 0 <= found.likeness <= 1
    assert sum(found.evidence(Arm.WHOLE).counts().values()) == 2


@given(ANSWERS)
def test_an_answer_agrees_with_itself(answer: Message) -> None:
    assert compared(read(answer), read(answer)) == (True, 1.0)


PARTS = st.integers(1, 400).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of)))


def share(part: int, of: int) -> Interval:
    found = share_of(part, of)
    assert found is not None
    return found


@given(PARTS)
def test_a_share_lies_in_its_interval_which_narrows_with_the_number(pair: tuple[int, int]) -> None:
    part, of = pair
    found, more, mirrored = share(part, of), share(10 * part, 10 * of), share(of - part, of)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert more.high - more.low < found.high - found.low
    assert abs(mirrored.low - (1 - found.high)) < 1e-9


@given(PARTS, PARTS)
def test_a_difference_lies_in_its_interval_and_is_the_same_from_the_other_side(
    one: tuple[int, int], other: tuple[int, int]
) -> None:
    found = difference_of(share(*one), share(*other))
    back = difference_of(share(*other), share(*one))
    assert -1 <= found.low <= found.value <= found.high <= 1
    assert abs(found.low + back.high) < 1e-9
    assert abs(found.value + back.value) < 1e-9


NAMES = st.sampled_from(["whole:same", "whole:different", "rerun:result:compressible", "spent"])


@given(st.lists(st.dictionaries(NAMES, st.integers(0, 100)), max_size=5))
def test_evidence_is_the_same_however_it_is_grouped(each: list[dict[str, int]]) -> None:
    half = len(each) // 2
    parts = [Evidence.of(each[:half]), Evidence.of(each[half:])]
    assert Evidence.of(each) == parts[0] + parts[1]
    assert Evidence.of(each) == Evidence.of(part.counts() for part in parts)

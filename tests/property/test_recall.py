"""Recall over any conversation: exact, within the room, and of nothing but what is cut from the own chain."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from proxy.core.planning.plan import EMPTY
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Importance, Keep, Retention, RetentionMatch
from proxy.core.recall.passages import Reach, best_of
from proxy.core.recall.tool import NO_ROOM, Wanted, found_text, range_text
from tests.support.conversations import (
    Sent,
    budgets,
    chain_from,
    conversations,
    count,
    session,
)

BARE = Policy(keep=Keep(recent=0.0, first_user=False), importance=Importance(low=1.0))
SECRET = BARE.model_copy(
    update={
        "retention": (
            Retention.model_validate({"match": RetentionMatch(content="stone|石"), "class": "ephemeral"}),
        )
    }
)


@st.composite
def reaches(draw: st.DrawFn) -> Reach:
    """What the last request of a session may recall."""
    sent: list[Sent] = draw(conversations)
    chain, policy = chain_from(sent), draw(st.sampled_from([BARE, SECRET]))
    plan = EMPTY
    for turn in session(chain, policy, draw(budgets(chain))):
        plan = turn.plan
    return Reach(chain, plan, policy)


def shown(text: str) -> list[tuple[int, str]]:
    """The numbers and texts of an answer's messages."""
    seal = re.search(r"Seal: (\w+)", text)
    if seal is None:
        return []
    parts = re.split(rf"^\[{seal[1]}(?: message (\d+), [^\n]*)?\]", text, flags=re.MULTILINE)[1:]
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [(int(number), told.removeprefix("\n").removesuffix("\n")) for number, told in pairs if number]


wanted = st.builds(
    Wanted,
    first=st.one_of(st.none(), st.integers(-2, 30)),
    last=st.one_of(st.none(), st.integers(0, 60)),
    offset=st.sampled_from([0, 0, 700, 10**6]),
)


@given(reach=reaches(), wanted=wanted, room=st.integers(-10, 5000))
def test_a_range_is_read_exactly_and_within_the_room(reach: Reach, wanted: Wanted, room: int) -> None:
    text = range_text(reach, wanted, count, room)
    check(reach, text, room)


@given(reach=reaches(), seed=st.integers(0, 100), room=st.integers(-10, 5000))
def test_what_is_found_is_told_exactly_and_within_the_room(reach: Reach, seed: int, room: int) -> None:
    ranked = sorted(range(len(reach.windows)), key=lambda index: hash((index, seed)))
    check(reach, found_text(reach, best_of(reach.windows, ranked), count, room), room)


def check(reach: Reach, text: str, room: int) -> None:
    assert text == NO_ROOM or count(text) <= room
    edited = {place for gap in reach.plan.gaps for place in range(gap.start, gap.end)}
    edited |= {replacement.position for replacement in reach.plan.replacements}
    for number, told in shown(text):
        assert number - 1 in edited
        assert told.strip("\n") in reach.original(number - 1).text
        if reach.policy is SECRET:
            assert not any(word in told for word in ("stone", "石"))


@given(reach=reaches())
def test_the_pieces_of_what_may_be_recalled_are_all_of_it(reach: Reach) -> None:
    told: dict[int, str] = {}
    for piece in reach.pieces:
        text = reach.original(piece.position).text
        told[piece.position] = told.get(piece.position, "") + text[piece.start : piece.end]
    assert told == {place: reach.original(place).text for place in reach.positions}


@given(reach=reaches())
def test_every_piece_is_searched(reach: Reach) -> None:
    everything = set(range(len(reach.pieces)))
    assert {piece for window in reach.windows for piece in window} == everything

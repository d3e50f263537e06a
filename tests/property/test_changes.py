"""What people ask for, over any conversation: it stays valid, keeps what it keeps, and can be undone."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from proxy.core.budget.budget import Budget, Stage
from proxy.core.planning.chain import Chain
from proxy.core.planning.changes import Change, compacted, restored
from proxy.core.planning.life import in_force
from proxy.core.planning.plan import EMPTY, Plan, Verb, apply, view_tokens
from proxy.core.planning.planner import finish
from proxy.core.planning.situation import CRITICAL, Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep, Summary
from proxy.errors import NothingToChange
from tests.support.conversations import (
    Sent,
    budgets,
    chain_from,
    conversations,
    count,
    oddities,
    session,
    valid_conversations,
)

CLASSED = Policy.model_validate(
    {
        "retention": [
            {"match": {"content": "stone"}, "class": "critical"},
            {"match": {"role": "tool"}, "class": "disposable"},
            {"match": {"role": "assistant"}, "class": "batch_compressible"},
        ]
    }
)
POLICIES = st.sampled_from(
    [Policy(), Policy(keep=Keep(pins=("stone",))), Policy(summary=Summary(min_gap=2)), CLASSED]
)
SUMMARY = "Built a bridge of stone."


@st.composite
def situations(
    draw: st.DrawFn, messages: st.SearchStrategy[list[Sent]] = conversations, *, cut: bool = False
) -> Situation:
    """A chain as it stands after all its turns; ``cut``: one of which something is cut."""
    chain = chain_from(draw(messages))
    assume(len(chain) > 0)
    policy, budget = draw(POLICIES), draw(budgets(chain))
    *_, last = session(chain, policy, budget, draw(st.sampled_from([None, SUMMARY])))
    assume(not cut or last.plan != EMPTY)
    pins = frozenset(chain.hashes[at] for at in draw(st.lists(st.integers(0, len(chain) - 1), max_size=2)))
    return Situation(chain, last.plan, policy, budget, count, pins=pins)


wanted = st.one_of(st.none(), st.frozensets(st.integers(0, 60), max_size=30))


def is_whole(chain: Chain, plan: Plan, situation: Situation) -> bool:
    return all(
        len({plan.covers(position) for position in range(unit.start, unit.end)}) == 1
        for unit in situation.units
    )


@given(situations(cut=True))
def test_everything_restored_is_the_clients_own_history_byte_for_byte(situation: Situation) -> None:
    assert apply(restored(situation, None), situation.chain.raws) == situation.chain.raws


@given(situations(cut=True), wanted)
def test_what_is_restored_is_in_the_view_as_it_came_and_nothing_else_is_cut(
    situation: Situation, asked: frozenset[int] | None
) -> None:
    plan, chain = restored(situation, asked), situation.chain
    view = apply(plan, chain.raws)
    for position, raw in enumerate(chain.raws):
        if asked is None or position in asked:
            assert not plan.covers(position)
            assert raw in view
        assert situation.plan.covers(position) or not plan.covers(position)
    assert is_whole(chain, plan, situation)
    notes = [gap.note for gap in plan.gaps]
    assert all(notes), "every gap says what is missing"


@given(situations(cut=True), wanted)
def test_a_note_after_a_restore_speaks_only_of_what_is_still_cut(
    situation: Situation, asked: frozenset[int] | None
) -> None:
    for gap in restored(situation, asked).gaps:
        assert all(gap.start <= anchor.start and anchor.end <= gap.end for anchor in gap.anchors)
        told = sum(anchor.count for anchor in gap.anchors)
        if told < gap.count:
            # In any language a notice has the number of messages of which nothing else is said.
            assert str(gap.count - told).encode() in gap.note


@given(situations(valid_conversations(), cut=True), wanted)
def test_a_restored_view_is_one_that_the_api_takes(
    situation: Situation, asked: frozenset[int] | None
) -> None:
    view = apply(restored(situation, asked), situation.chain.raws)
    assert oddities(view) <= oddities(situation.chain.raws)


@given(situations(), wanted)
def test_what_is_compacted_goes_in_whole_units_and_leaves_what_is_to_be_answered(
    situation: Situation, asked: frozenset[int] | None
) -> None:
    try:
        decided = compacted(situation, asked)
    except NothingToChange:
        return
    for summary in (None, SUMMARY):
        plan, chain = finish(decided, dict.fromkeys(decided.unsummarised_spans, summary)), situation.chain
        assert is_whole(chain, plan, situation)
        assert chain.keeps_open_part(Plan(plan.gaps))
        # A placeholder of an odd result is as odd as that, and has other bytes.
        odd = oddities(chain.raws) | oddities(apply(situation.plan, chain.raws))
        assert oddities(apply(plan, chain.raws)) <= odd
        for index, level in situation.protection.items():
            assert level < CRITICAL or not plan.covers(situation.units[index].start)
    if decided.spans != tuple(gap.span for gap in situation.plan.gaps):
        assert view_tokens(finish(decided, {}), situation.chain.tokens) < situation.view_tokens


@given(situations(cut=True), wanted)
def test_a_restore_is_in_force_for_the_chain_and_all_that_go_on_from_it(
    situation: Situation, asked: frozenset[int] | None
) -> None:
    chain, budget = situation.chain, Budget(10**9, 1.0, 0)
    first = Change("lane", 0, Situation(chain, EMPTY, situation.policy, budget, count), situation.plan,
                   Stage.COMPACT, None, Verb.COMPACT).epoch(1.0)  # fmt: skip
    plan = restored(situation, asked)
    assume(plan != situation.plan)
    second = Change("lane", 0, situation, plan, Stage.CALM, first, Verb.RESTORE).epoch(2.0)
    assert (second.parent, second.number, second.depth) == (first.id, 2, first.depth)
    assert in_force([first, second], chain.hashes, 10**9, chain.keeps_open_part) == second
    fork = chain.prefix(first.depth - 1)
    assert in_force([first, second], fork.hashes, 10**9, fork.keeps_open_part) is None
    assert second.removed_count <= 0

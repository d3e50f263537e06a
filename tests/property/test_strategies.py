"""Random sessions under every strategy: taken by the API, bounded, stable (laws 2, 3 and 4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from proxy.core.budget.budget import Budget, Stage
from proxy.core.conversation.messages import TOOL_ROLES, last_user
from proxy.core.conversation.units import open_from, request_points
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.chain import Chain
from proxy.core.planning.draft import Draft
from proxy.core.planning.gaps import gap_with_note, is_no_longer
from proxy.core.planning.ledger import strip_ledgers
from proxy.core.planning.plan import EMPTY, Plan, apply
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Conditions, Situation
from proxy.core.planning.strategies import STRATEGIES
from proxy.core.planning.strategy import Strategy
from proxy.core.policy import values
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep
from proxy.core.policy.sections import Strategy as Rules
from proxy.core.text.cutting import head_of, shares, size, tail_of
from tests.support.conversations import (
    Sent,
    budgets,
    chain_from,
    count,
    from_scratch,
    is_bounded,
    odd_conversations,
    oddities,
    prose,
    returned,
    stage_at,
    texts,
    valid_conversations,
)

SUMMARIES = (None, "", "Built a bridge of stone.", prose("ja", 200))
short_conversations = st.one_of(valid_conversations(6), valid_conversations(6), odd_conversations())
CIRCUMSTANCES = (
    UNKNOWN_CONDITIONS,
    UNKNOWN_CONDITIONS,
    Conditions(idle=10.0, pause=10.0),
    Conditions(idle=4_000.0, pause=4_000.0),
    Conditions(boundary=True),
)


class Wild(Strategy):
    """Somebody's strategy that asks for everything, twice, and for what there is not."""

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        return len(situation.chain) % 2 == 1

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        units = range(len(situation.units))
        return [len(units), *reversed(units), -1, *units]

    def is_enough(self, situation: Situation, view_tokens: int, goal: int) -> bool:
        return False

    def acts_now(self, situation: Situation) -> bool:
        return len(situation.chain) % 3 == 1

    def words(self, situation: Situation, start: int, end: int, summary: str | None) -> str | None:
        return "all of it " * (end - start)


@pytest.fixture(autouse=True)
def wild(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values.STRATEGIES, "_added", {"wild": Wild()})


@dataclass(frozen=True)
class Turn:
    """One request of a session, and what became of it."""

    situation: Situation
    begun: Draft | None
    plan: Plan

    def __repr__(self) -> str:
        gaps = [(gap.start, gap.end) for gap in self.plan.gaps]
        known = self.situation
        return f"{known.policy.strategy.name} {len(known.chain)} {known.conditions} {gaps}"

    @property
    def view(self) -> list[bytes]:
        return apply(self.plan, self.situation.chain.raws)


@dataclass(frozen=True)
class Session:
    """What the parts of a session are drawn as."""

    chain: Chain
    policy: Policy
    budget: Budget
    circumstances: Sequence[Conditions]
    summaries: Sequence[str | None]

    def __repr__(self) -> str:
        sizes = " ".join(
            f"{message.role}:{tokens}"
            for message, tokens in zip(self.chain.messages, self.chain.tokens, strict=True)
        )
        return f"{sizes} | {self.policy.strategy} {self.policy.keep} | {self.budget} | {self.circumstances}"

    def under(self, name: str) -> Session:
        """The same session under another strategy."""
        rules = self.policy.strategy.model_copy(update={"name": name})
        return replace(self, policy=self.policy.model_copy(update={"strategy": rules}))

    def turns(self) -> Iterator[Turn]:
        plan, circumstances, summaries = EMPTY, cycle(self.circumstances), cycle(self.summaries)
        for length in request_points(self.chain.messages):
            chain = self.chain.prefix(length)
            if not chain.keeps_open_part(plan):
                plan = EMPTY
            stage = stage_at(chain, plan, self.policy, self.budget)
            situation = Situation(chain, plan, self.policy, self.budget, count, next(circumstances))
            begun = draft_epoch(situation, stage)
            if begun is not None:
                summary = next(summaries)
                plan = finish(
                    begun, {} if summary is None else dict.fromkeys(begun.unsummarised_spans, summary)
                )
            yield Turn(situation, begun, plan)


@st.composite
def sessions(draw: st.DrawFn, name: str, messages: st.SearchStrategy[list[Sent]]) -> Session:
    chain = chain_from(draw(messages))
    assume(len(chain) > 0)
    numbers = {"exchanges": 3, "roll_to": draw(st.integers(1, 3)), "last": 6, "idle": 1800.0}
    numbers["condense_active"] = draw(st.booleans())
    small = {"answer_max": 120, "answer_to": 60, "summary_max": 700, "summary_to": 400}
    rules = Rules.model_validate({"name": name, **numbers, **(small if draw(st.booleans()) else {})})
    keep = draw(st.sampled_from([Keep(), Keep(recent=0.0, first_user=False), Keep(pins=("stone",))]))
    circumstances = draw(st.lists(st.sampled_from(CIRCUMSTANCES), min_size=1, max_size=6))
    summaries = draw(st.lists(st.sampled_from(SUMMARIES), min_size=1, max_size=3))
    policy = Policy(strategy=rules, keep=keep)
    return Session(chain, policy, draw(budgets(chain)), circumstances, summaries)


@settings(max_examples=100)
@given(st.data())
def test_a_random_session_is_valid_bounded_and_stable_under_every_strategy(data: st.DataObject):
    check_under_every_strategy(data)


@pytest.mark.soak
@pytest.mark.timeout(0)
@settings(max_examples=10_000, derandomize=False, print_blob=True)
@given(st.data())
def test_ten_thousand_random_sessions_are_valid_bounded_and_stable(data: st.DataObject):
    check_under_every_strategy(data)


def check_under_every_strategy(data: st.DataObject) -> None:
    drawn = data.draw(sessions("importance", short_conversations))
    for name in (*STRATEGIES, "wild"):
        turns = list(drawn.under(name).turns())
        for turn in turns:
            check_valid(turn)
            check_bounded(turn)
            check_notices(turn)
            check_again(turn)
        for one, other in pairwise(turns):
            check_stable(one, other)


def check_valid(turn: Turn) -> None:
    chain, plan = turn.situation.chain, turn.plan
    replaced = {edit.raw: chain.raws[edit.position] for edit in plan.replacements}
    odd = oddities(chain.raws)
    assert oddities([replaced.get(raw, raw) for raw in turn.view]) <= odd
    if not odd:  # what comes late may make a unit of messages that were none when they were cut
        check_units(turn)
    for unit in turn.situation.units[open_from(chain.messages, turn.situation.units) :]:
        assert not plan.covers(unit.start)
    assert all(gap.end < len(chain) for gap in plan.gaps)
    assert all(Content.of(gap.note).text for gap in plan.gaps if gap.note)
    asked = last_user(chain.messages)
    if asked is not None:
        assert chain.raws[asked] in turn.view
        assert asked not in {edit.position for edit in plan.replacements}


def check_units(turn: Turn) -> None:
    """Units are kept or cut whole, and no note parts a call from its results."""
    for unit in turn.situation.units:
        assert len({turn.plan.covers(place) for place in range(unit.start, unit.end)}) == 1
    roles = [message.role for message in turn.situation.chain.messages]
    assert all(roles[gap.end] not in TOOL_ROLES for gap in turn.plan.gaps)


def check_bounded(turn: Turn) -> None:
    situation = turn.situation
    chain, policy, budget = situation.chain, situation.policy, situation.budget
    may_wait = turn.begun is None and policy.strategy.name in ("off", "wild")
    assert may_wait or is_bounded(chain, turn.plan, policy, budget)


def check_notices(turn: Turn) -> None:
    """A note that says no more than how many messages are missing is no longer than they are."""
    chain = turn.situation.chain
    for gap in strip_ledgers(turn.plan, count, CHAT).gaps:
        assert gap.anchors or gap.tokens <= chain.tokens.between(gap.start, gap.end)


def check_again(turn: Turn) -> None:
    """The same situation gives the same plan."""
    if turn.begun is not None:
        known = turn.situation
        again = Situation(
            known.chain, known.plan, known.policy, known.budget, count, known.conditions, known.unwritten
        )
        decided = draft_epoch(again, turn.begun.stage)
        assert decided is not None
        assert finish(decided, {}) == finish(turn.begun, {})


def check_stable(one: Turn, other: Turn) -> None:
    if other.begun is None and other.situation.plan == one.plan:
        assert other.view[: len(one.view)] == one.view
    assert returned(other.situation.plan, other.plan) <= {*other.situation.users[:1]}


# --- session


@given(data=st.data())
def test_at_a_boundary_nothing_of_the_past_is_left_but_what_is_critical(data: st.DataObject):
    drawn = data.draw(sessions("session", valid_conversations(8)))
    for turn in drawn.turns():
        situation = turn.situation
        if turn.begun is None or not situation.conditions.boundary:
            continue
        asked = last_user(situation.chain.messages)
        assert asked is not None
        for index in situation.view_units:
            unit, message = situation.units[index], situation.chain.messages[situation.units[index].start]
            if (
                unit.end <= asked
                and message.role in ("assistant", "tool")
                and "stone" not in _text(situation, index)
            ):
                notice = gap_with_note(situation, (unit.start, unit.end), (), ())
                assert turn.plan.covers(unit.start) or not is_no_longer(situation, notice)


def _text(situation: Situation, index: int) -> str:
    unit = situation.units[index]
    return " ".join(situation.content(place).text for place in range(unit.start, unit.end))


# --- exchanges


@given(data=st.data())
def test_a_note_of_exchanges_has_no_more_bytes_than_it_may_have(data: st.DataObject):
    drawn = data.draw(sessions("exchanges", valid_conversations(most=8)))
    assume(not drawn.policy.keep.pins)
    for turn in drawn.turns():
        for gap in turn.plan.gaps:
            told = sum(size(anchor.text) for anchor in gap.anchors)
            assert told <= drawn.policy.strategy.summary_max


@given(data=st.data())
def test_without_a_store_exchanges_roll_where_they_would_have_rolled(data: st.DataObject):
    drawn = data.draw(sessions("exchanges", valid_conversations(8)))
    chain, roomy = drawn.chain, Budget(10**9, 1.0, 0)
    if not drawn.policy.keep.pins:
        *_, live = replace(drawn, budget=roomy, summaries=(None,)).turns()
        assert from_scratch(chain, drawn.policy, roomy, count)[0] == live.plan
    views = [
        (epochs, apply(plan, prefix.raws))
        for prefix in map(chain.prefix, request_points(chain.messages))
        for plan, epochs in [from_scratch(prefix, drawn.policy, roomy, count)]
    ]
    for (earlier, one), (later, other) in pairwise(views):
        assert later - earlier in (0, 1)
        if later == earlier:
            assert other[: len(one)] == one


# --- texts in so many bytes


@given(texts, st.integers(0, 300))
def test_a_text_is_cut_to_its_bytes_between_code_points(text: str, most: int):
    for found in (head_of(text, most), tail_of(text, most)):
        assert size(found) <= most or (found == text and size(text) <= most)
        assert found == text or not found or "…" in found
        assert found.strip("…") in text
        found.encode()


@given(st.lists(st.integers(0, 500), max_size=9), st.integers(0, 1500))
def test_shares_fit_their_room_and_the_small_are_whole_before_the_large(sizes: list[int], room: int):
    given = shares(sizes, room)
    assert sum(given) == min(sum(sizes), room) or sum(given) <= room
    assert all(share <= wanted for share, wanted in zip(given, sizes, strict=True))
    short = [share for share, wanted in zip(given, sizes, strict=True) if share < wanted]
    assert all(share <= min(short) + len(sizes) for share in given if short) or not short


def test_a_lone_surrogate_is_cut_like_any_other_character():
    assert size("a\ud800b") == 5
    assert head_of("a\ud800b\ud800\ud800", 7) == "a\ud800…"

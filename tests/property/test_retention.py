"""Whatever rules and pins there are: views stay valid, bounded and stable, and classes keep their word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage
from proxy.core.conversation.retention import FIRMEST
from proxy.core.conversation.units import request_points, units_of
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.chain import Chain
from proxy.core.planning.draft import Draft
from proxy.core.planning.ledger import strip_ledgers
from proxy.core.planning.plan import EMPTY, Plan, apply, view_tokens
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.situation import CRITICAL, FIXED, FREE, PINNED, Conditions, Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Retention, RetentionMatch, Stages
from proxy.core.summaries.source import source_of
from tests.support.conversations import (
    Sent,
    budgets,
    chain_from,
    conversations,
    count,
    is_for_a_clip,
    is_worth_a_note,
    oddities,
    returned,
    runs,
    stage_at,
    valid_conversations,
)

matches = st.sampled_from(
    [
        RetentionMatch(role="tool"),
        RetentionMatch(role="assistant"),
        RetentionMatch(role="user"),
        RetentionMatch(role="system"),
        RetentionMatch(tool="lo*"),
        RetentionMatch(tool="other"),
        RetentionMatch(content="stone"),
        RetentionMatch(content="error|橋"),
        RetentionMatch(role="assistant", content="boats"),
    ]
)


def ruled(match: RetentionMatch, class_: str) -> Retention:
    return Retention.model_validate({"match": match, "class": class_})


rules = st.lists(st.builds(ruled, matches, st.sampled_from(FIRMEST)), max_size=3)


@dataclass(frozen=True)
class Request:
    """One request of a session, and what was decided at it."""

    before: Situation
    stage: Stage
    begun: Draft | None
    plan: Plan

    @property
    def chain(self) -> Chain:
        return self.before.chain

    @property
    def after(self) -> Situation:
        return replace(self.before, plan=self.plan)

    @property
    def view(self) -> list[bytes]:
        return apply(self.plan, self.chain.raws)


def requests(chain: Chain, policy: Policy, budget: Budget, pins: frozenset[bytes]) -> list[Request]:
    """Every request that led to a chain."""
    plan, since, made = EMPTY, 0, list[Request]()
    for length in request_points(chain.messages):
        prefix = chain.prefix(length)
        if not prefix.keeps_open_part(plan):
            plan, since = EMPTY, 0
        situation = Situation(prefix, plan, policy, budget, count, Conditions(since=since), pins=pins)
        stage = stage_at(prefix, plan, policy, budget)
        decided = draft_epoch(situation, stage)
        plan = finish(decided, {}) if decided else plan
        since = length if decided else since
        made.append(Request(situation, stage, decided, plan))
    return made


@st.composite
def sessions(
    draw: st.DrawFn, messages: st.SearchStrategy[list[Sent]] = conversations, *, counted: bool = False
) -> list[Request]:
    chain = chain_from(draw(messages))
    assume(len(chain) > 0)
    most = draw(st.integers(1, 6)) if counted or draw(st.booleans()) else 0
    stages = Stages(target=draw(st.sampled_from([0.2, 0.5, 0.7])), max_units=most)
    policy = Policy(retention=tuple(draw(rules)), stages=stages)
    pins = frozenset(chain.hashes[at] for at in draw(st.lists(st.integers(0, len(chain) - 1), max_size=3)))
    return requests(chain, policy, draw(budgets(chain)), pins)


def fits(request: Request) -> bool:
    budget = request.before.budget
    return budget.head + view_tokens(request.plan, request.chain.tokens) <= budget.limit


def may_go_on(request: Request, indexes: Iterable[int]) -> bool:
    """Whether cutting any of these units of the view would make it smaller.

    A unit that is smaller than the notice about it stays, whatever it is.
    """
    return any(is_worth_a_note(request.after, span) for span in runs(request.after, sorted(indexes)))


@given(sessions())
def test_a_view_fits_the_budget_or_nothing_more_can_be_cut(made: list[Request]):
    for request in made:
        levels = request.after.protection
        assert fits(request) or not may_go_on(request, {i for i, level in levels.items() if level != FIXED})


@given(sessions(valid_conversations()))
def test_a_valid_history_has_only_valid_views(made: list[Request]):
    for request in made:
        assert not oddities(request.view)


@given(sessions())
def test_units_are_kept_or_cut_whole_and_none_comes_back_but_the_first_user_message(made: list[Request]):
    for request in made:
        for unit in units_of(request.chain.messages):
            assert len({request.plan.covers(place) for place in range(unit.start, unit.end)}) == 1
        assert returned(request.before.plan, request.plan) <= {*request.before.users[:1]}


@given(sessions())
def test_between_epochs_each_view_begins_with_the_one_before(made: list[Request]):
    for one, other in pairwise(made):
        if other.begun is None and one.plan == other.plan:
            assert other.view[: len(one.view)] == one.view


@given(sessions())
def test_protections_yield_in_their_order_and_only_to_the_budget(made: list[Request]):
    for request in made:
        # An epoch by count protects the newest share of the view, others that of the budget.
        planned = request.begun.situation if request.begun else request.before
        before, after = planned.protection, request.after
        lost = {level for index, level in before.items() if after.plan.covers(planned.units[index].start)}
        if lost - {FREE} and not is_for_a_clip(planned, request.plan, lost):
            assert request.stage is Stage.EMERGENCY
            then = {index: planned.unit_at(after.units[index].start) for index in after.view_units}
            assert not may_go_on(request, {index for index in then if before[then[index]] < max(lost)})


@given(sessions())
def test_pins_go_last_of_all(made: list[Request]):
    for request in made:
        for place in request.before.pinned:
            if request.plan.covers(place) and not request.before.plan.covers(place):
                assert request.begun is not None
                assert request.begun.yielded >= PINNED
                levels, standing = request.before.protection, request.after.view_units
                assert not may_go_on(request, {index for index in standing if levels[index] < PINNED})


@given(sessions())
def test_a_pin_of_another_branch_changes_nothing(made: list[Request]):
    last = made[-1]
    foreign = replace(last.before, pins=last.before.pins | {b"another branch".ljust(32)})
    again = draft_epoch(foreign, last.stage)
    assert (finish(again, {}) if again else last.before.plan) == last.plan


@given(sessions())
def test_batches_go_together(made: list[Request]):
    for request in made:
        if request.begun is None:
            continue
        run: list[int] = []
        for index in range(len(request.before.units)):
            is_member = request.before.protection.get(index) == FREE
            if is_member and request.before.classes.of(index) == "batch_compressible":
                run.append(index)
                continue
            assert len({request.after.plan.covers(request.before.units[each].start) for each in run}) <= 1
            run = []


@given(sessions())
def test_below_the_budget_what_is_critical_stays(made: list[Request]):
    for request in made:
        if request.stage is not Stage.EMERGENCY:
            for index in request.before.view_units:
                if request.before.protection[index] >= CRITICAL:
                    assert not request.plan.covers(request.before.units[index].start)


@given(sessions())
def test_an_ephemeral_text_is_in_no_note_and_in_no_source_of_a_summary(made: list[Request]):
    """A text of a word or two may be in the words of the notes and sources themselves."""
    for request in made:
        texts = [" ".join(Content.of(raw).text.split()) for raw in request.chain.raws]
        told_of = [request.after.classes.may_be_quoted(place) for place in range(len(texts))]
        shown = [text for text, is_told in zip(texts, told_of, strict=True) if is_told]
        hidden = [text[:80].strip() for text, is_told in zip(texts, told_of, strict=True) if not is_told]
        secret = [text for text in hidden if len(text) > 20 and not any(text in other for other in shown)]
        notes = "".join(Content.of(gap.note).text for gap in request.plan.gaps)
        begun = request.begun
        told = [
            source_of(begun.situation, span, 10_000).piece.text
            for span in (begun.unsummarised_spans if begun else ())
            if begun
        ]
        for text in secret:
            assert text not in notes
            assert not any(text in " ".join(piece.split()) for piece in told)


# --- by count


@given(sessions(counted=True))
def test_an_epoch_by_count_leaves_nothing_that_may_be_cut(made: list[Request]):
    for request in made:
        if request.begun is not None and request.stage in (Stage.CALM, Stage.WARN):
            before = request.before
            left = [
                index
                for index in before.view_units
                if before.protection[index] == FREE and not request.plan.covers(before.units[index].start)
            ]
            assert not any(is_worth_a_note(request.after, span) for span in runs(before, left))
            plans = [strip_ledgers(plan, count, CHAT) for plan in (request.before.plan, request.plan)]
            larger, smaller = (view_tokens(plan, request.chain.tokens) for plan in plans)
            assert smaller < larger, "ledgers apart"


@given(sessions(counted=True))
def test_after_an_epoch_the_count_begins_again(made: list[Request]):
    for request in made:
        if request.begun is not None and fits(request):
            since = Conditions(since=len(request.chain))
            stage = stage_at(request.chain, request.plan, request.before.policy, request.before.budget)
            again = draft_epoch(replace(request.after, conditions=since), stage)
            assert again is None or finish(again, {}) == request.plan

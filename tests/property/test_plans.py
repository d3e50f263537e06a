"""Plans over any conversation: bounded, valid, stable, and nothing kept is touched (laws 2, 3, 4 and 7)."""

from __future__ import annotations

import json
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage
from proxy.core.conversation.messages import TOOL_ROLES, last_user
from proxy.core.conversation.units import open_from, request_points, units_of
from proxy.core.dialects.chat.dialect import CHAT
from proxy.core.dialects.chat.messages import Content
from proxy.core.persistent import Sizes
from proxy.core.planning.chain import Chain
from proxy.core.planning.draft import Draft
from proxy.core.planning.ledger import strip_ledgers
from proxy.core.planning.life import LEAST_FREED, in_force
from proxy.core.planning.plan import EMPTY, Epoch, Plan, apply, view_tokens
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.selection import answer_to
from proxy.core.planning.situation import CRITICAL, FIXED, FREE, Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Importance, Keep, Stages, Strategy, Summary, Tool
from tests.support.conversations import (
    Sent,
    Turn,
    budgets,
    chain_from,
    conversations,
    count,
    counted,
    fits,
    from_scratch,
    is_bounded,
    is_for_a_clip,
    is_worth_a_note,
    oddities,
    prose,
    returned,
    runs,
    session,
    stage_at,
    turn,
    valid_conversations,
)

DEFAULT = Policy()
BALANCED = Policy(stages=Stages(target=0.7), summary=Summary(max_tokens=150))
PINNED = Policy(keep=Keep(pins=("stone",)))
BARE = Policy(keep=Keep(recent=0.0, first_user=False), importance=Importance(low=1.0))
WINDOW = Policy(strategy=Strategy(name="sliding_window", last=6), summary=Summary(enabled=False))
KEEPING = Policy(keep=Keep(recent=0.0), tools=(Tool(match="look", cache_exchanges=3),))
policies = st.sampled_from([DEFAULT, BALANCED, PINNED, BARE, WINDOW, KEEPING])
by_importance = st.sampled_from([DEFAULT, BALANCED, PINNED, BARE, KEEPING])
summaries = st.sampled_from([None, None, "", "Built a bridge of stone."])


class Session:
    """A conversation of which every request was answered under one policy and budget."""

    def __init__(self, chain: Chain, policy: Policy, budget: Budget, turns: list[Turn]) -> None:
        self.chain = chain
        self.policy = policy
        self.budget = budget
        self.turns = turns

    def __repr__(self) -> str:
        said = [
            f"{message.role}:{size}"
            for message, size in zip(self.chain.messages, self.chain.tokens, strict=True)
        ]
        edits = [
            (len(done.chain), done.stage.value, [(gap.start, gap.end) for gap in done.plan.gaps])
            for done in self.turns
            if done.begun is not None
        ]
        return f"{' '.join(said)} | {self.policy.strategy.name} {self.policy.keep} {self.budget} | {edits}"


@st.composite
def sessions(
    draw: st.DrawFn,
    messages: st.SearchStrategy[list[Sent]] = conversations,
    policies: st.SearchStrategy[Policy] = policies,
) -> Session:
    chain = chain_from(draw(messages))
    assume(len(chain) > 0)
    policy, budget = draw(policies), draw(budgets(chain))
    return Session(chain, policy, budget, list(session(chain, policy, budget, draw(summaries))))


# --- bounded


@given(sessions())
def test_a_view_fits_the_budget_or_only_what_is_incompressible_is_left(drawn: Session):
    policy, budget = drawn.policy, drawn.budget
    for done in drawn.turns:
        assert is_bounded(done.chain, done.plan, policy, budget)


@given(conversations, st.data(), policies)
def test_a_view_planned_from_scratch_fits_the_budget_or_only_what_is_incompressible_is_left(
    messages: list[Sent], data: st.DataObject, policy: Policy
):
    chain = chain_from(messages)
    budget = data.draw(budgets(chain))
    plan, _ = from_scratch(chain, policy, budget, count)
    assert is_bounded(chain, plan, policy, budget)


@given(sessions(policies=by_importance))
def test_summaries_within_their_limit_do_not_take_a_view_over_the_budget(drawn: Session):
    policy, budget = drawn.policy, drawn.budget
    for done in drawn.turns:
        if done.begun is None:
            continue
        tokens = policy.summary_tokens(budget.limit) // max(len(done.begun.unsummarised_spans), 1)
        text = prose("en", tokens * 4)[: tokens * 4 - 8]
        plan = finish(done.begun, dict.fromkeys(done.begun.unsummarised_spans, text))
        assert is_bounded(done.chain, plan, policy, budget)


@given(sessions())
def test_the_size_of_a_view_is_the_sum_of_its_messages(drawn: Session):
    for done in drawn.turns:
        assert done.tokens == sum(map(counted, done.view))


@given(sessions(policies=by_importance))
def test_below_100_percent_an_epoch_frees_a_tenth_of_the_room_or_is_not_begun(drawn: Session):
    budget = drawn.budget
    for done in drawn.turns:
        if done.begun is not None and done.stage is not Stage.EMERGENCY:
            notices_only = finish(done.begun, {})
            freed = view_tokens(done.before, done.chain.tokens) - view_tokens(notices_only, done.chain.tokens)
            assert freed >= LEAST_FREED * budget.room


@given(sessions())
def test_directly_after_an_epoch_nothing_more_is_done(drawn: Session):
    policy, budget = drawn.policy, drawn.budget
    for done in drawn.turns:
        if done.begun is not None:
            again = turn(done.chain, done.plan, policy, budget)
            assert again.plan == done.plan
            assert again.begun is None or not fits(done.chain, done.plan, budget)


# --- valid


@given(sessions(valid_conversations()))
def test_a_valid_history_has_only_valid_views(drawn: Session):
    for done in drawn.turns:
        assert not oddities(done.view)


@given(sessions())
def test_a_view_has_no_oddity_that_its_history_has_not(drawn: Session):
    for done in drawn.turns:
        replaced = {edit.raw: done.chain.raws[edit.position] for edit in done.plan.replacements}
        original = [replaced.get(raw, raw) for raw in done.view]
        assert oddities(original) <= oddities(done.chain.raws)


@given(sessions())
def test_units_are_kept_or_cut_whole(drawn: Session):
    for done in drawn.turns:
        for unit in units_of(done.chain.messages):
            assert len({done.plan.covers(place) for place in range(unit.start, unit.end)}) == 1


@given(sessions())
def test_what_is_kept_keeps_its_order_and_its_bytes(drawn: Session):
    for done in drawn.turns:
        notes = {gap.start: gap.note for gap in done.plan.gaps}
        edits = {edit.position: edit.raw for edit in done.plan.replacements}
        expected: list[bytes] = []
        for place, raw in enumerate(done.chain.raws):
            if notes.get(place):
                expected.append(notes[place])
            if not done.plan.covers(place):
                expected.append(edits.get(place, raw))
        assert done.view == expected


@given(sessions())
def test_gaps_are_in_order_and_hold_no_replacement(drawn: Session):
    for done in drawn.turns:
        gaps = done.plan.gaps
        assert all(gap.start < gap.end <= len(done.chain) for gap in gaps)
        assert all(one.end <= other.start for one, other in pairwise(gaps))
        assert all(one.note for one, other in pairwise(gaps) if one.end == other.start), "one stands"
        assert not any(done.plan.covers(edit.position) for edit in done.plan.replacements)


@given(sessions())
def test_the_last_user_message_stands_byte_for_byte(drawn: Session):
    for done in drawn.turns:
        asked = last_user(done.chain.messages)
        if asked is not None:
            assert not done.plan.covers(asked)
            assert asked not in {edit.position for edit in done.plan.replacements}


@given(sessions())
def test_what_the_model_is_to_answer_is_never_cut(drawn: Session):
    for done in drawn.turns:
        units = units_of(done.chain.messages)
        for unit in units[open_from(done.chain.messages, units) :]:
            assert not done.plan.covers(unit.start)


@given(sessions())
def test_only_tool_results_and_user_messages_are_clipped(drawn: Session):
    for done in drawn.turns:
        for edit in done.plan.replacements:
            assert done.chain.messages[edit.position].role in {"tool", "function", "user"}


@given(sessions())
def test_a_note_is_never_last_and_never_before_a_tool_message(drawn: Session):
    for done in drawn.turns:
        for gap in done.plan.gaps:
            assert gap.end < len(done.chain)
            assert done.chain.messages[gap.end].role not in TOOL_ROLES


@given(sessions(policies=st.just(PINNED)))
def test_pins_are_kept_while_anything_less_protected_is_worth_cutting(drawn: Session):
    """A message that is smaller than the notice about it stays: to cut it would not save a pin."""
    policy, budget = drawn.policy, drawn.budget
    for done in drawn.turns:
        if done.begun is None:
            continue
        before = Situation(done.chain, done.before, policy, budget, count)
        now = Situation(done.chain, done.plan, policy, budget, count)
        pinned = {before.units[i].start for i, level in before.protection.items() if level == CRITICAL}
        if any(map(now.plan.covers, pinned)):
            starts = {index: before.unit_at(now.units[index].start) for index in now.view_units}
            less = [index for index, then in starts.items() if before.protection[then] < CRITICAL]
            assert not any(is_worth_a_note(now, span) for span in runs(now, less))


ABOVE = (
    "request above",
    "Anfrage darüber",
    "demande ci-dessus",
    "petición de arriba",
    "上の依頼",
    "上面请求",
    "上面的请求",
)
"""How a note speaks of the request right above it, in any of its languages."""


@given(sessions(valid_conversations(), by_importance))
def test_a_request_does_not_stand_without_its_answer_or_a_word_about_it(drawn: Session):
    """The last request may, where the budget has no room for a word beside it."""
    for done in drawn.turns:
        situation = Situation(done.chain, done.plan, drawn.policy, drawn.budget, count)
        for index in filter(situation.is_user, situation.view_units):
            place = situation.units[index].end
            while place < len(done.chain) and done.chain.messages[place].role == "system":
                place += 1
            answer = answer_to(situation, index)
            if not answer or set(answer) & set(situation.view_units):
                continue
            (note,) = [gap.note for gap in done.plan.gaps if gap.start <= place < gap.end]
            is_last = situation.units[index].start == done.chain.last_user
            assert any(words in note.decode() for words in ABOVE) or (is_last and not note)


# --- stable


@given(sessions())
def test_between_epochs_each_view_begins_with_the_one_before(drawn: Session):
    for one, other in pairwise(drawn.turns):
        if other.begun is None:
            assert other.view[: len(one.view)] == one.view


@given(sessions())
def test_what_is_cut_stays_cut_but_for_the_first_user_message(drawn: Session):
    for done in drawn.turns:
        situation = Situation(done.chain, done.plan, drawn.policy, drawn.budget, count)
        assert returned(done.before, done.plan) <= {*situation.users[:1]}


@given(sessions())
def test_a_summary_stays_until_its_gap_grows(drawn: Session):
    """The ledger apart, which moves on to a later gap; and while the budget has room for notes at all."""
    for one, other in pairwise(drawn.turns):
        earlier, later = (strip_ledgers(done.plan, count, CHAT) for done in (one, other))
        later = {(gap.start, gap.end): gap for gap in later.gaps}
        for gap in earlier.gaps:
            if gap.is_summarised and (gap.start, gap.end) in later and later[gap.start, gap.end].note:
                assert later[gap.start, gap.end] == gap


@given(sessions())
def test_a_draft_was_measured_by_the_notes_that_it_is_written_with(drawn: Session):
    for begun in (done.begun for done in drawn.turns if done.begun is not None):
        quotes = {gap.span: gap.quotes for gap in begun.outline.gaps}
        edits, strategy, acts_now = begun.outline.replacements, begun.strategy, begun.acts_now
        standing = [gap.span for gap in begun.outline.gaps if gap.ledger]
        again = Draft.of(
            begun.situation,
            begun.stage,
            quotes,
            edits,
            strategy=strategy,
            acts_now=acts_now,
            standing=standing,
        )
        assert again.outline == begun.outline


@given(sessions())
def test_the_same_situation_gives_the_same_plan(drawn: Session):
    chain, policy, budget = drawn.chain, drawn.policy, drawn.budget
    for done in drawn.turns:
        if done.begun is not None:
            other = Chain(
                list(chain.messages), list(chain.raws), Sizes.of(chain.tokens), list(chain.hashes), CHAT
            )
            situation = Situation(other.prefix(len(done.chain)), done.before, policy, budget, count)
            again = draft_epoch(situation, done.stage)
            assert again is not None
            assert finish(again, {}) == finish(done.begun, {})


@given(conversations, st.data(), by_importance)
def test_the_plan_of_a_chain_from_scratch_is_what_each_of_its_requests_came_to(
    messages: list[Sent], data: st.DataObject, policy: Policy
):
    chain = chain_from(messages)
    assume(len(chain) > 0)
    budget = data.draw(budgets(chain))
    planned = [
        (epochs, apply(plan, prefix.raws))
        for prefix in map(chain.prefix, request_points(chain.messages))
        for plan, epochs in [from_scratch(prefix, policy, budget, count)]
    ]
    for (earlier, one), (later, other) in pairwise(planned):
        assert later - earlier in (0, 1)
        if later == earlier:
            assert other[: len(one)] == one


@given(conversations, st.data(), policies)
def test_a_plan_from_scratch_depends_on_nothing_but_the_chain(
    messages: list[Sent], data: st.DataObject, policy: Policy
):
    budget = data.draw(budgets(chain_from(messages)))
    assert from_scratch(chain_from(messages), policy, budget, count) == from_scratch(
        chain_from(messages), policy, budget, count
    )


@given(sessions(policies=by_importance), st.data())
def test_a_rolled_back_chain_keeps_what_it_asks(drawn: Session, data: st.DataObject):
    """Regenerating an answer: the chain ends earlier, and the epochs that still hold are applied to it."""
    chain = drawn.chain
    epochs: list[Epoch] = []
    for done in drawn.turns:
        if done.plan != done.before and done.plan.depth:
            epochs.append(epoch_of(done, number=len(epochs) + 1))
    assume(epochs)
    length = data.draw(st.sampled_from(request_points(chain.messages)))
    assume(length > 0)
    rolled = chain.prefix(length)
    asked = last_user(rolled.messages)

    chosen = epochs, rolled.hashes, rolled.tokens.total, rolled.keeps_open_part
    held = in_force(*chosen)
    assert held == in_force(*chosen, rolled.editable_length)
    if held is None or asked is None:
        return
    view = apply(held.plan, rolled.raws)
    assert rolled.raws[asked] in view
    assert view[-1] == rolled.raws[-1] or length - 1 in {edit.position for edit in held.plan.replacements}


def epoch_of(done: Turn, number: int) -> Epoch:
    return Epoch(
        id=str(number),
        parent=str(number - 1) if number > 1 else "",
        number=number,
        lane="lane",
        reach=done.chain.hashes[done.plan.depth - 1],
        begun_at=done.chain.hashes[-1],
        depth=done.plan.depth,
        calm_below=0,
        at=0.0,
        stage=done.stage,
        reason="usage",
        original_count=len(done.chain),
        original_tokens=view_tokens(done.before, done.chain.tokens),
        final_count=len(done.view),
        final_tokens=done.tokens,
        plan=done.plan,
    )


# --- gaps and their notes


@given(sessions(policies=by_importance))
def test_large_gaps_want_a_summary_and_small_ones_do_not(drawn: Session):
    policy = drawn.policy
    for done in drawn.turns:
        if done.begun is None:
            continue
        anchors = done.before.anchors
        told = {place for each in anchors for place in range(each.start, each.end)}
        untold = {span: len({*range(*span)} - told) for span in done.begun.spans}
        large = {span for span, count in untold.items() if count >= policy.summary.min_gap}
        assert set(done.begun.unsummarised_spans) == (large if done.begun.affords_summaries else set())


@given(sessions())
def test_each_gap_with_a_note_has_one_that_says_how_many_messages_are_gone(drawn: Session):
    for done in drawn.turns:
        for gap in (gap for gap in done.plan.gaps if gap.note):
            text = Content.of(gap.note).text
            assert json.loads(gap.note).keys() == {"role", "content"}
            untold = gap.count - sum(anchor.count for anchor in gap.anchors)
            for number in (untold, *(anchor.count for anchor in gap.anchors)):
                assert not number or str(number) in text
            assert text.startswith("<note ")
            assert text.endswith("</note " + text[6:18] + ">")


@given(sessions())
def test_only_an_emergency_cuts_without_a_note_and_then_all_that_may_be_cut(drawn: Session):
    policy, budget = drawn.policy, drawn.budget
    for done in drawn.turns:
        if done.begun is not None and any(gap.note == b"" for gap in done.plan.gaps):
            assert done.begun.stage is Stage.EMERGENCY
            assert not any(gap.note for gap in done.plan.gaps)
            now = Situation(done.chain, done.plan, policy, budget, count)
            assert {now.protection[index] for index in now.view_units} == {FIXED}


@given(sessions())
def test_a_note_is_never_longer_than_what_it_stands_for(drawn: Session):
    for done in drawn.turns:
        for gap in done.plan.gaps:
            plain = strip_ledgers(Plan((gap,)), count, CHAT).gaps[0]
            assert plain.tokens <= done.chain.tokens.between(gap.start, gap.end)
            assert len(plain.note) <= sum(map(len, done.chain.raws[gap.start : gap.end]))
        for edit in done.plan.replacements:
            assert edit.tokens < done.chain.tokens[edit.position]
            assert len(edit.raw) <= len(done.chain.raws[edit.position])


@given(sessions(policies=by_importance))
def test_without_summaries_no_gap_wants_one(drawn: Session):
    policy, budget = drawn.policy, drawn.budget
    silent = policy.model_copy(update={"summary": Summary(enabled=False)})
    for done in drawn.turns:
        if done.begun is not None:
            situation = replace(done.begun.situation, policy=silent)
            assert replace(done.begun, situation=situation).unsummarised_spans == ()
    assert stage_at(drawn.turns[0].chain, EMPTY, silent, budget) == drawn.turns[0].stage


@given(sessions(policies=by_importance))
def test_unprotected_units_go_before_protected_ones(drawn: Session):
    policy, budget = drawn.policy, drawn.budget
    for done in drawn.turns:
        if done.begun is None:
            continue
        before = Situation(done.chain, done.before, policy, budget, count)
        now = Situation(done.chain, done.plan, policy, budget, count)
        levels = before.protection
        lost = {level for index, level in levels.items() if now.plan.covers(before.units[index].start)}
        if lost - {FREE} and not is_for_a_clip(before, done.plan, lost):
            assert done.begun.stage is Stage.EMERGENCY
            then = (levels[before.unit_at(now.units[index].start)] for index in now.view_units)
            left = [index for index, level in zip(now.view_units, then, strict=True) if level < max(lost)]
            assert not any(is_worth_a_note(now, span) for span in runs(now, left))

"""Plan the next epoch: decide from a situation what is cut.

``due_strategy`` says whether an epoch is due. ``draft_epoch`` chooses the gaps, and which of them should get
a summary. The caller may then fetch summaries, and ``finish`` writes the notes and returns the plan. All
functions are pure, so the same situation and the same summaries give the same plan on every worker (law 3).
The finished view fits the budget unless the messages that must stay exceed it by themselves (law 4).
:mod:`proxy.core.planning.gaps` writes the notes; :mod:`proxy.core.planning.draft` chooses the units.
"""

from collections.abc import Mapping
from typing import assert_never

from msgspec.structs import replace

from proxy.core.budget.budget import Stage
from proxy.core.conversation.notes import quote
from proxy.core.planning.draft import Draft, nearest_to_goal, summary_room
from proxy.core.planning.gaps import Summaries, new_texts, part_of, with_notes, without_notes
from proxy.core.planning.ledger import add_ledger, details_room, strip_ledgers
from proxy.core.planning.life import GATES, LEAST_FREED, Gate, cause_of, has_earned_epoch
from proxy.core.planning.plan import Plan, Span, view_tokens
from proxy.core.planning.reasoning import is_amid_reasoning
from proxy.core.planning.replacements import clip_view
from proxy.core.planning.situation import FREE, RECENT, Situation
from proxy.core.planning.strategies import BY_UNITS, acts_by_usage, strategy_of
from proxy.core.planning.strategy import Strategy

# --- when an epoch is due ---


def due_strategy(situation: Situation, stage: Stage) -> Strategy | None:
    """Return the strategy that would begin an epoch now; None if no epoch is due.

    This is the policy's strategy or, before *compact*, ``BY_UNITS``, which counts units. It must be quick,
    because it is called for every request.
    """
    strategy = strategy_of(situation.policy.strategy.name)
    must_fit = stage is Stage.EMERGENCY and situation.policy.strategy.name != "off"  # law 4
    if not stage.is_pressing and BY_UNITS.is_due(situation, stage):
        strategy = BY_UNITS
    elif not (must_fit or strategy.is_due(situation, stage)):
        return None
    if not stage.is_pressing and is_amid_reasoning(situation.chain):
        return None
    if strategy is BY_UNITS:
        return strategy
    stage, budget, stages = _planned_at(situation, stage), situation.budget, situation.policy.stages
    acts_now = stage is not Stage.EMERGENCY and strategy.may_act_now(situation)
    cause = cause_of(stage, acts_now=acts_now, is_over=budget.is_over(situation.view_tokens))
    is_earned = Gate.EARNED not in GATES[cause] or has_earned_epoch(
        situation.past, situation.chain.tokens, budget, stages
    )
    return strategy if is_earned else None


def _planned_at(situation: Situation, stage: Stage) -> Stage:
    """The stage to plan for: *compact* instead of *emergency* if no clipping can make the view fit."""
    return Stage.COMPACT if stage is Stage.EMERGENCY and situation.budget.is_overrun else stage


# --- what it cuts ---


def draft_epoch(
    situation: Situation, stage: Stage, *, growth: int = 0, ledger: int | None = None
) -> Draft | None:
    """Decide on an epoch; return None if none is due, or if one of its gates does not hold.

    ``growth``: counted tokens by which the view will have grown when the epoch begins, if it is prepared in
    advance. ``ledger``: an upper bound of the ledger's counted tokens; with it the ledger is not written to
    be measured, which would take too long when a long history is replayed.
    """
    strategy = due_strategy(situation, stage)
    if strategy is None:
        return None
    if strategy is BY_UNITS:  # as at *trim*, no request waits for the summaries
        newest = int(situation.policy.keep.recent * situation.view_tokens)
        stage, situation = Stage.TRIM, replace(situation, recent_tokens=newest)
    stage = _planned_at(situation, stage)
    draft = nearest_to_goal(_with_first_user(situation, stage), stage, strategy, growth, ledger)
    if not all(_holds(gate, draft, situation) for gate in draft.gates):
        return None
    if Gate.FREES not in draft.gates:
        return draft
    freed = situation.view_tokens - draft.view_tokens - summary_room(situation, stage)
    return replace(draft, affords_summaries=freed >= LEAST_FREED * situation.budget.room)


def _with_first_user(situation: Situation, stage: Stage) -> Situation:
    """Return the situation with the first user message uncut, if it had to yield and has room again.

    It has room if it stays below the trim line with the ledger and all that does not yield to it.
    """
    policy, plan, chain, budget = situation.policy, situation.plan, situation.chain, situation.budget
    is_wanted = policy.keep.first_user and stage.is_pressing and acts_by_usage(policy.strategy.name)
    if not (is_wanted and situation.users) or (first := situation.users[0]) == chain.last_user:
        return situation
    gap = next((gap for gap in plan.gaps if gap.start == first), None)
    if gap is None:
        return situation
    yielding, levels = RECENT if stage is Stage.EMERGENCY else FREE, situation.protection.items()
    beside = details_room(situation, budget.limit)
    beside += sum(situation.size(each) for each, level in levels if level > yielding)
    tokens = chain.tokens[first]
    if tokens > budget.share(policy.keep.first_user_share):
        tokens = budget.share(policy.keep.first_user_clipped)
    if beside + tokens > budget.share(policy.stages.trim):
        return situation
    own, span = quote(situation.content(first).text), (first + 1, gap.end)
    rest = part_of(situation, gap, span, tuple(each for each in gap.quotes if each != own))
    if rest is None and gap.count > 1:
        return situation
    gaps = (rest if each is gap else each for each in plan.gaps)
    return situation.under(Plan(tuple(each for each in gaps if each is not None), plan.replacements))


def _holds(gate: Gate, draft: Draft, situation: Situation) -> bool:
    outline = draft.outline
    match gate:
        case Gate.CHANGES:
            has_new_edits = not {*outline.replacements} <= {*situation.plan.replacements}
            return has_new_edits or outline.edited != situation.plan.edited
        case Gate.FREES:
            return situation.view_tokens - draft.view_tokens >= LEAST_FREED * situation.budget.room
        case Gate.SHRINKS:
            count, dialect, tokens = situation.count, situation.chain.dialect, situation.chain.tokens
            before, after = (strip_ledgers(each, count, dialect) for each in (situation.plan, outline))
            return view_tokens(after, tokens) < view_tokens(before, tokens)
        case Gate.FITS:
            return not situation.budget.is_over(draft.view_tokens)
        case Gate.EARNED | Gate.PAYS | Gate.PREPARED:
            return True  # EARNED is checked in due_strategy, the others in proxy/engine/planning/epochs.py
        case _:
            assert_never(gate)


# --- the plan ---


def finish(draft: Draft, summaries: Summaries) -> Plan:
    """Return the plan of a draft with its notes and ledger; in an emergency, clip messages as needed."""
    return add_ledger(draft.situation, finish_without_ledger(draft, summaries), fills=True)


def finish_without_ledger(draft: Draft, summaries: Summaries) -> Plan:
    """Return the plan of a draft without the ledger of its last note, leaving room for it."""
    situation, plan, tokens = draft.situation, draft.outline, draft.situation.chain.tokens
    quotes, edits = {gap.span: gap.quotes for gap in plan.gaps}, plan.replacements
    texts = new_texts(situation, quotes, draft.strategy, summaries)
    writer = draft.strategy if draft.acts_now else None
    if texts or writer:
        plan = with_notes(situation, draft.in_force, quotes, edits, texts, writer)
    while texts and situation.budget.is_over(view_tokens(plan, tokens) + draft.ledger):
        # A summary may be longer than the room set aside for it; a notice always fits.
        texts.pop(max(texts, key=lambda span: sum(len(anchor.text) for anchor in texts[span])))
        plan = with_notes(situation, draft.in_force, quotes, edits, texts, writer)
    if draft.stage is Stage.EMERGENCY:
        return _fitted(draft, plan)
    return plan


def _fitted(draft: Draft, plan: Plan) -> Plan:
    """Return the plan with clips so that its view fits the budget, as far as that is possible.

    Where notes leave no room for what must stay, their quotes go, then the notes themselves.
    """
    situation, tokens = draft.situation, draft.situation.chain.tokens

    def clipped(each: Plan) -> Plan:
        return clip_view(situation, each, draft.yielded, draft.ledger)

    def is_over(each: Plan) -> bool:
        return situation.budget.is_over(view_tokens(each, tokens))

    found = clipped(plan)
    if not is_over(found):
        return found
    quotes = dict.fromkeys(plan.spans, ())
    unquoted = with_notes(situation, draft.in_force, quotes, plan.replacements, None, None)
    shorter = map(clipped, (unquoted, without_notes(situation, plan)))
    return next((each for each in shorter if not is_over(each)), found)


def cuts_protected(situation: Situation, plan: Plan) -> bool:
    """Whether a plan cuts any unit that is protected now."""
    protected = (situation.units[index] for index, level in situation.protection.items() if level > FREE)
    return any(plan.covers(unit.start) for unit in protected)


def with_late_summaries(situation: Situation, texts: Mapping[Span, str]) -> Plan:
    """Return the plan in force, with summaries that arrived late put into the notes of their gaps.

    Rewriting a note makes the provider read everything after it again, so use this only while its cache is
    cold (:func:`proxy.core.economics.economy.is_cold`). Epochs that cut add late summaries anyway.
    """
    plan, tokens = situation.plan, situation.chain.tokens
    strategy = strategy_of(situation.policy.strategy.name)
    plain = strip_ledgers(plan, situation.count, situation.chain.dialect, plan.spans[:-1])
    ledger = view_tokens(plan, tokens) - view_tokens(plain, tokens)
    late = Draft(situation=situation, stage=Stage.TRIM, outline=plain, ledger=ledger, strategy=strategy)
    return finish(late, texts)

"""What gets cut: from a situation to the plan of the next epoch.

``draft`` chooses the gaps and says which of them deserve a summary; whoever asked may then fetch summaries,
or not; ``finish`` writes the notes and answers the plan. Both are pure, so the same situation and the same
summaries give the same plan on every worker (law 3), and the finished view fits the budget unless what must
stay alone does not (law 4). What notes say is the business of :mod:`proxy.core.noting`.
"""

from collections.abc import Container, Mapping, Sequence
from itertools import islice

import msgspec
from msgspec.structs import replace

from proxy.core.breaker import LEAST_FREED, allows
from proxy.core.budget import Stage
from proxy.core.clipping import clip_view
from proxy.core.counting import BY_UNITS
from proxy.core.ledger.placing import cut_tokens, placed, plain_of, room_for
from proxy.core.noting import Summaries, Told, gap_of, told_by
from proxy.core.picture_clearing import picture_clearings
from proxy.core.plan import Gap, Plan, Replacement, Span, view_tokens
from proxy.core.precedence import NOTICE_TOKENS
from proxy.core.selection import Selection
from proxy.core.situation import FREE, Situation
from proxy.core.strategies import Strategy, strategy_of
from proxy.core.tool_results import Clearing, clearings

_NOTICES = 2


class Draft(msgspec.Struct, frozen=True):
    """An epoch that is decided but for the words of its notes."""

    situation: Situation
    stage: Stage
    spans: tuple[Span, ...]
    """Every gap from now on."""
    quotes: Mapping[Span, tuple[str, ...]]
    yielded: int
    """The firmest protection that had to yield (:mod:`proxy.core.situation`)."""
    cleared: tuple[Replacement, ...] = ()
    """Tool results that go out as placeholders from now on."""
    has_room: bool = True
    """Whether the epoch is worth its while with summaries, and not with notices alone."""
    strategy: Strategy | None = None
    """The strategy that decided, and writes its notes; None where a person did."""
    acts_now: bool = False
    """Whether it begins for another reason than usage, at once."""

    @property
    def may_wait(self) -> bool:
        """Whether it begins for the size of the view alone, and so may wait until it pays."""
        return self.stage is Stage.TRIM and not self.acts_now and self.strategy is not BY_UNITS

    @property
    def waits(self) -> bool:
        """Whether a request may wait for its summaries."""
        is_rare = self.acts_now and self.strategy is not None and not self.strategy.slides
        return self.stage is Stage.COMPACT or (is_rare and self.stage is not Stage.EMERGENCY)

    @property
    def wanted(self) -> tuple[Span, ...]:
        """Gaps of which enough is told by no summary yet: each message is paid for once."""
        rules = self.situation.policy.summary
        if not rules.enabled or not self.has_room:
            return ()
        anchors = self.situation.plan.anchors
        told = {place for each in anchors if not each.by_code for place in range(each.start, each.end)}
        large = (span for span in self.spans if self._lacks(span, told, rules.min_gap))
        strategy, situation = self.strategy, self.situation
        return tuple(span for span in large if strategy is None or strategy.wants_summary(situation, *span))

    def _lacks(self, span: Span, told: Container[int], least: int) -> bool:
        """Whether a summary may tell of so many messages of a gap, and none does."""
        may_be_told = self.situation.classes.may_be_summarised
        untold = (place for place in range(*span) if place not in told and may_be_told(place))
        return sum(1 for _ in islice(untold, least)) == least


def is_due(situation: Situation, stage: Stage) -> bool:
    """Whether the policy would begin an epoch now; quick, since it is asked at every request."""
    return _due(situation, stage) is not None


def _due(situation: Situation, stage: Stage) -> Strategy | None:
    """What would begin an epoch now: the strategy, before *compact* also the count of units."""
    is_pressing = stage in (Stage.COMPACT, Stage.EMERGENCY)
    if not is_pressing and BY_UNITS.is_due(situation, stage):
        return BY_UNITS
    strategy = strategy_of(situation.policy.strategy.name)
    if not strategy.is_due(situation, stage):
        return None
    is_free = stage is Stage.EMERGENCY or strategy.acts_now(situation)
    rules = situation.policy.stages
    is_earned = is_free or allows(situation.past, situation.chain.tokens, situation.budget, rules)
    return strategy if is_earned else None


def acts_now(situation: Situation) -> bool:
    """Whether the policy's strategy would begin one now for another reason than usage."""
    return strategy_of(situation.policy.strategy.name).acts_now(situation)


def draft(situation: Situation, stage: Stage) -> Draft | None:
    """Decide on an epoch; None where none is due, or where it would free too little to be worth it."""
    strategy = _due(situation, stage)
    if strategy is None:
        return None
    stage = Stage.TRIM if strategy is BY_UNITS else stage  # like there, no request waits for a summary
    selection, decided, freed = _select(situation, stage, strategy)
    if stage is Stage.EMERGENCY:
        return decided
    if not (selection.cut or selection.edits):
        return None
    if strategy is BY_UNITS and not _shrinks(decided):
        return None
    if decided.acts_now or strategy is BY_UNITS:
        return decided if situation.view - freed <= situation.budget.share(1) else None
    least = LEAST_FREED * situation.budget.room
    if freed < least:
        return None
    return replace(decided, has_room=freed - _summary_room(situation, stage) >= least)


def _select(situation: Situation, stage: Stage, strategy: Strategy) -> tuple[Selection, Draft, int]:
    """Choose, again with more set aside while the notes alone bring the view over the budget.

    Answers also the counted tokens that the epoch frees with notices for notes.
    """
    set_aside, ledger = _set_aside(situation, stage), _ledger_set_aside(situation)
    results = _clearings(situation, strategy)
    while True:
        selection = Selection(situation, stage, set_aside, ledger, results)
        selection.run(strategy)
        decided = _decided(situation, stage, strategy, selection)
        plain = _noted(decided, {})
        over = view_tokens(plain, situation.chain.tokens) - selection.to_clip - situation.budget.share(1)
        if stage is not Stage.EMERGENCY or over <= 0 or selection.is_exhausted:
            return selection, decided, situation.view - _size_of(situation, plain)
        set_aside += over


def _clearings(situation: Situation, strategy: Strategy) -> Sequence[Clearing]:
    """What may be cleared in place of being cut; nothing where the strategy counts."""
    if strategy.slides or strategy.acts_now(situation):
        return ()
    return (*picture_clearings(situation), *clearings(situation))


def _decided(situation: Situation, stage: Stage, strategy: Strategy, selection: Selection) -> Draft:
    spans = tuple(selection.spans())
    return Draft(
        situation,
        stage,
        spans,
        quotes={span: selection.quotes_within(*span) for span in spans},
        yielded=selection.yielded,
        cleared=tuple(selection.edits),
        strategy=strategy,
        acts_now=strategy.acts_now(situation),
    )


def outlined(decided: Draft) -> Plan:
    """The plan of a draft with notices for notes and without its ledger; quick."""
    return _noted(decided, {})


def noticed(decided: Draft) -> int:
    """Counted tokens that the view of a draft has at most, with notices for notes; quick."""
    return _size_of(decided.situation, _noted(decided, {}))


def _size_of(situation: Situation, plain: Plan) -> int:
    """Counted tokens of the view of a plan that has no ledger yet, once it has one of full size."""
    ledger = room_for(situation, cut_tokens(situation, plain))
    return view_tokens(plain, situation.chain.tokens) + ledger


def _shrinks(decided: Draft) -> bool:
    """Whether the view becomes smaller, ledgers apart."""
    situation = decided.situation
    before = plain_of(situation.plan, situation.count)
    tokens = situation.chain.tokens
    return view_tokens(_noted(decided, {}), tokens) < view_tokens(before, tokens)


def _set_aside(situation: Situation, stage: Stage) -> int:
    """Counted tokens kept free for the epoch's notes, but for the ledger."""
    notices = min(_NOTICES * NOTICE_TOKENS, situation.budget.room // 10)
    return notices + _summary_room(situation, stage)


def _summary_room(situation: Situation, stage: Stage) -> int:
    """Counted tokens of the summary that an epoch may wait for."""
    if stage is not Stage.COMPACT or not situation.policy.summary.enabled:
        return 0
    return situation.policy.summary_tokens(situation.budget.limit)


def _ledger_set_aside(situation: Situation) -> int:
    """Counted tokens kept free for the ledger, beside those of the one that it takes the place of."""
    standing = sum(situation.count(gap.ledger) for gap in situation.plan.gaps if gap.ledger)
    standing += situation.unwritten
    return max(room_for(situation, situation.chain.tokens.total) - standing, 0)


def finish(decided: Draft, summaries: Summaries) -> Plan:
    """Write the notes of a draft, the ledger among them, and, if the view is still too large, clip."""
    return placed(decided.situation, written(decided, summaries))


def written(decided: Draft, summaries: Summaries) -> Plan:
    """The plan of a draft but for its ledger, for which it leaves room."""
    situation = decided.situation
    told = told_by(situation, decided.spans, decided.strategy, summaries)
    plan = _noted(decided, told)
    while told and _size_of(situation, plan) > situation.budget.share(1):
        # A summary may be longer than what was set aside for it; a notice always fits.
        told.pop(max(told, key=lambda span: sum(len(anchor.text) for anchor in told[span])))
        plan = _noted(decided, told)
    if decided.stage is Stage.EMERGENCY:
        ledger = room_for(situation, cut_tokens(situation, plan))
        plan = clip_view(situation, plan, decided.yielded, ledger)
    return plan


def _noted(decided: Draft, told: Told) -> Plan:
    """A draft with its notes, but for the ledger; a note that has nothing new to say stays as it is."""
    situation = decided.situation
    standing = {gap.span: gap for gap in plain_of(situation.plan, situation.count).gaps}
    gaps: list[Gap] = []
    for span in decided.spans:
        old = standing.get(span)
        is_settled = old is not None and not told.get(span)
        gaps.append(old if old and is_settled else gap_of(situation, span, told, decided.quotes[span]))
    edits = {edit.position: edit for edit in (*situation.plan.replacements, *decided.cleared)}
    for start, end in decided.spans:
        edits = {place: edit for place, edit in edits.items() if not start <= place < end}
    return Plan(tuple(gaps), tuple(edits[place] for place in sorted(edits)))


def cuts_protected(situation: Situation, plan: Plan) -> bool:
    """Whether a plan cuts what is protected now."""
    protected = (situation.units[index] for index, level in situation.protection.items() if level > FREE)
    return any(plan.covers(unit.start) for unit in protected)


def yielded_protection(decided: Draft) -> bool:
    """Whether an epoch had to cut what the policy protects."""
    return decided.yielded > FREE

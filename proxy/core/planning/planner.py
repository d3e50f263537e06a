"""What gets cut: from a situation to the plan of the next epoch.

``draft`` chooses the gaps and says which of them deserve a summary; whoever asked may then fetch summaries,
or not; ``finish`` writes the notes and answers the plan. Both are pure, so the same situation and the same
summaries give the same plan on every worker (law 3), and the finished view fits the budget unless what must
stay alone does not (law 4). What notes say is the business of :mod:`proxy.core.planning.gaps`.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Final, NamedTuple, assert_never

import msgspec
from msgspec.structs import replace

from proxy.core.budget.budget import Stage
from proxy.core.planning.gaps import NewTexts, Summaries, gap_of, is_no_longer, new_texts
from proxy.core.planning.ledger import add_ledger, cut_tokens, plain_of, room_for
from proxy.core.planning.life import LEAST_FREED, LIFE, Cause, Gate, allows, cause_of
from proxy.core.planning.plan import Gap, Plan, Replacement, Span, view_tokens
from proxy.core.planning.reasoning import is_amid_reasoning
from proxy.core.planning.replacements import clearings, clip_view, first_user_clip, picture_clearings
from proxy.core.planning.selection import NOTICE_TOKENS, Selection
from proxy.core.planning.situation import FREE, Situation
from proxy.core.planning.strategies import BY_UNITS, strategy_of
from proxy.core.planning.strategy import Strategy

_NOTICES = 2
_TRIES: Final = 4
"""How often units are chosen, to come near the goal once the size of notes and ledger is known."""
_NEAR, _AS_NEAR = 0.01, 0.03
"""Shares of the room: by which what was set aside may be wrong, and by which a view may end below its goal
where another choice would come nearer, but cut more."""
_TOO_LITTLE = 0.02
"""Share of the room by which a view counts as farther from its goal where no epoch would begin for it."""
_OVER = 2
"""How much farther from its goal a view above it counts: the next epoch comes sooner."""


class Draft(msgspec.Struct, frozen=True, dict=True):
    """An epoch that is decided but for the words of its notes."""

    situation: Situation
    stage: Stage
    spans: tuple[Span, ...]
    """Every gap from now on."""
    quotes: Mapping[Span, tuple[str, ...]]
    yielded: int
    """The firmest protection that had to yield (:mod:`proxy.core.planning.situation`)."""
    cleared: tuple[Replacement, ...] = ()
    """Tool results that go out as placeholders from now on."""
    ledger: int = 0
    """Counted tokens that its ledger takes."""
    has_room: bool = True
    """Whether the epoch is worth its while with summaries, and not with notices alone."""
    strategy: Strategy | None = None
    """The strategy that decided, and writes its notes; None where a person did."""
    acts_now: bool = False
    """Whether it begins for another reason than usage, at once."""

    @cached_property
    def outline(self) -> Plan:
        """Its plan with notices for notes and without its ledger; quick."""
        return _noted(self, None)

    @property
    def most_tokens(self) -> int:
        """Counted tokens that its view has at most, with notices for notes; quick."""
        return view_tokens(self.outline, self.situation.chain.tokens) + self.ledger

    @property
    def gates(self) -> tuple[Gate, ...]:
        """What has to hold before it begins."""
        if self.strategy is BY_UNITS:
            return LIFE[Cause.UNITS]
        return LIFE[cause_of(self.stage, acts_now=self.acts_now)]

    @property
    def may_wait(self) -> bool:
        """Whether it waits until it pays."""
        return Gate.PAYS in self.gates

    @property
    def waits(self) -> bool:
        """Whether a request may wait for its summaries."""
        is_rare = self.acts_now and self.strategy is not None and not self.strategy.slides
        return self.stage is Stage.COMPACT or (is_rare and self.stage is not Stage.EMERGENCY)

    @property
    def wanted(self) -> tuple[Span, ...]:
        """Gaps of which enough stands in no summary yet: each message is paid for once."""
        rules = self.situation.policy.summary
        if not rules.enabled or not self.has_room:
            return ()
        return tuple(span for span in self.spans if lacks_summary(self.situation, span, self.strategy))


def lacks_summary(
    situation: Situation, span: Span, strategy: Strategy | None, told: Collection[Span] = ()
) -> bool:
    """Whether messages that no summary tells of, and that one may, are `min_gap` or more of a gap.

    To a record that the strategy writes itself the shortest gap belongs. ``told``: runs of messages of which
    summaries that are not in the situation tell.
    """
    least, may_be_summarised = situation.policy.summary.min_gap, situation.classes.may_be_summarised
    if strategy is not None and strategy.record(situation, *span) is not None:
        least = 1
    anchors = (each for each in situation.anchors_within(*span) if not each.by_code)
    told = [*((each.start, each.end) for each in anchors), *told]
    done = {place for each in told for place in range(*each)}
    left = (place for place in range(*span) if place not in done and may_be_summarised(place))
    if sum(1 for _ in islice(left, least)) < least:
        return False
    return strategy is None or strategy.wants_summary(situation, *span)


def lacking_summaries(situation: Situation, told: Collection[Span] = ()) -> list[Span]:
    """The gaps of the plan in force that are to be summarised: those that an epoch has just cut among them.

    ``told`` as in :func:`lacks_summary`.
    """
    if not situation.policy.summary.enabled:
        return []
    strategy = strategy_of(situation.policy.strategy.name)
    gaps = situation.plan.gaps
    return [gap.span for gap in gaps if lacks_summary(situation, gap.span, strategy, told)]


def due_strategy(situation: Situation, stage: Stage) -> Strategy | None:
    """What would begin an epoch now: the policy's strategy, before *compact* also the count of units.

    Quick, since it is asked at every request.
    """
    if not stage.is_pressing and BY_UNITS.is_due(situation, stage):
        return None if is_amid_reasoning(situation.chain) else BY_UNITS
    strategy = strategy_of(situation.policy.strategy.name)
    if not strategy.is_due(situation, stage):
        return None
    if not stage.is_pressing and is_amid_reasoning(situation.chain):
        return None
    stage = _planned_at(situation, stage)
    cause = cause_of(stage, acts_now=stage is not Stage.EMERGENCY and strategy.acts_now(situation))
    if Gate.EARNED not in LIFE[cause]:
        return strategy
    is_earned = allows(situation.past, situation.chain.tokens, situation.budget, situation.policy.stages)
    return strategy if is_earned else None


def _planned_at(situation: Situation, stage: Stage) -> Stage:
    """The stage as which it is planned: clipping what must stay does not make it fit an overrun window."""
    return Stage.COMPACT if stage is Stage.EMERGENCY and situation.budget.is_overrun else stage


def acts_now(situation: Situation) -> bool:
    """Whether the policy's strategy would begin one now for another reason than usage."""
    return strategy_of(situation.policy.strategy.name).acts_now(situation)


def draft(situation: Situation, stage: Stage, *, growth: int = 0, ledger: int | None = None) -> Draft | None:
    """Decide on an epoch; None where none is due, or where it would free too little to be worth it.

    ``growth`` is the counted tokens by which the view will have grown when it begins, where it is prepared
    before. ``ledger`` is the counted tokens that its ledger takes at most, where it is not written to know
    that: for each epoch of a long past that is replayed, it would take too long.
    """
    strategy = due_strategy(situation, stage)
    if strategy is None:
        return None
    if strategy is BY_UNITS:  # like those at *trim*: no request waits for their summaries
        newest = int(situation.policy.keep.recent * situation.view)
        stage, situation = Stage.TRIM, replace(situation, newest=newest)
    stage = _planned_at(situation, stage)
    decided, freed = _select(situation, stage, strategy, growth, ledger)
    if not all(_holds(gate, decided, freed) for gate in decided.gates):
        return None
    if Gate.FREES not in decided.gates:
        return decided
    least = LEAST_FREED * situation.budget.room
    has_room = freed - _summary_room(situation, stage) >= least
    return _outlined(replace(decided, has_room=has_room), decided.outline)


def _holds(gate: Gate, decided: Draft, freed: int) -> bool:
    """Whether a draft, which frees so many counted tokens, passes a gate."""
    situation = decided.situation
    match gate:
        case Gate.CHANGES:
            standing = _spans_of(situation.plan)
            is_other = decided.spans != standing
            return bool(decided.cleared) or (is_other and _spans_of(decided.outline) != standing)
        case Gate.FREES:
            return freed >= LEAST_FREED * situation.budget.room
        case Gate.SHRINKS:
            before = plain_of(situation.plan, situation.count, situation.chain.dialect)
            tokens = situation.chain.tokens
            return view_tokens(decided.outline, tokens) < view_tokens(before, tokens)
        case Gate.FITS:
            return not situation.budget.is_over(situation.view - freed)
        case Gate.EARNED | Gate.PAYS | Gate.PREPARED:
            # The first was asked before anything was chosen; the others ask what is not known here.
            return True
        case _:
            assert_never(gate)


class _Try(NamedTuple):
    """What came of one choice."""

    missed: float
    """How far its view is from the goal, in counted tokens."""
    cut: int
    """Messages."""
    draft: Draft
    view: int
    corrected: int
    """Counted tokens that should have been set aside for what it cuts."""


def _select(
    situation: Situation, stage: Stage, strategy: Strategy, growth: int, most: int | None
) -> tuple[Draft, int]:
    """Choose, again with more set aside while the notes alone bring the view over the budget.

    And again with less where notes and ledger turn out smaller than what was set aside for them, so that the
    view comes near its goal. Answers also the counted tokens that the epoch frees with notices for notes.
    """
    budget, acts_now = situation.budget, strategy.acts_now(situation)
    is_counting = strategy.slides or acts_now  # then it knows what it cuts
    ledger, to_come = _ledger_growth(situation, most), _summary_set_aside(situation, stage) + growth
    goal = budget.share(situation.policy.stages.target) - to_come
    set_aside = min(_NOTICES * NOTICE_TOKENS, budget.room // 10) + to_come
    results = (
        []
        if is_counting
        else [*first_user_clip(situation), *picture_clearings(situation), *clearings(situation)]
    )
    found: list[_Try] = []
    while True:
        selection = Selection(situation, stage, set_aside, ledger, results)
        selection.run(strategy)
        decided = _drafted(selection, situation, stage, strategy, acts_now=acts_now)
        size = view_tokens(decided.outline, situation.chain.tokens)
        over = size - selection.to_clip - budget.share(1)
        if stage is Stage.EMERGENCY and over > 0 and not selection.is_exhausted:
            set_aside += over
            continue
        if most is not None or over <= 0:
            decided = _with_ledger(decided, most)
        view = size + decided.ledger
        missed = _missed(situation, view, goal)
        corrected = set_aside + to_come + view - selection.view
        found.append(_Try(missed, sum(end - start for start, end in decided.spans), decided, view, corrected))
        if (
            is_counting
            or strategy is BY_UNITS
            or len(found) == _TRIES
            or over > 0
            or abs(corrected - set_aside) <= _NEAR * budget.room
        ):
            break
        set_aside = _next_set_aside(found, goal)
    decided = min(found, key=lambda each: each[:2]).draft
    return decided, situation.view - decided.most_tokens


def _with_ledger(decided: Draft, most: int | None) -> Draft:
    """A draft that knows what its ledger takes: at ``most`` so many counted tokens, else it is written."""
    situation, plain = decided.situation, decided.outline
    if most is not None:
        return _outlined(replace(decided, ledger=min(decided.ledger, most)), plain)
    plans, tokens = (add_ledger(situation, plain), plain), situation.chain.tokens
    written, without = (view_tokens(each, tokens) for each in plans)
    return _outlined(replace(decided, ledger=written - without), plain)


def _missed(situation: Situation, view: int, goal: int) -> float:
    """How far a view is from its goal, in counted tokens; farther where the epoch would free too little."""
    room = situation.budget.room
    missed = max(_OVER * (view - goal), goal - _AS_NEAR * room - view, 0)
    return missed if situation.view - view >= LEAST_FREED * room else missed + _TOO_LITTLE * room


def _next_set_aside(found: Sequence[_Try], goal: int) -> int:
    """What to set aside next; after two tries with the goal between their views, what lies between theirs.

    For what the last one was wrong by says little of a choice far from it.
    """
    low, high = min(found, key=lambda each: each.view), max(found, key=lambda each: each.view)
    if len(found) != 2 or not low.view <= goal < high.view:
        return found[-1].corrected
    return high.corrected + (low.corrected - high.corrected) * (high.view - goal) // (high.view - low.view)


def _ledger_growth(situation: Situation, most: int | None) -> int:
    """Counted tokens by which the ledger grows at most, from what stands in the view."""
    standing = sum(situation.count(gap.ledger) for gap in situation.plan.gaps if gap.ledger)
    room = room_for(situation, situation.chain.tokens.total)
    return max((room if most is None else min(room, most)) - standing - situation.unwritten, 0)


def _drafted(
    selection: Selection, situation: Situation, stage: Stage, strategy: Strategy, *, acts_now: bool
) -> Draft:
    """What was chosen, as a draft that knows its outline."""
    spans = tuple(selection.spans())
    decided = Draft(
        situation,
        stage,
        spans,
        quotes={span: selection.quotes_within(*span) for span in spans},
        yielded=selection.yielded,
        cleared=tuple(selection.edits),
        strategy=strategy,
        acts_now=acts_now,
    )
    plain = decided.outline
    decided = replace(
        decided,
        spans=tuple(gap.span for gap in plain.gaps),
        quotes={gap.span: gap.quotes for gap in plain.gaps},
        ledger=room_for(situation, cut_tokens(situation, plain)),
    )
    return _outlined(decided, plain)


def _outlined(decided: Draft, outline: Plan) -> Draft:
    """The draft, of which the outline is known already."""
    vars(decided)["outline"] = outline
    return decided


def _spans_of(plan: Plan) -> tuple[Span, ...]:
    return tuple(gap.span for gap in plan.gaps)


def _summary_room(situation: Situation, stage: Stage) -> int:
    """Counted tokens of the summary that an epoch may wait for."""
    if stage is not Stage.COMPACT or not situation.policy.summary.enabled:
        return 0
    return situation.policy.summary_tokens(situation.budget.limit)


def _summary_set_aside(situation: Situation, stage: Stage) -> int:
    """Counted tokens of a summary's room that are set aside.

    About half: so the view ends as near its goal where the summary is late or short as where it is as long as
    it may be.
    """
    room = _summary_room(situation, stage)
    return room - min(room // 2, int(_AS_NEAR * situation.budget.room))


def finish(decided: Draft, summaries: Summaries) -> Plan:
    """Write the notes of a draft, the ledger among them, and, if the view is still too large, clip."""
    return add_ledger(decided.situation, written(decided, summaries))


def written(decided: Draft, summaries: Summaries) -> Plan:
    """The plan of a draft but for its ledger, for which it leaves room."""
    situation = decided.situation
    texts = new_texts(situation, decided.spans, decided.strategy, summaries)
    is_outlined = not texts and not decided.acts_now
    plan, tokens = decided.outline if is_outlined else _noted(decided, texts), situation.chain.tokens
    while texts and situation.budget.is_over(view_tokens(plan, tokens) + decided.ledger):
        # A summary may be longer than what was set aside for it; a notice always fits.
        texts.pop(max(texts, key=lambda span: sum(len(anchor.text) for anchor in texts[span])))
        plan = _noted(decided, texts)
    if decided.stage is Stage.EMERGENCY:
        plan = clip_view(situation, plan, decided.yielded, decided.ledger)
    return plan


def _noted(decided: Draft, texts: NewTexts | None) -> Plan:
    """A draft with its notes, but for the ledger; a note that has nothing new to say stays as it is.

    Without ``texts``, which are not known yet, with notices for them.
    """
    situation = decided.situation
    plain = plain_of(situation.plan, situation.count, situation.chain.dialect)
    standing = {gap.span: gap for gap in plain.gaps}
    gaps: list[Gap] = []
    for span in decided.spans:
        old = standing.get(span)
        made = old if old and not (texts and texts.get(span)) else _worthwhile(decided, span, texts)
        gaps += (made,) if made else (standing[gap.span] for gap in situation.plan.gaps_within(*span))
    edits = {edit.position: edit for edit in (*situation.plan.replacements, *decided.cleared)}
    cut = Plan(tuple(gaps))
    return Plan(cut.gaps, tuple(edits[place] for place in sorted(edits) if not cut.covers(place)))


def _worthwhile(decided: Draft, span: Span, texts: NewTexts | None) -> Gap | None:
    """A gap with a note that is no longer than what it stands for; None where even a notice would be.

    First what it quotes gives way, then the summary. What a strategy cuts by its count and writes down itself
    is cut however short it is: there it is not for the size.
    """
    situation, quotes, strategy = decided.situation, decided.quotes.get(span, ()), decided.strategy
    writes = decided.acts_now and strategy is not None and strategy.words(situation, *span, None)
    if writes and (texts is None or texts.get(span)):
        return gap_of(situation, span, texts or {}, quotes)
    ways: list[tuple[NewTexts, tuple[str, ...]]] = [(texts or {}, quotes), (texts or {}, ()), ({}, ())]
    made = (gap_of(situation, span, each, quoted) for each, quoted in ways)
    return next((gap for gap in made if is_no_longer(situation, gap)), None)


def cuts_protected(situation: Situation, plan: Plan) -> bool:
    """Whether a plan cuts what is protected now."""
    protected = (situation.units[index] for index, level in situation.protection.items() if level > FREE)
    return any(plan.covers(unit.start) for unit in protected)


def yielded_protection(decided: Draft) -> bool:
    """Whether an epoch had to cut what the policy protects."""
    return decided.yielded > FREE


def with_late(situation: Situation, texts: Mapping[Span, str]) -> Plan:
    """The plan in force, but for the notes of these gaps: they get summaries that came too late for them.

    A rewrite of a note has the provider read anew all that follows it, so this is only for when nothing is
    kept there (:func:`proxy.core.economics.economy.is_cold`). An epoch brings them by itself.
    """
    plan, tokens = situation.plan, situation.chain.tokens
    gaps = {gap.span: gap.quotes for gap in plan.gaps}
    strategy = strategy_of(situation.policy.strategy.name)
    plain = plain_of(plan, situation.count, situation.chain.dialect)
    ledger = view_tokens(plan, tokens) - view_tokens(plain, tokens)
    return finish(
        Draft(situation, Stage.TRIM, tuple(gaps), gaps, FREE, ledger=ledger, strategy=strategy), texts
    )

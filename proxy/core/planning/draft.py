"""Drafts: epochs that are decided except for the text of their notes.

The size of notes and ledger depends on what is cut. So units are chosen several times, with more or fewer
tokens set aside for notes and ledger, and the draft whose view comes nearest to the goal is taken.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from proxy.core.budget.budget import Stage
from proxy.core.planning.gaps import with_notes
from proxy.core.planning.ledger import (
    add_ledger,
    allowed_ledger_tokens,
    lacking_room,
    notes_stand,
    strip_ledgers,
)
from proxy.core.planning.life import GATES, LEAST_FREED, Cause, Gate, cause_of
from proxy.core.planning.plan import Gap, Plan, Replacement, Span, view_tokens
from proxy.core.planning.replacements import clearings, first_user_clips, picture_clearings
from proxy.core.planning.selection import NOTICE_TOKENS, Selection
from proxy.core.planning.situation import FREE, Situation
from proxy.core.planning.strategies import BY_UNITS, strategy_of
from proxy.core.planning.strategy import Strategy


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch that is decided except for the text of its notes."""

    situation: Situation
    stage: Stage
    outline: Plan
    """The plan with every gap and edit, but with notices in place of summaries and without its ledger."""
    yielded: int = FREE
    """The firmest protection that had to yield (:mod:`proxy.core.planning.situation`)."""
    ledger: int = 0
    """Counted tokens of its ledger, or an upper bound of them."""
    affords_summaries: bool = True
    """Whether the epoch still frees enough if it gets summaries in place of notices."""
    strategy: Strategy | None = None
    """The strategy that decided and that writes the notes; None if a person decided."""
    acts_now: bool = False
    """Whether it begins at once, for another reason than usage."""

    @classmethod
    def of(
        cls,
        situation: Situation,
        stage: Stage,
        quotes: Mapping[Span, tuple[str, ...]],
        edits: Sequence[Replacement] = (),
        *,
        strategy: Strategy | None = None,
        acts_now: bool = False,
        standing: Container[Span] = (),
    ) -> "Draft":
        """Return the draft with these gaps, each with the quotes of its note, and with new edits.

        The notes of the gaps ``standing`` keep their ledgers.
        """
        before = strip_ledgers(situation.plan, situation.count, situation.chain.dialect, standing).gaps
        outline = with_notes(situation, before, quotes, edits, None, strategy if acts_now else None)
        return cls(situation=situation, stage=stage, outline=outline, strategy=strategy, acts_now=acts_now)

    @property
    def spans(self) -> tuple[Span, ...]:
        return self.outline.spans

    @property
    def in_force(self) -> list[Gap]:
        """The gaps that are in force already, without their ledgers if all are written anew."""
        return [gap for gap in self.outline.gaps if gap.span in self.situation.plan.spans]

    @property
    def view_tokens(self) -> int:
        """Counted tokens of its view, with notices in place of summaries, ledger included."""
        return view_tokens(self.outline, self.situation.chain.tokens) + self.ledger

    @property
    def by_units(self) -> bool:
        """Whether the count of units began it, not the policy's strategy."""
        return self.strategy is BY_UNITS

    @property
    def gates(self) -> tuple[Gate, ...]:
        """The conditions that must hold before the epoch begins."""
        if self.by_units:
            return GATES[Cause.UNITS]
        is_over = self.situation.budget.is_over(self.situation.view_tokens)
        return GATES[cause_of(self.stage, acts_now=self.acts_now, is_over=is_over)]

    @property
    def must_pay(self) -> bool:
        """Whether the epoch is postponed until it pays."""
        return Gate.PAYS in self.gates

    @property
    def waits_for_summaries(self) -> bool:
        """Whether the request that begins the epoch may wait for its summaries."""
        is_rare = self.acts_now and self.strategy is not None and not self.strategy.slides
        return self.stage is Stage.COMPACT or (is_rare and self.stage is not Stage.EMERGENCY)

    @property
    def unsummarised_spans(self) -> tuple[Span, ...]:
        """The gaps with enough messages that no summary covers yet, so that each message is paid for once."""
        if not self.situation.policy.summary.enabled or not self.affords_summaries:
            return ()
        return tuple(span for span in self.spans if lacks_summary(self.situation, span, self.strategy))


# --- which gaps are summarised ---


def lacks_summary(
    situation: Situation, span: Span, strategy: Strategy | None, summarised: Collection[Span] = ()
) -> bool:
    """Whether a gap has `min_gap` or more messages that may be summarised and that no summary covers.

    One message is enough if the strategy keeps a record of what it cuts. ``summarised``: runs of messages
    covered by summaries that are not in the situation.
    """
    least, may_be_summarised = situation.policy.summary.min_gap, situation.classes.may_be_summarised
    if strategy is not None and strategy.records:
        least = 1
    summarised = [*(each.span for each in situation.anchors_within(*span) if not each.by_code), *summarised]
    done = {place for each in summarised for place in range(*each)}
    left = (place for place in range(*span) if place not in done and may_be_summarised(place))
    if sum(1 for _ in islice(left, least)) < least:
        return False
    return strategy is None or strategy.wants_summary(situation, *span)


def lacking_summaries(situation: Situation, summarised: Collection[Span] = ()) -> list[Span]:
    """Return the gaps of the plan in force that still need a summary, including those just cut.

    ``summarised`` as in :func:`lacks_summary`.
    """
    if not situation.policy.summary.enabled:
        return []
    strategy = strategy_of(situation.policy.strategy.name)
    spans = situation.plan.spans
    return [span for span in spans if lacks_summary(situation, span, strategy, summarised)]


# --- coming near the goal: the size of notes and ledger depends on what is cut ---

_NOTICES = 2
_TRIES: Final = 4
"""How often units are chosen at most, to come near the goal."""
_SET_ASIDE_ERROR = 0.01
"""Share of the room by which the amount set aside may be wrong."""
_DEAD_BAND = 0.03
"""Share of the room below the goal within which a view counts as at its goal."""
_TOO_LITTLE = 0.02
"""Share of the room added to a view's distance from its goal if it frees too little for an epoch."""
_OVER = 2
"""Factor for the distance of a view above its goal, because the next epoch then comes sooner."""


class _Try(NamedTuple):
    """The result of choosing units once."""

    missed: float
    """Distance of its view from the goal, and twice what its ledger lacks, in counted tokens."""
    cut: int
    draft: Draft
    corrected: int
    """Counted tokens that should have been set aside for notes and ledger, given what it cuts."""


def nearest_to_goal(
    situation: Situation, stage: Stage, strategy: Strategy, growth: int, most: int | None
) -> Draft:
    """Return the draft whose view comes nearest to the goal.

    Ledgers in force stay if the view then fits the budget with every constraint. In an emergency, units are
    chosen again with more set aside while the notes bring the view over the budget. Otherwise they are chosen
    again with a corrected amount if notes and ledger turn out smaller or larger than what was set aside.
    ``growth`` and ``most``: see ``growth`` and ``ledger`` of :func:`proxy.core.planning.planner.draft_epoch`.
    """
    budget, acts_now = situation.budget, strategy.may_act_now(situation)
    is_counting = strategy.slides or acts_now  # such a strategy decides by count, not by tokens
    is_chosen_once = is_counting or strategy is BY_UNITS
    may_stand = not is_counting and most is None and notes_stand(situation)
    ledger, summary = _ledger_growth(situation, most, may_stand=may_stand), summary_room(situation, stage)
    # Set aside a little less than a summary's room (at least half of it), so that a late or short summary
    # misses the goal no more than a full one.
    to_come = summary - min(summary // 2, int(_DEAD_BAND * budget.room)) + growth
    goal = budget.share(situation.policy.stages.target) - to_come
    set_aside = min(_NOTICES * NOTICE_TOKENS, budget.room // 10) + to_come
    results = (
        []
        if is_counting
        else [*first_user_clips(situation), *picture_clearings(situation), *clearings(situation)]
    )
    found: list[_Try] = []
    while True:
        selection = Selection(situation, stage, set_aside, ledger, results)
        draft = _chosen(selection, strategy, acts_now=acts_now, may_stand=may_stand)
        over = draft.view_tokens - selection.to_clip - budget.share(1)
        lacking = lacking_room(situation, draft.outline) if most is None else 0
        if may_stand and selection.standing_gaps and max(over, lacking) > 0:
            may_stand = False
            continue
        if stage is Stage.EMERGENCY and over > 0 and not selection.is_exhausted:
            set_aside += over
            continue
        size = _ledger_of(draft, most, is_measured=over <= 0, is_bound_enough=is_chosen_once)
        draft = replace(draft, yielded=selection.yielded, ledger=size)
        corrected = set_aside + to_come + draft.view_tokens + lacking - selection.view_tokens
        found.append(_Try(_missed(draft, goal) + _OVER * lacking, draft.outline.cut, draft, corrected))
        is_last = is_chosen_once or len(found) == _TRIES or over > 0
        if is_last or abs(corrected - set_aside) <= _SET_ASIDE_ERROR * budget.room:
            break
        set_aside = _next_set_aside(found, goal)
    return min(found, key=lambda each: each[:2]).draft


def _chosen(selection: Selection, strategy: Strategy, *, acts_now: bool, may_stand: bool) -> Draft:
    """Choose what is cut, and return it as a draft, in which ledgers stay if they ``may_stand``."""
    if strategy.slides or acts_now:
        selection.cut_by_count(strategy)
    else:
        selection.cut_towards_goal(strategy)
    standing = selection.standing_gaps if may_stand else ()
    return Draft.of(
        selection.situation,
        selection.stage,
        selection.quotes(standing),
        selection.edits,
        strategy=strategy,
        acts_now=acts_now,
        standing=standing,
    )


def _ledger_of(draft: Draft, most: int | None, *, is_measured: bool, is_bound_enough: bool) -> int:
    """Counted tokens of the ledger: its room, at most ``most`` if given; else measured if ``is_measured``.

    ``is_bound_enough``: whether its room will do if the view fits the budget with all of it and with the
    summaries to come, because to write a ledger takes long.
    """
    situation, outline = draft.situation, draft.outline
    room = allowed_ledger_tokens(situation, outline)
    if most is not None:
        return min(room, most)
    largest = draft.view_tokens + room + len(draft.unsummarised_spans) * situation.summary_tokens
    if not is_measured or (is_bound_enough and largest <= situation.budget.share(1)):
        return room
    tokens = situation.chain.tokens
    return view_tokens(add_ledger(situation, outline), tokens) - view_tokens(outline, tokens)


def _missed(draft: Draft, goal: int) -> float:
    """Distance of a view from its goal, in counted tokens; larger if the epoch would free too little."""
    room, view = draft.situation.budget.room, draft.view_tokens
    missed = max(_OVER * (view - goal), goal - _DEAD_BAND * room - view, 0)
    is_worth_it = draft.situation.view_tokens - view >= LEAST_FREED * room
    return missed if is_worth_it else missed + _TOO_LITTLE * room


def _next_set_aside(found: Sequence[_Try], goal: int) -> int:
    """Counted tokens to set aside next: the last try's corrected amount, or an interpolation.

    After two tries whose views lie on either side of the goal, interpolate between their amounts, because the
    error of one choice says little about a choice far from it.
    """
    low, high = sorted((each.draft.view_tokens, each.corrected) for each in (found[0], found[-1]))
    if len(found) != 2 or not low[0] <= goal < high[0]:
        return found[-1].corrected
    return high[1] + (low[1] - high[1]) * (high[0] - goal) // (high[0] - low[0])


def _ledger_growth(situation: Situation, most: int | None, *, may_stand: bool) -> int:
    """Counted tokens by which ledgers can grow at most beyond those in the view."""
    if may_stand:
        return allowed_ledger_tokens(situation, situation.plan)
    standing = sum(situation.count(gap.ledger) for gap in situation.plan.gaps if gap.ledger)
    room = allowed_ledger_tokens(situation, None)
    return max((room if most is None else min(room, most)) - standing - situation.unwritten, 0)


def summary_room(situation: Situation, stage: Stage) -> int:
    """Counted tokens of the summary that an epoch may wait for."""
    if stage is not Stage.COMPACT or not situation.policy.summary.enabled:
        return 0
    return situation.summary_tokens

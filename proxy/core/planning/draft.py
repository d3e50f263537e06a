"""A draft: an epoch that is decided but for the words of its notes, and how near it comes to its goal.

What notes and ledger take is known once it is known what they stand for. So units are chosen a few times,
with more or less set aside for them, and the draft whose view ends nearest to the goal is taken.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from proxy.core.budget.budget import Stage
from proxy.core.planning.gaps import with_notes
from proxy.core.planning.ledger import add_ledger, cut_tokens, room_for
from proxy.core.planning.life import LEAST_FREED, LIFE, Cause, Gate, cause_of
from proxy.core.planning.plan import Plan, Replacement, Span, view_tokens
from proxy.core.planning.replacements import clearings, first_user_clip, picture_clearings
from proxy.core.planning.selection import NOTICE_TOKENS, Selection
from proxy.core.planning.situation import FREE, Situation
from proxy.core.planning.strategies import BY_UNITS, strategy_of
from proxy.core.planning.strategy import Strategy


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """An epoch that is decided but for the words of its notes."""

    situation: Situation
    stage: Stage
    outline: Plan
    """Every gap and edit from now on, with notices for notes and without its ledger."""
    yielded: int = FREE
    """The firmest protection that had to yield (:mod:`proxy.core.planning.situation`)."""
    ledger: int = 0
    """Counted tokens that its ledger takes."""
    has_room: bool = True
    """Whether the epoch is worth its while with summaries, and not with notices alone."""
    strategy: Strategy | None = None
    """The strategy that decided, and writes its notes; None where a person did."""
    acts_now: bool = False
    """Whether it begins for another reason than usage, at once."""

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
    ) -> "Draft":
        """The draft of these gaps, each with what its note quotes, and of new edits."""
        outline = with_notes(situation, quotes, edits, None, strategy if acts_now else None)
        return cls(situation=situation, stage=stage, outline=outline, strategy=strategy, acts_now=acts_now)

    @property
    def spans(self) -> tuple[Span, ...]:
        return self.outline.spans

    @property
    def view(self) -> int:
        """Counted tokens that its view has at most, with notices for notes."""
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
        if not self.situation.policy.summary.enabled or not self.has_room:
            return ()
        return tuple(span for span in self.spans if lacks_summary(self.situation, span, self.strategy))


# --- which gaps are summarised ---


def lacks_summary(
    situation: Situation, span: Span, strategy: Strategy | None, told: Collection[Span] = ()
) -> bool:
    """Whether messages that no summary tells of, and that one may, are `min_gap` or more of a gap.

    To a record that the strategy writes itself the shortest gap belongs. ``told``: runs of messages of which
    summaries that are not in the situation tell.
    """
    least, may_be_summarised = situation.policy.summary.min_gap, situation.classes.may_be_summarised
    if strategy is not None and strategy.records:
        least = 1
    told = [*(each.span for each in situation.anchors_within(*span) if not each.by_code), *told]
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
    spans = situation.plan.spans
    return [span for span in spans if lacks_summary(situation, span, strategy, told)]


# --- coming near the goal: notes and ledger have a size once it is known what they stand for ---

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


class _Try(NamedTuple):
    """What came of one choice."""

    missed: float
    """How far its view is from the goal, in counted tokens."""
    cut: int
    """Messages."""
    draft: Draft
    corrected: int
    """Counted tokens that should have been set aside for what it cuts."""


def nearest(situation: Situation, stage: Stage, strategy: Strategy, growth: int, most: int | None) -> Draft:
    """Choose, again with more set aside while the notes alone bring the view over the budget.

    And again with less where notes and ledger turn out smaller than what was set aside for them, so that the
    view comes near its goal. ``growth`` and ``most`` as :func:`proxy.core.planning.planner.draft`
    has ``growth`` and ``ledger``.
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
        decided = Draft.of(
            situation, stage, selection.quotes(), selection.edits, strategy=strategy, acts_now=acts_now
        )
        over = decided.view - selection.to_clip - budget.share(1)
        if stage is Stage.EMERGENCY and over > 0 and not selection.is_exhausted:
            set_aside += over
            continue
        size = _ledger_of(decided.outline, situation, most, is_written=over <= 0)
        decided = replace(decided, yielded=selection.yielded, ledger=size)
        corrected = set_aside + to_come + decided.view - selection.view
        found.append(_Try(_missed(decided, goal), decided.outline.cut, decided, corrected))
        if is_counting or strategy is BY_UNITS or len(found) == _TRIES or over > 0:
            break
        if abs(corrected - set_aside) <= _NEAR * budget.room:
            break
        set_aside = _next_set_aside(found, goal)
    return min(found, key=lambda each: each[:2]).draft


def _ledger_of(outline: Plan, situation: Situation, most: int | None, *, is_written: bool) -> int:
    """Counted tokens of a ledger: those that it may have, at ``most`` so many, or it ``is_written``."""
    room = room_for(situation, cut_tokens(situation, outline))
    if most is not None:
        return min(room, most)
    if not is_written:
        return room
    tokens = situation.chain.tokens
    return view_tokens(add_ledger(situation, outline), tokens) - view_tokens(outline, tokens)


def _missed(decided: Draft, goal: int) -> float:
    """How far a view is from its goal, in counted tokens; farther where the epoch would free too little."""
    room, view = decided.situation.budget.room, decided.view
    missed = max(_OVER * (view - goal), goal - _AS_NEAR * room - view, 0)
    return missed if decided.situation.view - view >= LEAST_FREED * room else missed + _TOO_LITTLE * room


def _next_set_aside(found: Sequence[_Try], goal: int) -> int:
    """What to set aside next; after two tries with the goal between their views, what lies between theirs.

    For what the last one was wrong by says little of a choice far from it.
    """
    low, high = sorted((each.draft.view, each.corrected) for each in (found[0], found[-1]))
    if len(found) != 2 or not low[0] <= goal < high[0]:
        return found[-1].corrected
    return high[1] + (low[1] - high[1]) * (high[0] - goal) // (high[0] - low[0])


def _ledger_growth(situation: Situation, most: int | None) -> int:
    """Counted tokens by which the ledger grows at most, from what stands in the view."""
    standing = sum(situation.count(gap.ledger) for gap in situation.plan.gaps if gap.ledger)
    room = room_for(situation, situation.chain.tokens.total)
    return max((room if most is None else min(room, most)) - standing - situation.unwritten, 0)


def summary_room(situation: Situation, stage: Stage) -> int:
    """Counted tokens of the summary that an epoch may wait for."""
    if stage is not Stage.COMPACT or not situation.policy.summary.enabled:
        return 0
    return situation.summary_tokens


def _summary_set_aside(situation: Situation, stage: Stage) -> int:
    """Counted tokens of a summary's room that are set aside.

    About half: so the view ends as near its goal where the summary is late or short as where it is as long as
    it may be.
    """
    room = summary_room(situation, stage)
    return room - min(room // 2, int(_AS_NEAR * situation.budget.room))

"""Choose the units that one epoch cuts.

Beside the strategy's order, docs/policies.md says what goes with what is cut, and in which order protections
yield ("What is cut first"). They yield only if the view would exceed the budget, and then until it is down to
the trim line, so that the next turn does not exceed the budget at once.
"""

from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence

from proxy.core.budget.budget import Stage
from proxy.core.conversation.messages import HEAD_ROLES
from proxy.core.conversation.notes import quote
from proxy.core.extraction.reading import is_question
from proxy.core.planning.ledger import lacks_room_for_constraints, tokens_of_constraints
from proxy.core.planning.plan import Replacement, Span, joined_spans, runs_of
from proxy.core.planning.replacements import Clearing, clip_of
from proxy.core.planning.situation import FIRST_USER, FIRST_USER_LEAST, FIXED, FREE, RECENT, Count, Situation
from proxy.core.planning.strategy import Strategy
from proxy.core.policy.sections import RetentionClass

# --- how retention classes affect the order ---
# Disposable units are cut before all others, whatever their score. Adjacent batch-compressible units form a
# batch, which is cut as a whole once the strategy's order has reached all of its units.


NOTICE_TOKENS = 60
"""Approximate counted tokens of a notice."""


def _cut_order(situation: Situation, order: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield a strategy's order of units as batches that are cut together."""
    together = batches(situation)
    awaited = {batch: set(batch) for batch in together.values()}
    for index in order:
        batch = together.get(index)
        if batch is None:
            yield (index,)
            continue
        awaited[batch].discard(index)
        if not awaited[batch]:
            yield batch


def batches(situation: Situation) -> dict[int, tuple[int, ...]]:
    """By unit, the run of adjacent unprotected batch-compressible units that it belongs to."""
    runs = runs_of(_free_of(situation, "batch_compressible"))
    return {index: tuple(run) for run in runs for index in run}


def disposable(situation: Situation) -> list[int]:
    """Disposable units that may be cut, oldest first, without runs no larger than a notice about them."""
    found: list[int] = []
    for run in runs_of(_free_of(situation, "disposable")):
        before, after = situation.units[run[0]].start - 1, situation.units[run[-1]].end
        has_note = situation.plan.covers(before) or situation.plan.covers(after)
        if has_note or sum(map(situation.size, run)) > NOTICE_TOKENS:
            found += run
    return found


def _free_of(situation: Situation, wanted: RetentionClass) -> Iterator[int]:
    return (
        index for index in situation.units_by_class.get(wanted, ()) if situation.protection[index] == FREE
    )


# --- requests and their answers ---


def _request_of(situation: Situation, index: int) -> int | None:
    """Return the user unit that a unit helps to answer, cut or not; None if there is none."""
    start = situation.units[index].start
    while place := bisect_left(situation.users, start):
        earlier = situation.unit_at(situation.users[place - 1])
        if situation.is_user(earlier):
            return earlier
        start = situation.units[earlier].start  # a user message inside another's unit is no request
    return None


def answer_to(situation: Situation, request: int) -> list[int]:
    """Return the units that answer a user unit: up to the next user one, without system ones."""
    answer: list[int] = []
    for following in range(request + 1, len(situation.units)):
        role = situation.role(situation.units[following].start)
        if role == "user":
            break
        if role not in HEAD_ROLES:
            answer.append(following)
    return answer


# --- the choice ---


_ISLAND = 2
"""Maximal number of messages in an island: an unimportant run between two gaps that is cut with them."""
_QUOTED_SHARE = 0.06
"""Share of the room that quotes of one gap may fill."""


def _fitting(quotes: Sequence[str], most: int, count: Count) -> tuple[str, ...]:
    """Return those of a note's quotes that fit into ``most`` counted tokens, each once.

    The newest of those that say something come first: of a mere question little is lost with its words.
    """
    newest = dict.fromkeys(reversed(quotes))
    chosen: set[str] = set()
    for text in sorted(newest, key=is_question):
        most -= count(text)
        if most < 0:
            break
        chosen.add(text)
    return tuple([text for text in reversed(newest) if text in chosen])


class Selection:
    """The units that one epoch cuts."""

    def __init__(
        self,
        situation: Situation,
        stage: Stage,
        set_aside: int,
        ledger: int = 0,
        clearings: Sequence[Clearing] = (),
    ) -> None:
        self.situation = situation
        self.stage = stage
        self._ledger = ledger
        self._clips = [each for each in clearings if situation.protection[each.unit] != FREE]
        """The clips of first user messages that take more than their share."""
        self._clearings = [each for each in clearings if each not in self._clips]
        self.cut: set[int] = set()
        self._cleared: dict[int, list[Clearing]] = {}
        """Edits by unit: cleared tool results, and clipped first user messages."""
        self._answers: dict[int, list[int]] = {}
        """By user unit, the units of its answer that may still be uncut, newest first."""
        self.quoted: list[int] = []
        """User units that were cut and may be quoted."""
        kept = FIRST_USER if situation.last_user_exceeds_room else FIXED
        self._levels = [level for level in range(FREE, FIXED) if level != kept]
        """The protections that may yield, in this order."""
        self.yielded = FREE
        """The firmest protection that had to yield."""
        self.to_clip = 0
        """Counted tokens that clipping the first user message will free, instead of cutting it."""
        self.view_tokens = situation.view_tokens + set_aside + ledger
        """Counted tokens of the view, including what is set aside for notes and the ledger."""

    @property
    def is_exhausted(self) -> bool:
        protection = self.situation.protection
        return all(index in self.cut or protection[index] not in self._levels for index in protection)

    def cut_towards_goal(self, strategy: Strategy) -> None:
        """Cut disposable units, then tool results, then units in the strategy's order, until it is enough."""
        situation = self.situation
        goal = situation.budget.share(situation.policy.stages.target)
        for index in disposable(situation):
            if strategy.is_enough(situation, self.view_tokens, goal):
                break
            self.cut_unit(index)
        self._clear(goal)
        order = strategy.order(situation, self.stage)
        for batch in _cut_order(situation, order):
            if strategy.is_enough(situation, self.view_tokens, goal):
                break
            for index in filter(self._may_be_cut, batch):
                self.cut_unit(index)
        self._ensure_note_for_clips(order)
        self._cut_islands()
        if self.stage is Stage.EMERGENCY:
            self._yield_protections()

    def cut_by_count(self, strategy: Strategy) -> None:
        """Cut units one by one for a strategy that decides by count, not by tokens: classes do not matter.

        A request goes before its answer, and a running summary tells it in its own way. The requests of
        condensed answers stay; a note behind each says what was cut.
        """
        situation = self.situation
        goal = situation.budget.share(situation.policy.stages.target)
        for index in strategy.order(situation, self.stage):
            if strategy.is_enough(situation, self.view_tokens, goal):
                break
            if self._may_be_cut(index):
                self._cut_alone(index)
        for index in filter(self._may_be_cut, strategy.condensed(situation)):
            self._cut_alone(index)
        if self.stage is Stage.EMERGENCY:
            self._yield_protections()

    def _may_be_cut(self, index: int) -> bool:
        """Whether a unit is in the view and may go: what is FIXED stays whatever a strategy says."""
        return self.situation.protection.get(index, FIXED) < FIXED

    def _clear(self, goal: int) -> None:
        """Clear tool results until the view is at the goal.

        If nothing is cut yet, the first result's unit is cut, so that a note exists for what they held.
        """
        for clearing in self._clips:
            self._clear_one(clearing)
        for clearing in self._clearings:
            if self.view_tokens <= goal:
                break
            if clearing.needs_note and not (self.cut or self.situation.plan.gaps):
                for index in batches(self.situation).get(clearing.unit, (clearing.unit,)):
                    self.cut_unit(index)
            elif clearing.unit not in self.cut:
                self._clear_one(clearing)

    def _clear_one(self, clearing: Clearing) -> None:
        self._cleared.setdefault(clearing.unit, []).append(clearing)
        self.view_tokens -= clearing.saves

    def _ensure_note_for_clips(self, order: Sequence[int]) -> None:
        """Ensure that a note exists for what clips leave out: cut a unit if what is cut is too small for one.

        If no unit is large enough to be worth a note, drop the clips.
        """
        situation, runs = self.situation, runs_of(sorted(self.cut))
        if not self._clips or situation.plan.gaps:
            return
        if any(sum(map(situation.size, run)) > NOTICE_TOKENS for run in runs):
            return
        recent = (index for index in situation.view_units if situation.protection[index] == RECENT)
        host = next((index for index in (*order, *recent) if situation.size(index) > NOTICE_TOKENS), None)
        if host is not None:
            self.cut_unit(host)
            return
        for each in self._clips:
            del self._cleared[each.unit]
            self.view_tokens += each.saves

    @property
    def edits(self) -> list[Replacement]:
        """The new replacements (cleared results, clipped first user messages) in units that are not cut."""
        cleared = (found for unit, found in self._cleared.items() if unit not in self.cut)
        return [each.edit for found in cleared for each in found]

    def cut_unit(self, index: int) -> None:
        """Cut a unit, and its request, which is quoted, if nothing else of the answer is left."""
        if index in self.cut:
            return
        situation = self.situation
        # An epoch may have cut a part of the answer, as of the newest request's.
        answer = answer_to(situation, index) if situation.is_user(index) else ()
        if any(situation.plan.covers(situation.units[each].start) for each in answer):
            self._cut_request(index)
        else:
            self._cut_alone(index)
        # A request left alone would be carried out again: https://github.com/openai/codex/issues/42611
        request = _request_of(situation, index)
        if request is None or situation.protection.get(request) != FREE or request in self.cut:
            return
        left = self._answers.get(request)
        if left is None:
            left = self._answers[request] = answer_to(situation, request)[::-1]
        while left and (left[-1] in self.cut or situation.plan.covers(situation.units[left[-1]].start)):
            left.pop()  # so that each cut unit is checked only once
        if left:
            return
        self._cut_request(request)

    def _cut_request(self, request: int) -> None:
        self._cut_alone(request)
        situation, place = self.situation, self.situation.units[request].start
        if situation.classes.may_be_quoted(place) and not situation.is_constraint(place):
            self.quoted.append(request)
            self.view_tokens += situation.count(self._quote(request))

    def _cut_alone(self, index: int) -> None:
        # Units are cut whole: providers refuse every later request that has a result without its call:
        # https://github.com/NousResearch/hermes-agent/issues/51218
        if index not in self.cut:
            self.cut.add(index)
            self.view_tokens -= self.situation.size(index) - self._saved(index)

    def _note_before(self, index: int) -> int:
        """Counted tokens of the note before a unit that stands between two gaps: they become one."""
        plan, unit = self.situation.plan, self.situation.units[index]
        if not (index + 1 in self.cut or plan.covers(unit.end)):
            return 0
        if index - 1 in self.cut:
            return NOTICE_TOKENS
        return sum(gap.tokens for gap in plan.gaps_within(unit.start - 1, unit.start))

    def _saved(self, index: int) -> int:
        """Counted tokens that clearing or clipping has already freed in a unit."""
        return sum(each.saves for each in self._cleared.get(index, ()))

    def _cut_islands(self) -> None:
        """Cut small unimportant runs of unprotected units with a gap on either side."""
        situation, low = self.situation, self.situation.policy.importance.low
        standing = [index for index in situation.view_units if index not in self.cut]
        for run in runs_of(standing):
            messages = sum(situation.units[index].count for index in run)
            has_gaps_around = run.start > 0 and run.stop < len(situation.units)
            if messages > _ISLAND or not has_gaps_around:
                continue
            is_free = all(situation.protection[index] == FREE for index in run)
            if is_free and max(situation.score(index).total for index in run) < low:
                for index in run:
                    self._cut_alone(index)

    def _yield_protections(self) -> None:
        """If the view is over the budget without the details of its ledgers, cut protected units.

        They are cut down to the trim line: levels in order, and within a level the oldest unit first.
        """
        situation = self.situation
        most = situation.budget.share(1) + self._ledger
        if self.view_tokens > most:  # a ledger in force yields first, but for what rules need of it
            standing = sum(situation.count(gap.ledger) for gap in situation.plan.gaps if gap.ledger)
            most += max(standing - tokens_of_constraints(situation), 0)
        if self.view_tokens <= most:
            return
        enough = situation.budget.share(situation.policy.stages.trim)
        for level in self._levels:
            at = [each for each in situation.view_units if situation.protection[each] == level]
            for index in (each for each in at if each not in self.cut):
                if self.view_tokens <= enough:
                    return
                self.yielded = max(self.yielded, level)
                spared = self._freed_by_clip(index) if level == FIRST_USER else 0
                if spared > 0 and self.view_tokens - spared <= most:
                    self.to_clip = spared
                    return
                self._cut_alone(index)
                self.view_tokens -= self._note_before(index)

    def _freed_by_clip(self, index: int) -> int:
        """Counted tokens that the shortest clip of a unit's request still frees: a file in it stays."""
        first = self.situation.units[index].start  # the unit may hold more messages
        edit = clip_of(self.situation, first, FIRST_USER_LEAST)
        return self.situation.size_at(first) - self._saved(index) - edit.tokens if edit else 0

    @property
    def standing_gaps(self) -> tuple[Span, ...]:
        """The gaps in force before the first message that is edited or cut now, whose notes may stand.

        The last note is not among them, because it gets the new ledger.
        """
        situation, gaps = self.situation, self.situation.plan.gaps
        cut = (situation.units[index].start for index in self.cut)
        first = min((*cut, *(edit.position for edit in self.edits)), default=0)
        return tuple(gap.span for gap in (gaps if self.cut else gaps[:-1]) if gap.note and gap.end <= first)

    def quotes(self, standing: Container[Span] = ()) -> dict[Span, tuple[str, ...]]:
        """All gaps from now on, as maximal runs but for ``standing`` ones, each with its note's quotes."""
        situation, units, went = self.situation, self.situation.units, sorted(self.quoted)
        pieces = [(units[index].start, units[index].end) for index in self.cut]
        pieces += [gap.span for gap in situation.plan.gaps]
        found: dict[Span, tuple[str, ...]] = {}
        for span in joined_spans(pieces, standing):
            # The quotes of earlier notes, then requests cut now; only the newest that fit.
            quotes = [text for gap in situation.plan.gaps_within(*span) for text in gap.quotes]
            first, last = (bisect_left(went, place, key=lambda each: units[each].start) for place in span)
            quotes += filter(None, map(self._quote, went[first:last]))  # a picture alone has no words
            if quotes and lacks_room_for_constraints(situation):
                quotes = []  # not every rule has room, and rules matter more than requests that were answered
            found[span] = _fitting(quotes, int(situation.budget.room * _QUOTED_SHARE), situation.count)
        return found

    def _quote(self, index: int) -> str:
        return quote(self.situation.content(self.situation.units[index].start).text)

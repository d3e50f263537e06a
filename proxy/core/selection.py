"""Choosing the units of one epoch: the strategy's order, then what order alone would leave behind.

Beside the strategy's order two rules keep the view sensible. A request that lost its whole answer goes with
it and is quoted in the note, because a model that sees a bare old order carries it out again. And a small
unimportant island between two gaps goes too, because contiguous gaps can be summarised.

Protections yield only to the budget itself, one level after the other, and then as far as the trim line, so
that the next turn does not stand before the same wall.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from proxy.core.budget import Stage
from proxy.core.ledger.placing import is_short
from proxy.core.ledger.sentences import lays_down
from proxy.core.notes import quote
from proxy.core.plan import Replacement
from proxy.core.precedence import batches, cut_order, disposable
from proxy.core.situation import (
    CRITICAL,
    FIRST_USER,
    FIRST_USER_LEAST,
    FIXED,
    FREE,
    PINNED,
    RECENT,
    Situation,
)
from proxy.core.strategies import Strategy
from proxy.core.tool_results import Clearing

ISLAND = 2
"""Messages of an unimportant run between two gaps that is not worth keeping apart."""
_QUOTED_SHARE = 0.05
"""Share of the room that quotes of one gap may fill (a token is taken for four characters)."""


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
        self._situation = situation
        self._stage = stage
        self._ledger = ledger
        self._clearings = clearings
        self.cut: set[int] = set()
        self._cleared: dict[int, Clearing] = {}
        """Tool results that go out as placeholders, by position."""
        self.quoted: list[int] = []
        """User units that went because their answer went, in order."""
        self.yielded = FREE
        """The firmest protection that had to yield."""
        self.to_clip = 0
        """Counted tokens that the first user message will give up by being clipped, in place of being cut."""
        self.view = situation.view + set_aside + ledger
        """Counted tokens of the view, with what is set aside for notes and the ledger."""

    @property
    def freed(self) -> int:
        """Counted tokens that the epoch frees, net of what is set aside for notes."""
        return self._situation.view - self.view

    @property
    def is_exhausted(self) -> bool:
        """Whether everything that can be cut is cut."""
        protection = self._situation.protection
        return all(index in self.cut or protection[index] == FIXED for index in self._situation.standing)

    def run(self, strategy: Strategy) -> None:
        """Choose: what is disposable first, then tool results, then units."""
        situation = self._situation
        goal = situation.budget.share(situation.policy.stages.target)
        self._take_disposable(strategy, goal)
        self._clear(goal)
        for batch in self._batches(strategy):
            if strategy.is_enough(situation, self.view, goal):
                break
            for index in batch:
                if situation.protection.get(index, FIXED) < FIXED:  # whatever a strategy says
                    self.take(index)
        self._take_islands()
        if self._stage is Stage.EMERGENCY:
            self._yield_protections()

    def _take_disposable(self, strategy: Strategy, goal: int) -> None:
        for index in disposable(self._situation) if self._is_by_tokens(strategy) else ():
            if strategy.is_enough(self._situation, self.view, goal):
                break
            self.take(index)

    def _batches(self, strategy: Strategy) -> Iterable[Sequence[int]]:
        """Units in the order in which they go, what goes together as one; one by one where it counts."""
        order = strategy.order(self._situation, self._stage)
        return (
            cut_order(self._situation, order) if self._is_by_tokens(strategy) else ((each,) for each in order)
        )

    def _is_by_tokens(self, strategy: Strategy) -> bool:
        """Whether classes have a say in the order: what acts by counting knows its units."""
        return not (strategy.slides or strategy.acts_now(self._situation))

    def _clear(self, goal: int) -> None:
        """Clear tool results. The first one's unit is cut, so that there is a note for what they held."""
        for clearing in self._clearings:
            if self.view <= goal:
                break
            if not (clearing.is_told or self.cut or self._situation.plan.gaps):
                for index in batches(self._situation).get(clearing.unit, (clearing.unit,)):
                    self.take(index)
            elif clearing.unit not in self.cut:
                self._cleared[clearing.edit.position] = clearing
                self.view -= clearing.saves

    @property
    def edits(self) -> list[Replacement]:
        """The placeholders of tool results that were cleared now, and whose units stay."""
        return [each.edit for each in self._cleared.values() if each.unit not in self.cut]

    def take(self, index: int) -> None:
        """Cut a unit, and the request that loses the last of its answer by it."""
        self._take(index)
        self._take_orphaned_request(index)

    def _take(self, index: int) -> None:
        if index not in self.cut:
            self.cut.add(index)
            cleared = (each.saves for each in self._cleared.values() if each.unit == index)
            self.view -= self._situation.size(index) - sum(cleared)

    def _is_cut(self, index: int) -> bool:
        return index in self.cut or self._situation.plan.covers(self._situation.units[index].start)

    def _take_orphaned_request(self, answer: int) -> None:
        """A request without protection goes with the last of its answer."""
        situation = self._situation
        asked = situation.request_of(answer)
        if asked is None or situation.protection.get(asked) != FREE or asked in self.cut:
            return
        if all(map(self._is_cut, situation.answer_to(asked))):
            self._take(asked)
            if situation.classes.may_be_quoted(situation.units[asked].start) and not self._is_rule(asked):
                self.quoted.append(asked)
                self.view += self._situation.count(self._quote(asked))

    def _is_rule(self, index: int) -> bool:
        """Whether a request was none, but what the ledger tells: a rule is never handled."""
        situation = self._situation
        rules = situation.policy.ledger
        has_ledger = rules.constraints and (rules.share or rules.tokens)
        return bool(has_ledger) and lays_down(situation.content(situation.units[index].start).text)

    def _take_islands(self) -> None:
        low = self._situation.policy.importance.low
        for island in self._islands():
            worth = max(self._situation.score(index).total for index in island)
            messages = sum(self._situation.units[index].count for index in island)
            if messages <= ISLAND and worth < low:
                for index in island:
                    self._take(index)

    def _islands(self) -> list[list[int]]:
        """Runs of unprotected kept units with a gap on either side."""
        islands: list[list[int]] = []
        run: list[int] = []
        after_gap = False
        kept = [index for index in self._situation.standing if index not in self.cut]
        for before, index in pairwise((-1, *kept, len(self._situation.units))):
            if index > before + 1:
                if run and after_gap:
                    islands.append(run)
                run, after_gap = [], True
            if index == len(self._situation.units):
                break
            if self._situation.protection[index] == FREE:
                run.append(index)
            else:
                run, after_gap = [], False
        return islands

    def _yield_protections(self) -> None:
        """Give up protections, oldest unit first, while the view without a ledger is over the budget."""
        situation = self._situation
        most = situation.budget.share(1)
        if self.view - self._ledger <= most:
            return
        enough = situation.budget.share(situation.policy.stages.trim)
        for level in (FREE, RECENT, FIRST_USER, CRITICAL, PINNED):
            for index in self._at(level):
                if self.view <= enough:
                    return
                self.yielded = max(self.yielded, level)
                asked = situation.tokens[situation.units[index].start]  # an odd unit holds more than that
                spared = max(asked - FIRST_USER_LEAST, 0) if level == FIRST_USER else 0
                if spared and self.view - self._ledger - spared <= most:
                    self.to_clip = spared
                    return
                self._take(index)

    def _at(self, level: int) -> Iterable[int]:
        protection = self._situation.protection
        return [i for i in self._situation.standing if protection[i] == level and i not in self.cut]

    def spans(self) -> list[tuple[int, int]]:
        """What is cut from now on, old gaps included, as maximal runs of messages."""
        units = self._situation.units
        pieces = [(units[index].start, units[index].end) for index in self.cut]
        pieces += [(gap.start, gap.end) for gap in self._situation.plan.gaps]
        spans: list[tuple[int, int]] = []
        for start, end in sorted(pieces):
            if spans and start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start, end))
        return spans

    def quotes_within(self, start: int, end: int) -> tuple[str, ...]:
        """Quotes for a gap's note: what earlier notes quoted, then what went now; the newest fit.

        What is over gives way to what binds: there are none while the budget has no room for every rule.
        """
        situation = self._situation
        quotes = [text for gap in situation.plan.gaps if start <= gap.start < end for text in gap.quotes]
        went = (index for index in sorted(self.quoted) if start <= situation.units[index].start < end)
        quotes += map(self._quote, went)
        if quotes and is_short(situation):
            return ()
        left = int(situation.budget.room * _QUOTED_SHARE * 4)
        kept: list[str] = []
        for text in reversed(quotes):
            left -= len(text)
            if left < 0:
                break
            kept.append(text)
        return tuple(reversed(kept))

    def _quote(self, index: int) -> str:
        return quote(self._situation.content(self._situation.units[index].start).text)

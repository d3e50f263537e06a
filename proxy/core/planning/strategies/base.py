"""The interface of a strategy: when an epoch begins, which units go, and what the note says of them.

A strategy is a pure function of the situation (law 3): no clock, no chance, no memory of its own. What it may
know of the world stands in ``situation.conditions``. Whatever it says, tool calls keep their results and what
the model is still to answer stays (law 2), and the view fits the budget (law 4):
:mod:`proxy.core.planning.selection` and :mod:`proxy.core.planning.planner` see to that.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import ClassVar

from proxy.core.budget.budget import Stage
from proxy.core.conversation.messages import HEAD_ROLES
from proxy.core.conversation.units import last_user
from proxy.core.planning.chain import Chain
from proxy.core.planning.plan import Epoch
from proxy.core.planning.situation import CRITICAL, FREE, Situation
from proxy.core.policy.policy import Policy


class Strategy(ABC):
    """A rule that chooses what goes. It sees everything, and changes nothing.

    Three methods make one. The others are for strategies that act at any usage, or that write notes.
    """

    slides: ClassVar[bool] = False
    """Whether the chain's end alone decides what it keeps: it acts at nearly every request, and a chain
    without a plan need not be played from its start."""

    @abstractmethod
    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """Whether an epoch should begin now; asked at every request, so it must be quick."""

    @abstractmethod
    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Indexes of ``situation.units`` that may be cut, in the order in which they go."""

    @abstractmethod
    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Whether cutting may stop: ``view`` and ``goal`` in counted tokens. Asked before each unit."""

    def acts_now(self, situation: Situation) -> bool:
        """Whether it is due for another reason than usage.

        Such an epoch begins at once, however little it frees, and may wait for its summaries.
        """
        return False

    def turning_points(self, chain: Chain, policy: Policy) -> Collection[int]:
        """Lengths of this chain's past at which ``acts_now`` held, for a chain without a plan."""
        return ()

    def wants_summary(self, situation: Situation, start: int, end: int) -> bool:
        """Whether a model should be asked about messages ``start`` up to ``end``, which are cut."""
        return True

    def words(self, situation: Situation, start: int, end: int, summary: str | None) -> str | None:
        """What a note says of messages ``start`` up to ``end``; None: only how many they are.

        ``summary`` is what a model wrote about them, None where it wrote nothing.
        """
        return summary


class Off(Strategy):
    """No epoch ever begins."""

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """Never."""
        return False

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Nothing may go."""
        return ()

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Always."""
        return True


class ByImportance(Strategy):
    """The least important first: at *trim* only what scores below ``importance.low``, then whatever is."""

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """From *trim* on."""
        return stage in (Stage.TRIM, Stage.COMPACT, Stage.EMERGENCY)

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Unprotected units, the least important first, of equal ones the oldest."""
        ceiling = situation.policy.importance.low if stage is Stage.TRIM else float("inf")
        scored = (
            (situation.score(index).total, index)
            for index in situation.standing
            if situation.protection[index] == FREE
        )
        return [index for total, index in sorted(scored) if total < ceiling]

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """At the goal."""
        return view <= goal


class SlidingWindow(Strategy):
    """Keep the newest messages, ``strategy.last`` of them, in whole units; at any usage."""

    slides = True

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """When a unit has slid out of the window, and always where the budget is passed."""
        return stage is Stage.EMERGENCY or self.acts_now(situation)

    def acts_now(self, situation: Situation) -> bool:
        """When a unit has slid out of the window."""
        return bool(self.order(situation, Stage.CALM))

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Standing units that do not fit among the newest ``last`` messages, oldest first; pins stay."""
        left, outside = situation.policy.strategy.last, list[int]()
        for index in reversed(situation.standing):
            left -= situation.units[index].count
            if left < 0 and situation.protection[index] < CRITICAL:
                outside.append(index)
        return outside[::-1]

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Never before the window is as small as it should be."""
        return False


class Session(ByImportance):
    """After a pause over ``strategy.idle``, or where the client says so, all before goes, at any usage."""

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """At a boundary with something before it; else from *trim* on."""
        if _begins_anew(situation):
            return stage is Stage.EMERGENCY or bool(_past(situation))
        return super().is_due(situation, stage)

    def acts_now(self, situation: Situation) -> bool:
        """At a boundary."""
        return _begins_anew(situation) and bool(_past(situation))

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """At a boundary all that lies before it, oldest first."""
        return _past(situation) if _begins_anew(situation) else super().order(situation, stage)

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """At a boundary when nothing of the past is left."""
        return not _begins_anew(situation) and super().is_enough(situation, view, goal)


def _begins_anew(situation: Situation) -> bool:
    conditions = situation.conditions
    if conditions.boundary:
        return True
    is_late = conditions.idle is not None and conditions.idle > situation.policy.strategy.idle
    return is_late and _is_asked(situation)


def _is_asked(situation: Situation) -> bool:
    """Whether a person has spoken: a tool that took long is no pause."""
    *before, last = situation.chain.messages[-2:] or [None]
    is_prefill = last is not None and last.is_final and bool(before)
    spoken = before[0] if is_prefill else last
    return spoken is not None and spoken.role == "user"


def _past(situation: Situation) -> list[int]:
    """Standing units that came before the newest request, pinned and later system messages apart."""
    messages = situation.chain.messages
    start = last_user(messages) or 0
    while start and messages[start - 1].role in ("user", *HEAD_ROLES):
        start -= 1
    return [
        index
        for index in situation.standing
        if situation.units[index].end <= start and situation.protection[index] < CRITICAL
    ]


class ByUnits(Strategy):
    """Epochs by count: ``stages.max_units`` units that may be cut begin one at any usage.

    Counted is what has come free since the last epoch began: units that stand in the view, that nothing
    protects, and that were protected as the newest, or were not there yet, when it began. Such an epoch cuts
    all that may be cut, oldest first, as a compaction on request does; the newest stay. The count begins
    again with every epoch, whatever began it, so one cannot follow directly upon another.
    """

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """When enough has come free; quick while it has not: no content is read for a smaller count."""
        most = situation.policy.stages.max_units
        if not most or situation.policy.strategy.name == "off":
            return False
        candidates = _come_free(situation)
        return len(candidates) >= most and sum(_is_free(situation, each) for each in candidates) >= most

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Everything unprotected."""
        return [index for index in situation.standing if _is_free(situation, index)]

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Never before all is gone."""
        return False


BY_UNITS = ByUnits()


def _is_free(situation: Situation, index: int) -> bool:
    return situation.protection[index] == FREE


def _come_free(situation: Situation) -> Sequence[int]:
    """Units between what was the newest when the last epoch began and what is the newest now."""
    start = _newest_units_from(situation, situation.conditions.since)
    end = _newest_units_from(situation, len(situation.chain))
    return [index for index in situation.standing if start <= situation.units[index].start < end]


def _newest_units_from(situation: Situation, length: int) -> int:
    """Where the newest units began when the chain had so many messages: `keep.recent`, and the open one."""
    left = situation.budget.share(situation.policy.keep.recent)
    start = length
    for index in reversed(situation.standing):
        unit = situation.units[index]
        if unit.start >= length:
            continue
        left -= situation.size(index)
        if left < 0 and start < length:
            break
        start = unit.start
    return start


def since(epoch: Epoch | None, hashes: Sequence[bytes]) -> int:
    """Messages that a chain had when the epoch in force began; 0 where there is none."""
    return epoch.length_at_start(hashes) if epoch else 0

"""What a strategy is: it says when an epoch begins, which units go in which order, and what the note says.

A strategy is a pure function of the situation (law 3): no clock, no chance, no memory of its own. What it may
know of the world stands in ``situation.conditions``. Whatever it says, tool calls keep their results and what
the model is still to answer stays (law 2), and the view fits the budget (law 4):
:mod:`proxy.core.planning.selection` and :mod:`proxy.core.planning.planner` see to that.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import ClassVar

from proxy.core.budget.budget import Stage
from proxy.core.planning.chain import Chain
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy


class Strategy(ABC):
    """A rule that chooses what goes. It sees everything, and changes nothing.

    Three methods make one. The others are for strategies that act at any usage, or that write notes.
    """

    by_usage: ClassVar[bool] = False
    """Whether it is due by usage alone, from *trim* on: below that nobody need ask it."""
    slides: ClassVar[bool] = False
    """Whether the chain's end alone decides what it keeps: it acts at nearly every request, and a chain
    without a plan need not be played from its start."""
    records: ClassVar[bool] = False
    """Whether it writes down itself what it cuts, as a running summary that a model only shortens."""

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

    def condensed(self, situation: Situation) -> Sequence[int]:
        """Indexes of ``situation.units`` that go without their requests; notes behind these tell of them."""
        return ()

    def ahead(self, situation: Situation) -> Situation | None:
        """The situation as it will be when its next epoch begins, where that is with the next exchange.

        What that cuts is summarised now. Asked at every request, so it must be quick.
        """
        return None

    def wants_summary(self, situation: Situation, start: int, end: int) -> bool:
        """Whether a model should be asked about messages ``start`` up to ``end``, which are cut."""
        return True

    def words(self, situation: Situation, start: int, end: int, summary: str | None) -> str | None:
        """What a note says of messages ``start`` up to ``end``; None: only how many they are.

        ``summary`` is what a model wrote about them, None where it wrote nothing.
        """
        return summary


class ByCount(Strategy):
    """Acts whenever ``acts_now`` holds, and always where the budget is passed; then all of its order goes."""

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        return stage is Stage.EMERGENCY or self.acts_now(situation)

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        return False

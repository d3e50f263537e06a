"""The interface of strategies: when an epoch begins, which units are cut in which order, what notes say.

A strategy is a pure function of the situation (law 3): no clock, no randomness, no state of its own. What it
may know of the outside world is in ``situation.conditions``. Whatever a strategy says, tool calls keep their
results, what the model has still to answer stays (law 2), and the view fits the budget (law 4);
:mod:`proxy.core.planning.selection` and :mod:`proxy.core.planning.planner` ensure that.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import ClassVar

from proxy.core.budget.budget import Stage
from proxy.core.planning.chain import Chain
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy


class Strategy(ABC):
    """A rule that chooses what is cut. It sees the whole situation and changes nothing.

    Only three methods must be implemented. The others are for strategies that act at any usage or that write
    notes.
    """

    by_usage: ClassVar[bool] = False
    """Whether usage alone makes it due, from *trim* on, so that it need not be called below *trim*."""
    slides: ClassVar[bool] = False
    """Whether only the end of the chain decides what it keeps. Then it acts at nearly every request, and a
    chain without a plan need not be replayed from its start."""
    records: ClassVar[bool] = False
    """Whether it records itself what it cuts, as a running summary that a model only shortens."""

    @abstractmethod
    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """Whether an epoch should begin now; called for most requests, so it must be quick.

        At *emergency* one begins whatever it says, because the view must fit.
        """

    @abstractmethod
    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        """Return indexes of ``situation.units`` that may be cut, in the order in which to cut them."""

    @abstractmethod
    def is_enough(self, situation: Situation, view_tokens: int, goal: int) -> bool:
        """Whether cutting may stop; called before each unit. Both amounts are counted tokens."""

    def acts_now(self, situation: Situation) -> bool:
        """Whether the strategy is due for another reason than usage.

        Such an epoch begins at once, however little it frees, and a request may wait for its summaries.
        """
        return False

    def may_act_now(self, situation: Situation) -> bool:
        """Whether it ``acts_now``, and a view may fit: no cut fits into a budget that is overrun."""
        return not situation.budget.is_overrun and self.acts_now(situation)

    def turning_points(self, chain: Chain, policy: Policy) -> Collection[int]:
        """Return earlier lengths of this chain at which ``acts_now`` held, for a chain without a plan."""
        return ()

    def condensed(self, situation: Situation) -> Sequence[int]:
        """Return indexes of units to cut while their requests stay, each followed by a note about the cut."""
        return ()

    def ahead(self, situation: Situation) -> Situation | None:
        """Return the situation expected at the next epoch, if that begins with the next exchange; else None.

        The messages that it will cut are summarised in advance. Called for every request: must be quick.
        """
        return None

    def wants_summary(self, situation: Situation, start: int, end: int) -> bool:
        """Whether a model should summarise the cut messages ``start`` to ``end`` (exclusive)."""
        return True

    def words(self, situation: Situation, start: int, end: int, summary: str | None) -> str | None:
        """Return what the note says of messages ``start`` to ``end`` (exclusive); None: only their number.

        ``summary`` is a model's summary of them; None if there is none.
        """
        return summary


class ByCount(Strategy):
    """Acts whenever ``acts_now`` holds, and then cuts everything in its order."""

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        return self.acts_now(situation)

    def is_enough(self, situation: Situation, view_tokens: int, goal: int) -> bool:
        return False

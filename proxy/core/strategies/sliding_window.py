"""Keep the newest messages, ``strategy.last`` of them, in whole units; at any usage."""

from collections.abc import Sequence

from proxy.core.budget import Stage
from proxy.core.situation import CRITICAL, Situation
from proxy.core.strategies.strategy import Strategy


class SlidingWindow(Strategy):
    """The oldest standing units go, as far as the window leaves them behind."""

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

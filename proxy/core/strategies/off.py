"""Cut nothing."""

from collections.abc import Sequence

from proxy.core.budget import Stage
from proxy.core.situation import Situation
from proxy.core.strategies.strategy import Strategy


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

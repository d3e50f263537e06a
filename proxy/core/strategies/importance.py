"""Cut the least important units first, until the goal is reached."""

from collections.abc import Sequence

from proxy.core.budget import Stage
from proxy.core.situation import FREE, Situation
from proxy.core.strategies.strategy import Strategy

_STAGES = (Stage.TRIM, Stage.COMPACT, Stage.EMERGENCY)


class ByImportance(Strategy):
    """At *trim* only what scores below ``importance.low``; from *compact* on whatever is least important."""

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """From *trim* on."""
        return stage in _STAGES

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

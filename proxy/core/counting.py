"""Epochs by count: `stages.max_units` units that may be cut begin one at any usage.

Counted is what has come free since the last epoch began: units that stand in the view, that nothing protects,
and that were protected as the newest, or were not there yet, when it began. Such an epoch cuts all that may
be cut, as a compaction on request does; the newest stay. The count begins again with every epoch, whatever
began it, so one cannot follow directly upon another.
"""

from collections.abc import Sequence

from proxy.core.budget import Stage
from proxy.core.plan import Epoch
from proxy.core.situation import FREE, Situation
from proxy.core.strategies import Strategy


class ByUnits(Strategy):
    """All that may be cut goes, oldest first."""

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
    start = _newest_from(situation, situation.conditions.since)
    end = _newest_from(situation, len(situation.chain))
    return [index for index in situation.standing if start <= situation.units[index].start < end]


def _newest_from(situation: Situation, length: int) -> int:
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

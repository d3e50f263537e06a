"""The strategy ``exchanges``: a window that holds so many exchanges, and rolls by several at a time.

What rolls is told by a running summary (:mod:`proxy.core.planning.running_summary`).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence

from msgspec.structs import replace

from proxy.core.budget.budget import Stage
from proxy.core.conversation.units import exchanges_of, request_points
from proxy.core.planning.chain import Chain
from proxy.core.planning.running_summary import RunningSummary
from proxy.core.planning.situation import CRITICAL, PINNED, Situation
from proxy.core.planning.strategy import Strategy
from proxy.core.policy.policy import Policy
from proxy.core.text.words import size


class Exchanges(Strategy):
    """A rolling window: past ``strategy.exchanges`` of them, all exchanges but the newest ``roll_to`` go.

    With ``strategy.condense_active`` the long answers of those that stay give way to notes at the same time.
    """

    def is_due(self, situation: Situation, stage: Stage) -> bool:
        """When there are too many exchanges, and always where the budget is passed."""
        return stage is Stage.EMERGENCY or self.acts_now(situation)

    def acts_now(self, situation: Situation) -> bool:
        return bool(_rolled(situation))

    def order(self, situation: Situation, stage: Stage) -> Sequence[int]:
        return _rolled(situation)

    def is_enough(self, situation: Situation, view: int, goal: int) -> bool:
        """Never before all of them have rolled."""
        return False

    def condensed(self, situation: Situation) -> Sequence[int]:
        """The answers that are long and stay, but for pinned ones and such as a note would hardly shorten."""
        rules, rolled = situation.policy.strategy, set(_rolled(situation))
        if not (rules.condense_active and rolled):
            return ()
        least = max(rules.answer_max, rules.answer_to + _AROUND)
        return [
            index
            for index in situation.standing
            if index not in rolled
            and situation.protection[index] < CRITICAL
            and situation.chain.messages[place := situation.units[index].start].is_final
            and situation.classes.may_be_summarised(place)
            and size(situation.content(place).text.strip()) > least
        ]

    def ahead(self, situation: Situation) -> Situation | None:
        """With one exchange less to roll, and one less that stays, where the window is full."""
        rules = situation.policy.strategy
        if rules.roll_to < 2 or _count(situation) < rules.exchanges:
            return None
        soon = {"exchanges": rules.exchanges - 1, "roll_to": rules.roll_to - 1}
        policy = situation.policy.model_copy(update={"strategy": rules.model_copy(update=soon)})
        return replace(situation, policy=policy)

    def turning_points(self, chain: Chain, policy: Policy) -> Collection[int]:
        """The requests at which there was one exchange too many."""
        rules, standing = policy.strategy, 0
        points = request_points(chain.messages)
        found: set[int] = set()
        for position in chain.begun:
            standing += 1
            if standing > rules.exchanges:
                found.add(points[bisect_right(points, position)])
                standing = rules.roll_to
        return found

    def record(self, situation: Situation, start: int, end: int) -> RunningSummary | None:
        """The exchanges as they went."""
        return RunningSummary.of(situation, start, end)

    def wants_summary(self, situation: Situation, start: int, end: int) -> bool:
        """Where code would leave something out."""
        return not RunningSummary.of(situation, start, end).is_whole

    def words(self, situation: Situation, start: int, end: int, summary: str | None) -> str | None:
        """The model's summary, if it is no longer than it may be; else the record that code makes."""
        running = RunningSummary.of(situation, start, end)
        return summary if summary and size(summary) <= running.room else running.text({}) or None


_AROUND = 300
"""Bytes of a note beside the answer that it tells, about."""


def _count(situation: Situation) -> int:
    """The exchanges of the view, those of which anything is pinned among them; quick."""
    begun = situation.chain.begun
    gone = (bisect_left(begun, gap.end) - bisect_left(begun, gap.start) for gap in situation.plan.gaps)
    return len(begun) - sum(gone)


def _rolled(situation: Situation) -> list[int]:
    """Standing units of the exchanges that roll, pinned and later system messages apart."""
    rules = situation.policy.strategy
    if _count(situation) <= rules.exchanges:
        return []
    protection = situation.protection
    movable = (index for index in situation.standing if protection[index] not in (CRITICAL, PINNED))
    standing = exchanges_of(situation.chain.begun, situation.units, movable)
    if len(standing) <= rules.exchanges:
        return []
    old = standing[: -rules.roll_to]
    return [index for exchange in old for index in exchange if protection[index] < CRITICAL]

"""Begin anew after a pause: what came before it goes, at any usage. In between, by importance."""

from collections.abc import Sequence

from proxy.core.budget import Stage
from proxy.core.messages import HEAD_ROLES
from proxy.core.situation import CRITICAL, Situation
from proxy.core.strategies.importance import ByImportance
from proxy.core.units import last_user


class Session(ByImportance):
    """Cuts at a pause over ``strategy.idle``, or where the client says that something new begins."""

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

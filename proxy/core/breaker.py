"""The breaker: a rewrite has to be earned by growth.

A history of which little can be cut (a head larger than the trigger, results that must stay) would otherwise
be compacted over and over. Below 100 % an epoch follows another only when the conversation has grown by half
of what lies between the trigger and the target, and a lane never has more epochs than its tokens hold that
distance; so it begins at most

    1 + tokens of the conversation / distance

of them, whatever is in it. Above 100 % law 4 (bounded) goes first, and epochs are bounded by what there is to
cut: each takes at least one more unit out of the view or clips one; where nothing is left, the plan does not
change, and no epoch begins. Strategies that act by count are not asked.
"""

from collections.abc import Sequence

import msgspec

from proxy.core.budget import Budget
from proxy.core.growing import Sizes
from proxy.core.plan import Epoch
from proxy.core.policy_sections import Stages

LEAST_FREED = 0.1
"""Share of the room that an epoch must free to be begun below 100 %."""


class Past(msgspec.Struct, frozen=True):
    """The epochs that led to the plan in force, but for those that a person asked for."""

    epochs: int = 0
    length: int = 0
    """Messages that the chain had when the newest of them began."""

    def after(self, length: int) -> "Past":
        """With one more epoch, begun at so many messages."""
        return Past(self.epochs + 1, length)


NO_PAST = Past()


def past_of(epochs: Sequence[Epoch], current: Epoch | None, hashes: Sequence[bytes]) -> Past:
    """The past of the epoch in force, for a chain with these hashes."""
    if current is None:
        return NO_PAST
    line: list[Epoch] = []
    wanted = current.id
    for epoch in reversed(epochs):  # a parent was written before its children
        if epoch.id != wanted:
            continue
        wanted = epoch.parent
        if not epoch.asked and not epoch.is_late:
            line.append(epoch)
    return Past(len(line), line[0].length_at_start(hashes)) if line else NO_PAST


def distance(budget: Budget, stages: Stages) -> int:
    """Counted tokens between the target and the trigger, at least what an epoch must free."""
    trigger = int(stages.trim * budget.limit) - budget.head
    return max(trigger - budget.share(stages.target), int(LEAST_FREED * budget.room), 1)


def allows(past: Past, tokens: Sizes, budget: Budget, stages: Stages) -> bool:
    """Whether a conversation of messages of these sizes has earned one more epoch."""
    if not past.epochs:
        return True
    earned = distance(budget, stages)
    return 2 * tokens.between(past.length) >= earned and tokens.total >= past.epochs * earned

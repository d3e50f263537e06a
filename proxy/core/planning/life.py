"""The life of an epoch: why one begins, what has to hold until it does, and which one is in force.

An epoch that is due has a cause, and stands before the first gate of that cause's row in :data:`LIFE`. Where
a gate holds, it stands before the next one; behind the last it is written, and in force. Where one does not,
the plan in force stands, and the next request asks anew. In force it stays for every request that still has
what it has edited, until an epoch is written upon it (:func:`in_force`).

People's verbs, and late summaries that cost nothing, begin epochs before which no gate stands.

A rewrite has to be earned by growth, because a history of which little can be cut (a head larger than the
trigger, results that must stay) would otherwise be compacted over and over. Below 100 % an epoch follows
another only when the conversation has grown by half of what lies between the trigger and the target, and a
lane never has more epochs than its tokens hold that distance; so it begins at most

    1 + tokens of the conversation / distance

of them, whatever is in it. Above 100 % law 4 (bounded) goes first, and epochs are bounded by what there is to
cut: each takes at least one more unit out of the view or clips one; where nothing is left, the plan does not
change, and no epoch begins. Strategies that act by count are not asked.

A window that head and last message alone exceed is wrong, or the head too large: no cut helps then. There an
epoch begins only when what follows the head has grown by a quarter of the window, also above 100 %.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import assert_never

import msgspec

from proxy.core.budget.budget import Budget, Stage
from proxy.core.persistent import Sizes
from proxy.core.planning.plan import Epoch, Plan
from proxy.core.policy.sections import Stages

LEAST_FREED = 0.1
"""Share of the room that an epoch must free to be begun below 100 %."""
WITHIN = 2
"""Units in which the summaries of an epoch by count are waited for; then it begins with notices."""


class Cause(StrEnum):
    """Why an epoch is due."""

    EARLY = "early"
    """The strategy wants it below *trim*."""
    TRIM = "trim"
    """The view is at *trim*."""
    COMPACT = "compact"
    """The view is at *compact*, or over the budget in a window that no cut can keep to."""
    EMERGENCY = "emergency"
    """The view is over the budget."""
    AT_ONCE = "at once"
    """The strategy acts for another reason than usage: a boundary, or a count of exchanges or messages."""
    UNITS = "units"
    """So many units came since the last epoch (``stages.max_units``)."""


class Gate(StrEnum):
    """What has to hold before an epoch begins."""

    EARNED = "earned"
    """The conversation has grown enough since the last one."""
    CHANGES = "changes"
    """It cuts or clears what the plan in force does not."""
    FREES = "frees"
    """It frees a tenth of the room, notes and ledger included."""
    SHRINKS = "shrinks"
    """The view becomes smaller, ledgers apart."""
    FITS = "fits"
    """The view fits the budget."""
    PAYS = "pays"
    """It saves more than it costs (:mod:`proxy.core.economics.economy`)."""
    PREPARED = "prepared"
    """Its summaries are written, or :data:`WITHIN` more units came meanwhile."""


LIFE: Mapping[Cause, tuple[Gate, ...]] = {
    Cause.EARLY: (Gate.EARNED, Gate.CHANGES, Gate.FREES),
    Cause.TRIM: (Gate.EARNED, Gate.CHANGES, Gate.FREES, Gate.PAYS),
    Cause.COMPACT: (Gate.EARNED, Gate.CHANGES, Gate.FREES),
    Cause.EMERGENCY: (),
    Cause.AT_ONCE: (Gate.CHANGES, Gate.FITS),
    Cause.UNITS: (Gate.CHANGES, Gate.SHRINKS, Gate.FITS, Gate.PREPARED),
}
"""Of each cause the gates that an epoch passes, in this order, from being due to being in force."""


def cause_of(stage: Stage, *, acts_now: bool) -> Cause:
    """Why a strategy is due at a stage, whether or not it ``acts_now`` for another reason than usage."""
    if stage is Stage.EMERGENCY:
        return Cause.EMERGENCY
    if acts_now:
        return Cause.AT_ONCE
    match stage:
        case Stage.CALM | Stage.WARN:
            return Cause.EARLY
        case Stage.TRIM:
            return Cause.TRIM
        case Stage.COMPACT:
            return Cause.COMPACT
        case _:
            assert_never(stage)


class Past(msgspec.Struct, frozen=True):
    """The epochs that led to the plan in force, but for those that a person asked for."""

    epochs: int = 0
    length: int = 0
    """Messages that the chain had when the newest of them began."""

    def after(self, length: int) -> "Past":
        """With one more epoch, begun at so many messages."""
        return Past(self.epochs + 1, length)


NO_PAST = Past()


def line_of(epochs: Sequence[Epoch], current: Epoch | None) -> list[Epoch]:
    """The epochs that led to the one in force, oldest first, and that one."""
    by_id = {epoch.id: epoch for epoch in epochs}
    line: list[Epoch] = []
    while current is not None:
        line.append(current)
        current = by_id.get(current.parent)
    return line[::-1]


def past_of(epochs: Sequence[Epoch], current: Epoch | None, hashes: Sequence[bytes]) -> Past:
    """The past of the epoch in force, for a chain with these hashes."""
    led = [epoch for epoch in line_of(epochs, current) if not (epoch.asked or epoch.cuts_nothing)]
    return Past(len(led), led[-1].length_at_start(hashes)) if led else NO_PAST


def distance(budget: Budget, stages: Stages) -> int:
    """Counted tokens between the target and the trigger, at least what an epoch must free."""
    trigger = int(stages.trim * budget.limit) - budget.head
    return max(trigger - budget.share(stages.target), int(LEAST_FREED * budget.room), 1)


def allows(past: Past, tokens: Sizes, budget: Budget, stages: Stages) -> bool:
    """Whether a conversation of messages of these sizes has earned one more epoch."""
    # Compacting again without growth is a loop: https://github.com/google-gemini/gemini-cli/issues/6563
    if budget.is_overrun:
        return tokens.between(past.length) >= budget.earned
    if not past.epochs:
        return True
    earned = distance(budget, stages)
    return 2 * tokens.between(past.length) >= earned and tokens.total >= past.epochs * earned


def in_force(
    epochs: Sequence[Epoch],
    chain: Sequence[bytes],
    counted: int,
    spares: Callable[[Plan], bool],
    settled: int = 0,
) -> Epoch | None:
    """The deepest epoch that holds for this chain, of a lane's ``epochs`` in the order they were written.

    Of two children of one epoch that both hold, the one written first wins on every worker. ``spares`` says
    whether a plan leaves alone what this chain needs whole: a chain that was rolled back to a message that an
    epoch has cut falls back to the epoch before. A chain of fewer than ``calm_below`` counted tokens is
    forwarded whole. ``settled`` are its oldest messages that every plan may edit, as far as that is known.
    """
    # Sticky: what is decided anew at each request costs several times what nobody prunes costs, for no
    # prefix stays in the provider's cache: https://github.com/headroomlabs-ai/headroom/issues/2438
    newest, current = (epochs[-1] if epochs else None), None
    if newest is not None and not newest.asked and newest.number == len(epochs):
        length = newest.length_at_start(chain[:settled])
        if length <= min(settled, len(chain)) and chain[length - 1] == newest.begun_at:
            current = newest  # with all the others in force it began at one of these messages: so it is
    if current is None:
        parent = ""
        for epoch in epochs:
            reaches = epoch.depth <= len(chain) and chain[epoch.depth - 1] == epoch.reach
            if epoch.parent == parent and reaches and spares(epoch.plan):
                current, parent = epoch, epoch.id
    return None if current is not None and counted < current.calm_below else current

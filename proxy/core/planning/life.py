"""The life of an epoch: why one begins, which conditions it must meet, and which one is in force.

docs/epochs.md tells it. :data:`GATES` lists the gates of each cause. Epochs that a person asks for, and those
that only add late summaries at no cost, pass none.

An epoch must be earned by growth (docs/policies.md, "When a cut pays"), because a history of which little can
be cut would otherwise be compacted over and over. So below 100 % usage begins at most

    1 + tokens of the conversation / distance

epochs in a lane, whatever the conversation contains. Above 100 % law 4 (bounded) takes precedence, and their
number is bounded by what can be cut: each removes or clips at least one more unit, else the plan does not
change and no epoch begins. If cutting does not help, because the head and the last message alone exceed the
window, or the head the budget, an epoch must be earned also above 100 %.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import assert_never

import msgspec

from proxy.core.budget.budget import Budget, Stage
from proxy.core.budget.prices import Prices
from proxy.core.persistent import Sizes
from proxy.core.planning.plan import Epoch, Plan
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Stages

LEAST_FREED = 0.1
"""Share of the room that an epoch must free to begin below 100 %."""
GRACE_UNITS = 2
"""New units for which an epoch by count waits for its summaries; after them it begins with notices."""


class Cause(StrEnum):
    """Why an epoch is due."""

    EARLY = "early"
    """The strategy asks for it below *trim*."""
    TRIM = "trim"
    """The view is at *trim*."""
    COMPACT = "compact"
    """The view is at *compact*, or over a budget that no cut can make it fit."""
    EMERGENCY = "emergency"
    """The view is over the budget."""
    AT_ONCE = "at once"
    """The strategy acts for another reason than usage: a boundary, or a count of exchanges or messages."""
    UNITS = "units"
    """``stages.max_units`` units have been added since the last epoch."""


class Gate(StrEnum):
    """What has to hold before an epoch begins.

    Most are checked on its draft (:mod:`proxy.core.planning.planner`). *pays* and *prepared* depend on what
    happened meanwhile, and are checked in :mod:`proxy.engine.planning.epochs`.
    """

    EARNED = "earned"
    """The conversation has grown enough since the last epoch."""
    CHANGES = "changes"
    """It cuts or clears something that the plan in force does not."""
    FREES = "frees"
    """It frees a tenth of the room, notes and ledger included."""
    SHRINKS = "shrinks"
    """The view becomes smaller, not counting ledgers."""
    FITS = "fits"
    """The view fits the budget."""
    PAYS = "pays"
    """It saves more than it costs (:mod:`proxy.core.economics.economy`)."""
    PREPARED = "prepared"
    """Its summaries are written, or :data:`GRACE_UNITS` more units have been added while it waited."""


GATES: Mapping[Cause, tuple[Gate, ...]] = {
    Cause.EARLY: (Gate.EARNED, Gate.CHANGES, Gate.FREES),
    Cause.TRIM: (Gate.EARNED, Gate.CHANGES, Gate.FREES, Gate.PAYS),
    Cause.COMPACT: (Gate.EARNED, Gate.CHANGES, Gate.FREES),
    Cause.EMERGENCY: (),
    Cause.AT_ONCE: (Gate.CHANGES, Gate.FITS),
    Cause.UNITS: (Gate.CHANGES, Gate.SHRINKS, Gate.FITS, Gate.PREPARED),
}
"""By cause, the gates that an epoch must pass in this order before it comes into force."""


def cause_of(stage: Stage, *, acts_now: bool, is_over: bool) -> Cause:
    """Return the cause of an epoch at a stage.

    ``acts_now``: whether the strategy acts for another reason than usage. ``is_over``: whether the view is
    over the budget, as it need not be where a policy calls less an emergency.
    """
    if acts_now and stage is not Stage.EMERGENCY:
        return Cause.AT_ONCE
    match stage:
        case Stage.CALM | Stage.WARN:
            return Cause.EARLY
        case Stage.TRIM:
            return Cause.TRIM
        case Stage.COMPACT:
            return Cause.COMPACT
        case Stage.EMERGENCY:
            return Cause.EMERGENCY if is_over else Cause.COMPACT
        case _:
            assert_never(stage)


class Past(msgspec.Struct, frozen=True):
    """The epochs that led to the plan in force, without those that a person asked for or that cut nothing."""

    epochs: int = 0
    """How many of them usage began: one that began below *trim* had another reason, and is not earned."""
    length: int = 0
    """Number of messages in the chain when the newest of these epochs began."""

    def after(self, length: int, stage: Stage, epochs: int = 1) -> "Past":
        """Return the past with more epochs, begun at this stage, when the chain had ``length`` messages."""
        return Past(self.epochs + epochs * must_be_earned(stage), length)


NO_PAST = Past()


def line_of(epochs: Sequence[Epoch], current: Epoch | None) -> list[Epoch]:
    """Return the epochs that led to ``current``, oldest first, and ``current`` itself."""
    by_id = {epoch.id: epoch for epoch in epochs}
    line: list[Epoch] = []
    while current is not None:
        line.append(current)
        current = by_id.get(current.parent)
    return line[::-1]


def past_of(epochs: Sequence[Epoch], current: Epoch | None, hashes: Sequence[bytes]) -> Past:
    """Return the past of the epoch in force, for a chain with these hashes."""
    led = [epoch for epoch in line_of(epochs, current) if not (epoch.asked or epoch.cuts_nothing)]
    earned = sum(must_be_earned(Stage(epoch.stage)) for epoch in led)
    return Past(earned, led[-1].length_at_start(hashes)) if led else NO_PAST


def must_be_earned(stage: Stage) -> bool:
    """Whether an epoch that begins at this stage has to be earned by the conversation's growth."""
    return stage not in (Stage.CALM, Stage.WARN)


def growth_per_epoch(budget: Budget, stages: Stages) -> int:
    """Counted tokens between target and trigger, but at least what an epoch must free, and at least 1."""
    trigger = int(stages.trim * budget.limit) - budget.head
    return max(trigger - budget.share(stages.target), int(LEAST_FREED * budget.room), 1)


def affordable_summary(policy: Policy, budget: Budget, prices: Prices | None, pace: float) -> int:
    """Tokens that one summary may have in a conversation that grows by ``pace`` counted tokens a request.

    If cost is considered, a summary that is longer than usual may cost at most half of what a cut saves until
    the next one: ``r * D * D / 2g`` fresh tokens (:mod:`proxy.core.economics.economy`), where D is the growth
    of the conversation until then. The other half pays for tokens that are read again. So a policy that asks
    for long summaries costs no more, under a small budget, than sending the whole history. The limit does not
    apply if another model writes the summaries, because its price is not known here.
    """
    rules, stages = policy.economy, policy.stages
    if prices is None or not prices.is_known or not rules.enabled or policy.summary.model:
        return policy.summary_tokens(budget.limit)
    grown, pace = float(growth_per_epoch(budget, stages)), max(pace, 1.0)
    if stages.max_units:
        grown = min(grown, stages.max_units * pace)
    saved = prices.read_share * grown * grown / (2 * pace)
    return policy.summary_tokens(budget.limit, saved / 2 * prices.fresh / prices.output)


def has_earned_epoch(past: Past, tokens: Sizes, budget: Budget, stages: Stages) -> bool:
    """Whether a conversation with messages of these sizes has earned one more epoch."""
    # Compacting again without growth loops: https://github.com/google-gemini/gemini-cli/issues/6563
    if budget.is_overrun:
        return tokens.between(past.length) >= budget.growth_when_overrun
    if not past.length:
        return True
    earned = growth_per_epoch(budget, stages)
    return 2 * tokens.between(past.length) >= earned and tokens.total >= past.epochs * earned


def in_force(
    epochs: Sequence[Epoch],
    chain: Sequence[bytes],
    counted: int | None,
    spares: Callable[[Plan], bool],
    settled: int = 0,
) -> Epoch | None:
    """Return the deepest epoch that applies to this chain; None if no epoch does.

    ``epochs`` are those of the lane, in the order in which they were written. If several children of an
    epoch apply, the one that began latest in this chain counts, else the deepest; among equals the newest,
    which was written because the older ones did not apply (of two written at once, the store keeps one).
    ``spares`` says whether a plan leaves alone the messages that this chain needs whole: a chain that was
    rolled back to a message that an epoch cut falls back to the epoch before. So does a chain of fewer
    counted tokens than the epoch's ``calm_below``; ``counted`` is None if the chain is known not to be calm.
    ``settled`` is how many of the oldest messages every plan may edit, as far as known.
    """
    # Epochs persist, because deciding anew at each request costs several times as much as not pruning: no
    # prefix stays in the provider's cache: https://github.com/headroomlabs-ai/headroom/issues/2438

    def began(epoch: Epoch) -> tuple[bool, int]:
        length = epoch.length_at_start(chain)
        return chain[length - 1] == epoch.begun_at, length

    newest, current = (epochs[-1] if epochs else None), None
    if newest is not None and not newest.asked and newest.number == len(epochs):
        length = newest.length_at_start(chain[:settled])
        is_unchanged = length <= min(settled, len(chain)) and chain[length - 1] == newest.begun_at
        # A client that has dropped its oldest messages has the same hashes at other positions.
        is_unchanged = is_unchanged and chain[newest.depth - 1] == newest.reach
        if is_unchanged and spares(newest.plan):
            current = newest  # all epochs are in one line and the chain is unchanged up to its beginning
    if current is None:
        children = defaultdict[str, list[Epoch]](list)
        for epoch in epochs:
            if epoch.depth <= len(chain) and chain[epoch.depth - 1] == epoch.reach:
                children[epoch.parent].append(epoch)
        rivals: Sequence[Epoch] = children[""]
        while rivals := [epoch for epoch in reversed(rivals) if spares(epoch.plan)]:
            current = rivals[0] if len(rivals) == 1 else max(rivals, key=began)
            rivals = children[current.id]
    while current is not None and counted is not None and counted < current.calm_below:
        before = current.parent
        current = next((epoch for epoch in reversed(epochs) if epoch.id == before), None)
    return current

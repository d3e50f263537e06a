"""The plan of a chain without one at hand: its own past, replayed with notices only.

So a worker without a store cuts today what it would have cut yesterday (law 7).
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage, stage_of
from proxy.core.conversation.messages import TOOL_ROLES
from proxy.core.conversation.units import request_points
from proxy.core.extraction.reading import Read
from proxy.core.planning.chain import Chain
from proxy.core.planning.ledger import SPARE, placed, room_of
from proxy.core.planning.life import NO_PAST, Past
from proxy.core.planning.plan import EMPTY, Plan, view_tokens
from proxy.core.planning.planner import Draft, acts_now, draft, written
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Conditions, Count, Situation
from proxy.core.planning.strategies import strategy_of
from proxy.core.policy.policy import Policy

_PRESSING = (Stage.COMPACT, Stage.EMERGENCY)
_FOLDED_BITS = 3
"""Leading bits of an epoch's number; where all others are zero, a fold writes the epoch's ledger."""
_MANY = 128
"""Epochs from which all bits but the first must be zero."""


def fold(
    chain: Chain,
    policy: Policy,
    budget: Budget,
    count: Count,
    conditions: Conditions = UNKNOWN_CONDITIONS,
    pins: AbstractSet[bytes] = frozenset(),
) -> tuple[Plan, int]:
    """The plan that a chain would have come to by itself, with notices only, and how many epochs it took.

    ``conditions`` are those of the chain's last request; of the others nobody knows them.
    """
    folding = _Folding(chain, policy, budget, count, conditions, pins)
    strategy = strategy_of(policy.strategy.name)
    marks = strategy.turning_points(chain, policy)
    for length in [len(chain)] if strategy.slides else request_points(chain.messages):
        folding.reach(length, is_marked=strategy.slides or length in marks)
    return folding.plan, folding.epochs


@dataclass
class _Folding:
    """A chain's past, as far as it has been replayed."""

    chain: Chain
    policy: Policy
    budget: Budget
    count: Count
    conditions: Conditions
    pins: AbstractSet[bytes]

    epochs: int = 0
    _length: int = 0
    _view: int = 0
    """Counted tokens."""
    _plan: Plan = EMPTY
    """Without its ledger."""
    _past: Past = NO_PAST
    _begun: Situation | None = None
    """Where the last epoch began."""
    _ledger: int = 0
    """Counted tokens of its ledger, at most."""
    _most: int | None = None
    """The same, where its ledger was not written."""
    _told: Plan | None = None
    """The plan with its ledger, where that was written."""
    _read: Read = field(default_factory=Read)
    _calls: dict[str, int] = field(default_factory=dict[str, int])
    """Where each call was made last."""
    _open: int = 0
    """Where the open unit of the last epoch begins."""
    _is_late: bool = False
    """Whether a call from before it was answered since then."""

    @property
    def plan(self) -> Plan:
        """The plan in force by now."""
        return self._told or (
            placed(_whole(self._begun), self._plan, self._most) if self._begun else self._plan
        )

    def reach(self, length: int, *, is_marked: bool) -> None:
        """Replay the next request."""
        self._view += self.chain.tokens.between(self._length, length)
        self._note_calls(length)
        self._length = length
        is_last = length == len(self.chain)
        if not (is_marked or is_last or self._stage in _PRESSING):
            return
        situation = self._situation(self.conditions if is_last else UNKNOWN_CONDITIONS)
        is_known = situation.conditions != UNKNOWN_CONDITIONS
        if is_marked or self._stage in _PRESSING or (is_known and acts_now(situation)):
            decided = draft(situation, self._stage)
            if decided is not None:
                self._begin(decided)

    @property
    def _stage(self) -> Stage:
        return stage_of(self.budget.usage(self._view), self.policy.stages)

    def _note_calls(self, length: int) -> None:
        """Note what the next messages call, and whether any answers a call from before the open unit.

        Nothing else can make a plan cut what it spared.
        """
        for place in range(self._length, length):
            message = self.chain.messages[place]
            for call in message.calls:
                self._calls[call] = place
            if message.role in TOOL_ROLES and self._calls.get(message.answers or "", place) < self._open:
                self._is_late = True

    def _situation(self, known: Conditions) -> Situation:
        """What the request is planned from; it begins anew where the plan no longer holds."""
        prefix = self.chain.prefix(self._length)
        if self._is_late and not prefix.is_spared_by(self._plan):
            self._plan, self._past, self._begun, self._ledger = EMPTY, NO_PAST, None, 0
            self._open, self._is_late = 0, False
            self._view = prefix.tokens.total
        return Situation(
            chain=prefix,
            plan=self._plan,
            policy=self.policy,
            budget=self.budget,
            count=self.count,
            conditions=known,
            unwritten=self._ledger,
            pins=self.pins,
            past=self._past,
            read=self._read,
        )

    def _begin(self, decided: Draft) -> None:
        """Begin an epoch."""
        situation, plan = decided.situation, written(decided, {})
        self.epochs += 1
        is_written = _writes_ledger(self.epochs)
        self._most = None if is_written else min(self._ledger + SPARE, room_of(situation, plan))
        self._told = placed(_whole(situation), plan) if is_written else None
        tokens = situation.chain.tokens
        self._view = view_tokens(plan, tokens) + (self._most or 0)
        if self._told is not None:
            self._view = view_tokens(self._told, tokens)
        self._ledger = self._view - view_tokens(plan, tokens)
        self._begun, self._plan, self._past = situation, plan, self._past.after(self._length)
        self._open, self._is_late = situation.chain.open_from, False


def _writes_ledger(epochs: int) -> bool:
    """Whether a fold writes the ledger of this epoch, to know its size; if not, the next may hardly grow.

    A ledger is written from the whole chain. Writing every one of the first eight, then four while the epochs
    double, in the end one, keeps a fold linear.
    """
    bits = _FOLDED_BITS if epochs < _MANY else 1
    return epochs % (1 << max(epochs.bit_length() - bits, 0)) == 0


def _whole(situation: Situation) -> Situation:
    """A situation of which the ledger is written now, from everything."""
    return replace(situation, unwritten=0)

"""The plan of a chain without one at hand: its own past, replayed with notices only.

So a worker without a store cuts today what it would have cut yesterday (law 7).
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from msgspec.structs import replace

from proxy.core.breaker import NO_PAST, Past
from proxy.core.budget import Budget, Stage, stage_of
from proxy.core.conditions import UNKNOWN, Conditions
from proxy.core.ledger.placing import SPARE, placed, room_of
from proxy.core.plan import EMPTY, Plan, view_tokens
from proxy.core.planner import Draft, acts_now, draft, written
from proxy.core.policy import Policy
from proxy.core.situation import Chain, Count, Situation
from proxy.core.strategies import strategy_of
from proxy.core.units import request_points

_PRESSING = (Stage.COMPACT, Stage.EMERGENCY)
_FOLDED_BITS = 3
"""Leading bits of an epoch's number; where all others are zero, a fold writes the epoch's ledger."""


def fold(
    chain: Chain,
    policy: Policy,
    budget: Budget,
    count: Count,
    conditions: Conditions = UNKNOWN,
    pins: AbstractSet[bytes] = frozenset(),
) -> tuple[Plan, int]:
    """The plan that a chain would have come to by itself, with notices only, and how many epochs it took.

    ``conditions`` are those of the chain's last request; of the others nobody knows them.
    """
    folding = _Folding(chain, policy, budget, count, conditions, pins)
    for length, is_marked in _requests(chain, policy):
        folding.reach(length, is_marked=is_marked)
    return folding.plan, folding.epochs


def _requests(chain: Chain, policy: Policy) -> Iterator[tuple[int, bool]]:
    """Lengths of the chain's requests, and whether the strategy marks them, whatever the usage is."""
    strategy = strategy_of(policy.strategy.name)
    marks = strategy.turning_points(chain, policy)
    for length in [len(chain)] if strategy.slides else request_points(chain.messages):
        yield length, strategy.slides or length in marks


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

    @property
    def plan(self) -> Plan:
        """The plan in force by now."""
        return placed(_whole(self._begun), self._plan, self._most) if self._begun else self._plan

    def reach(self, length: int, *, is_marked: bool) -> None:
        """Replay the next request."""
        self._view += self.chain.tokens.between(self._length, length)
        self._length = length
        is_last = length == len(self.chain)
        if not (is_marked or is_last or self._stage in _PRESSING):
            return
        situation = self._situation(self.conditions if is_last else UNKNOWN)
        if is_marked or self._stage in _PRESSING or _acts_now(situation):
            decided = draft(situation, self._stage)
            if decided is not None:
                self._begin(decided)

    @property
    def _stage(self) -> Stage:
        return stage_of(self.budget.usage(self._view), self.policy.stages)

    def _situation(self, known: Conditions) -> Situation:
        """What the request is planned from; it begins anew where the plan no longer holds."""
        prefix = self.chain.prefix(self._length)
        if not prefix.is_spared_by(self._plan):
            self._plan, self._past, self._begun, self._ledger = EMPTY, NO_PAST, None, 0
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
        )

    def _begin(self, decided: Draft) -> None:
        """Begin an epoch."""
        situation, plan = decided.situation, written(decided, {})
        self.epochs += 1
        is_written = _writes_ledger(self.epochs)
        self._most = None if is_written else min(self._ledger + SPARE, room_of(situation, plan))
        self._ledger = _ledger_tokens(situation, plan) if self._most is None else self._most
        self._view = view_tokens(plan, situation.chain.tokens) + self._ledger
        self._begun, self._plan, self._past = situation, plan, self._past.after(self._length)


def _acts_now(situation: Situation) -> bool:
    """Whether an epoch begins for another reason than usage, by conditions that are known."""
    return situation.conditions != UNKNOWN and acts_now(situation)


def _writes_ledger(epochs: int) -> bool:
    """Whether a fold writes the ledger of this epoch, to know its size; if not, the next may hardly grow.

    A ledger is written from the whole chain. Writing every one of the first eight, then four while the epochs
    double, keeps a fold linear.
    """
    return epochs % (1 << max(epochs.bit_length() - _FOLDED_BITS, 0)) == 0


def _ledger_tokens(situation: Situation, plan: Plan) -> int:
    """Counted tokens by which its ledger makes the view of a plan larger."""
    tokens = situation.chain.tokens
    return view_tokens(placed(_whole(situation), plan), tokens) - view_tokens(plan, tokens)


def _whole(situation: Situation) -> Situation:
    """A situation of which the ledger is written now, from everything."""
    return replace(situation, unwritten=0)

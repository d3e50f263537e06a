"""Plan a chain without stored epochs by replaying its past, with notices in place of summaries.

So a worker without a store goes on cutting what it cut before (law 7). It plans anew, once, each time the
chain passes another 32 budgets.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from proxy.core.budget.budget import Stage, stage_of
from proxy.core.conversation.units import request_points
from proxy.core.planning.draft import Draft
from proxy.core.planning.ledger import LEDGER_SLACK, add_ledger, fitting_ledger_tokens
from proxy.core.planning.life import NO_PAST, Past
from proxy.core.planning.plan import EMPTY, Plan, view_tokens
from proxy.core.planning.planner import draft_epoch, finish_without_ledger
from proxy.core.planning.situation import UNKNOWN_CONDITIONS, Situation
from proxy.core.planning.strategies import strategy_of

_LEADING_BITS = 3
"""A replay writes the ledger only of epochs whose number has zeros behind this many leading bits: 1 to 8, 10,
12, 14, 16, 20, 24 and so on."""
_DECODED = 512
"""Number of decoded messages that a replay keeps for its next requests."""
_SPAN = 32
"""Number of budgets, of counted tokens, that a replay takes at most."""


def plan_from_scratch(given: Situation, *, at_trim: bool = False) -> tuple[Plan, int]:
    """Return the plan that the chain's past leads to, with notices only, and the number of epochs.

    ``given`` has no plan. Its conditions are those of the chain's last request; those of earlier requests are
    unknown. Epochs begin at *compact*, or ``at_trim`` as they do where cost makes none wait. Of a past of
    more than 32 budgets only what exceeds a multiple of 32 budgets is replayed: the first epoch cuts all that
    is older, so that planning costs little more than reading the messages.
    """
    chain, policy = given.chain, given.policy
    strategy = strategy_of(policy.strategy.name)
    marks = strategy.turning_points(chain, policy)
    span = max(_SPAN * given.budget.limit, 1)
    skipped = 0 if strategy.slides else chain.tokens.total // span * span
    replay = _Replay(given, measures=not skipped, at_trim=at_trim)
    for length in [len(chain)] if strategy.slides else request_points(chain.messages):
        if chain.tokens.between(0, length) > skipped or length == len(chain):
            replay.reach(length, is_marked=strategy.slides or length in marks)
    return replay.plan, replay.epochs


@dataclass
class _Replay:
    """A chain's past, as far as it has been replayed."""

    given: Situation
    measures: bool
    """Whether ledgers are written on the way, to know their size; the last one always is."""
    at_trim: bool = False
    epochs: int = 0
    _length: int = 0
    _view_tokens: int = 0
    _plain: Plan = EMPTY
    """The plan without its ledger."""
    _past: Past = NO_PAST
    _begun: Situation | None = None
    _ledger: int = 0
    """Upper bound of the counted tokens of the plan's ledger."""
    _most: int | None = None
    """The same, if the ledger was not written; else None."""
    _written: Plan | None = None
    """The plan with its ledger, if that was written."""
    _calls: dict[str, int] = field(default_factory=dict[str, int])
    """By call id, the position of the newest call."""
    _open: int = 0
    """Position at which the open unit began when the last epoch did."""
    _is_late: bool = False
    """Whether a call made before that position has been answered since."""
    _starts: list[int] = field(default_factory=lambda: [0])
    """Positions at which units begin so far."""
    _stuck_at: int = -1
    """Start of the last unit, if the view stayed over its budget after cutting; else -1. Until another unit
    begins nothing more can be cut, and planning would only read that unit again."""

    @property
    def plan(self) -> Plan:
        if self._written is not None or self._begun is None:
            return self._written or self._plain
        return add_ledger(self._begun.without_unwritten_ledger(), self._plain, self._most)

    def reach(self, length: int, *, is_marked: bool) -> None:
        """Replay the next request."""
        chain, is_last = self.given.chain, length == len(self.given.chain)
        self._add(length)
        stage = self._stage
        is_due = is_marked or stage.is_pressing or (self.at_trim and stage is Stage.TRIM)
        if not is_last and (not is_due or self._starts[-1] == self._stuck_at):
            self.epochs += is_due  # the request clipped what it could, which is not replayed
            return
        situation = replace(
            self.given,
            chain=chain.prefix(length),
            plan=self._plain,
            conditions=self.given.conditions if is_last else UNKNOWN_CONDITIONS,
            unwritten=self._ledger,
            past=self._past,
        )
        is_known, strategy = situation.conditions != UNKNOWN_CONDITIONS, self.given.policy.strategy.name
        if is_due or (is_known and strategy_of(strategy).may_act_now(situation)):
            is_measured = self.measures and self.epochs < 1 << _LEADING_BITS
            draft = draft_epoch(situation, self._stage, ledger=None if is_measured else self._bound)
            if draft is not None:
                self._begin(draft)
            self._stuck_at = self._starts[-1] if self._stage is Stage.EMERGENCY else -1

    def _add(self, length: int) -> None:
        """Add the messages up to ``length``. Only late results can make the plan cut what must stay."""
        self._view_tokens += self.given.chain.tokens.between(self._length, length)
        for place in range(self._length, length):
            message = self.given.chain.messages[place]
            self._calls.update(dict.fromkeys(message.calls, place))
            called_at = min((self._calls.get(call_id, place) for call_id in message.result_of), default=place)
            self._is_late |= called_at < self._open
            while self._starts[-1] > called_at:
                self._starts.pop()  # a result joins the unit of its call, and all between
            if called_at == place:
                self._starts.append(place)
        self._length = length
        if not self._is_late:
            return
        self._is_late, prefix = False, self.given.chain.prefix(length)
        if not prefix.keeps_open_part(self._plain):  # with a late result it cuts what must stay
            self._plain, self._past, self._begun, self._written = EMPTY, NO_PAST, None, None
            self._ledger, self._open, self._view_tokens = 0, 0, prefix.tokens.total
            self._stuck_at = -1

    @property
    def _stage(self) -> Stage:
        return stage_of(self.given.budget.usage(self._view_tokens), self.given.policy.stages)

    @property
    def _bound(self) -> int:
        """Upper bound of the counted tokens of the next ledger, if it is not written."""
        return self._ledger + LEDGER_SLACK if self._begun else self.given.budget.limit

    def _begin(self, draft: Draft) -> None:
        """Begin an epoch; a ledger that is not written is assumed to be as large as ``_bound`` allows.

        A ledger is written from the whole chain. A replay stays linear because it writes the first eight,
        then four each time the number of epochs doubles, and in the end one.
        """
        situation, plain = draft.situation, finish_without_ledger(draft, {})
        self._past = self._past.after(self._length, self._stage)
        self.epochs += 1
        step = 1 << max(self.epochs.bit_length() - _LEADING_BITS, 0)
        is_written = self.measures and not self.epochs % step
        self._most = None if is_written else min(self._bound, fitting_ledger_tokens(situation, plain))
        self._written = (
            add_ledger(situation.without_unwritten_ledger(), plain, fills=True) if is_written else None
        )
        tokens = situation.chain.tokens
        without = view_tokens(plain, tokens)
        self._view_tokens = without + (self._most or 0)
        if self._written is not None:
            self._view_tokens = view_tokens(self._written, tokens)
        self._ledger = self._view_tokens - without
        self._begun, self._plain = situation, plain
        self._open, self._is_late = situation.chain.open_from, False
        situation.extracted.forget(_DECODED)

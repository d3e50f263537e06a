"""What a policy would have sent, turn by turn, for a conversation that is already there.

Every assistant message was once a request: the history before it. Each is put through the planner as a live
request is, except that no model is asked: gaps get notices where a model would have written a summary. Sticky
epochs (law 3) make the order of the turns part of the result, so a session is replayed from its start.
Whether an epoch pays is reckoned as in a live request, for a lane whose turns come at even distances.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage, stage_of
from proxy.core.conversation.units import request_points
from proxy.core.economics.bill import Meter, Prompt, SummaryCalls, SummaryMeter
from proxy.core.economics.economy import account_of
from proxy.core.economics.prices import UNKNOWN_PRICES, Prices
from proxy.core.planning.chain import Chain
from proxy.core.planning.from_scratch import fold
from proxy.core.planning.life import NO_PAST, Past
from proxy.core.planning.plan import EMPTY, Account, Plan, Verdict, view_tokens
from proxy.core.planning.planner import draft, finish
from proxy.core.planning.situation import Conditions, Count, Situation
from proxy.core.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class ReplayedTurn:
    """One request as it would have gone out. Tokens are the model's, head included."""

    number: int
    """1 for the session's first request."""
    messages: int
    """Messages that the client sent, without the head."""
    full_tokens: int
    """Tokens of what the client sent."""
    stage: Stage
    """Before this request's edits."""
    sent_tokens: int
    cut: int
    """Messages of the client's that were absent."""
    epoch: int
    """How many epochs have begun so far."""
    began: bool
    """Whether this request began one."""
    sent: Prompt
    """What was sent, as it is billed."""
    full: Prompt
    """What the client sent, billed as if it had been sent as it is, from the first request on."""
    summaries: SummaryCalls
    """An estimate of the calls for summaries that the epoch would have made."""
    account: Account | None
    """What money said, where it was asked at this request."""
    freed: int
    """Tokens that the epoch took out of the view."""


@dataclass(frozen=True, slots=True)
class _Begun:
    """What one request does to the plan."""

    plan: Plan
    epochs: int = 0
    account: Account | None = None
    summaries: SummaryCalls = field(default_factory=SummaryCalls)


def replay(
    chain: Chain,
    policy: Policy,
    budget: Budget,
    count: Count,
    *,
    prices: Prices = UNKNOWN_PRICES,
    idle: float = 0.0,
) -> Iterator[ReplayedTurn]:
    """Play every request that led to ``chain``, in order, each ``idle`` seconds after the last answer."""
    plan, epoch, past = EMPTY, 0, NO_PAST
    is_warm = idle < prices.under(policy.economy).ttl
    sent, full = (Meter(prices, budget, is_warm=is_warm) for _ in range(2))
    summaries = SummaryMeter()
    for number, length in enumerate(_requests(chain), 1):
        prefix = chain.prefix(length)
        sized = replace(budget, last_user_tokens=prefix.last_user_tokens, whole=prefix.tokens.total)
        conditions = Conditions(idle=idle if number > 1 else None, prices=prices, since=past.length)
        situation = Situation(prefix, plan, policy, sized, count, conditions=conditions, past=past)
        stage = stage_of(budget.usage(situation.view), policy.stages)
        begun = _next(situation, stage, summaries)
        plan, epoch = begun.plan, epoch + begun.epochs
        past = Past(past.epochs + begun.epochs, length) if begun.epochs else past
        view = view_tokens(plan, prefix.tokens)
        yield ReplayedTurn(
            number=number,
            messages=length,
            full_tokens=budget.real(budget.head + prefix.tokens.total),
            stage=stage,
            sent_tokens=budget.real(budget.head + view),
            cut=plan.cut,
            epoch=epoch,
            began=begun.epochs > 0,
            sent=sent.prompt(plan, prefix.raws, prefix.tokens),
            full=full.prompt(EMPTY, prefix.raws, prefix.tokens),
            summaries=begun.summaries,
            account=begun.account,
            freed=budget.real(situation.view - view) if begun.epochs else 0,
        )


def _requests(chain: Chain) -> list[int]:
    """Lengths of the histories that were sent; an answer at the very end has not been sent yet."""
    points = request_points(chain.messages)
    asks = bool(chain.messages) and chain.messages[-1].role != "assistant"
    return points if asks else points[:-1]


def _next(situation: Situation, stage: Stage, summaries: SummaryMeter) -> _Begun:
    """What a request does to the plan: nothing, one epoch, or those of a history that is far too long."""
    standing = _Begun(situation.plan)
    if situation.policy.strategy.name == "off":
        return standing
    if situation.conditions.idle is None and stage is Stage.EMERGENCY:
        plan, epochs = fold(
            situation.chain, situation.policy, situation.budget, situation.count, situation.conditions
        )
        return _Begun(plan, epochs, account_of(situation, plan, may_wait=False)) if epochs else standing
    decided = draft(situation, stage)
    if decided is None:
        return standing
    plan = finish(decided, {})
    account = account_of(situation, plan, may_wait=decided.may_wait)
    if account is not None and account.verdict is Verdict.WAITS:
        return _Begun(situation.plan, account=account)
    return _Begun(plan, 1, account, summaries.calls(decided))

"""What a policy would have sent, turn by turn, for a conversation that is already there.

Every assistant message was once a request: the history before it. Each is put through the planner as a live
request is, except that no model is asked: gaps get notices where a model would have written a summary. Sticky
epochs (law 3) make the order of the turns part of the result, so a session is replayed from its start.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from proxy.core.budget import Budget, Stage, stage_of
from proxy.core.conditions import Conditions
from proxy.core.plan import EMPTY, Plan, view_tokens
from proxy.core.planner import draft, finish, fold
from proxy.core.policy import Policy
from proxy.core.situation import Chain, Count, Situation
from proxy.core.units import request_points


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


def replay(chain: Chain, policy: Policy, budget: Budget, count: Count) -> Iterator[ReplayedTurn]:
    """Play every request that led to ``chain``, in order."""
    plan, epoch, since = EMPTY, 0, 0
    for number, length in enumerate(_requests(chain), 1):
        prefix = chain.prefix(length)
        stage = stage_of(budget.usage(view_tokens(plan, prefix.tokens)), policy.stages)
        situation = Situation(prefix, plan, policy, budget, count, Conditions(since=since))
        begun, epochs = _next_plan(situation, stage, is_first=number == 1)
        plan, epoch, since = begun or plan, epoch + epochs, length if epochs else since
        yield ReplayedTurn(
            number=number,
            messages=length,
            full_tokens=budget.real(budget.head + sum(prefix.tokens)),
            stage=stage,
            sent_tokens=budget.real(budget.head + view_tokens(plan, prefix.tokens)),
            cut=plan.cut,
            epoch=epoch,
            began=epochs > 0,
        )


def _requests(chain: Chain) -> list[int]:
    """Lengths of the histories that were sent; an answer at the very end has not been sent yet."""
    points = request_points(chain.messages)
    asks = bool(chain.messages) and chain.messages[-1].role != "assistant"
    return points if asks else points[:-1]


def _next_plan(situation: Situation, stage: Stage, *, is_first: bool) -> tuple[Plan | None, int]:
    """The plan that this request begins, if it begins one, and how many epochs that takes."""
    if situation.policy.strategy.name == "off":
        return None, 0
    if is_first and stage is Stage.EMERGENCY:
        plan, epochs = fold(
            situation.chain, situation.policy, situation.budget, situation.count, situation.conditions
        )
        return (plan, epochs) if epochs else (None, 0)
    decided = draft(situation, stage)
    return (finish(decided, {}), 1) if decided is not None else (None, 0)

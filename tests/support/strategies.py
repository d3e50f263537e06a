"""Conversations for tests of strategies, and what a strategy cuts of them."""

from __future__ import annotations

from proxy.core.budget.budget import Budget
from proxy.core.planning.plan import EMPTY
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.situation import Conditions, Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep, Strategy
from tests.support.conversations import (
    Sent,
    assistant,
    chain_from,
    count,
    prose,
    stage_at,
    user,
)

TEXT = prose("en", 60)
ROOMY = Budget(100_000, 1.0, 0)
SESSION = Policy(strategy=Strategy(name="session", idle=60.0))
FREE = Policy(keep=Keep(recent=0.0, first_user=False))


def talk(exchanges: int) -> list[Sent]:
    """Return a conversation of so many exchanges and a question."""
    said = [message for n in range(exchanges) for message in (user(f"{n} {TEXT}"), assistant(f"{n} {TEXT}"))]
    return [*said, user("and now?")]


def gone(
    messages: list[Sent], conditions: Conditions, policy: Policy = SESSION, budget: Budget = ROOMY
) -> list[int]:
    """Return the messages that an epoch at this request cuts."""
    chain = chain_from(messages)
    situated = Situation(chain, EMPTY, policy, budget, count, conditions)
    decided = draft_epoch(situated, stage_at(chain, EMPTY, policy, budget))
    plan = finish(decided, {}) if decided else EMPTY
    return [place for place in range(len(chain)) if plan.covers(place)]

"""Conversations whose messages are cut, and the ledger of what was cut."""

from __future__ import annotations

from proxy.core.budget.budget import Budget
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.changes import compacted
from proxy.core.planning.plan import EMPTY, Plan
from proxy.core.planning.planner import finish
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Keep, Ledger
from tests.support.conversations import (
    Sent,
    assistant,
    chain_from,
    count,
    prose,
    user,
)

BARE = Keep(recent=0, first_user=False)
SHARE = 0.2


def policy(*, share: float = SHARE, constraints: bool = True, identifiers: bool = True) -> Policy:
    return Policy(keep=BARE, ledger=Ledger(share=share, constraints=constraints, identifiers=identifiers))


def situation(messages: list[Sent], plan: Plan = EMPTY, rules: Policy | None = None) -> Situation:
    return Situation(chain_from(messages), plan, rules or policy(), Budget(20_000, 1.0, 0), count)


def cut(messages: list[Sent], *asked: int, plan: Plan = EMPTY, rules: Policy | None = None) -> Plan:
    """The plan after a person has had these messages cut."""
    decided = compacted(situation(messages, plan, rules), frozenset(asked) or None)
    assert decided is not None
    return finish(decided, {})


def ledger(plan: Plan) -> str:
    """The ledgers of a plan, each of which its note holds."""
    assert all(gap.ledger in Content.of(gap.note).text for gap in plan.gaps if gap.note)
    return plan.ledger


def filler(number: int) -> list[Sent]:
    return [user(f"and {prose('en', 20, number)}?"), assistant(prose("en", 60, number))]


def at_length(text: str) -> Sent:
    """A user message that no note quotes as a whole."""
    return user(f"{prose('en', 60)}\n{text}")


def talk(*said: Sent, after: int = 2) -> list[Sent]:
    """What was said, each followed by an answer, then ``after`` exchanges more and a question."""
    pairs = [each for message in said for each in (message, assistant(prose("en", 60)))]
    return [*pairs, *(each for number in range(after) for each in filler(number)), user("and now?")]

"""Conversations of one kind, and the plan that one request of them gets."""

from __future__ import annotations

import math

from proxy.core.budget.budget import Budget
from proxy.core.dialects.chat.messages import Content
from proxy.core.planning.plan import EMPTY, Plan
from proxy.core.policy.policy import Policy
from proxy.core.policy.sections import Stages, Summary
from tests.support.conversations import (
    Sent,
    Turn,
    assistant,
    calling,
    chain_from,
    prose,
    result,
    turn,
    user,
)

BALANCED = Policy(stages=Stages(target=0.7), summary=Summary(max_tokens=150))


def text(number: int, words: int = 60, language: str = "en") -> str:
    return f"{number} {prose(language, words, number)}"


def talk(exchanges: int, words: int = 60, language: str = "en") -> list[Sent]:
    said = [
        message
        for n in range(exchanges)
        for message in (user(text(n, words // 3, language)), assistant(text(n, words, language)))
    ]
    return [*said, user("and now?")]


def agent(rounds: int, words: int = 60) -> list[Sent]:
    """One user message and many tool rounds."""
    steps = [m for n in range(rounds) for m in (calling(f"c{n}"), result(f"c{n}", text(n, words)))]
    return [user("Build the bridge."), *steps]


def at(usage: float, messages: list[Sent], policy: Policy = BALANCED, summary: str | None = None) -> Turn:
    """One request at this usage."""
    chain = chain_from(messages)
    return turn(chain, EMPTY, policy, Budget(math.ceil(sum(chain.tokens) / usage), 1.0, 0), summary)


def notes(plan: Plan) -> list[str]:
    return [Content.of(gap.note).text for gap in plan.gaps]

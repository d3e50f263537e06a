"""What follows from a policy without any conversation, as numbers and as sentences for people."""

from collections.abc import Iterator, Mapping
from typing import Any

from proxy.core.budget.budget import Budget, budget_tokens
from proxy.core.budget.prices import UNKNOWN_PRICES, Prices
from proxy.core.economics.economy import pays_from
from proxy.core.policy.policy import Policy

EXAMPLE_WINDOW = 128_000
"""Tokens of the example window with which stages are explained."""
_STAGES = ("warn", "trim", "compact", "emergency")
_BY_COUNT = ("sliding_window", "exchanges")
_PACE = 500
"""Tokens that a request adds, assumed when computing from where cutting pays."""
_BY_COUNTS = {
    "messages": "all but the newest {messages:,} messages, at any usage",
    "exchanges": "past {exchanges:,} exchanges all but the newest {roll_to:,}, at any usage",
    "units": "after {units:,} more units, at any usage",
}


def decisions(policy: Policy, window: int | None, paid: Prices = UNKNOWN_PRICES) -> dict[str, Any]:
    """Return what a policy decides for a model with a window of ``window`` tokens and an empty head.

    ``paid``: the model's token prices.
    """
    tokens, stages = budget_of(policy, window), policy.stages
    budget = None if tokens is None else Budget(tokens, 1.0, 0)
    rules, strategy = policy.strategy, policy.strategy.name
    counts = {"messages": rules.last} if strategy == "sliding_window" else {}
    if strategy == "exchanges":
        counts = {"exchanges": rules.exchanges, "roll_to": rules.roll_to}
    if stages.max_units:
        counts["units"] = stages.max_units
    is_by_tokens = tokens is not None and strategy not in (*_BY_COUNT, "off")
    return {
        "policy": policy.name,
        "digest": policy.digest,
        "extends": policy.extends,
        "strategy": strategy,
        "window": window,
        "budget": tokens,
        "stages": tokens and {each: round(float(getattr(stages, each)) * tokens) for each in _STAGES},
        "target": budget and budget.share(stages.target),
        "counts": counts,
        "summary": policy.summary_tokens(tokens) if tokens and policy.summary.enabled else 0,
        "pays_from": pays_from(policy, tokens or 0, paid, _PACE) if is_by_tokens else None,
        "encrypted": policy.store.encrypt,
    }


def budget_of(policy: Policy, window: int | None) -> int | None:
    """Return the policy's budget in tokens for a window of ``window`` tokens; None if it is unknown."""
    return budget_tokens(policy.budget.limit, window, policy.budget.reserved)


def consequences(policy: Policy, decided: Mapping[str, Any], window: str) -> Iterator[tuple[str, str]]:
    """Yield topic and sentence for what follows from :func:`decisions`; ``window`` describes the window."""
    yield "strategy", policy.strategy.name
    if policy.strategy.name == "off":
        yield "cuts", "nothing: requests are relayed as they come"
        return
    if decided["budget"] is None:
        condition = (
            "unless the upstream says it, nothing is cut by tokens until it refuses a request for length"
        )
        yield "budget", f"none: {window}; {condition}"
    else:
        yield "budget", f"{decided['budget']:,} tokens; {window}"
    counts: Mapping[str, int] = decided["counts"]
    yield from (("cuts", words.format(**counts)) for name, words in _BY_COUNTS.items() if name in counts)
    if policy.strategy.name == "session":
        yield "cuts", f"what came before a pause over {policy.strategy.idle:g} seconds, at any usage"
    if decided["stages"] is not None:
        yield from _by_tokens(policy, decided)
    if decided["budget"] is not None or not policy.summary.enabled:
        yield "summary", f"at most {decided['summary']:,} tokens" if decided["summary"] else "none"
    if policy.store.encrypt:
        yield "store", "encrypted at rest, for every policy of a server that has this one"
    if policy.memory.enabled:
        yield "memory", f"told at a session's start, at most {policy.memory.inject_tokens:,} tokens"


def _by_tokens(policy: Policy, decided: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield at how many tokens each stage begins, and from how many on cutting costs less."""
    stages: Mapping[str, int] = decided["stages"]
    if policy.strategy.name in _BY_COUNT:
        yield "emergency", f"above {stages['emergency']:,} tokens, cuts as much as it takes"
        return
    for stage, tokens in stages.items():
        yield stage, f"{'above' if stage == 'emergency' else 'from'} {tokens:,} tokens"
    yield "target", f"a cut leaves {decided['target']:,} tokens where nothing precedes the conversation"
    if decided["pays_from"] is not None:
        sessions = f"in sessions of more than about {decided['pays_from']:,} tokens"
        yield "pays", f"{sessions}, at {_PACE} a request; shorter ones cost less sent whole"

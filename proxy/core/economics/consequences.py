"""What a policy comes to, as numbers and as sentences for people; nothing is decided here."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from proxy.core.budget.budget import Budget, budget_tokens, stage_of
from proxy.core.budget.prices import UNKNOWN_PRICES, Prices
from proxy.core.conversation.messages import TOOL_ROLES
from proxy.core.economics.economy import pays_from
from proxy.core.planning.situation import CRITICAL, FIRST_USER, FIXED, FREE, PINNED, RECENT, Situation
from proxy.core.policy.policy import Policy

# --- without any conversation ---


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


def consequences(policy: Policy, numbers: Mapping[str, Any], window: str) -> Iterator[tuple[str, str]]:
    """Yield topic and sentence for what follows from :func:`decisions`; ``window`` describes the window."""
    yield "strategy", policy.strategy.name
    if policy.strategy.name == "off":
        yield "cuts", "nothing: requests are relayed as they come"
        return
    if numbers["budget"] is None:
        condition = (
            "unless the upstream says it, nothing is cut by tokens until it refuses a request for length"
        )
        yield "budget", f"none: {window}; {condition}"
    else:
        yield "budget", f"{numbers['budget']:,} tokens; {window}"
    counts: Mapping[str, int] = numbers["counts"]
    yield from (("cuts", words.format(**counts)) for name, words in _BY_COUNTS.items() if name in counts)
    if policy.strategy.name == "session":
        yield "cuts", f"what came before a pause over {policy.strategy.idle:g} seconds, at any usage"
    if numbers["stages"] is not None:
        yield from _by_tokens(policy, numbers)
    if numbers["budget"] is not None or not policy.summary.enabled:
        yield "summary", f"at most {numbers['summary']:,} tokens" if numbers["summary"] else "none"
    if policy.store.encrypt:
        yield "store", "encrypted at rest, for every policy of a server that has this one"
    if policy.memory.enabled:
        yield "memory", f"told at a session's start, at most {policy.memory.inject_tokens:,} tokens"


def _by_tokens(policy: Policy, numbers: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield at how many tokens each stage begins, and from how many on cutting costs less."""
    stages: Mapping[str, int] = numbers["stages"]
    if policy.strategy.name in _BY_COUNT:
        yield "emergency", f"above {stages['emergency']:,} tokens, cuts as much as it takes"
        return
    for stage, tokens in stages.items():
        yield stage, f"{'above' if stage == 'emergency' else 'from'} {tokens:,} tokens"
    yield "target", f"a cut leaves {numbers['target']:,} tokens where nothing precedes the conversation"
    if numbers["pays_from"] is not None:
        sessions = f"in sessions of more than about {numbers['pays_from']:,} tokens"
        yield "pays", f"{sessions}, at {_PACE} a request"


# --- in one conversation ---


_PROTECTED = {
    RECENT: "as recent",
    FIRST_USER: "as the first request",
    CRITICAL: "as critical or by a pattern in pins",
    PINNED: "because a client has pinned them",
    FIXED: "because they are not answered yet",
}
_DAY = 86_400


def effects(situation: Situation, prices: Prices) -> Iterator[tuple[str, str]]:
    """Yield each table of the policy that concerns a conversation, and what it comes to there.

    The situation is that of the whole conversation, so its plan is empty; ``prices`` are of its model.
    """
    policy, budget = situation.policy, situation.budget
    yield "strategy", _strategy(situation)
    if policy.strategy.name == "off":
        return
    yield from _tokens(situation)
    yield "importance", _importance(situation)
    yield from _kept(situation)
    places = [place for place in range(len(situation.chain)) if situation.role(place) in TOOL_ROLES]
    tokens = budget.real(sum(situation.chain.tokens[place] for place in places))
    how = "cleared before messages are cut" if policy.tool_results.clear_first else "scored like all else"
    yield "tool_results", f"{_counted(len(places), 'result')} with {tokens:,} tokens; they are {how}"
    if policy.tools:
        yield "tools", f"{_counted(len([*situation.fresh_results]), 'result')} fresh at its end"
    yield from _notes(situation)
    yield "economy", _economy(situation, prices)
    yield from _beside_cuts(situation)
    yield "store", f"kept for {policy.store.ttl / _DAY:g} days after its last turn"
    yield "limits", f"{len(situation.chain):,} of at most {policy.limits.messages:,} messages"


def _strategy(situation: Situation) -> str:
    rules, count = situation.policy.strategy, len(situation.chain)
    match rules.name:
        case "off":
            return "nothing is read or cut: requests are relayed as they come"
        case "sliding_window":
            return f"cuts all but the newest {rules.last:,} of {count:,} messages"
        case "exchanges":
            asked, stay = _counted(len(situation.users), "exchange"), f"{rules.roll_to:,}"
            return f"{asked}; past {rules.exchanges:,} all but the newest {stay} are cut"
        case "session":
            return f"cuts what came before a pause of more than {rules.idle:g} seconds"
        case "topic":
            return "cuts the exchanges first that are about other things than the newest"
        case "importance":
            return "cuts the least important units first"
        case name:
            return f"cuts by {name}"


def _tokens(situation: Situation) -> Iterator[tuple[str, str]]:
    budget, stages = situation.budget, situation.policy.stages
    units = f"; a cut after {stages.max_units:,} more units" if stages.max_units else ""
    if budget.tokens is None:
        yield "budget", "none: nobody knows the window, so nothing is cut for its tokens"
        yield "stages", f"none is reached without a budget{units}"
        return
    whole, head = budget.with_head(situation.view_tokens), budget.real(budget.head)
    target, usage = budget.head + budget.share(stages.target), budget.usage(situation.view_tokens)
    sent = f"{budget.tokens:,} tokens may be sent; the whole conversation has {whole:,}"
    yield "budget", f"{sent}, {head:,} of them system prompt and tools"
    reached = f"whole, it is at {stage_of(usage, stages)} ({usage:.0%})"
    yield "stages", f"{reached}; a cut goes down to {budget.real(target):,} tokens{units}"


def _importance(situation: Situation) -> str:
    free = [index for index, level in situation.protection.items() if level == FREE]
    if not free:
        return "nothing may be cut"
    scores, low = [situation.score(index).total for index in free], situation.policy.importance.low
    below = f"{sum(score < low for score in scores):,} of {len(free):,} units are below {low:g}"
    return f"what may be cut is worth {min(scores):.2f} to {max(scores):.2f}; {below}, and go first"


def _kept(situation: Situation) -> Iterator[tuple[str, str]]:
    levels, units = Counter[int](), situation.units
    for index, level in situation.protection.items():
        levels[level] += units[index].count
    kept = [f"{levels[level]:,} {why}" for level, why in _PROTECTED.items() if levels[level]]
    yield "keep", f"protects {', '.join(kept) or 'nothing'}; {_counted(levels[FREE], 'message')} may be cut"
    by_class = [
        f"{sum(units[index].count for index in indexes):,} {retention.replace('_', ' ')}"
        for retention, indexes in sorted(situation.units_by_class.items())
    ]
    yield "retention", f"messages by class: {', '.join(by_class)}"


def _notes(situation: Situation) -> Iterator[tuple[str, str]]:
    policy, budget = situation.policy, situation.budget
    if policy.summary.enabled:
        most = budget.real(situation.summary_tokens)
        yield "summary", f"at most {most:,} tokens, for gaps of {policy.summary.min_gap:,} messages or more"
    else:
        yield "summary", "none: short notices stand in gaps"
    rules, ledger = situation.constraints[0], policy.ledger
    if ledger.constraints or ledger.identifiers:
        most, rules_now = budget.real(budget.share(ledger.share)), _counted(len(rules), "rule")
        yield "ledger", f"{rules_now} in force now; rules and facts of what is cut get {most:,} tokens"
    else:
        yield "ledger", "none"


def _economy(situation: Situation, prices: Prices) -> str:
    policy, budget = situation.policy, situation.budget
    waits = "trim waits until a cut pays" if policy.economy.enabled else "nothing waits until a cut pays"
    if budget.tokens is None:
        return waits
    pace = max(round(situation.pace), 1)
    even = pays_from(policy, budget.tokens, prices, pace)
    return f"{waits}; at {pace:,} tokens a request, cutting costs less from about {even:,} tokens on"


def _beside_cuts(situation: Situation) -> Iterator[tuple[str, str]]:
    policy = situation.policy
    if policy.recall.enabled:
        rounds = policy.recall.rounds
        yield "recall", f"the model may read again what was cut, at most {rounds:,} times a request"
    if policy.memory.enabled:
        most, every = policy.memory.inject_tokens, policy.memory.every
        yield "memory", f"told at its beginning, at most {most:,} tokens; written every {every:,} exchanges"
    if policy.proof.share:
        share, dollars = policy.proof.share, policy.proof.daily_dollars
        yield (
            "proof",
            f"{share:.0%} of the answers to cut views are asked for again, for ${dollars:,.2f} a day at most",
        )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

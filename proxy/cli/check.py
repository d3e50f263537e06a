"""`unabridged check FILE`: whether a policy is valid, and what it decides."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proxy.adapters.files.policies import PolicyLibrary
from proxy.adapters.plugins import load_plugins
from proxy.cli.terminal import add_json_option, facts, positive, print_json, show
from proxy.core.budget import Budget, budget_tokens
from proxy.core.policy import Policy

EXAMPLE_WINDOW = 128_000
"""Tokens of the window by which stages are explained."""
_STAGES = ("warn", "trim", "compact", "emergency")
_BY_COUNT = ("sliding_window", "exchanges")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A file, and where the policies are that it may extend."""
    parser.add_argument("file", metavar="FILE", help="a policy file, or the name of a policy")
    parser.add_argument("--policies", metavar="DIR", type=Path, help="a directory of policies")
    parser.add_argument(
        "--window", metavar="TOKENS", type=positive, default=EXAMPLE_WINDOW, help="of the example (128000)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Say ok and show what follows from the policy. Raises PolicyError, PluginError."""
    load_plugins()
    policy = PolicyLibrary.of(args.policies).load(args.file)
    if args.json:
        print_json({"ok": True, **decisions(policy, args.window)})
        return 0
    show(f"ok: {policy.name} ({policy.digest})", facts(_lines(policy, args.window)))
    return 0


def decisions(policy: Policy, window: int) -> dict[str, Any]:
    """What a policy decides for a model with a window of so many tokens and an empty head."""
    budget, stages = _budget(policy, window), policy.stages
    return {
        "policy": policy.name,
        "digest": policy.digest,
        "extends": policy.extends,
        "strategy": policy.strategy.name,
        "window": window,
        "budget": budget.tokens,
        "stages": {stage: round(float(getattr(stages, stage)) * budget.tokens) for stage in _STAGES},
        "target": budget.share(stages.target),
        "counts": _counts(policy),
        "summary": policy.summary_tokens(budget.tokens) if policy.summary.enabled else 0,
        "encrypted": policy.store.encrypt,
        "not_acting": list(policy.not_acting()),
    }


def _budget(policy: Policy, window: int) -> Budget:
    rules = policy.budget
    limit = rules.tokens if isinstance(rules.tokens, int) else None
    reserve = rules.reserve if isinstance(rules.reserve, int) else None
    return Budget(budget_tokens(limit, window, reserve), 1.0, 0)


def _counts(policy: Policy) -> dict[str, int]:
    """By what a policy prunes at any usage, and how many of it."""
    rules, strategy = policy.strategy, policy.strategy.name
    counts = {"messages": rules.last} if strategy == "sliding_window" else {}
    if strategy == "exchanges":
        counts = {"exchanges": rules.exchanges, "roll_to": rules.roll_to}
    if policy.stages.max_units and "stages.max_units" not in policy.not_acting():
        counts["units"] = policy.stages.max_units
    return counts


# --- for people ---


def _lines(policy: Policy, window: int) -> Iterator[tuple[str, str]]:
    decided = decisions(policy, window)
    yield "strategy", policy.strategy.name
    if policy.strategy.name == "off":
        yield "cuts", "nothing: requests are relayed as they come"
        return
    yield "budget", f"{decided['budget']:,} tokens, in a window of {window:,}"
    yield from (("cuts", sentence) for sentence in _count_sentences(decided["counts"]))
    if policy.strategy.name == "session":
        yield "cuts", f"what came before a pause over {policy.strategy.idle:g} seconds, at any usage"
    if policy.strategy.name in _BY_COUNT:
        yield "emergency", f"above {decided['stages']['emergency']:,} tokens, cuts as much as it takes"
    else:
        yield from _stage_lines(decided)
    yield "summary", f"at most {decided['summary']:,} tokens" if decided["summary"] else "none"
    if policy.store.encrypt:
        yield "store", "encrypted at rest, for every policy of a server that has this one"
    if decided["not_acting"]:
        yield "no effect yet", ", ".join(decided["not_acting"])


def _stage_lines(decided: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for stage, tokens in decided["stages"].items():
        yield stage, f"{'above' if stage == 'emergency' else 'from'} {tokens:,} tokens"
    yield "target", f"an epoch prunes to {decided['target']:,} tokens, with an empty head"


def _count_sentences(counts: dict[str, int]) -> Iterator[str]:
    if "messages" in counts:
        yield f"all but the newest {counts['messages']:,} messages, at any usage"
    if "exchanges" in counts:
        yield f"past {counts['exchanges']:,} exchanges all but the newest {counts['roll_to']:,}, at any usage"
    if "units" in counts:
        yield f"after {counts['units']:,} more units, at any usage"

"""`unabridged check FILE`: whether a policy is valid, and what it decides."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from proxy.adapters.files.policies import PolicyLibrary
from proxy.cli.terminal import add_json_option, facts, print_json, show
from proxy.core.budget import Budget, budget_tokens
from proxy.core.policy import Policy

EXAMPLE_WINDOW = 128_000
"""Tokens of the window by which stages are explained."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A file, and where the policies are that it may extend."""
    parser.add_argument("file", metavar="FILE", help="a policy file, or the name of a policy")
    parser.add_argument("--policies", metavar="DIR", type=Path, help="a directory of policies")
    parser.add_argument(
        "--window", metavar="TOKENS", type=int, default=EXAMPLE_WINDOW, help="of the example (128000)"
    )
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Say ok and show what follows from the policy. Raises PolicyError, which names file and line."""
    library = PolicyLibrary((args.policies,) if args.policies else ())
    policy = library.load(args.file)
    decided = decisions(policy, max(args.window, 1))
    if args.json:
        print_json({"ok": True, **decided})
        return 0
    show(f"ok: {policy.name} ({policy.digest})", facts(_lines(decided)))
    return 0


def decisions(policy: Policy, window: int) -> dict[str, Any]:
    """What a policy decides for a model with a window of so many tokens and an empty head."""
    rules, stages = policy.budget, policy.stages
    limit = rules.tokens if isinstance(rules.tokens, int) else None
    reserve = rules.reserve if isinstance(rules.reserve, int) else None
    budget = Budget(budget_tokens(limit, window, reserve), 1.0, 0)
    return {
        "policy": policy.name,
        "digest": policy.digest,
        "extends": policy.extends,
        "strategy": policy.strategy.name,
        "window": window,
        "budget": budget.tokens,
        "stages": {
            name: round(float(getattr(stages, name)) * budget.tokens)
            for name in ("warn", "trim", "compact", "emergency")
        },
        "target": budget.share(stages.target),
        "summary": policy.summary_tokens(budget.tokens) if policy.summary.enabled else 0,
        "not_acting": list(policy.not_acting()),
    }


def _lines(decided: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        ("strategy", decided["strategy"]),
        ("budget", f"{decided['budget']:,} tokens, in a window of {decided['window']:,}"),
        *(_stage_lines(decided) if decided["strategy"] != "off" else ()),
        ("summary", f"at most {decided['summary']:,} tokens" if decided["summary"] else "none"),
        ("not acting yet", ", ".join(decided["not_acting"]) or "nothing"),
    ]


def _stage_lines(decided: dict[str, Any]) -> list[tuple[str, str]]:
    begins = [
        (stage, f"{'above' if stage == 'emergency' else 'from'} {tokens:,} tokens")
        for stage, tokens in decided["stages"].items()
    ]
    return [*begins, ("target", f"an epoch prunes to {decided['target']:,} tokens, with an empty head")]

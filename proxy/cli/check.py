"""`unabridged check FILE`: whether a policy is valid, what follows from it, and all that it says."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from proxy.adapters import prices
from proxy.adapters.files.policies import PolicyFile, PolicyLibrary, shipped_policies
from proxy.adapters.files.toml_file import PolicyError, toml_key
from proxy.adapters.plugins import load_plugins
from proxy.cli.terminal import add_json_option, facts, positive, print_json, show
from proxy.core.budget.budget import Budget, budget_tokens
from proxy.core.budget.prices import UNKNOWN_PRICES, Prices
from proxy.core.economics.economy import pays_from
from proxy.core.policy.policy import Policy
from proxy.core.policy.warnings import warnings_of

EXAMPLE_WINDOW = 128_000
"""Tokens of the window by which stages are explained."""
_STAGES = ("warn", "trim", "compact", "emergency")
_BY_COUNT = ("sliding_window", "exchanges")
_PACE = 500
"""Tokens that a request brings, by which it is said when a cut pays."""
_BY_COUNTS = {
    "messages": "all but the newest {messages:,} messages, at any usage",
    "exchanges": "past {exchanges:,} exchanges all but the newest {roll_to:,}, at any usage",
    "units": "after {units:,} more units, at any usage",
}


class Window(NamedTuple):
    """The window for which a policy is explained."""

    tokens: int | None
    """None where nobody knows it."""
    text: str
    """Whose it is, for people."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """A file, where the policies are that it may extend, and for which window it is explained."""
    parser.add_argument("file", metavar="FILE", help="a policy file, or the name of a policy")
    parser.add_argument("--policies", metavar="DIR", type=Path, help="a directory of policies")
    window = parser.add_mutually_exclusive_group()
    window.add_argument("--model", metavar="NAME", help="for this model, not for an example")
    window.add_argument("--window", metavar="TOKENS", type=positive, help="of the example (128000)")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Say ok and show what follows from the policy. Raises PolicyError, PluginError."""
    load_plugins()
    policy, file = PolicyLibrary.of(args.policies).read(args.file)
    window = _window(policy, args.window, args.model)
    decided = decisions(policy, window.tokens, prices.prices_of(args.model or ""))
    warnings = remarks_on(policy, file, window.tokens)
    rules = policy.model_dump(mode="json", by_alias=True, exclude={"name", "extends"}, exclude_none=True)
    if args.json:
        listed = [{"line": each.line, "key": each.key, "message": each.message} for each in warnings]
        print_json({"ok": True, **decided, "model": args.model, "warnings": listed, "rules": rules})
        return 0
    lines = [*consequences(policy, decided, window), *(("warning", str(each)) for each in warnings)]
    show(f"ok: {policy.name} ({policy.digest})", facts(lines))
    sys.stdout.write(f"\n# the whole policy\n{as_toml(rules)}")
    return 0


def remarks_on(policy: Policy, file: PolicyFile, window: int | None = EXAMPLE_WINDOW) -> list[PolicyError]:
    """What is odd about a policy, each with the line of its key; ``window`` is in tokens."""
    # A preset may state keys for what they tell.
    stated = file.lines if file.path.parent != shipped_policies() else ()
    found = [
        file.error(each.message, each.location)
        for each in warnings_of(policy, stated, _budget(policy, window))
    ]
    return sorted(found, key=lambda remark: remark.line or 0)


def _window(policy: Policy, given: int | None, model: str | None) -> Window:
    if given is not None:
        return Window(given, f"in a window of {given:,}")
    if model is None:
        return Window(EXAMPLE_WINDOW, f"for example, in a window of {EXAMPLE_WINDOW:,}")
    stated, priced = policy.budget.window(model), prices.context_window(model)
    known = stated or priced
    if known is None:
        return Window(None, f"nobody knows the window of {model}")
    source = "this policy" if stated else "the price list"
    return Window(known, f"in the window of {model}, {known:,} by {source}")


def decisions(policy: Policy, window: int | None, paid: Prices = UNKNOWN_PRICES) -> dict[str, Any]:
    """What a policy decides for a model with a window of so many tokens and an empty head.

    ``paid``: what its tokens cost.
    """
    tokens, stages = _budget(policy, window), policy.stages
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


def _budget(policy: Policy, window: int | None) -> int | None:
    rules = policy.budget
    limit = rules.tokens if isinstance(rules.tokens, int) else None
    reserve = rules.reserve if isinstance(rules.reserve, int) else None
    return budget_tokens(limit, window, reserve)


# --- for people ---


def consequences(policy: Policy, decided: Mapping[str, Any], window: Window) -> Iterator[tuple[str, str]]:
    """What follows from a policy, a sentence for each thing."""
    yield "strategy", policy.strategy.name
    if policy.strategy.name == "off":
        yield "cuts", "nothing: requests are relayed as they come"
        return
    if decided["budget"] is None:
        condition = (
            "unless the upstream says it, nothing is cut by tokens until it refuses a request for length"
        )
        yield "budget", f"none: {window.text}; {condition}"
    else:
        yield "budget", f"{decided['budget']:,} tokens; {window.text}"
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
    """What begins at how many tokens, and from how many on that costs less than cutting nothing."""
    stages: Mapping[str, int] = decided["stages"]
    if policy.strategy.name in _BY_COUNT:
        yield "emergency", f"above {stages['emergency']:,} tokens, cuts as much as it takes"
        return
    for stage, tokens in stages.items():
        yield stage, f"{'above' if stage == 'emergency' else 'from'} {tokens:,} tokens"
    yield "target", f"an epoch prunes to {decided['target']:,} tokens, with an empty head"
    if decided["pays_from"] is not None:
        sessions = f"in sessions of more than about {decided['pays_from']:,} tokens"
        yield "pays", f"{sessions}, at {_PACE} a request; shorter ones cost less sent whole"


# --- all that it says ---


def as_toml(rules: Mapping[str, Any]) -> str:
    """A policy as a file that means the same; what differs from the defaults says so."""
    plain, written = Policy().model_dump(mode="json", by_alias=True), list[str]()
    for name, section in rules.items():
        if isinstance(section, dict):
            written += ["", f"[{name}]", *_entries(cast("Mapping[str, Any]", section), plain[name])]
        elif isinstance(section, list):
            for each in cast("list[Mapping[str, Any]]", section):
                written += ["", f"[[{name}]]", *_entries(each, each)]
    return "\n".join([*written, ""])


def _entries(section: Mapping[str, Any], plain: Mapping[str, Any]) -> Iterator[str]:
    for key, value in section.items():
        remark = "" if value == plain[key] else f"  # default: {_value(plain[key])}"
        yield f"{toml_key(key)} = {_value(value)}{remark}"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        pairs = cast("Mapping[str, Any]", value).items()
        return "{" + ", ".join(f"{toml_key(key)} = {_value(each)}" for key, each in pairs) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, cast("list[Any]", value))) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

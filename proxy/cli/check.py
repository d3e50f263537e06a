"""`unabridged check FILE`: whether a policy is valid, its consequences, and all of its values."""

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Any, cast

from proxy.adapters import prices
from proxy.adapters.files.policies import PolicyFile, PolicyLibrary, shipped_policies
from proxy.adapters.files.toml_file import FileError, toml_key, toml_value
from proxy.adapters.plugins import load_plugins
from proxy.cli.terminal import add_json_option, facts, path, positive, print_json, show
from proxy.core.economics.consequences import EXAMPLE_WINDOW, budget_of, consequences, decisions
from proxy.core.policy.policy import Policy
from proxy.core.policy.warnings import warnings_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a file, the directory of policies that it may extend, and the window for which it is explained."""
    parser.add_argument("file", metavar="FILE", help="a policy file, or the name of a policy")
    parser.add_argument("--policies", metavar="DIR", type=path, help="a directory of policies")
    window = parser.add_mutually_exclusive_group()
    window.add_argument("--model", metavar="NAME", help="for this model, not for an example")
    window.add_argument("--window", metavar="TOKENS", type=positive, help="of the example (128000)")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the policy's consequences. Raises FileError and PluginError."""
    load_plugins()
    policy, file = PolicyLibrary(args.policies).read(args.file)
    model: str = args.model or ""
    stated, priced = policy.budget.window(model), prices.context_window(model)
    if args.window is not None:
        window, for_which = args.window, f"in a window of {args.window:,}"
    elif args.model is None:
        window, for_which = EXAMPLE_WINDOW, f"for example, in a window of {EXAMPLE_WINDOW:,}"
    elif window := stated or priced:
        source = "this policy" if stated else "the price list"
        for_which = f"in the window of {model}, {window:,} by {source}"
    else:
        for_which = f"nobody knows the window of {model}"
    decided = decisions(policy, window, prices.prices_of(model))
    warnings = remarks_on(policy, file, window)
    rules = policy.model_dump(mode="json", by_alias=True, exclude={"name", "extends"}, exclude_none=True)
    if args.json:
        listed = [{"line": each.line, "key": each.key, "message": each.message} for each in warnings]
        print_json({"ok": True, **decided, "model": args.model, "warnings": listed, "rules": rules})
        return 0
    lines = [*consequences(policy, decided, for_which), *(("warning", str(each)) for each in warnings)]
    show(f"ok: {policy.name} ({policy.digest})", facts(lines))
    sys.stdout.write(f"\n# the whole policy\n{as_toml(rules)}")
    return 0


def remarks_on(policy: Policy, file: PolicyFile, window: int | None = EXAMPLE_WINDOW) -> list[FileError]:
    """Return the warnings about a policy, each with the line of its key; ``window`` is in tokens."""
    # A preset may state keys for what they tell.
    stated = file.lines if file.path.parent != shipped_policies() else ()
    found = [
        file.error(each.message, each.location)
        for each in warnings_of(policy, stated, budget_of(policy, window))
    ]
    return sorted(found, key=lambda remark: remark.line or 0)


# --- all that it says ---


def as_toml(rules: Mapping[str, Any]) -> str:
    """Return a policy as a file, with remarks at the values that differ from the defaults."""
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
        remark = "" if value == plain[key] else f"  # default: {toml_value(plain[key])}"
        yield f"{toml_key(key)} = {toml_value(value)}{remark}"

"""`unabridged schema`: the JSON Schema of policy files, for editors."""

from __future__ import annotations

import argparse

from proxy.cli.terminal import add_json_option, print_json
from proxy.core.policy import Policy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Nothing but `--json`, which it is anyway."""
    add_json_option(parser)


def run(_: argparse.Namespace) -> int:
    """Print it."""
    print_json(Policy.model_json_schema(by_alias=True))
    return 0

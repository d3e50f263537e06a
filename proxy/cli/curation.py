"""`unabridged sessions export|fork|compact|restore|pause|resume|delete`: keeping and changing sessions."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from proxy.cli.admin import AdminApi, Json, add_server_option
from proxy.cli.terminal import CommandError, one_line, print_json, show, words

_PURPOSES = {
    "export": "all that is kept of it, as one line of JSON",
    "fork": "make a branch a session of its own",
    "compact": "cut messages now",
    "restore": "undo cuts",
    "pause": "let turns in append mode wait",
    "resume": "let them go on",
    "delete": "forget it for good",
}
VERBS = frozenset(_PURPOSES)


def add_verbs(add_verb: Callable[..., argparse.ArgumentParser], session_help: str) -> None:
    """The verbs of this module, each with the session that it is about."""
    added: dict[str, argparse.ArgumentParser] = {}
    for verb, purpose in _PURPOSES.items():
        one = added[verb] = add_verb(verb, help=purpose)
        one.add_argument("session", metavar="SESSION", help=session_help)
        add_server_option(one)
    added["export"].add_argument("-o", "--output", metavar="FILE", type=Path, help="instead of stdout")
    fork = added["fork"]
    fork.add_argument("--at", metavar="N", type=int, help="the last message to take along (all)")
    fork.add_argument("--tip", metavar="HASH", help="another branch, by its last message")
    fork.add_argument("--name", metavar="NAME", help="what the fork is named (made up)")
    numbers = "such as 4-19 or 4,7-9, as the transcript numbers them (all)"
    added["compact"].add_argument("--messages", metavar="N-M", help=numbers)
    which = added["restore"].add_mutually_exclusive_group()
    which.add_argument("--messages", metavar="N-M", help=numbers)
    which.add_argument("--epoch", metavar="N", type=int, help="what the epoch of this number cut")
    added["delete"].add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace, api: AdminApi) -> int:
    """Do it, and say what was done. Raises CommandError."""
    if args.verb == "export":
        return _export(api.export(args.session), args.output)
    if args.verb == "delete":
        _confirm(args, api)
        answer = api.delete(args.session)
    else:
        body = {name: getattr(args, name, None) for name in ("at", "tip", "name", "messages", "epoch")}
        answer = api.change(args.session, args.verb, {n: v for n, v in body.items() if v is not None})
    if args.json:
        print_json(answer)
    else:
        show(_told(args.verb, answer))
    return 0


def _export(content: bytes, output: Path | None) -> int:
    if output is None:
        sys.stdout.buffer.write(content + b"\n")
        return 0
    try:
        # It holds whole conversations: for its owner alone, also where the file was there before.
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor has no path
            os.fchmod(descriptor, 0o600)
            file.write(content + b"\n")
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error.strerror}") from error
    return 0


def _confirm(args: argparse.Namespace, api: AdminApi) -> None:
    """Ask whoever sits at a terminal. Raises CommandError where the answer is no."""
    if args.yes or not sys.stdin.isatty():
        return
    session = api.session(args.session)
    name, turns = one_line(str(session["name"])), words(session["turns"])
    sys.stderr.write(f"Delete {name} ({turns} turns, last used {session['updated']}) for good? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError("not deleted")


def _told(verb: str, answer: Json) -> str:
    if verb in {"compact", "restore"}:
        messages = f"{words(answer['original_count'])} → {words(answer['final_count'])} messages"
        tokens = f"{words(answer['original_tokens'])} → {words(answer['final_tokens'])} tokens"
        return f"epoch {answer['number']}: {messages}, {tokens}"
    name = json.dumps(answer["name"], ensure_ascii=False)
    match verb:
        case "fork":
            return f"forked as {name}: send it as X-Unabridged-Session"
        case "delete":
            return f"deleted {name}"
        case _:
            return f"{name} is {answer['blocked'] or 'not blocked'}"

"""`unabridged sessions …`: show, export and change sessions of a running proxy."""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from proxy.cli.client import LISTED, AdminApi, Json, add_server_option
from proxy.cli.stats import bill_facts
from proxy.cli.terminal import (
    CommandError,
    confirm,
    facts,
    minute,
    path,
    positive,
    print_json,
    printable,
    show,
    stage_text,
    table,
    tell,
    words,
)
from proxy.core.dialects.registry import CHAT
from proxy.core.formats.json import dumps
from proxy.core.text.cutting import one_line

_LIMIT = 50
_LOOKS = {
    "show": "one session and its epochs",
    "transcript": "all of its messages, as they came",
    "view": "what the model gets",
    "tools": "tool results that are fresh",
}
_CHANGES = {
    "export": "all that is kept of it, as one line of JSON",
    "fork": "make a branch a session of its own",
    "compact": "cut messages now, and say what becomes of their summary",
    "restore": "undo cuts",
    "pause": "let turns in append mode wait",
    "resume": "let them go on",
    "delete": "forget it for good",
}
_RANGES = re.compile(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*", re.ASCII)
_LEFT_OUT = {
    "unknown_secret": "written under an UNABRIDGED_SECRET that the server does not know",
    "newer_release": "written by a newer release",
}
_FACTS = (
    *("id", "name", "began_with", "model", "window", "window_from", "policy", "stage", "tokens", "budget"),
    *("full_tokens", "turns", "exchanges", "prune_count", "llm_compressions", "summary_bytes", "blocked"),
    *("shadow", "created", "updated"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add a verb and its session."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="the sessions used last")
    number = partial(positive, most=LISTED)
    listing.add_argument("--limit", metavar="N", type=number, default=_LIMIT, help=f"how many ({_LIMIT})")
    add_server_option(listing)
    added: dict[str, argparse.ArgumentParser] = {}
    for verb, purpose in {**_LOOKS, **_CHANGES}.items():
        one = added[verb] = verbs.add_parser(verb, help=purpose)
        one.add_argument("session", metavar="SESSION", help="id, its beginning, or name")
        add_server_option(one)
    added["export"].add_argument("-o", "--output", metavar="FILE", type=path, help="instead of stdout")
    fork = added["fork"]
    fork.add_argument("--at", metavar="N", type=int, help="the last message to take along (all)")
    fork.add_argument("--tip", metavar="HASH", help="another branch, by its last message")
    fork.add_argument("--name", metavar="NAME", help="what the fork is named (made up)")
    numbers = "such as 4-19 or 4,7-9, as the transcript numbers them (all)"
    added["compact"].add_argument("--messages", metavar="N-M", type=_ranges, help=numbers)
    which = added["restore"].add_mutually_exclusive_group()
    which.add_argument("--messages", metavar="N-M", type=_ranges, help=numbers)
    which.add_argument("--epoch", metavar="N", type=int, help="what the epoch of this number cut")
    added["delete"].add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    """Ask the server, and show the answer. Raises CommandError."""
    with AdminApi.of(args) as api:
        if args.verb in _CHANGES:
            return _change(args, api)
        if args.verb == "list":
            answer = api.sessions(args.limit)
        else:
            answer = api.session(args.session, "" if args.verb == "show" else args.verb)
        tell(args, answer, _SHOWN[args.verb](answer), wraps=args.verb != "list")
    return 0


def listing(answer: Json) -> Iterator[RenderableType]:
    """Yield the sessions used last, and how many are left out."""
    rows: list[tuple[object, ...]] = []
    for each in answer["sessions"]:
        sizes = (each["tokens"], each["budget"], each["full_tokens"], each["turns"])
        name = str(each["name"])
        is_issued = name.startswith(f"ub-{each['id'].split('.')[1]}-")  # by the server: as good as the id
        names = ("" if is_issued else one_line(name, 40), one_line(each["began_with"] or "", 40))
        stage, updated = stage_text(each["stage"]), minute(each["updated"])
        rows.append((each["id"], *names, each["model"], stage, *sizes, each["prune_count"], updated))
    numbers = (">tokens", ">budget", ">full", ">turns", ">epochs")
    yield table(("id", "name", "began with", "model", "stage", *numbers, "updated"), rows)
    yield from not_shown(("session", "sessions"), answer.get("left_out", {}))


def not_shown(names: tuple[str, str], left_out: Mapping[str, int]) -> Iterator[str]:
    """Yield how many cannot be read, by the reason; ``names`` are what one and several are called."""
    for reason, count in left_out.items():
        if count:
            are = f"{names[0]} is not shown: it was" if count == 1 else f"{names[1]} are not shown: they were"
            yield f"{count} {are} {_LEFT_OUT.get(reason, reason)}"


def session(answer: Json) -> Iterator[RenderableType]:
    """Yield a session, its newest exchange and its epochs."""
    yield facts([*((name, words(answer.get(name))) for name in _FACTS), *bill_facts(answer["bill"])])
    cycle = answer.get("current_cycle")
    if cycle:
        yield ""
        question, answered = (cycle[name] or "" for name in ("user_question", "final_answer"))
        yield facts([("question", one_line(question, 100)), ("answer", one_line(answered, 100))])
    yield from epochs(answer)


def epochs(answer: Json) -> Iterator[RenderableType]:
    """Yield a table of what each epoch of a session did to the view, if it has any."""
    rows = [
        (
            epoch["number"],
            epoch["at"],
            stage_text(epoch["stage"]),
            f"{words(epoch['original_count'])} → {words(epoch['final_count'])}",
            f"{words(epoch['original_tokens'])} → {words(epoch['final_tokens'])}",
            f"{epoch['removed_tokens'] / max(epoch['original_tokens'], 1):.0%}",
            epoch["reason"],
        )
        for epoch in answer["epochs"]
    ]
    if rows:
        yield ""
        yield table((">epoch", "at", "stage", ">messages", ">tokens", ">freed", "reason"), rows)


def transcript(answer: Json) -> Iterator[RenderableType]:
    """Yield all messages, each with the time of its arrival."""
    for entry in answer["messages"]:
        marks = [str(entry["at"])]
        marks += [] if entry["tokens"] is None else [f"{words(entry['tokens'])} tokens counted"]
        marks += ["our answer"] if entry["answer"] else []
        marks += [] if entry["complete"] else ["cut off"]
        yield from message_lines(entry["number"], entry["message"], " · ".join(marks))


def view(answer: Json) -> Iterator[RenderableType]:
    """Yield what the model gets."""
    budget = "no budget" if answer["budget"] is None else f"{words(answer['budget'])} tokens"
    yield f"{words(answer['tokens'])} of {budget}, epoch {answer['epoch'] or 'none'}"
    for message in answer["messages"]:
        yield from message_lines(None, message, "")


def message_lines(number: int | None, message: Json, remark: str) -> Iterator[Text]:
    """A whole message, after its number in the transcript.

    Content is a client's, so its control characters do not reach the terminal.
    """
    content = CHAT.read(dumps(message))
    place = "" if number is None else f"[{number}] "
    yield Text(f"\n{place}{content.role or '?'}  ", style="bold").append(remark, style="not bold dim")
    if content.text:
        yield Text("\n".join(printable(line) for line in content.text.splitlines()))
    for call_id, name, arguments in content.calls:
        yield Text(printable(f"→ {name}({arguments})  {call_id}"), style="cyan")


def tools(answer: Json) -> Iterator[RenderableType]:
    """Yield the tool results that are fresh."""
    if not answer["tools"]:
        yield f"no tool result is fresh under the policy {answer['policy']}"
        return

    def arguments(parameters: object) -> str:
        return parameters if isinstance(parameters, str) else dumps(parameters).decode()

    rows = [
        (
            one_line(f"{each['tool_name']}({arguments(each['parameters'])})", 60),
            f"{each['remaining_duration']} of {each['original_duration']}",
            each["hits"],
            each["result_bytes"],
            minute(each["cached_at"]),
            one_line(each["result"], 60),
        )
        for each in answer["tools"]
    ]
    yield table(("call", ">exchanges left", ">hits", ">bytes", "since", "result"), rows)


_SHOWN: Mapping[str, Callable[[Json], Iterator[RenderableType]]] = {
    "list": listing,
    "show": session,
    "transcript": transcript,
    "view": view,
    "tools": tools,
}
"""By verb, the function that shows its answer to people."""

# --- keeping and changing ---


def _ranges(word: str) -> str:
    """Parse numbers of messages, as the type of an option."""
    given = _RANGES.fullmatch(word) and (each.partition("-") for each in word.split(","))
    if not given or any(last and int(last) < int(first) for first, _, last in given):
        raise argparse.ArgumentTypeError("must be numbers of messages, such as 7, 4-19 or 4,7-9")
    return word


def _confirm_deletion(api: AdminApi, name: str) -> None:
    """Ask before a session is deleted; by its whole id also one that has had no turn. Raises CommandError."""
    try:
        found = api.session(name)
        called, turns = one_line(str(found["name"])), words(found["turns"])
        what = f"{called} ({turns} turns, last used {found['updated']})"
    except CommandError:
        if name.count(".") != 2:
            raise
        what = f"what is stored of {one_line(name)}, which has had no turn,"
    confirm(f"Delete {what} for good?", "not deleted")


def _change(args: argparse.Namespace, api: AdminApi) -> int:
    if args.verb == "export":
        export(api.export(args.session) + b"\n", args.output)
        return 0
    if args.verb == "delete":
        if not args.yes and sys.stdin.isatty():
            _confirm_deletion(api, args.session)
        answer = api.delete(args.session)
    else:
        body = {name: getattr(args, name, None) for name in ("at", "tip", "name", "messages", "epoch")}
        answer = api.change(args.session, args.verb, {n: v for n, v in body.items() if v is not None})
    if args.json:
        print_json(answer)
        return 0
    name = json.dumps(answer.get("name"), ensure_ascii=False)
    match args.verb:
        case "compact" | "restore":
            messages = f"{words(answer['original_count'])} → {words(answer['final_count'])} messages"
            tokens = f"{words(answer['original_tokens'])} → {words(answer['final_tokens'])} tokens"
            show(f"epoch {answer['number']}: {messages}, {tokens}")
            if "summary" in answer:
                show(f"summary: {answer['summary']}")
        case "fork":
            show(f"forked as {name}: send it as X-Unabridged-Session")
        case "delete":
            show(f"deleted {name}")
        case _:
            show(f"{name} is {answer['blocked'] or 'not blocked'}")
    return 0


def export(content: bytes, output: Path | None) -> None:
    """Write the export to a file, or to stdout. Raises CommandError."""
    if output is None:
        sys.stdout.buffer.write(content)
        return
    try:
        # It holds whole conversations: for its owner alone, also where the file was there before.
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor has no path
            if stat.S_ISREG(os.fstat(descriptor).st_mode):  # a device is everybody's
                os.fchmod(descriptor, 0o600)
            file.write(content)
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error.strerror}") from error

"""`unabridged sessions …`: sessions of a running proxy. Looking is here, changing in `proxy.cli.curation`."""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from proxy.cli import curation
from proxy.cli.admin import AdminApi, Json, add_server_option
from proxy.cli.terminal import facts, one_line, percent, positive, print_json, show, stage_text, table, words
from proxy.core.jsonvalue import dumps
from proxy.core.messages import Content

_LIMIT = 50
_SESSION_HELP = "id, its beginning as listed, or name"
_SHORT = 8
"""Characters of an id that are shown at least."""
_TO_THE_MINUTE = len("2026-11-22T03:47")
_FACTS = (
    *("id", "name", "model", "policy", "stage", "tokens", "budget", "full_tokens", "turns", "exchanges"),
    *("prune_count", "llm_compressions", "summary_bytes", "blocked", "created", "updated"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One verb, and the session that it is about."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="the sessions used last")
    listing.add_argument("--limit", metavar="N", type=positive, default=_LIMIT, help=f"how many ({_LIMIT})")
    add_server_option(listing)
    for verb, purpose in (
        ("show", "one session and its epochs"),
        ("transcript", "all of its messages, as they came"),
        ("view", "what the model gets"),
        ("tools", "tool results that are fresh"),
    ):
        one = verbs.add_parser(verb, help=purpose)
        one.add_argument("session", metavar="SESSION", help=_SESSION_HELP)
        add_server_option(one)
    curation.add_verbs(verbs.add_parser, _SESSION_HELP)


def run(args: argparse.Namespace) -> int:
    """Ask, and show the answer. Raises CommandError."""
    api = AdminApi.of(args)
    if args.verb in curation.VERBS:
        return curation.run(args, api)
    answer: Any
    if args.verb == "list":
        answer, telling = api.sessions(args.limit), _listing
    else:
        part = "" if args.verb == "show" else args.verb
        answer, telling = api.session(args.session, part), _TELLINGS[args.verb]
    if args.json:
        print_json({"sessions": answer} if args.verb == "list" else answer)
    else:
        show(*telling(answer))
    return 0


def _listing(sessions: list[Json]) -> Iterator[RenderableType]:
    columns = ("id", "name", "model", "stage", ">tokens", ">budget", ">full", ">turns", ">epochs", "updated")
    shown = short_ids([session["id"] for session in sessions])
    listed = table(columns, [_session_row(session, shown[session["id"]]) for session in sessions])
    listed.columns[0].no_wrap = True  # to be copied whole
    yield listed


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """For each id as much of it as tells it from the others, after its tenant: a command takes that for it.

    In a log line the same beginning is a request's `session`.
    """
    left = {each: each.partition(".")[2] for each in ids}
    shown: dict[str, str] = {}
    for size in count(_SHORT):
        sharing = Counter(whole[:size] for whole in left.values())
        for each, whole in left.items():
            if sharing[whole[:size]] == 1 or size >= len(whole):
                shown[each] = whole[:size]
        left = {each: whole for each, whole in left.items() if each not in shown}
        if not left:
            break
    return shown


def _session_row(session: Json, shown: str) -> tuple[object, ...]:
    sizes = (session["tokens"], session["budget"], session["full_tokens"], session["turns"])
    name = str(session["name"])
    is_issued = name.startswith(f"ub-{session['id'].split('.')[1]}-")  # by the server: as good as the id
    told = "" if is_issued else one_line(name, 40)
    stage = stage_text(session["stage"])
    updated = str(session["updated"])[:_TO_THE_MINUTE].replace("T", " ")
    return (shown, told, session["model"], stage, *sizes, session["prune_count"], updated)


def _session(session: Json) -> Iterator[RenderableType]:
    yield facts((name, words(session.get(name))) for name in _FACTS)
    cycle = session.get("current_cycle")
    if cycle:
        yield ""
        yield facts([("question", _said(cycle["user_question"])), ("answer", _said(cycle["final_answer"]))])
    if session["epochs"]:
        yield ""
        yield epochs_table(session["epochs"])


def _said(message: object) -> str:
    """A message of the cycle, whether it came as text or whole."""
    text = Content(message).text if isinstance(message, dict) else str(message or "")  # pyright: ignore[reportUnknownArgumentType]
    return one_line(text, 100)


def epochs_table(epochs: list[Json]) -> RenderableType:
    """What each epoch did to the view."""
    rows = [
        (
            epoch["number"],
            epoch["at"],
            stage_text(epoch["stage"]),
            f"{words(epoch['original_count'])} → {words(epoch['final_count'])}",
            f"{words(epoch['original_tokens'])} → {words(epoch['final_tokens'])}",
            percent(epoch["removed_tokens"] / max(epoch["original_tokens"], 1)),
            epoch["reason"],
        )
        for epoch in epochs
    ]
    return table((">epoch", "at", "stage", ">messages", ">tokens", ">freed", "reason"), rows)


def _transcript(transcript: Json) -> Iterator[RenderableType]:
    for entry in transcript["messages"]:
        marks = [str(entry["at"])]
        marks += [] if entry["tokens"] is None else [f"{words(entry['tokens'])} tokens counted"]
        marks += ["our answer"] if entry["answer"] else []
        marks += [] if entry["complete"] else ["cut off"]
        yield from message_lines(entry["number"], entry["message"], " · ".join(marks))


def _view(view: Json) -> Iterator[RenderableType]:
    yield f"{words(view['tokens'])} of {words(view['budget'])} tokens, epoch {view['epoch'] or 'none'}"
    for message in view["messages"]:
        yield from message_lines(None, message, "")


def message_lines(number: int | None, message: Json, remark: str) -> Iterator[Text]:
    """A whole message, after its number in the transcript.

    Content is a client's, so its control characters do not reach the terminal.
    """
    content = Content(message)
    place = "" if number is None else f"[{number}] "
    yield Text(f"\n{place}{content.role or '?'}  ", style="bold").append(remark, style="not bold dim")
    if content.text:
        yield Text("\n".join(printable(line) for line in content.text.splitlines()))
    for call_id, name, arguments in content.tool_calls():
        yield Text(printable(f"→ {name}({arguments})  {call_id}"), style="cyan")


def printable(line: str) -> str:
    """A line without what a terminal would obey."""
    return "".join(each if each.isprintable() or each == "\t" else "·" for each in line)


def _tools(answer: Json) -> Iterator[RenderableType]:
    if not answer["tools"]:
        yield f"no tool result is fresh under the policy {answer['policy']}"
        return
    rows = [
        (
            one_line(f"{each['tool_name']}({_arguments(each['parameters'])})", 60),
            f"{each['remaining_duration']} of {each['original_duration']}",
            each["hits"],
            each["result_bytes"],
            str(each["cached_at"])[:_TO_THE_MINUTE].replace("T", " "),
            one_line(each["result"], 60),
        )
        for each in answer["tools"]
    ]
    yield table(("call", ">exchanges left", ">hits", ">bytes", "since", "result"), rows)


def _arguments(parameters: object) -> str:
    return parameters if isinstance(parameters, str) else dumps(parameters).decode()


_TELLINGS = {"show": _session, "transcript": _transcript, "view": _view, "tools": _tools}

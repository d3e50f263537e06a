"""`unabridged explain SESSION`: how full it is, what its epochs did, and what became of each unit."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from proxy.cli.client import AdminApi, Json, add_server_option
from proxy.cli.sessions import epochs_table
from proxy.cli.terminal import bar, percent, print_json, show, stage_marks, stage_text, table, words
from proxy.core.text.words import one_line

_STATE_STYLES = {"kept": "", "cut": "dim", "clipped": "yellow", "cleared": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The session."""
    parser.add_argument("session", metavar="SESSION", help="id, its beginning, or name")
    add_server_option(parser)


def run(args: argparse.Namespace) -> int:
    """Ask, and show the answer. Raises CommandError."""
    answer = AdminApi.of(args).session(args.session, "explain")
    if args.json:
        print_json(answer)
    else:
        show(*_telling(answer))
    return 0


def _telling(answer: Json) -> Iterator[RenderableType]:
    yield _header(answer)
    yield bar(answer["usage"], stage_marks(answer["stages"]))
    if answer["epochs"]:
        yield ""
        yield epochs_table(answer["epochs"])
    yield ""
    columns = (
        "messages",
        "roles",
        ">tokens",
        "state",
        "protection",
        "class",
        ">recency",
        ">role",
        ">content",
        ">total",
        "begins with",
    )
    yield table(columns, [_unit(row) for row in answer["units"]])


def _header(answer: Json) -> Text:
    budget = answer["budget"]
    told = f" · {percent(answer['usage'])} of {words(budget)} tokens" if budget else " · no budget"
    told += (
        f" · window {words(answer['window'])} ({answer['window_from']})"
        if answer["window"]
        else " · window unknown"
    )
    told += f" · {words(answer['tokens'])} sent of {words(answer['full_tokens'])}"
    told += f" · head {words(answer['head_tokens'])} counted · ratio {answer['ratio']:.2f}"
    if answer["injected"]:
        told += f" · {answer['injected']} messages handed in"
    policy = f"policy {answer['policy']}" + (f", by {answer['policy_by']}" if answer["policy_by"] else "")
    return Text(f"{answer['id']} · {policy} · ").append_text(stage_text(answer["stage"])).append(told)


def _unit(row: Json) -> tuple[object, ...]:
    start, end, score = row["start"], row["end"], row["score"]
    place = str(start) if end == start + 1 else f"{start}-{end - 1}"
    state = row["state"] if row["gap"] is None else f"{row['state']}, gap {row['gap'] + 1}"
    parts = [
        None if score is None else float(score[part]) for part in ("recency", "role", "content", "total")
    ]
    shown = Text(state, style=_STATE_STYLES.get(row["state"], ""))
    kept = (row["protection"], row["retention"])
    said = one_line(row["begins_with"], 40)
    runs = ((role, len(list(same))) for role, same in groupby(row["roles"]))
    roles = ", ".join(role if count == 1 else f"{count} {role}" for role, count in runs)
    return (place, roles, row["tokens"], shown, *kept, *parts, said)

"""`unabridged explain SESSION`: how full it is, what its epochs did, and what became of each unit."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from proxy.cli.admin import AdminApi, Json, add_server_option
from proxy.cli.sessions import epochs_table
from proxy.cli.terminal import bar, percent, print_json, show, stage_marks, stage_text, table, words

_STATE_STYLES = {"kept": "", "cut": "dim", "clipped": "yellow", "cleared": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The session."""
    parser.add_argument("session", metavar="SESSION", help="id or name")
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
    )
    yield table(columns, [_unit(row) for row in answer["units"]])


def _header(answer: Json) -> Text:
    told = f" · {percent(answer['usage'])} of {words(answer['budget'])} tokens"
    told += f" · {words(answer['tokens'])} sent of {words(answer['full_tokens'])}"
    told += f" · head {words(answer['head_tokens'])} counted · ratio {answer['ratio']:.2f}"
    if answer["injected"]:
        told += f" · {answer['injected']} messages handed in"
    return (
        Text(f"{answer['id']} · {answer['policy']} · ").append_text(stage_text(answer["stage"])).append(told)
    )


def _unit(row: Json) -> tuple[object, ...]:
    start, end, score = row["start"], row["end"], row["score"]
    place = str(start) if end == start + 1 else f"{start}-{end - 1}"
    state = row["state"] if row["gap"] is None else f"{row['state']}, gap {row['gap'] + 1}"
    parts = [
        None if score is None else float(score[part]) for part in ("recency", "role", "content", "total")
    ]
    shown = Text(state, style=_STATE_STYLES.get(row["state"], ""))
    return (place, _roles(row["roles"]), row["tokens"], shown, row["protection"], row["retention"], *parts)


def _roles(roles: list[str]) -> str:
    """The roles of a unit, a run of equal ones as one: `assistant, 3 tool`."""
    runs: list[tuple[str, int]] = []
    for role in roles:
        count = runs.pop()[1] if runs and runs[-1][0] == role else 0
        runs.append((role, count + 1))
    return ", ".join(role if count == 1 else f"{count} {role}" for role, count in runs)

"""`unabridged explain SESSION`: how full its view is, what its epochs did, what happened to each unit."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from proxy.cli.client import AdminApi, Json, add_server_option
from proxy.cli.sessions import epochs
from proxy.cli.terminal import bar, stage_text, table, tell, words
from proxy.core.text.cutting import one_line

_COLUMNS = (
    *("messages", "roles", ">tokens", "state", "protection", "class"),
    *(">recency", ">role", ">content", ">total", "begins with"),
)
_STATE_STYLES = {"kept": "", "cut": "dim", "clipped": "yellow", "cleared": "yellow"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the session."""
    parser.add_argument("session", metavar="SESSION", help="id, its beginning, or name")
    add_server_option(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the server, and show the answer. Raises CommandError."""
    with AdminApi.of(args) as api:
        answer = api.session(args.session, "explain")
        tell(args, answer, explanation(answer))
    return 0


def explanation(answer: Json) -> Iterator[RenderableType]:
    """Yield the explanation for people."""
    budget, window, by = answer["budget"], answer["window"], answer["policy_by"]
    parts = [
        f"{answer['usage']:.0%} of {words(budget)} tokens" if budget else "no budget",
        f"window {words(window)} ({answer['window_from']})" if window else "window unknown",
        f"{words(answer['tokens'])} sent of {words(answer['full_tokens'])}",
        f"head {words(answer['head_tokens'])} by our count",
        f"the model counts {answer['ratio']:.2f} times as many",
        *([f"{answer['injected']} messages handed in"] if answer["injected"] else []),
    ]
    header = Text(f"{answer['id']} · policy {answer['policy']}{f', by {by}' if by else ''} · ")
    yield header.append_text(stage_text(answer["stage"])).append("".join(f" · {part}" for part in parts))
    yield bar(answer["usage"], answer["stages"])
    if answer["lacking"]:
        more = f"about {words(answer['lacking'])} tokens more"
        yield Text(f"at the last request a cut waited: it costs more than it saves until {more} have come")
    yield from epochs(answer)
    if answer["missing_summaries"]:
        yield ""
        missing = (f"gap {each['gap'] + 1} ({each['why']})" for each in answer["missing_summaries"])
        yield Text(f"without a summary: {', '.join(missing)}")
    yield ""
    yield table(_COLUMNS, map(_unit, answer["units"]))


def _unit(row: Json) -> tuple[object, ...]:
    start, end, score = row["start"], row["end"], row["score"]
    place = str(start) if end == start + 1 else f"{start}-{end - 1}"
    state = row["state"] if row["gap"] is None else f"{row['state']}, gap {row['gap'] + 1}"
    parts = [
        None if score is None else float(score[part]) for part in ("recency", "role", "content", "total")
    ]
    shown = Text(state, style=_STATE_STYLES.get(row["state"], ""))
    kept = (row["protection"], row["retention"])
    begins_with = one_line(row["begins_with"], 40)
    runs = ((role, len(list(same))) for role, same in groupby(row["roles"]))
    roles = ", ".join(role if count == 1 else f"{count} {role}" for role, count in runs)
    return (place, roles, row["tokens"], shown, *kept, *parts, begins_with)

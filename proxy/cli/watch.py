"""`unabridged watch`: shows sessions, tokens, savings and epochs of a running proxy, and updates them.

It listens to the server's events, which tell what any worker of any machine did, and looks again at each.
What cannot be had for a while is said in the place of the picture, and looked for again.
"""

from __future__ import annotations

import argparse
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from proxy.cli.client import LISTED, AdminApi, Json, add_server_option
from proxy.cli.stats import UNKNOWN
from proxy.cli.terminal import (
    CommandError,
    bar,
    positive,
    print_json,
    screen,
    seconds,
    show,
    stage_text,
    table,
)
from proxy.core.text.cutting import one_line

_SESSIONS, _EPOCHS = 15, 5
_PAUSE = 0.5
"""Least number of seconds between two updates."""
_NAME, _REASON, _BAR = 40, 100, 20
_COLUMNS = ("last", "session", "model", "stage", "of the budget", ">sent", ">whole", ">turns", ">epochs")
_TIME = slice(len("2026-11-22T"), len("2026-11-22T03:47:01"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add options for how often and how much is shown."""
    parser.add_argument(
        "--every", metavar="SECONDS", type=seconds, default=2.0, help="at most, between two looks (2)"
    )
    parser.add_argument(
        "--limit",
        metavar="N",
        type=partial(positive, most=LISTED),
        default=_SESSIONS,
        help=f"sessions that are shown ({_SESSIONS})",
    )
    parser.add_argument("--once", action="store_true", help="show it once, and end")
    add_server_option(parser)


def run(args: argparse.Namespace) -> int:
    """Update until Ctrl-C; print once if no terminal is there that can be updated. Raises CommandError."""
    console = screen()
    with AdminApi.of(args) as api:
        if args.json:
            print_json(look(api, args.limit))
        elif args.once or not console.is_terminal or console.is_dumb_terminal:
            show(picture(look(api, args.limit)), wraps=False)
        else:
            with suppress(KeyboardInterrupt):
                _watch(api, console, args.limit, args.every)
    return 0


def _watch(api: AdminApi, console: Console, limit: int, every: float) -> None:
    """Look again and again, ``every`` so many seconds at most, until it is interrupted."""
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                seen = look(api, limit)
                live.update(picture(seen), refresh=True)
                time.sleep(min(_PAUSE, every))
                newest = max((each["updated"] for each in seen["sessions"]), default="1970-01-01T00:00Z")
                # A millisecond more, because the API rounds down.
                api.wait(datetime.fromisoformat(newest).timestamp() + 0.001, every)
            except CommandError as error:  # it may come back
                fault = Text(f"{error}\nIt is looked for again. Ctrl-C ends this.", style="red")
                live.update(fault, refresh=True)
                time.sleep(every)


def look(api: AdminApi, limit: int) -> Json:
    """Read the bills of the last day, what is degraded, and the sessions used last."""
    return {"stats": api.stats("24h", "day"), "notices": api.notices(), **api.sessions(limit)}


def picture(seen: Json) -> RenderableType:
    """Return what is shown."""
    parts: list[RenderableType] = [_headline(seen["stats"]["total"])]
    parts += [Text.assemble((each["what"], "yellow"), f" {each['advice']}") for each in seen["notices"]]
    sessions: list[tuple[object, ...]] = []
    for each in seen["sessions"]:
        usage = each["tokens"] / each["budget"] if each["budget"] else None
        gauge = "" if usage is None else Text.assemble(bar(usage, {}, _BAR), f"{usage:>5.0%}")
        sizes = (each["tokens"], each["full_tokens"], each["turns"], each["prune_count"])
        model, stage = one_line(each["model"], _NAME), stage_text(each["stage"])
        sessions.append((str(each["updated"])[_TIME], _name(each), model, stage, gauge, *sizes))
    parts += "", table(_COLUMNS, sessions)
    epochs = [(epoch, _name(each)) for each in seen["sessions"] for epoch in each["epochs"]]
    newest = sorted(epochs, key=lambda each: itemgetter("at")(each[0]), reverse=True)[:_EPOCHS]
    if newest:
        rows = [
            (str(epoch["at"])[_TIME], name, stage_text(epoch["stage"]), one_line(epoch["reason"], _REASON))
            for epoch, name in newest
        ]
        parts += "", table(("at", "session", "stage", "why"), rows, title="newest epochs")
    parts += "", Text(f"{datetime.now(UTC):%H:%M:%S} UTC", style="dim")
    return Group(*parts)


def _headline(bill: Json) -> Text:
    """Return the bills of the last day as one line."""
    tokens, dollars = bill["tokens"], bill["dollars"]
    share = 1 - tokens["sent"] / tokens["received"] if tokens["received"] else 0
    money = f"dollars {UNKNOWN}"
    if dollars:
        saved = f"${dollars['saved']:z.4f}".replace("$-", "-$")
        money = f"saved {saved}, spent ${dollars['spent']:.4f}"
    words = [
        f"24 hours: {bill['requests']:,} requests",
        f"{tokens['received']:,} tokens received, {tokens['sent']:,} sent ({share:.0%} less)",
        money,
    ]
    if bill["would_have_failed"]:
        words.append(f"{bill['would_have_failed']:,} would have failed")
    if failed := sum(bill["summaries_failed"].values()):
        words.append(f"{failed:,} summaries failed")
    return Text(" · ".join(words), style="bold")


def _name(session: Json) -> str:
    """Return how a session began, or its name if that is not stored."""
    return one_line(session["began_with"] or session["name"], _NAME)

"""`unabridged stats`: what requests took and cost, and what doing nothing would have cost."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from proxy.cli.client import AdminApi, Json, add_server_option
from proxy.cli.terminal import facts, minute, table, tell
from proxy.core.text.cutting import one_line

_BY = ("day", "hour", "model", "session")
_COLUMNS = (
    *(">requests", ">received", ">sent", ">cached", ">spent $", ">without $", ">saved $"),
    *(">would have failed", ">epochs"),
)
_PAIRS = (
    *("policy", "model", ">whole history", ">the same", ">same view", ">the same"),
    ">difference",
)
_MISSED = ("policy", "model", "message", "class", "how", ">while cut", ">while shown")
_NAME = 60
UNKNOWN = "unknown"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add options for the period, and for what each row is about."""
    parser.add_argument("--since", metavar="TIME", default="7d", help="for how long back, 90d at most (7d)")
    parser.add_argument("--by", choices=_BY, default="day", help="what a row is of (day)")
    add_server_option(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the server, and show the answer. Raises CommandError."""
    with AdminApi.of(args) as api:
        answer = api.stats(args.since, args.by)
        tell(args, answer, report(answer), wraps=False)
    return 0


def report(answer: Json) -> Iterator[RenderableType]:
    """Yield the rows, their sum, and its parts in words."""
    is_of_time = answer["by"] in ("hour", "day")
    rows = [
        (minute(row["key"]) if is_of_time else one_line(row["name"] or row["key"], _NAME), *_cells(row))
        for row in answer["rows"]
    ]
    is_of_sessions = answer["by"] == "session"
    if not is_of_sessions:  # those have been here longer than the sum is of
        rows.append(("all", *_cells(answer["total"])))
    yield table((answer["by"], *_COLUMNS), rows)
    if is_of_sessions:
        yield "A session's row covers its whole life; the sums below cover only the time that was asked for."
    yield ""
    yield facts(_details(answer["total"]))
    proof: Sequence[Json] = answer["proof"]
    pairs = [
        (
            *(row["policy"], row["model"], row["whole"]["compared"], _interval(row["whole"]["agree"])),
            *(row["control"]["compared"], _interval(row["control"]["agree"]), _interval(row["difference"])),
        )
        for row in proof
        if row["whole"]["compared"] or row["control"]["compared"]
    ]
    if pairs:
        yield ""
        yield table(_PAIRS, pairs, title="second answers: how many say the same, and with 95 % confidence")
    missed = [
        (
            row["policy"],
            row["model"],
            *(each[name] for name in ("kind", "retention", "signal", "cut", "shown")),
        )
        for row in proof
        for each in row["missed"]
    ]
    if missed:
        yield ""
        yield table(_MISSED, missed, title="messages that were asked for again")


def _interval(report: Json | None) -> str | None:
    if report is None:
        return None
    return f"{report['value']:.0%} ({report['low']:.0%} to {report['high']:.0%})"


def _cells(bill: Json) -> tuple[object, ...]:
    tokens, dollars = bill["tokens"], bill["dollars"]
    return (
        *(bill["requests"], tokens["received"], tokens["sent"]),
        f"{tokens['cached'] / tokens['sent']:.0%}" if tokens["sent"] else None,
        *(_dollars(dollars, kind) for kind in ("spent", "without", "saved")),
        *(bill["would_have_failed"], bill["epochs"]),
    )


def _dollars(dollars: Json | None, kind: str) -> str:
    return UNKNOWN if dollars is None else f"{dollars[kind]:z.4f}"


def bill_facts(bill: Json) -> Iterator[tuple[str, object]]:
    """Yield the names and values of a single bill."""
    for kind in ("spent", "without", "saved"):
        yield f"{kind} $", _dollars(bill["dollars"], kind)
    yield from _details(bill)


def _details(bill: Json) -> Iterator[tuple[str, object]]:
    """Yield what the table leaves out, if it is not zero."""
    dollars = bill["dollars"]
    for kind in ("answers", "hidden", "summaries", "memory", "proof"):
        if dollars and dollars[kind]:
            yield f"spent on {kind} $", _dollars(dollars, kind)
    if bill["tokens"]["shadow_cut"]:
        yield "in shadow, would have saved tokens", bill["tokens"]["shadow_cut"]
        yield "in shadow, would have saved $", _dollars(dollars, "shadow")
    if bill["would_have_failed"]:
        yield "would have failed without the proxy", bill["would_have_failed"]
    if bill["price_unknown"]:
        yield "price unknown, not in the dollars", bill["price_unknown"]
    if bill["estimated"]:
        yield "answers that told no usage", bill["estimated"]
    for reason, number in sorted(bill["summaries_failed"].items()):
        yield f"summaries failed: {reason}", number
    if bill["tool_calls_answered"]:
        yield "tool calls answered", bill["tool_calls_answered"]

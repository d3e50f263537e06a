"""The report of a replay: sums, the bill, and the reason of each epoch, as JSON, tables and a page."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import RenderableType

from proxy.cli.terminal import stage_text, table
from proxy.core.budget.budget import Stage
from proxy.core.economics.simulate import Outcome, ReplayedTurn, bill, totals
from proxy.core.planning.explain import SentTurn
from proxy.core.planning.plan import Verdict
from proxy.core.policy.policy import Policy
from proxy.core.text.cutting import one_line
from proxy.http.page import STYLE, Renderer
from proxy.http.page.chart import chart

_SUMS = (">turns", ">full", ">sent", ">sent/full", ">epochs", ">over budget")
_BILL = ("sent $", "summaries $", "total $", "whole history $", "total/whole")
_WIDTH = 1_080
_TURNS = (">turn", ">messages", ">full", "stage", ">sent", ">cached", ">cut", "epoch")


def warning(name: str, outcomes: Sequence[Outcome]) -> str | None:
    """Return a warning if a policy costs, or may cost, more than the whole histories; else None."""
    sums = bill(outcomes)
    if sums["ratio"] <= 1:
        return None
    dearer = sum(bill([each])["ratio"] > 1 for each in outcomes)
    may = "costs" if sums["usual_ratio"] > 1 else "may cost"
    return (
        f"Under {name} cutting {may} more than sending the whole histories, {_share(sums)} of it:"
        f" {dearer:,} of {len(outcomes):,} sessions. The budget is too small to save by it."
    )


def as_json(outcomes: Sequence[Outcome], names: Sequence[str], *, with_turns: bool) -> dict[str, Any]:
    """Return the whole report, by policy."""

    def session(outcome: Outcome) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "id": outcome.session,
            "budget": outcome.budget,
            **totals([outcome]),
            "decided": [
                {
                    "turn": turn.number,
                    "stage": turn.stage.value,
                    "freed_tokens": turn.freed,
                    "account": msgspec.to_builtins(turn.account and msgspec.structs.asdict(turn.account)),
                    "reason": reason(turn),
                }
                for turn in outcome.epochs
            ],
        }
        if with_turns:
            shown["turns"] = [
                {
                    "number": turn.number,
                    "messages": turn.messages,
                    "full_tokens": turn.full.tokens,
                    "stage": turn.stage.value,
                    "sent_tokens": turn.sent.tokens,
                    "cut": turn.plan.cut,
                    "epoch": turn.epoch,
                    "began": turn.began,
                    "sent_cached_tokens": turn.sent.cached,
                    "full_cached_tokens": turn.full.cached,
                    "waits": waits(turn),
                }
                for turn in outcome.turns
            ]
        return shown

    found = {name: [each for each in outcomes if each.policy == name] for name in names}
    return {
        "policies": [
            {
                "policy": name,
                "totals": totals(given),
                "warning": warning(name, given),
                "sessions": [*map(session, given)],
            }
            for name, given in found.items()
        ]
    }


def waits(turn: ReplayedTurn) -> bool:
    """Whether an epoch is postponed because of its cost."""
    return turn.account is not None and turn.account.verdict is Verdict.WAITS


def reason(turn: ReplayedTurn) -> str:
    """Return why an epoch began, in words."""
    return (turn.account.text if turn.account else "") or f"{turn.stage.value} is not optional"


def tables(
    outcomes: Sequence[Outcome], names: Sequence[str], *, with_turns: bool, note: str
) -> Iterator[RenderableType]:
    """Yield tables of turns (if wanted), sessions, policies and the bill; ``note`` explains the prices."""
    for outcome in outcomes if with_turns else ():
        turns = [
            (
                turn.number,
                turn.messages,
                turn.full.tokens,
                stage_text(turn.stage),
                turn.sent.tokens,
                turn.sent.cached,
                turn.plan.cut,
                f"{turn.epoch}{' begins' if turn.began else ' waits' if waits(turn) else ''}",
            )
            for turn in outcome.turns
        ]
        yield table(_TURNS, turns, title=f"{_name(outcome)} · {outcome.policy}")
        yield ""
        epochs = [(turn.number, stage_text(turn.stage), turn.freed, reason(turn)) for turn in outcome.epochs]
        yield table((">turn", "stage", ">freed", "decided by"), epochs, title="epochs")
        yield ""
    yield table(
        ("session", "policy", ">budget", *_SUMS, ">total/whole"),
        [(_name(each), each.policy, each.budget, *_sums([each]), _share(bill([each]))) for each in outcomes],
    )
    yield ""
    found = {name: [each for each in outcomes if each.policy == name] for name in names}
    yield table(
        ("policy", *_SUMS, *(f">{stage}" for stage in Stage)),
        [(name, *_sums(each), *totals(each)["stages"].values()) for name, each in found.items()],
        title="all sessions",
    )
    yield ""
    bills = [(name, bill(each)) for name, each in found.items()]
    yield table(
        ("policy", ">cached", *(f">{each}" for each in _BILL)),
        [(name, sums["sent_cached_tokens"], *_dollars(sums)) for name, sums in bills],
        title="the bill",
    )
    yield note
    yield from filter(None, (warning(name, each) for name, each in found.items()))


def _sums(outcomes: Sequence[Outcome]) -> tuple[object, ...]:
    sums = totals(outcomes)
    tokens = (sums["turns"], sums["full_tokens"], sums["sent_tokens"], f"{sums['ratio']:.0%}")
    return (*tokens, sums["epochs"], sums["over_budget"])


def _dollars(sums: Mapping[str, Any]) -> tuple[str, ...]:
    summaries, total = (
        _range(*(f"{sums[each]:.4f}" for each in (f"usual_{name}", name)))
        for name in ("summary_dollars", "total_dollars")
    )
    return f"{sums['sent_dollars']:.4f}", summaries, total, f"{sums['whole_dollars']:.4f}", _share(sums)


def _name(outcome: Outcome) -> str:
    """Return the session's id, which a file may have from anywhere, as one line for a terminal."""
    return one_line(outcome.session, 100)


def _share(sums: Mapping[str, Any]) -> str:
    """Return the total cost relative to that of the whole histories."""
    return _range(f"{sums['usual_ratio']:.0%}", f"{sums['ratio']:.0%}")


def _range(least: str, most: str) -> str:
    """Return two figures as a range, or one if they are equal."""
    return most if least == most else f"{least.removesuffix('%').rstrip()}-{most}"


# --- as one page of HTML ---


def page(outcomes: Sequence[Outcome], policies: Mapping[str, Policy], note: str) -> str:
    """Return a page with the bill and a chart of each session; it loads nothing and has no script."""

    def report(outcome: Outcome) -> Mapping[str, object]:
        sums = bill([outcome])
        sent = [
            SentTurn(turn.messages, turn.full.tokens, turn.sent.tokens, turn.epoch, turn.began)
            for turn in outcome.turns
        ]
        return {
            "outcome": outcome,
            "cost": f"${_dollars(sums)[2]} against ${sums['whole_dollars']:.4f}, {_share(sums)}",
            "chart": chart(sent, outcome.budget, policies[outcome.policy].stages, _WIDTH),
            "epochs": [(turn.number, turn.stage.value, turn.freed, reason(turn)) for turn in outcome.epochs],
        }

    given = {name: [each for each in outcomes if each.policy == name] for name in policies}
    content = {
        "style": STYLE.read_text(encoding="utf-8"),
        "columns": _BILL,
        "bills": [(name, *_dollars(bill(each))) for name, each in given.items()],
        "note": note,
        "warnings": [*filter(None, (warning(name, each) for name, each in given.items()))],
        "reports": [*map(report, outcomes)],
    }
    return Renderer(time.time)("replay.html", content)

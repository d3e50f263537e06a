"""What a replay came to: sums, the bill, and how each epoch was decided, as JSON and as tables."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

import msgspec
from rich.console import RenderableType

from proxy.cli.terminal import percent, stage_text, table, words
from proxy.core.budget.budget import Stage
from proxy.core.economics.simulate import Outcome, ReplayedTurn, bill, totals
from proxy.core.planning.plan import Verdict

_SUMS = (">turns", ">full", ">sent", ">sent/full", ">epochs", ">over budget")
_BILL = ("sent $", "summaries $", "total $", "whole history $", "total/whole")
_TURNS = (">turn", ">messages", ">full", "stage", ">sent", ">cached", ">cut", "epoch")


def warning(name: str, outcomes: Sequence[Outcome]) -> str | None:
    """That a policy costs more than the whole histories, where it does or may; None elsewhere."""
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
    """Everything, by policy."""

    def session(outcome: Outcome) -> dict[str, Any]:
        shown = {
            "id": outcome.session,
            "budget": outcome.budget,
            **totals([outcome]),
            "decided": [epoch_json(turn) for turn in outcome.epochs],
        }
        return shown | ({"turns": [turn_json(turn) for turn in outcome.turns]} if with_turns else {})

    return {
        "policies": [
            {
                "policy": name,
                "totals": totals([each for each in outcomes if each.policy == name]),
                "warning": warning(name, [each for each in outcomes if each.policy == name]),
                "sessions": [session(each) for each in outcomes if each.policy == name],
            }
            for name in names
        ]
    }


def epoch_json(turn: ReplayedTurn) -> dict[str, Any]:
    """One epoch, and what it was decided by."""
    account = turn.account
    named = account and {name: getattr(account, name) for name in account.__struct_fields__}
    return {
        "turn": turn.number,
        "stage": turn.stage.value,
        "freed_tokens": turn.freed,
        "account": msgspec.to_builtins(named),
        "reason": reason(turn),
    }


def turn_json(turn: ReplayedTurn) -> dict[str, Any]:
    """One turn."""
    return {
        "number": turn.number,
        "messages": turn.messages,
        "full_tokens": turn.full_tokens,
        "stage": turn.stage.value,
        "sent_tokens": turn.sent_tokens,
        "cut": turn.cut,
        "epoch": turn.epoch,
        "began": turn.began,
        "sent_cached_tokens": turn.sent.cached,
        "full_cached_tokens": turn.full.cached,
        "waits": waits(turn),
    }


def waits(turn: ReplayedTurn) -> bool:
    """Whether an epoch would have begun, but for what it costs."""
    return turn.account is not None and turn.account.verdict is Verdict.WAITS


def reason(turn: ReplayedTurn) -> str:
    """How it was decided that an epoch begins, for people."""
    return (turn.account.text if turn.account else "") or f"{turn.stage.value} is not optional"


def tables(
    outcomes: Sequence[Outcome], names: Sequence[str], *, with_turns: bool, note: str
) -> Iterator[RenderableType]:
    """Sessions, policies and the bill, of which ``note`` says how it was reckoned; before them each turn."""
    for outcome in outcomes if with_turns else ():
        turns = [
            (
                turn.number,
                turn.messages,
                turn.full_tokens,
                stage_text(turn.stage),
                turn.sent_tokens,
                turn.sent.cached,
                turn.cut,
                f"{turn.epoch}{' begins' if turn.began else ' waits' if waits(turn) else ''}",
            )
            for turn in outcome.turns
        ]
        yield table(_TURNS, turns, title=f"{outcome.session} · {outcome.policy}")
        yield ""
        epochs = [(turn.number, stage_text(turn.stage), turn.freed, reason(turn)) for turn in outcome.epochs]
        yield table((">turn", "stage", ">freed", "decided by"), epochs, title="epochs")
        yield ""
    yield table(
        ("session", "policy", ">budget", *_SUMS, ">total/whole"),
        [(each.session, each.policy, each.budget, *_sums([each]), _share(bill([each]))) for each in outcomes],
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
    tokens = (sums["turns"], sums["full_tokens"], sums["sent_tokens"], percent(sums["ratio"]))
    return (*tokens, sums["epochs"], sums["over_budget"])


def _dollars(sums: Mapping[str, Any]) -> tuple[str, ...]:
    summaries, total = (
        _range(*(f"{sums[each]:.4f}" for each in (f"usual_{name}", name)))
        for name in ("summary_dollars", "total_dollars")
    )
    return f"{sums['sent_dollars']:.4f}", summaries, total, f"{sums['whole_dollars']:.4f}", _share(sums)


def _share(sums: Mapping[str, Any]) -> str:
    """What was paid in all, over the whole histories."""
    return _range(percent(sums["usual_ratio"]), percent(sums["ratio"]))


def _range(least: str, most: str) -> str:
    """Two figures, or one where they are alike."""
    return most if least == most else f"{least.removesuffix('%').rstrip()}-{most}"


# --- one page of HTML: nothing is fetched, nothing runs; charts are SVG ---


_WIDTH, _HEIGHT, _MARGIN = 760, 200, 56
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 52rem; padding: 0 1rem; }
body { color: #1b1f24; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; border-bottom: 1px solid #d8dee4; text-align: right; vertical-align: top; }
th { font-weight: 600; } .text { text-align: left; } .note { color: #57606a; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: #57606a; }
.full { stroke: #8c959f; } .sent { stroke: #0969da; } .epoch { stroke: #cf222e; stroke-dasharray: 2 3; }
.budget { stroke: #d8dee4; } polyline { fill: none; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  body { background: #0d1117; color: #e6edf3; } th, td { border-color: #30363d; }
  .note { color: #9198a1; } svg text { fill: #9198a1; } .budget { stroke: #30363d; }
}
"""


def page(outcomes: Sequence[Outcome], names: Sequence[str], note: str) -> str:
    """The whole page; ``note`` says how the bill was reckoned."""
    bills = [(name, *_dollars(bill([each for each in outcomes if each.policy == name]))) for name in names]
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Replay</title><style>{_STYLE}</style></head><body><h1>Replay</h1>",
        *_table(("policy", *_BILL), bills, texts=(0,)),
        f'<p class="note">{escape(note)}</p>',
    ]
    given = {name: [each for each in outcomes if each.policy == name] for name in names}
    warnings = filter(None, (warning(name, each) for name, each in given.items()))
    parts += (f"<p>{escape(each)}</p>" for each in warnings)
    for outcome in outcomes:
        sums = bill([outcome])
        cost = f"${_dollars(sums)[2]} against ${sums['whole_dollars']:.4f}, {_share(sums)}"
        budget = "no budget" if outcome.budget is None else f"budget {outcome.budget:,} tokens"
        parts += [
            f"<h2>{escape(outcome.session)} · {escape(outcome.policy)}</h2>",
            f'<p class="note">{len(outcome.turns)} turns, {budget}; {cost}</p>',
        ]
        if outcome.turns:
            parts.append(_chart(outcome))
        if outcome.epochs:
            rows = [(turn.number, turn.stage.value, turn.freed, reason(turn)) for turn in outcome.epochs]
            parts += _table(("turn", "stage", "freed", "decided by"), rows, texts=(1, 3))
    return "\n".join([*parts, "</body></html>\n"])


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]], texts: Sequence[int]) -> Iterator[str]:
    def cells(tag: str, values: Sequence[object]) -> str:
        marks = (' class="text"' if place in texts else "" for place in range(len(values)))
        pairs = zip(marks, values, strict=True)
        return "".join(f"<{tag}{mark}>{escape(words(value))}</{tag}>" for mark, value in pairs)

    yield f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>"
    for row in rows:
        yield f"<tr>{cells('td', row)}</tr>"
    yield "</tbody></table>"


def _chart(outcome: Outcome) -> str:
    """Tokens by turn: what the client sent, what went out, where epochs began."""
    turns = outcome.turns
    most = max(*(turn.full_tokens for turn in turns), outcome.budget or 0)

    def x(turn: ReplayedTurn) -> float:
        return _MARGIN + (turn.number - 1) / max(len(turns) - 1, 1) * (_WIDTH - _MARGIN - 8)

    def y(tokens: int) -> float:
        return 8 + (1 - tokens / most) * (_HEIGHT - 32)

    def line(name: str, points: Sequence[tuple[float, float]]) -> str:
        spots = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        return f'<polyline class="{name}" points="{spots}"/>'

    ends, limits = (_MARGIN, _WIDTH - 8), [outcome.budget] if outcome.budget else []
    lines = [line("budget", [(end, y(limit)) for end in ends]) for limit in limits]
    lines += [line("epoch", [(x(turn), 8), (x(turn), _HEIGHT - 24)]) for turn in outcome.epochs]
    lines.append(line("full", [(x(turn), y(turn.full_tokens)) for turn in turns]))
    lines.append(line("sent", [(x(turn), y(turn.sent_tokens)) for turn in turns]))
    labels = [
        f'<text x="{_MARGIN - 6}" y="{y(tokens) + 4:.1f}" text-anchor="end">{tokens:,}</text>'
        for tokens in dict.fromkeys((most, *limits))
    ]
    legend = "tokens by turn: grey, the whole history; blue, what was sent; red, where an epoch began"
    labels.append(f'<text x="{_MARGIN}" y="{_HEIGHT - 6}">{legend}</text>')
    shapes = "".join([*lines, *labels])
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{legend}">{shapes}</svg>'

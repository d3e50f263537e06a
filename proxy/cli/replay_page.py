"""A replay as one page of HTML: nothing is fetched, nothing runs; charts are SVG."""

from collections.abc import Iterator, Sequence
from html import escape

from proxy.cli.outcomes import Outcome, bill, reason
from proxy.cli.terminal import percent, words
from proxy.core.replay import ReplayedTurn

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
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Replay</title><style>{_STYLE}</style></head><body><h1>Replay</h1>",
        *_bill(outcomes, names),
        f'<p class="note">{escape(note)}</p>',
        *(part for outcome in outcomes for part in _session(outcome)),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _bill(outcomes: Sequence[Outcome], names: Sequence[str]) -> Iterator[str]:
    rows: list[Sequence[object]] = []
    for name in names:
        sums = bill([each for each in outcomes if each.policy == name])
        dollars = ("sent_dollars", "summary_dollars", "total_dollars", "whole_dollars")
        rows.append((name, *(f"{sums[each]:.4f}" for each in dollars), percent(sums["ratio"])))
    heads = ("policy", "sent $", "summaries $", "total $", "whole history $", "total/whole")
    yield from _table(heads, rows, texts=(0,))


def _session(outcome: Outcome) -> Iterator[str]:
    sums = bill([outcome])
    yield f"<h2>{escape(outcome.session)} · {escape(outcome.policy)}</h2>"
    cost = f"${sums['total_dollars']:.4f} against ${sums['whole_dollars']:.4f}, {percent(sums['ratio'])}"
    yield f'<p class="note">{len(outcome.turns)} turns, budget {outcome.budget:,} tokens; {cost}</p>'
    if outcome.turns:
        yield _chart(outcome)
    if outcome.epochs:
        rows = [(turn.number, turn.stage.value, turn.freed, reason(turn)) for turn in outcome.epochs]
        yield from _table(("turn", "stage", "freed", "decided by"), rows, texts=(1, 3))


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
    most = max(*(turn.full_tokens for turn in turns), outcome.budget)

    def x(turn: ReplayedTurn) -> float:
        return _MARGIN + (turn.number - 1) / max(len(turns) - 1, 1) * (_WIDTH - _MARGIN - 8)

    def y(tokens: int) -> float:
        return 8 + (1 - tokens / most) * (_HEIGHT - 32)

    def line(name: str, points: Sequence[tuple[float, float]]) -> str:
        spots = " ".join(f"{across:.1f},{down:.1f}" for across, down in points)
        return f'<polyline class="{name}" points="{spots}"/>'

    ends = (_MARGIN, _WIDTH - 8)
    lines = [line("budget", [(end, y(outcome.budget)) for end in ends])]
    lines += [line("epoch", [(x(turn), 8), (x(turn), _HEIGHT - 24)]) for turn in outcome.epochs]
    lines.append(line("full", [(x(turn), y(turn.full_tokens)) for turn in turns]))
    lines.append(line("sent", [(x(turn), y(turn.sent_tokens)) for turn in turns]))
    labels = [
        f'<text x="{_MARGIN - 6}" y="{y(tokens) + 4:.1f}" text-anchor="end">{tokens:,}</text>'
        for tokens in dict.fromkeys((most, outcome.budget))
    ]
    legend = "tokens by turn: grey, the whole history; blue, what was sent; red, where an epoch began"
    labels.append(f'<text x="{_MARGIN}" y="{_HEIGHT - 6}">{legend}</text>')
    shapes = "".join([*lines, *labels])
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{legend}">{shapes}</svg>'

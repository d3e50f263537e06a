"""The coordinates of a chart's lines, bands and marks, which the templates draw as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from proxy.core.planning.explain import SentTurn
from proxy.core.policy.sections import Stages

_MOST = 240
"""Most points of a line; of a longer one the highest point of each stretch is drawn."""
_HEIGHT = 260
_TOP, _BOTTOM = 14, 26
_CLIPPED_AT = 1.5
"""Multiple of the budget above which the line of the whole conversation is clipped; what is sent never is."""


class Band(NamedTuple):
    """The band of a stage: where it begins, and its height up to the next stage."""

    name: str
    y: float
    height: float
    share: float
    """The share of the budget at which the stage begins."""


class Mark(NamedTuple):
    """The mark of an epoch, at the turn at which it began."""

    number: int
    x: float
    y: float


class Chart(NamedTuple):
    """Tokens turn by turn, on a canvas of ``width`` by ``height``."""

    width: int
    height: int
    left: int
    right: float
    bottom: float
    full: str
    """The points of the line of the whole conversation."""
    sent: str
    """The points of the line of what was sent."""
    area: str
    """The outline of the area between that line and the axis."""
    bands: Sequence[Band]
    marks: Sequence[Mark]
    is_clipped: bool
    """Whether the line of the whole conversation is clipped at the top."""


def chart(turns: Sequence[SentTurn], budget: int | None, stages: Stages, width: int) -> Chart | None:
    """Return the chart of a session; None if it has fewer than two turns."""
    if len(turns) < 2:
        return None
    most_full, most_sent = max(turn.full for turn in turns), max(turn.sent for turn in turns)
    top = most_full
    if budget:
        top = max(budget * 1.08, most_sent, min(most_full, budget * _CLIPPED_AT))
    top = max(int(top * 1.04), 1)
    left, right, bottom = 8, width - 8.0, float(_HEIGHT - _BOTTOM)

    def x(place: int) -> float:
        return round(left + (right - left) * place / (len(turns) - 1), 1)

    def y(tokens: float) -> float:
        return round(bottom - (bottom - _TOP) * min(tokens, top) / top, 1)

    # The turns to draw: first and last, both sides of each epoch, and the highest of each stretch.
    step = -(-len(turns) // _MOST)
    stretches = (range(first, min(first + step, len(turns))) for first in range(0, len(turns), step))
    highest = {max(stretch, key=lambda place: turns[place].sent) for stretch in stretches}
    began = [place for place, turn in enumerate(turns) if turn.began]
    places = sorted({0, len(turns) - 1, *highest, *began, *(max(place - 1, 0) for place in began)})
    sent = " ".join(f"{x(place)},{y(turns[place].sent)}" for place in places)
    within = next((at for at, place in enumerate(places) if turns[place].full > top), len(places))
    shares = {"warn": stages.warn, "trim": stages.trim, "compact": stages.compact, "budget": stages.emergency}
    edges = [y(share * (budget or 0)) for share in shares.values()]
    bands = [
        Band(name, edge, round(max(edge - upper, 0), 1), share)
        for (name, share), edge, upper in zip(shares.items(), edges, [*edges[1:], _TOP], strict=True)
    ]
    marks = [Mark(turns[place].epoch, x(place), y(turns[place].sent)) for place in began]
    return Chart(
        width=width,
        height=_HEIGHT,
        left=left,
        right=right,
        bottom=bottom,
        full=" ".join(f"{x(place)},{y(turns[place].full)}" for place in places[: within + 1]),
        sent=sent,
        area=f"{x(places[0])},{bottom} {sent} {x(places[-1])},{bottom}",
        bands=bands if budget else (),
        marks=marks,
        is_clipped=most_full > top,
    )

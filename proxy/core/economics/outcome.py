"""What a replay came to: sums over its turns, and the bill. Reports and the web page tell them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.core.budget.budget import Stage
from proxy.core.budget.prices import Prices
from proxy.core.economics.bill import NANO, NOTHING
from proxy.core.economics.simulate import ReplayedTurn


@dataclass(frozen=True)
class Outcome:
    """One session under one policy."""

    session: str
    policy: str
    """Its name, or what else tells it from the others."""
    budget: int | None
    """Tokens; None where nobody knows the model's window, so that nothing is cut for its tokens."""
    prices: Prices
    writer: Prices
    """What the model that writes summaries costs."""
    turns: tuple[ReplayedTurn, ...]

    @property
    def epochs(self) -> list[ReplayedTurn]:
        """The turns at which epochs began."""
        return [turn for turn in self.turns if turn.began]


def totals(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Sums over all turns of all sessions; `ratio` is sent over full."""
    turns = [turn for outcome in outcomes for turn in outcome.turns]
    full, sent = (sum(turn.full_tokens for turn in turns), sum(turn.sent_tokens for turn in turns))
    bounded = [outcome for outcome in outcomes if outcome.budget is not None]
    over = [turn for each in bounded for turn in each.turns if turn.sent_tokens > (each.budget or 0)]
    return {
        "turns": len(turns),
        "full_tokens": full,
        "sent_tokens": sent,
        "ratio": round(sent / full, 4) if full else 1.0,
        "epochs": sum(outcome.turns[-1].epoch for outcome in outcomes if outcome.turns),
        "over_budget": len(over),
        "stages": {stage.value: sum(turn.stage is stage for turn in turns) for stage in Stage},
        "bill": bill(outcomes),
    }


def bill(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Dollars for the prompts of all turns, and what the whole histories would have cost in their place."""
    turns = [(turn, outcome) for outcome in outcomes for turn in outcome.turns]
    billed = sum((turn.bill(outcome.prices, outcome.writer) for turn, outcome in turns), NOTHING)
    usual = sum(turn.usual_summaries.money(outcome.writer) for turn, outcome in turns) / NANO
    sent, summaries, whole = (each / NANO for each in (billed.answers, billed.summaries, billed.without))
    return {
        "sent_cached_tokens": billed.cached,
        "full_cached_tokens": sum(turn.full.cached for turn, _ in turns),
        "summary_tokens": sum(turn.summaries.source + turn.summaries.text for turn, _ in turns),
        "sent_dollars": round(sent, 6),
        "summary_dollars": round(summaries, 6),
        "total_dollars": round(sent + summaries, 6),
        "whole_dollars": round(whole, 6),
        "ratio": round((sent + summaries) / whole, 4) if whole else 1.0,
        "usual_summary_dollars": round(usual, 6),
        "usual_total_dollars": round(sent + usual, 6),
        "usual_ratio": round((sent + usual) / whole, 4) if whole else 1.0,
    }

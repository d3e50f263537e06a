"""What a replay came to: sums, the bill, and how each epoch was decided, as JSON and as tables."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from rich.console import RenderableType

from proxy.cli.terminal import percent, stage_text, table
from proxy.core.budget import Stage
from proxy.core.plan import WAITS
from proxy.core.prices import Prices
from proxy.core.replay import ReplayedTurn

_SUMS = (">turns", ">full", ">sent", ">sent/full", ">epochs", ">over budget")
_BILL = (">cached", ">sent $", ">summaries $", ">total $", ">whole history $", ">total/whole")


@dataclass(frozen=True)
class Outcome:
    """One session under one policy."""

    session: str
    policy: str
    """Its name, or what else tells it from the others."""
    budget: int
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
    over = [turn for outcome in outcomes for turn in outcome.turns if turn.sent_tokens > outcome.budget]
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
    pairs = [(turn, outcome.prices) for outcome in outcomes for turn in outcome.turns]
    writers = [(turn, outcome.writer) for outcome in outcomes for turn in outcome.turns]
    sent = sum(turn.sent.dollars(prices) for turn, prices in pairs)
    summaries = sum(turn.summaries.dollars(prices) for turn, prices in writers)
    whole = sum(turn.full.dollars(prices) for turn, prices in pairs)
    return {
        "sent_cached_tokens": sum(turn.sent.cached for turn, _ in pairs),
        "full_cached_tokens": sum(turn.full.cached for turn, _ in pairs),
        "summary_tokens": sum(turn.summaries.source + turn.summaries.text for turn, _ in pairs),
        "sent_dollars": round(sent, 6),
        "summary_dollars": round(summaries, 6),
        "total_dollars": round(sent + summaries, 6),
        "whole_dollars": round(whole, 6),
        "ratio": round((sent + summaries) / whole, 4) if whole else 1.0,
    }


def as_json(outcomes: Sequence[Outcome], names: Sequence[str], *, with_turns: bool) -> dict[str, Any]:
    """Everything, by policy."""

    def session(outcome: Outcome) -> dict[str, Any]:
        told = {
            "id": outcome.session,
            "budget": outcome.budget,
            **totals([outcome]),
            "decided": [epoch_json(turn) for turn in outcome.epochs],
        }
        return told | ({"turns": [turn_json(turn) for turn in outcome.turns]} if with_turns else {})

    return {
        "policies": [
            {
                "policy": name,
                "totals": totals([each for each in outcomes if each.policy == name]),
                "sessions": [session(each) for each in outcomes if each.policy == name],
            }
            for name in names
        ]
    }


def epoch_json(turn: ReplayedTurn) -> dict[str, Any]:
    """One epoch, and what it was decided by."""
    return {
        "turn": turn.number,
        "stage": turn.stage.value,
        "freed_tokens": turn.freed,
        "account": msgspec.to_builtins(_named(turn)),
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


def _named(turn: ReplayedTurn) -> dict[str, Any] | None:
    account = turn.account
    return account and {name: getattr(account, name) for name in account.__struct_fields__}


def waits(turn: ReplayedTurn) -> bool:
    """Whether an epoch would have begun, but for what it costs."""
    return turn.account is not None and turn.account.verdict == WAITS


def reason(turn: ReplayedTurn) -> str:
    """How it was decided that an epoch begins, for people."""
    return (turn.account.text if turn.account else "") or f"{turn.stage.value} is not optional"


def tables(
    outcomes: Sequence[Outcome], names: Sequence[str], *, with_turns: bool, note: str
) -> Iterator[RenderableType]:
    """Sessions, policies and the bill, of which ``note`` says how it was reckoned; before them each turn."""
    for outcome in outcomes if with_turns else ():
        yield _turns_table(outcome)
        yield ""
        yield _epochs_table(outcome)
        yield ""
    yield table(
        ("session", "policy", ">budget", *_SUMS, ">total/whole"),
        [(each.session, each.policy, each.budget, *_sums([each]), _ratio([each])) for each in outcomes],
    )
    yield ""
    found = {name: [each for each in outcomes if each.policy == name] for name in names}
    yield table(
        ("policy", *_SUMS, *(f">{stage}" for stage in Stage)),
        [(name, *_sums(each), *totals(each)["stages"].values()) for name, each in found.items()],
        title="all sessions",
    )
    yield ""
    yield table(
        ("policy", *_BILL), [(name, *_billed(each)) for name, each in found.items()], title="the bill"
    )
    yield note


def _sums(outcomes: Sequence[Outcome]) -> tuple[object, ...]:
    sums = totals(outcomes)
    tokens = (sums["turns"], sums["full_tokens"], sums["sent_tokens"], percent(sums["ratio"]))
    return (*tokens, sums["epochs"], sums["over_budget"])


def _ratio(outcomes: Sequence[Outcome]) -> str:
    return percent(bill(outcomes)["ratio"])


def _billed(outcomes: Sequence[Outcome]) -> tuple[object, ...]:
    sums = bill(outcomes)
    names = ("sent_dollars", "summary_dollars", "total_dollars", "whole_dollars")
    return (sums["sent_cached_tokens"], *(f"{sums[name]:.4f}" for name in names), percent(sums["ratio"]))


def _turns_table(outcome: Outcome) -> RenderableType:
    rows = [
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
    columns = (">turn", ">messages", ">full", "stage", ">sent", ">cached", ">cut", "epoch")
    return table(columns, rows, title=f"{outcome.session} · {outcome.policy}")


def _epochs_table(outcome: Outcome) -> RenderableType:
    rows = [(turn.number, stage_text(turn.stage), turn.freed, reason(turn)) for turn in outcome.epochs]
    return table((">turn", "stage", ">freed", "decided by"), rows, title="epochs")

"""What a policy would have sent for a conversation that is already there, turn by turn, and what that costs.

Every assistant message was once a request: the history before it. Each is put through the planner as a live
request is, except that no model is asked: gaps get notices where a model would have written a summary. Sticky
epochs (law 3) make the order of the turns part of the result, so a session is replayed from its start.
Whether an epoch pays is reckoned as in a live request, for a lane whose turns come at even distances.

Each side of a comparison is billed as live requests are (:mod:`proxy.core.economics.bill`): of a prompt the
provider has kept what the one before it began with, too; nothing where the cache was cold. Answers are no
part of a replay's bill, since they are the same whatever was sent; and the whole conversation is billed
however long it is. Summaries are an estimate: what their sources and their texts would cost, as long as these
usually are, and as long as they may be.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from proxy.core.budget.budget import Budget, Stage, stage_of
from proxy.core.budget.prices import UNKNOWN_PRICES, Prices, Prompt
from proxy.core.economics.bill import NANO, NOTHING, Bill, kept_prompt
from proxy.core.economics.economy import SummaryCalls, account_of, summary_calls
from proxy.core.planning.chain import Chain
from proxy.core.planning.draft import lacking_summaries
from proxy.core.planning.from_scratch import plan_from_scratch
from proxy.core.planning.life import NO_PAST, Past
from proxy.core.planning.plan import EMPTY, Account, Plan, Span, Verdict, view_tokens
from proxy.core.planning.planner import draft, finish
from proxy.core.planning.situation import Conditions, Count, Situation
from proxy.core.policy.policy import Policy

USUAL_SUMMARY = 80
"""Counted tokens of a summary of two or three sentences."""


class SummaryMeter:
    """Estimates the calls for summaries of a lane whose gaps are not summarised in fact."""

    def __init__(self, size: int | None = None) -> None:
        """``size``: counted tokens of a summary; None: as many as it may have."""
        self._size = size
        self._summarised: dict[Span, int] = {}

    @property
    def summarised(self) -> Mapping[Span, int]:
        """The messages that are summarised by now, each run with the counted tokens of its summary."""
        return self._summarised

    def calls(self, situation: Situation, plan: Plan) -> SummaryCalls:
        """What an epoch of that plan asks for: what enough is new of, upon the summaries that there are."""
        most = situation.summary_tokens
        most = most if self._size is None else min(self._size, most)
        lacking = lacking_summaries(situation.under(plan), self._summarised)
        calls = summary_calls(situation, lacking, self._summarised, most)
        for start, end in lacking:
            inside = [each for each in self._summarised if start <= each[0] and each[1] <= end]
            for each in inside:
                del self._summarised[each]
            self._summarised[start, end] = most
        return calls


# --- the turns ---


@dataclass(frozen=True, slots=True)
class ReplayedTurn:
    """One request as it would have gone out. Tokens are the model's, head included."""

    number: int
    """1 for the session's first request."""
    messages: int
    """Messages that the client sent, without the head."""
    full_tokens: int
    stage: Stage
    """Before this request's edits."""
    sent_tokens: int
    cut: int
    """Messages of the client's that were absent."""
    epoch: int
    began: bool
    sent: Prompt
    """What was sent, as it is billed."""
    full: Prompt
    """What the client sent, billed as if it had been sent as it is, from the first request on."""
    summaries: SummaryCalls
    """An estimate of the calls for summaries that the epoch would have made, each as long as it may be."""
    usual_summaries: SummaryCalls
    """The same with summaries as long as they usually are."""
    account: Account | None
    """What money said, where it was asked at this request."""
    freed: int
    """Tokens that the epoch took out of the view."""
    plan: Plan
    """What it went out under."""

    def bill(self, prices: Prices, writer: Prices) -> Bill:
        """What it costs, where summaries cost what another model's tokens do."""
        return Bill.of_request(self.sent, 0, self.full, prices) + Bill(summaries=self.summaries.money(writer))


def replay(
    chain: Chain,
    policy: Policy,
    budget: Budget,
    count: Count,
    *,
    prices: Prices = UNKNOWN_PRICES,
    idle: float = 0.0,
    summary_tokens: int = USUAL_SUMMARY,
) -> Iterator[ReplayedTurn]:
    """Play every request that led to ``chain``, in order, each ``idle`` seconds after the last answer.

    ``summary_tokens``: counted tokens that a summary usually has.
    """
    plan, epoch, past = EMPTY, 0, NO_PAST
    is_warm = idle < prices.under(policy.economy).ttl
    meters = SummaryMeter(), SummaryMeter(summary_tokens)
    for number, length in enumerate(chain.requests, 1):
        prefix = chain.prefix(length)
        sized = replace(budget, last_user_tokens=prefix.last_user_tokens, whole=prefix.tokens.total)
        conditions = Conditions(idle=idle if number > 1 else None, prices=prices, since=past.length)
        situation = Situation(prefix, plan, policy, sized, count, conditions=conditions, past=past)
        stage = stage_of(budget.usage(situation.view), policy.stages)
        before = plan
        plan, epochs, account = _next(situation, stage, meters[0].summarised)
        most, usual = (meter.calls(situation, plan) if epochs else SummaryCalls() for meter in meters)
        epoch += epochs
        past = Past(past.epochs + epochs, length) if epochs else past
        view = view_tokens(plan, prefix.tokens)
        sent_tokens, full_tokens = (budget.real(budget.head + each) for each in (view, prefix.tokens.total))
        kept = [0, 0]
        if is_warm and number > 1:
            plans = (before, plan), (EMPTY, EMPTY)
            kept = [kept_prompt(prefix, *each, budget, prices) for each in plans]
        yield ReplayedTurn(
            number=number,
            messages=length,
            full_tokens=full_tokens,
            stage=stage,
            sent_tokens=sent_tokens,
            cut=plan.cut,
            epoch=epoch,
            began=epochs > 0,
            sent=Prompt(sent_tokens, kept[0]),
            full=Prompt(full_tokens, kept[1]),
            summaries=most,
            usual_summaries=usual,
            account=account,
            freed=budget.real(situation.view - view) if epochs else 0,
            plan=plan,
        )


def _next(
    situation: Situation, stage: Stage, summarised: Mapping[Span, int]
) -> tuple[Plan, int, Account | None]:
    """What a request does to the plan: nothing, one epoch, or those of a history that is far too long.

    Answers the plan from then on, the epochs that began, and what money said.
    """
    standing = situation.plan, 0, None
    if situation.policy.strategy.name == "off":
        return standing
    if situation.conditions.idle is None and stage is Stage.EMERGENCY:
        plan, epochs = plan_from_scratch(situation)
        return (plan, epochs, account_of(situation, plan, may_wait=False)) if epochs else standing
    decided = draft(situation, stage)
    if decided is None:
        return standing
    plan = finish(decided, {})
    account = account_of(situation, plan, may_wait=decided.may_wait, summarised=summarised)
    if account is not None and account.verdict is Verdict.WAITS:
        return situation.plan, 0, account
    return plan, 1, account


# --- what it came to: sums over turns, which reports and the web page show ---


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

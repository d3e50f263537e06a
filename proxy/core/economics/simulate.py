"""Replay an existing conversation turn by turn: what a policy would have sent, and what that would cost.

Each assistant message stands for a request with the history before it. Each such request is planned like a
live one, except that no model is called: gaps get notices where a model would have written a summary. Epochs
persist (law 3), so the result depends on the order of turns, and a session is replayed from its start.
Whether an epoch pays is computed as for a live request, for a lane whose turns come at equal intervals.

Each side of a comparison is billed as live requests are (:mod:`proxy.core.economics.bill`): the provider has
cached the prefix that a prompt shares with the one before, or nothing if the cache was cold. Answers are not
part of a replay's bill, since they are the same whatever was sent. The whole conversation is billed however
long it is. The cost of summaries is an estimate, once with texts of usual length and once of maximal length.
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
from proxy.core.planning.life import NO_PAST
from proxy.core.planning.plan import EMPTY, Account, Plan, Span, Verdict, view_tokens
from proxy.core.planning.planner import draft_epoch, finish
from proxy.core.planning.situation import Conditions, Count, Situation
from proxy.core.policy.policy import Policy

USUAL_SUMMARY = 80
"""Counted tokens of a summary of two or three sentences."""


class SummaryMeter:
    """Estimates the summary calls of a lane whose gaps are not actually summarised."""

    def __init__(self, size: int | None = None) -> None:
        """``size``: counted tokens of a summary; None: as many as allowed."""
        self._size = size
        self.summarised: dict[Span, int] = {}
        """The spans summarised so far, each with the counted tokens of its summary."""

    def calls(self, situation: Situation, plan: Plan) -> SummaryCalls:
        """Return the summary calls of an epoch with ``plan``, which build on the summaries so far."""
        most = situation.summary_tokens
        most = most if self._size is None else min(self._size, most)
        lacking = lacking_summaries(situation.under(plan), self.summarised)
        calls = summary_calls(situation, lacking, self.summarised, most)
        for start, end in lacking:
            inside = [each for each in self.summarised if start <= each[0] and each[1] <= end]
            for each in inside:
                del self.summarised[each]
            self.summarised[start, end] = most
        return calls


# --- the turns ---


@dataclass(frozen=True, slots=True)
class ReplayedTurn:
    """One request as it would have been sent. Tokens are the model's, head included."""

    number: int
    """1 for the session's first request."""
    messages: int
    """Messages that the client sent, without the head."""
    stage: Stage
    """The stage before this request's edits."""
    epoch: int
    began: bool
    sent: Prompt
    full: Prompt
    """The client's prompt, billed as if every request had been sent unchanged."""
    summaries: SummaryCalls
    """Estimated summary calls of the epoch, with summaries of maximal length."""
    usual_summaries: SummaryCalls
    """The same with summaries of usual length."""
    account: Account | None
    """Costs and savings, if an epoch was considered at this request."""
    freed: int
    """Tokens that the epoch removed from the view."""
    plan: Plan

    def bill(self, prices: Prices, writer: Prices) -> Bill:
        """Return the turn's bill; ``writer`` has the prices of the model that writes summaries."""
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
    """Replay every request that led to ``chain``, in order, each ``idle`` seconds after the last answer.

    ``summary_tokens``: usual counted tokens of a summary.
    """
    plan, epoch, past, prices = EMPTY, 0, NO_PAST, prices.under(policy.economy)
    is_warm = idle < prices.ttl
    meters = SummaryMeter(), SummaryMeter(summary_tokens)
    for number, length in enumerate(chain.requests, 1):
        prefix = chain.prefix(length)
        sized = replace(budget, last_user_tokens=prefix.last_user_tokens, chain_tokens=prefix.tokens.total)
        waited = idle if number > 1 else None
        conditions = Conditions(idle=waited, head_idle=waited, pause=waited, prices=prices, since=past.length)
        situation = Situation(prefix, plan, policy, sized, count, conditions=conditions, past=past)
        stage = stage_of(budget.usage(situation.view_tokens), policy.stages)
        before = plan
        plan, epochs, account = _next(situation, stage, meters[0].summarised)
        most, usual = (meter.calls(situation, plan) if epochs else SummaryCalls() for meter in meters)
        epoch += epochs
        past = past.after(length, stage, epochs) if epochs else past
        view = view_tokens(plan, prefix.tokens)
        sent, full = (budget.with_head(each) for each in (view, prefix.tokens.total))
        is_cached = is_warm and number > 1
        yield ReplayedTurn(
            number=number,
            messages=length,
            stage=stage,
            epoch=epoch,
            began=epochs > 0,
            sent=Prompt(sent, kept_prompt(prefix, before, plan, budget, prices) if is_cached else 0),
            full=Prompt(full, kept_prompt(prefix, EMPTY, EMPTY, budget, prices) if is_cached else 0),
            summaries=most,
            usual_summaries=usual,
            account=account,
            freed=budget.real(situation.view_tokens - view) if epochs else 0,
            plan=plan,
        )


def _next(
    situation: Situation, stage: Stage, summarised: Mapping[Span, int]
) -> tuple[Plan, int, Account | None]:
    """Plan one request: no epoch, one, or several for a first request far over its budget.

    Returns the new plan, the number of epochs that began, and the account, if there is one.
    """
    standing = situation.plan, 0, None
    if situation.policy.strategy.name == "off":
        return standing
    if situation.conditions.idle is None and stage is Stage.EMERGENCY:
        plan, epochs = plan_from_scratch(situation)
        return (plan, epochs, account_of(situation, plan, must_pay=False)) if epochs else standing
    draft = draft_epoch(situation, stage)
    if draft is None:
        return standing
    plan = finish(draft, {})
    account = account_of(situation, plan, must_pay=draft.must_pay, summarised=summarised)
    if account is not None and account.verdict is Verdict.WAITS:
        return situation.plan, 0, account
    return plan, 1, account


# --- results: sums over turns, which reports and the web page show ---


@dataclass(frozen=True)
class Outcome:
    """One session under one policy."""

    session: str
    policy: str
    """The policy's name, or another label that distinguishes it."""
    budget: int | None
    """Tokens; None if the model's window is unknown, so that nothing is cut by tokens."""
    prices: Prices
    writer: Prices
    """Prices of the model that writes summaries."""
    turns: tuple[ReplayedTurn, ...]

    @property
    def epochs(self) -> list[ReplayedTurn]:
        return [turn for turn in self.turns if turn.began]


def totals(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Sums over all turns of all sessions; `ratio` is sent over full."""
    turns = [turn for outcome in outcomes for turn in outcome.turns]
    full, sent = (sum(turn.full.tokens for turn in turns), sum(turn.sent.tokens for turn in turns))
    bounded = [outcome for outcome in outcomes if outcome.budget is not None]
    over = [turn for each in bounded for turn in each.turns if turn.sent.tokens > (each.budget or 0)]
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
    """Return the cost of all turns' prompts in dollars, and that of the whole histories instead."""
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

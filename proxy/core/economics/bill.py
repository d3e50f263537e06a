"""What prompts cost: how much of each the provider has kept from the one before, and what it asks for that.

The same rules for each side of a comparison: a lane's requests in order, the beginning that two of them
share, message by message over the bytes that went out (notes included), in the steps by which providers keep
prefixes; nothing where the cache was cold. Answers are no part of a bill, since they are the same whatever
was sent. Summaries are an estimate: what their sources and their longest texts would cost.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.budget.budget import Budget
from proxy.core.economics.prices import MILLION, Prices
from proxy.core.planning.plan import Plan, Span, apply
from proxy.core.planning.planner import Draft


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, as it is billed. Tokens are the model's, head included."""

    tokens: int
    cached: int

    def dollars(self, prices: Prices) -> float:
        """What it costs."""
        return prices.of_prompt(self.tokens, self.cached)


@dataclass(frozen=True, slots=True)
class SummaryCalls:
    """The calls for summaries that one epoch would have made."""

    source: int = 0
    """Tokens, none of them cached."""
    text: int = 0

    def dollars(self, prices: Prices) -> float:
        """What they cost."""
        return prices.of_prompt(self.source, 0) + self.text * prices.output / MILLION


class Meter:
    """Reads a lane's requests in order, and says what of each the provider has kept."""

    def __init__(self, prices: Prices, budget: Budget, *, is_warm: bool) -> None:
        self._prices = prices
        self._budget = budget
        self._is_warm = is_warm
        self._before: Sequence[bytes] = ()

    def prompt(self, plan: Plan, raws: Sequence[bytes], tokens: Sequence[int]) -> Prompt:
        """The next request: messages of these bytes and sizes (counted tokens) under a plan."""
        budget, view, sizes = self._budget, apply(plan, raws), _sizes(plan, tokens)
        shared = 0
        for place, (old, new) in enumerate(zip(self._before, view, strict=False)):
            if old != new:
                break
            shared = place + 1
        has_sent = self._is_warm and bool(self._before)
        self._before = view
        same = budget.real(budget.head + sum(sizes[:shared])) if has_sent else 0
        return Prompt(budget.real(budget.head + sum(sizes)), self._prices.kept(same))


def _sizes(plan: Plan, tokens: Sequence[int]) -> list[int]:
    """The size of each message of a view, in counted tokens."""
    replaced = {each.position: each.tokens for each in plan.replacements}
    kept = [replaced.get(place, size) for place, size in enumerate(tokens)]
    sizes: list[int] = []
    position = 0
    for gap in plan.gaps:
        sizes += [*kept[position : gap.start], gap.tokens]
        position = gap.end
    return sizes + kept[position:]


class SummaryMeter:
    """Estimates the calls for summaries of a lane whose gaps are not summarised in fact."""

    def __init__(self) -> None:
        self._asked: set[Span] = set()

    def calls(self, decided: Draft) -> SummaryCalls:
        """What a draft would ask for: each gap once; a summary in a larger gap stands for its messages."""
        situation = decided.situation
        most = situation.policy.summary_tokens(situation.budget.limit)
        source, text, sizes = 0, 0, situation.chain.tokens
        for span in (span for span in decided.wanted if span not in self._asked):
            inside = [each for each in self._asked if span[0] <= each[0] and each[1] <= span[1]]
            known = sum(sum(sizes[first:last]) for first, last in inside)
            tokens = sum(sizes[span[0] : span[1]]) - known + len(inside) * most
            source += tokens
            text += min(most, tokens // 2)
        self._asked = {span for span in self._asked if span in decided.spans} | {*decided.wanted}
        return SummaryCalls(situation.budget.real(source), situation.budget.real(text))

"""What summaries cost, and out of what they are paid.

A summary can be asked for in two ways: from the cut part alone, at the price of fresh tokens, or from the
whole of what was sent last, most of it at the price of cached ones.

It saves nothing by itself, so it is paid for out of what cuts have saved: for each request the tokens that it
lacked, at the price of cached ones, less what an epoch had read anew, and less the summaries so far. Until
there is enough, a gap has its notice and the ledger. And what no request waits for is asked for when the next
epoch may come, which tells it. So a session that ends soon after its cut has not paid for what no request
would have held, and summaries never make a session dearer than its whole history.

Law 3: what cuts have saved is stored in the epoch, so that every worker goes on from the same sum.
"""

from collections.abc import Callable, Iterable, Mapping
from math import ceil
from typing import NamedTuple

from proxy.core.budget.prices import MILLION, Prices, Prompt
from proxy.core.planning.life import allows
from proxy.core.planning.plan import Anchor, Span
from proxy.core.planning.situation import Situation
from proxy.core.planning.strategies import acts_by_usage
from proxy.core.summaries.prompt import longest
from proxy.core.summaries.source import told_tokens

INSTRUCTION = 130
"""Counted tokens of what a call for a summary says beside its source."""
_LATEST = 8
"""Requests after an epoch from which on what it cut is summarised once that is paid for, however far the next
epoch is."""
_RELIABLE = 0.5
"""Of the time after which a prefix is certainly gone: for so long it is certainly there."""


def prices_in(situation: Situation) -> Prices | None:
    """The prices that count under the policy; None where it does not reckon."""
    rules, prices = situation.policy.economy, situation.conditions.prices
    return prices.under(rules) if prices is not None and rules.enabled else None


# --- what one costs ---


class SummaryCall(NamedTuple):
    """A call for a summary, or all of some. Tokens are the model's."""

    source: int = 0
    """Tokens that are read."""
    text: int = 0
    """Tokens that are written."""
    cached: int = 0
    """Tokens of those that are read which the provider has kept: of a whole view that is read once more."""

    def dollars(self, prices: Prices) -> float:
        """What it costs."""
        return prices.of_prompt(self.source, self.cached) + self.text * prices.output / MILLION

    def fresh(self, prices: Prices) -> float:
        """What it costs, in fresh tokens."""
        return self.dollars(prices) * MILLION / prices.fresh


def summary_call(situation: Situation, span: Span, summarised: Mapping[Span, int], size: int) -> SummaryCall:
    """The call for the summary of a gap, of ``size`` counted tokens unless its source is short.

    The source is read afresh or with the view, as costs less. Summaries of ``summarised`` messages, of so
    many counted tokens, stand in it for these.
    """
    (start, end), chain = span, situation.chain
    inside = [each for each in summarised if start <= each[0] and each[1] <= end]
    tokens = told_tokens(chain, start, end) - sum(told_tokens(chain, *each) for each in inside)
    tokens += sum(summarised[each] for each in inside)
    text = situation.budget.real(min(size, longest(tokens)))
    tokens += INSTRUCTION
    reading = cheaper_reading(situation, tokens) if not situation.policy.summary.model else None
    if reading is None:
        return SummaryCall(situation.budget.real(tokens), text)
    return SummaryCall(reading.prompt.tokens, text, reading.prompt.cached)


def summary_cost(situation: Situation, span: Span) -> float:
    """What the summary of a gap that lacks one will cost, in fresh tokens.

    It will be as long as those in the view, or else as it may be.
    """
    seen = [situation.count(each.text) for each in situation.plan.anchors if not each.by_code]
    most = situation.policy.summary_tokens(situation.budget.limit)
    return _cost(situation, span, ceil(sum(seen) / len(seen)) if seen else most)


def written_cost(situation: Situation, anchors: Iterable[Anchor]) -> float:
    """What those of these summaries cost that are new in a situation, in fresh tokens."""
    known = (*situation.plan.anchors, *situation.prepared)
    told = [(each.start, each.end) for each in known if not each.by_code]
    return sum(
        _cost(situation, (each.start, each.end), situation.count(each.text))
        for each in anchors
        if not (each.by_code or any(start <= each.start and each.end <= end for start, end in told))
    )


def _cost(situation: Situation, span: Span, size: int) -> float:
    prices = situation.conditions.prices
    if prices is None:
        return 0.0
    anchors = (each for each in situation.anchors_within(*span) if not each.by_code)
    summarised = {(each.start, each.end): situation.count(each.text) for each in anchors}
    return summary_call(situation, span, summarised, size).fresh(prices.under(situation.policy.economy))


class Reading(NamedTuple):
    """Having a model read once more what a lane sent last."""

    prompt: Prompt
    seconds: float
    """For which the provider certainly has what it has kept of it."""


def cheaper_reading(situation: Situation, afresh: int) -> Reading | None:
    """Reading what the lane sent last, where that costs no more than ``afresh`` counted tokens at full price.

    Prices that nobody knows stand for a server that keeps prefixes at hardly any cost. This is no matter of
    when an epoch begins: it is asked whatever the policy says of that.
    """
    conditions = situation.conditions
    if not situation.policy.summary.cached_prefix:
        return None
    if conditions.prices is None or conditions.idle is None or conditions.is_new_head:
        return None
    prices = conditions.prices.under(situation.policy.economy)
    tokens, seconds = sent_last(situation), _RELIABLE * prices.ttl - conditions.idle
    prompt = Prompt(tokens, prices.cached_prefix(tokens))
    if not prompt.cached or seconds <= 0:
        return None
    is_cheaper = prompt.dollars(prices) <= Prompt(situation.budget.real(afresh), 0).dollars(prices)
    return Reading(prompt, seconds) if is_cheaper else None


def sent_last(situation: Situation) -> int:
    """The model's tokens of the lane's last request."""
    newest, tokens = situation.chain.sent_before, situation.chain.tokens
    edits = (edit for edit in situation.plan.replacements if edit.position >= newest)
    brought = tokens.between(newest) + sum(edit.tokens - tokens[edit.position] for edit in edits)
    return situation.budget.real(situation.budget.head + situation.view - brought)


# --- out of what it is paid ---


def are_paid_for(situation: Situation) -> bool:
    """Whether summaries wait until cuts have paid for them.

    Not where nobody knows a price, nor where something else than usage makes an epoch due.
    """
    prices = prices_in(situation)
    return prices is not None and prices.is_known and acts_by_usage(situation.policy)


def saved_by(situation: Situation) -> float:
    """What the lane's cuts have saved by now, less what they and their summaries cost, in fresh tokens.

    About: of requests that found the provider's cache cold, which saved more, nothing is known.
    """
    past, prices = situation.past, situation.conditions.prices
    if prices is None or not past.epochs:
        return 0.0
    absent = situation.chain.tokens.total - situation.view
    share = prices.under(situation.policy.economy).read_share
    return past.saved + _requests_since(situation, past.saved_at) * share * absent


def paid_for(
    situation: Situation, spans: Iterable[Span], cost_of: Callable[[Situation, Span], float] = summary_cost
) -> list[Span]:
    """Of gaps that lack a summary those for which cuts have saved what it costs, in fresh tokens."""
    if not are_paid_for(situation):
        return [*spans]
    left, paid = saved_by(situation), list[Span]()
    for span in spans:
        cost = cost_of(situation, span)
        if cost <= left:
            left -= cost
            paid.append(span)
    return paid


def may_be_told(situation: Situation) -> bool:
    """Whether the next epoch may come, which tells the summaries of what the last one has cut."""
    if not are_paid_for(situation) or _requests_since(situation, situation.past.length) >= _LATEST:
        return True
    return allows(situation.past, situation.chain.tokens, situation.budget, situation.policy.stages)


def _requests_since(situation: Situation, length: int) -> int:
    """Requests after one that had so many messages, this one included."""
    return sum(message.role == "assistant" for message in situation.chain.messages[length:])

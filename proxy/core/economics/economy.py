"""Whether an epoch pays: what it saves on the calls to come, against what it costs to have it read anew.

A provider bills the beginning that two requests share at a fraction of its price. An epoch changes the middle
of a request, so all that follows its first edit is read at the full price once more. It pays when

    n * r * D  >  (w - r) * tail + s

with n calls to come, D tokens freed, tail tokens that were kept by the provider after the first edit, r and w
the prices of a cached token and of one that is written, over a fresh one, and s what the summaries cost that
are still to be written: as long as those in the view, or else as they may be. While it does not, *trim*
waits; *compact* and *emergency* never do. When the cache is cold nothing waits.

n, where the policy does not state it, is half the calls in which the conversation grows by D again, at its
pace since the last epoch. A session that goes on like this begins its epochs at the cheapest depth then: with
g tokens of growth a call, depth D costs r * D / 2 a call for what is not cut yet, and (w - r) * tail * g / D
for what is read anew; the sum is least where r * D * (D / 2g) = (w - r) * tail, and so with s.

A summary of what is cut can be asked for in two ways: from the cut part alone, at the price of fresh tokens,
or from the whole of what was sent last, most of it at the price of cached ones.

Law 3: these sums decide whether an epoch begins, never what it says; they are stored in it.
"""

from collections.abc import Iterable, Mapping
from math import ceil, sqrt
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import MILLION, Prices, Prompt
from proxy.core.economics.bill import NANO, money
from proxy.core.planning.draft import Draft, lacks_summary
from proxy.core.planning.plan import Account, Plan, Span, Verdict, first_difference, view_tokens
from proxy.core.planning.situation import Situation, affordable_summary
from proxy.core.planning.strategies import strategy_of
from proxy.core.policy.policy import Policy
from proxy.core.summaries.prompt import longest
from proxy.core.summaries.source import told_tokens

_INSTRUCTION = 130
"""Counted tokens of what a call for a summary says beside its source."""
_RELIABLE = 0.5
"""Of the time after which a prefix is certainly gone: for so long it is certainly there."""


class SummaryCalls(NamedTuple):
    """Calls for summaries. Tokens are the model's."""

    source: int = 0
    """Tokens that are read."""
    text: int = 0
    """Tokens that are written."""
    cached: int = 0
    """Tokens of those that are read which the provider has kept: of a whole view that is read once more."""

    def money(self, prices: Prices) -> int:
        """What they cost, in nano-dollars."""
        return money(Prompt(self.source, self.cached), self.text, prices)

    def dollars(self, prices: Prices) -> float:
        return self.money(prices) / NANO


def summary_calls(
    situation: Situation, spans: Iterable[Span], summarised: Mapping[Span, int], size: int
) -> SummaryCalls:
    """The calls for summaries of these gaps, each of ``size`` counted tokens unless its source is short.

    A gap's source is read afresh or with the view, as costs less. Summaries of ``summarised`` messages, of so
    many counted tokens, stand in it for these.
    """
    source, text, cached, chain = 0, 0, 0, situation.chain
    for start, end in spans:
        inside = [each for each in summarised if start <= each[0] and each[1] <= end]
        tokens = told_tokens(chain, start, end) - sum(told_tokens(chain, *each) for each in inside)
        tokens += sum(summarised[each] for each in inside)
        text += min(size, longest(tokens))
        tokens += _INSTRUCTION
        reading = cheaper_reading(situation, tokens) if not situation.policy.summary.model else None
        source += reading.prompt.tokens if reading else situation.budget.real(tokens)
        cached += reading.prompt.cached if reading else 0
    return SummaryCalls(source, situation.budget.real(text), cached)


def account_of(
    situation: Situation,
    plan: Plan,
    *,
    may_wait: bool,
    view: int | None = None,
    summarised: Mapping[Span, int] | None = None,
) -> Account | None:
    """What beginning an epoch with ``plan`` costs and saves; None where nobody knows a price.

    ``may_wait``: whether it waits while it costs more, if the policy lets money have a say. ``view``: counted
    tokens of its view, where the plan does not hold all of its notes yet. ``summarised``: messages of which
    summaries tell that the plan does not hold, with the counted tokens of each.
    """
    if situation.conditions.prices is None:
        return None
    rules, tokens = situation.policy.economy, situation.chain.tokens
    prices, written = situation.conditions.prices.under(rules), view_tokens(plan, tokens)
    view = written if view is None else view
    freed = situation.view - view
    account = Account(
        verdict=Verdict.DUE,
        idle=situation.conditions.idle,
        ttl=prices.ttl,
        cached=round(prices.read_share, 4),
        written=round(prices.write_share, 4),
        calls=round(_calls_to_come(situation, freed), 2),
        freed=freed,
        tail=_tail(situation, plan, view - written),
        summaries=_lacking_summaries(situation, plan, summarised or {}, prices),
    )
    if not (may_wait and rules.enabled):
        return account
    if is_cold(situation):
        return replace(account, verdict=Verdict.COLD)
    return replace(account, verdict=Verdict.PAYS if account.saving > account.cost else Verdict.WAITS)


def _calls_to_come(situation: Situation, freed: int) -> float:
    expected = situation.policy.economy.expected_turns
    if expected != "auto":
        return float(expected)
    return max(freed, 0) / (2 * situation.pace) if situation.pace else 0.0


def _tail(situation: Situation, plan: Plan, unwritten: int) -> int:
    """What is in the view after the first edit and was sent before, notes included, in counted tokens.

    By ``unwritten`` the notes of the plan will be longer than they are.
    """
    first, tokens = first_difference(situation.plan, plan), situation.chain.tokens
    if first is None:
        return 0
    new = situation.chain.sent_before
    tail = unwritten + tokens.between(first, new)
    for gap in plan.gaps:
        if gap.start >= first:
            tail += gap.tokens - tokens.between(gap.start, min(gap.end, new))
    clipped = (each for each in plan.replacements if first <= each.position < new)
    return max(tail + sum(each.tokens - tokens[each.position] for each in clipped), 0)


def _lacking_summaries(
    situation: Situation, plan: Plan, summarised: Mapping[Span, int], prices: Prices
) -> int:
    """What is to be paid for summaries that the plan still lacks, in fresh tokens."""
    standing, after = {gap.span for gap in situation.plan.gaps}, situation.under(plan)
    strategy = strategy_of(situation.policy.strategy.name)
    new = [gap.span for gap in plan.gaps if gap.span not in standing]
    if not situation.policy.summary.enabled:
        return 0
    lacking = [span for span in new if lacks_summary(after, span, strategy, summarised)]
    if not lacking:
        return 0
    anchors = [each for span in lacking for each in after.anchors_within(*span) if not each.by_code]
    told = {each.span: situation.count(each.text) for each in anchors} | {**summarised}
    seen = [situation.count(each.text) for each in situation.plan.anchors if not each.by_code]
    size = ceil(sum(seen) / len(seen)) if seen else situation.summary_tokens
    dollars = summary_calls(situation, lacking, told, size).dollars(prices)
    return round(dollars * MILLION / prices.fresh)


def pays_from(policy: Policy, budget: int, prices: Prices, pace: int) -> int:
    """Tokens of a session from which on cutting costs less, in all, than sending it whole; about.

    For a session without a head that grows by ``pace`` tokens a request. From one epoch to the next it grows
    by what lies between the line at which they begin and the target; each has all that is left read anew, and
    asks for one summary. What that costs is paid back by requests that would be longer than they are.
    """
    prices, stages = prices.under(policy.economy), policy.stages
    begins = (stages.compact if policy.economy.enabled else stages.trim) * budget
    left = stages.target * budget
    view, growth = (begins + left) / 2, max(begins - left, 1)
    size = affordable_summary(policy, Budget(budget, 1.0, 0), prices, pace) if policy.summary.enabled else 0
    source = growth / 2 + _INSTRUCTION if size else 0  # messages are told in short
    cost = (prices.write_share - prices.read_share) * left
    cost += source * prices.write_share + size * prices.output / prices.fresh
    share = prices.read_share if view >= prices.least else prices.write_share
    even = (share * view + cost * pace / growth) / max(prices.read_share, 0.001)
    # What is lost before that length comes back behind it; and each epoch is paid for before it saves.
    return ceil(max(2 * even - begins, begins) + growth)


def shortfall(decided: Draft) -> int:
    """Counted tokens that the epoch of a draft must free beyond what it does before it pays.

    0 where it need not wait, 1 where nobody can tell. What the conversation grows by, it will free more;
    where the calls to come follow from what is freed, it pays in proportion to the square of that. It may pay
    sooner: the pace of the conversation changes, and with it the calls to come.
    """
    account = account_of(decided.situation, decided.outline, may_wait=decided.may_wait, view=decided.view)
    if account is None or account.verdict is not Verdict.WAITS:
        return 0
    if not (account.calls and account.freed and account.cached):
        return 1
    is_stated = decided.situation.policy.economy.expected_turns != "auto"
    paid = account.cost / account.cached / account.calls
    enough = paid if is_stated else sqrt(paid * account.freed)
    return max(ceil(enough - account.freed), 1)


def late_account(situation: Situation, plan: Plan) -> Account:
    """The account of an epoch that only brings late summaries, whether or not money has a say."""
    account = account_of(situation, plan, may_wait=False)
    return replace(account, verdict=Verdict.LATE) if account is not None else Account(Verdict.LATE)


def prices_in(situation: Situation) -> Prices | None:
    """The prices that count under the policy; None where it does not reckon."""
    rules, prices = situation.policy.economy, situation.conditions.prices
    return prices.under(rules) if prices is not None and rules.enabled else None


def is_cold(situation: Situation) -> bool:
    """Whether a rewrite costs nothing: the provider keeps nothing of what this lane sent last.

    A lane of which nobody knows an answer is warm only if an epoch of it went out before.
    """
    prices, conditions = prices_in(situation), situation.conditions
    if prices is None:
        return False
    if conditions.idle is None:
        return not situation.past.epochs
    if conditions.is_new_head or conditions.idle >= prices.ttl:
        return True
    return not prices.cached_prefix(_sent_last(situation))


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
    if not situation.policy.summary.cached_prefix or conditions.is_new_head:
        return None
    if conditions.prices is None or conditions.idle is None:
        return None
    prices = conditions.prices.under(situation.policy.economy)
    tokens, seconds = _sent_last(situation), _RELIABLE * prices.ttl - conditions.idle
    prompt = Prompt(tokens, prices.cached_prefix(tokens))
    if not prompt.cached or seconds <= 0:
        return None
    is_cheaper = prompt.dollars(prices) <= Prompt(situation.budget.real(afresh), 0).dollars(prices)
    return Reading(prompt, seconds) if is_cheaper else None


def _sent_last(situation: Situation) -> int:
    """The model's tokens of the lane's last request."""
    newest, tokens = situation.chain.sent_before, situation.chain.tokens
    edits = (edit for edit in situation.plan.replacements if edit.position >= newest)
    brought = tokens.between(newest) + sum(edit.tokens - tokens[edit.position] for edit in edits)
    return situation.budget.real(situation.budget.head + situation.view - brought)

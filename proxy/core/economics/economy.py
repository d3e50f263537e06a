"""Whether an epoch pays: what it saves on future calls, against the cost of reading the changed part again.

As docs/policies.md says ("When a cut pays"), it does when

    n * r * D  >  (w - r) * tail + s

where n is the number of future calls, D the tokens freed, tail the tokens after the first edit that the
provider had cached, r and w the prices of a cached token and of one written to the cache relative to a fresh
one, and s the cost of the summaries still to be written.

If the policy does not state n, it is half the number of calls in which the conversation grows by D again. A
session of constant pace then begins its epochs at the cheapest depth: with g tokens of growth a call, depth D
costs r * D / 2 a call for what is not cut yet, and (w - r) * tail * g / D for what is read again; the sum is
least where r * D * (D / 2g) = (w - r) * tail, and likewise with s.

Law 3: these sums decide whether an epoch begins, never what it says; they are stored in the epoch.
"""

from collections.abc import Iterable, Mapping
from math import ceil, sqrt
from typing import NamedTuple

from msgspec.structs import replace

from proxy.core.budget.budget import Budget
from proxy.core.budget.prices import MILLION, Prices, Prompt
from proxy.core.economics.bill import NANO, money
from proxy.core.planning.draft import Draft, lacking_summaries
from proxy.core.planning.life import affordable_summary
from proxy.core.planning.plan import Account, Plan, Span, Verdict, first_difference, view_tokens
from proxy.core.planning.situation import Situation
from proxy.core.policy.policy import Policy
from proxy.core.summaries.prompt import longest
from proxy.core.summaries.source import estimated_tokens, most_read

_INSTRUCTION = 100
"""Counted tokens of a summary call beside its source."""
_RELIABLE = 0.5
"""Share of the cache's time to live during which a prefix is certainly still cached."""


class SummaryCalls(NamedTuple):
    """The sums of calls that write summaries. Tokens are the model's."""

    source: int = 0
    """Input tokens."""
    text: int = 0
    """Output tokens."""
    cached: int = 0
    """Input tokens that the provider has cached, if the whole view is read once more."""
    calls: int = 0

    def money(self, prices: Prices) -> int:
        """The cost of the calls, in nano-dollars."""
        return money(Prompt(self.source, self.cached, requests=self.calls), self.text, prices)

    def dollars(self, prices: Prices) -> float:
        return self.money(prices) / NANO


def summary_calls(
    situation: Situation, spans: Iterable[Span], summarised: Mapping[Span, int], size: int
) -> SummaryCalls:
    """Return the sums of the calls for summaries of these gaps.

    Each summary has ``size`` counted tokens unless its source is short. The source is read afresh or with the
    whole view, whichever is cheaper. ``summarised``: spans of messages whose summaries replace them in the
    source, with the counted tokens of each summary.
    """
    source, text, cached, calls, chain = 0, 0, 0, 0, situation.chain
    for start, end in spans:
        inside = [each for each in summarised if start <= each[0] and each[1] <= end]
        tokens = estimated_tokens(chain, start, end) - sum(estimated_tokens(chain, *each) for each in inside)
        earlier = sum(summarised[each] for each in inside)
        tokens = min(tokens + earlier, most_read(situation.summary_tokens, earlier))
        text += min(size, longest(tokens))
        tokens += _INSTRUCTION
        reading = cheaper_reading(situation, tokens) if not situation.policy.summary.model else None
        source += reading.prompt.tokens if reading else situation.budget.real(tokens)
        cached += reading.prompt.cached if reading else 0
        calls += 1
    return SummaryCalls(source, situation.budget.real(text), cached, calls)


def account_of(
    situation: Situation,
    plan: Plan,
    *,
    must_pay: bool,
    view: int | None = None,
    summarised: Mapping[Span, int] | None = None,
) -> Account | None:
    """Return what an epoch with ``plan`` costs and saves; None if prices are not known.

    ``must_pay``: whether the epoch is postponed while it costs more than it saves, if the policy considers
    cost. ``view``: counted tokens of its view, if the plan does not have all of its notes yet.
    ``summarised``: spans covered by summaries that are not in the plan, with the counted tokens of each.
    """
    conditions = situation.conditions
    paid = conditions.prices
    if paid is None:
        return None
    prices = paid.at(situation.budget.with_head(situation.view_tokens))
    written = view_tokens(plan, situation.chain.tokens)
    view = written if view is None else view
    freed, rules = situation.view_tokens - view, situation.policy.economy
    calls = max(freed, 0) / (2 * situation.pace) if situation.pace else 0.0
    if rules.expected_turns != "auto":
        calls = float(rules.expected_turns)
    account = Account(
        verdict=Verdict.DUE,
        idle=conditions.idle if conditions.head_idle is None else conditions.head_idle,
        ttl=prices.ttl,
        cached=round(prices.read_share, 4),
        written=round(prices.write_share, 4),
        calls=round(calls, 2),
        freed=freed,
        tail=_tail(situation, plan, view - written),
        summaries=round(_lacking_summaries(situation, plan, summarised or {}, paid) * MILLION / prices.fresh),
    )
    if not (must_pay and rules.enabled):
        return account
    if is_cold(situation):
        return replace(account, verdict=Verdict.COLD)
    return replace(account, verdict=Verdict.PAYS if account.saving > account.cost else Verdict.WAITS)


def _tail(situation: Situation, plan: Plan, unwritten: int) -> int:
    """Counted tokens of the view after the first edit, of messages sent before and of notes.

    ``unwritten``: counted tokens by which the plan's notes will still grow.
    """
    first, tokens = first_difference(situation.plan, plan), situation.chain.tokens
    if first is None:
        return 0
    new = situation.conditions.sent_before(situation.chain, situation.plan)
    tail = unwritten + tokens.between(first, new)
    for gap in plan.gaps:
        if gap.start >= first:
            tail += gap.tokens - tokens.between(gap.start, min(gap.end, new))
    clipped = (each for each in plan.replacements if first <= each.position < new)
    return max(tail + sum(each.tokens - tokens[each.position] for each in clipped), 0)


def _lacking_summaries(
    situation: Situation, plan: Plan, summarised: Mapping[Span, int], prices: Prices
) -> float:
    """The cost of the summaries that the plan still lacks, in dollars."""
    standing, after = situation.plan.spans, situation.under(plan)
    lacking = [span for span in lacking_summaries(after, summarised) if span not in standing]
    if not lacking:
        return 0.0
    anchors = [each for span in lacking for each in after.anchors_within(*span) if not each.by_code]
    told = {each.span: situation.count(each.text) for each in anchors} | {**summarised}
    seen = [situation.count(each.text) for each in situation.plan.anchors if not each.by_code]
    size = ceil(sum(seen) / len(seen)) if seen else situation.summary_tokens
    return summary_calls(situation, lacking, told, size).dollars(prices)


def pays_from(policy: Policy, budget: int, prices: Prices, pace: int) -> int:
    """Approximate tokens of a session above which cutting costs less in total than sending it whole.

    For a session without a head that grows by ``pace`` tokens a request. Between two epochs it grows by the
    distance from the target to the line at which epochs begin, or by one request where that is more. Each
    epoch makes the provider read the rest again and requests one summary. The shorter requests that follow
    earn this cost back.
    """
    prices, stages = prices.under(policy.economy), policy.stages
    begins = (stages.compact if policy.economy.enabled else stages.trim) * budget
    left = stages.target * budget
    view, growth = (begins + left) / 2, max(begins - left, pace)
    size = affordable_summary(policy, Budget(budget, 1.0, 0), prices, pace) if policy.summary.enabled else 0
    source = min(growth / 2, most_read(size)) + _INSTRUCTION if size else 0  # sources are abridged
    cost = (prices.write_share - prices.read_share) * left
    cost += source * prices.write_share + size * prices.output / prices.fresh
    share = prices.read_share if view >= prices.least else prices.write_share
    even = (share * view + cost * pace / growth) / max(prices.read_share, 0.001)
    # What was lost before that length is regained after it; and each epoch costs before it saves.
    return ceil(max(2 * even - begins, begins) + growth)


def shortfall(draft: Draft) -> int:
    """Counted tokens that a draft's epoch must free, beyond those it frees now, until it pays.

    0 if it need not wait, 1 if the number cannot be computed. The epoch will free more as the conversation
    grows. If the number of future calls is derived from the tokens freed, the saving is proportional to the
    square of these. It may pay sooner, because the conversation's pace, and with it that number, changes.
    """
    account = account_of(draft.situation, draft.outline, must_pay=draft.must_pay, view=draft.view_tokens)
    if account is None or account.verdict is not Verdict.WAITS:
        return 0
    if not (account.calls and account.freed and account.cached):
        return 1
    is_stated = draft.situation.policy.economy.expected_turns != "auto"
    paid = account.cost / account.cached / account.calls
    enough = paid if is_stated else sqrt(paid * account.freed)
    return max(ceil(enough - account.freed), 1)


def late_account(situation: Situation, plan: Plan) -> Account:
    """Return the account of an epoch that only adds late summaries, whether or not cost is considered."""
    account = account_of(situation, plan, must_pay=False)
    return replace(account, verdict=Verdict.LATE) if account is not None else Account(Verdict.LATE)


def prices_in(situation: Situation) -> Prices | None:
    """Return the prices; None if they are unknown, or the policy ignores cost."""
    return situation.conditions.prices if situation.policy.economy.enabled else None


def is_cold(situation: Situation) -> bool:
    """Whether a rewrite costs nothing because the provider caches nothing of the last request with this head.

    If no answer of the lane is known, the cache counts as warm only if the lane has had an epoch.
    """
    prices, conditions = prices_in(situation), situation.conditions
    if prices is None:
        return False
    if conditions.idle is None:
        return not situation.past.epochs
    if conditions.head_idle is None or conditions.head_idle >= prices.ttl:
        return True
    return not prices.cached_prefix(_sent_last(situation))


class Reading(NamedTuple):
    """The lane's last request with the same head, as a prompt to be read once more."""

    prompt: Prompt
    seconds: float
    """Seconds for which the provider certainly still has the cached part."""


def cheaper_reading(situation: Situation, afresh: int) -> Reading | None:
    """Return the last request with this head, if reading it costs no more than ``afresh`` tokens uncached.

    Otherwise return None. ``afresh`` are counted tokens. Unknown prices are those of a server that caches
    prefixes at hardly any cost. This applies even if the policy ignores cost in deciding when epochs begin.
    """
    conditions, prices = situation.conditions, situation.conditions.prices
    if not situation.policy.summary.cached_prefix or prices is None or conditions.head_idle is None:
        return None
    tokens, seconds = _sent_last(situation), _RELIABLE * prices.ttl - conditions.head_idle
    prompt = Prompt(tokens, prices.cached_prefix(tokens))
    if not prompt.cached or seconds <= 0:
        return None
    is_cheaper = prompt.dollars(prices) <= Prompt(situation.budget.real(afresh), 0).dollars(prices)
    return Reading(prompt, seconds) if is_cheaper else None


def _sent_last(situation: Situation) -> int:
    """Tokens of the lane's last request with this head, as the model counts them."""
    plan, tokens = situation.plan, situation.chain.tokens
    newest = situation.conditions.sent_before(situation.chain, plan)
    edits = (edit for edit in plan.replacements if edit.position >= newest)
    brought = tokens.between(newest) + sum(edit.tokens - tokens[edit.position] for edit in edits)
    gaps = (gap for gap in plan.gaps if gap.start >= newest)
    brought += sum(gap.tokens - tokens.between(gap.start, gap.end) for gap in gaps)
    return situation.budget.with_head(situation.view_tokens - brought)
